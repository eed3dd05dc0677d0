"""Jobs in threads of their own: all of them are done, and a failure ends them all."""

import threading
import time

import pytest
import torch
from torch import nn

from tacit.training.side_by_side import parts_of, side_by_side


def test_every_job_is_done_with_torch_on_one_thread():
    threads, shares = [], []

    def job(tell) -> None:
        for step in range(4):
            tell((step + 1) / 4)
        threads.append((threading.get_ident(), torch.get_num_threads()))

    before = torch.get_num_threads()
    side_by_side([job] * 3, shares.append)
    assert [count for _, count in threads] == [1, 1, 1]
    assert threading.get_ident() not in dict(threads)
    assert torch.get_num_threads() == before
    assert len(shares) == 12
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_single_job_needs_no_thread():
    seen = []
    side_by_side([lambda tell: (tell(1.0), seen.append(threading.get_ident()))], lambda _: None)
    assert seen == [threading.get_ident()]


def test_a_failure_ends_the_other_jobs():
    ended = []

    def endless(tell) -> None:
        try:
            while True:
                tell(0.5)
                time.sleep(1e-3)
        finally:
            ended.append(True)

    def failing(_tell) -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        side_by_side([endless, failing, endless], lambda _: None)
    assert ended == [True, True]


def test_parts_hold_every_copy_once():
    wide, small = nn.Linear(1000, 1000), nn.Linear(2, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for copies in (2, 3, 17):
            parts = parts_of(wide, 1000, copies, torch.device("cpu"))
            assert len(parts) == min(3, copies)
            assert [number for part in parts for number in range(copies)[part]] == list(range(copies))
        assert parts_of(small, 10, 17, torch.device("cpu")) == [slice(0, 17)]
        assert parts_of(wide, 1000, 17, torch.device("cuda")) == [slice(0, 17)]
    finally:
        torch.set_num_threads(before)
