"""Lots come in order and each once, however they are drawn."""

import threading

import numpy as np
import pytest

from tacit.training import lots
from tacit.training.lots import drawn


@pytest.mark.parametrize("seconds", [np.inf, 0.0], ids=["at once", "beside the training"])
@pytest.mark.parametrize(("first", "last"), [(0, 50), (3, 3), (3, 4), (5, 9), (7, 24), (0, 20)])
def test_every_step_gets_its_own_lot(monkeypatch, seconds, first, last):
    monkeypatch.setattr(lots, "_LONG", seconds)
    found = [lot.tolist() for lot in drawn(lambda step: np.array([step]), first, last)]
    assert found == [[step] for step in range(first, last)]


def test_long_draws_are_made_beside_the_training(monkeypatch):
    threads = set()

    def draw(step):
        threads.add(threading.current_thread().name)
        return np.array([step])

    monkeypatch.setattr(lots, "_LONG", 0.0)
    list(drawn(draw, 0, 30))
    assert any(name.startswith("tacit-sampler") for name in threads)
    threads.clear()
    monkeypatch.setattr(lots, "_LONG", np.inf)
    list(drawn(draw, 0, 30))
    assert threads == {threading.current_thread().name}
