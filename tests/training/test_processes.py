"""Work in other processes: whatever ends one of them ends them all."""

import time

import pytest
from other_process import end

from tacit.core.errors import InputError
from tacit.training.processes import in_processes


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("killed", r"^jobs=2: .* ended from outside, .* Take fewer jobs\.$"),
        ("fails", r"^steps=0: must be at least 1\.$"),
    ],
)
def test_one_that_ends_early_ends_the_others(how, message):
    started, told = time.monotonic(), []
    with pytest.raises(InputError, match=message):
        in_processes(end, ["sleeps", how], 2, told.append)  # the pool's last process, which it must watch as well
    assert time.monotonic() - started < 50
    assert told == []
