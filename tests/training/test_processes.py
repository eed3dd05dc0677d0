"""Work in other processes: whatever ends one of them ends them all."""

import pytest
import torch
from other_process import end, threads

from tacit.core.errors import InputError
from tacit.training.processes import in_processes


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("killed", InputError, r"^jobs=2: .* ended from outside, .* Take fewer jobs\.$"),
        ("fails", InputError, r"^steps=0: must be at least 1\.$"),
        ("fails oddly", RuntimeError, "^TwoPartsError: one and two$"),
    ],
)
def test_one_that_ends_early_ends_the_others(tmp_path, how, kind, message):
    slept, told = tmp_path / "slept", []
    with pytest.raises(kind, match=message):  # of the pool's last process, which it must watch as well
        in_processes(end, [("sleeps", slept), (how, slept)], 2, told.append)
    assert not slept.exists()
    assert told == []


def test_threads_are_shared_out():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert in_processes(threads, [0, 1], 2, lambda _: None) == [2, 2]
    finally:
        torch.set_num_threads(before)
