"""Small steps run on one thread, and leave the number of threads as it was."""

import pytest
import torch
from torch import nn

from tacit.training.threads import threads_for


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("model", "lot", "threads"),
    [(nn.Linear(60, 100), 600, 1), (nn.Linear(4000, 10), 8192, 2), (nn.Conv2d(1, 2, 3), 10, 2)],
)
def test_only_small_dense_steps_take_one_thread(model, lot, threads):
    with threads_for(model, lot):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error():
    with pytest.raises(RuntimeError), threads_for(nn.Linear(2, 2), 1):
        raise RuntimeError
    assert torch.get_num_threads() == 2
