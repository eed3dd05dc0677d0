"""Lots come in order and each once, however they are drawn."""

import itertools
import threading
import time

import numpy as np
import pytest

from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness
from tacit.sampling import FixedSize, Poisson, Shuffled
from tacit.sampling.compiled_subset import compiled_subsets
from tacit.training import lots
from tacit.training.lots import drawn

RNG = Randomness(unsafe_seed=5)
HERE = threading.current_thread().name


class Own(FixedSize):
    """A sampler whose draws are seen."""

    def indices(self, step, examples, randomness):
        THREADS.append(threading.current_thread().name)
        return np.array([step])


THREADS = []


@pytest.fixture(autouse=True)
def no_threads():
    THREADS.clear()


def refuse():
    raise UnsupportedError("no compiler")


def paced(found):
    """The lots, one at a time, with as much time between them as the thread beside needs to get ready."""
    for lot in found:
        time.sleep(0.002)
        yield lot


@pytest.fixture(scope="module")
def subsets():
    return compiled_subsets()


STEPS = [(0, 70), (3, 3), (3, 4), (5, 9), (7, 24), (0, 20)]


@pytest.mark.parametrize(("first", "last"), STEPS)
@pytest.mark.parametrize("sampler", [FixedSize(90, 40), Poisson(0.1), Shuffled(90, 40)], ids=lambda s: s.name)
def test_every_step_gets_its_own_lot_from_compiled_code(monkeypatch, subsets, sampler, first, last):
    monkeypatch.setattr(lots, "compiled_subsets", lambda: subsets)
    found = [lot.tolist() for lot in paced(drawn(sampler, 90, RNG, first, last))]
    assert found == [sampler.indices(step, 90, RNG).tolist() for step in range(first, last)]


@pytest.mark.parametrize("seconds", [np.inf, 0.0], ids=["at once", "beside the training"])
@pytest.mark.parametrize(("first", "last"), STEPS)
def test_every_step_gets_its_own_lot_without_compiled_code(monkeypatch, seconds, first, last):
    monkeypatch.setattr(lots, "_LONG", seconds)
    monkeypatch.setattr(lots, "compiled_subsets", refuse)
    found = [lot.tolist() for lot in drawn(Own(9, 1), 9, RNG, first, last)]
    assert found == [[step] for step in range(first, last)]
    plain = [lot.tolist() for lot in drawn(FixedSize(90, 40), 90, RNG, first, last)]
    assert plain == [FixedSize(90, 40).indices(step, 90, RNG).tolist() for step in range(first, last)]


def test_compiled_lots_are_begun_a_block_ahead(monkeypatch, subsets):
    begun, taken = [], []

    def seen(examples, sizes, keys):
        begun.append((len(taken), len(sizes)))
        return subsets(examples, sizes, keys)

    monkeypatch.setattr(lots, "compiled_subsets", lambda: seen)
    for lot in paced(drawn(FixedSize(90, 40), 90, RNG, 0, 60)):
        taken.append(lot)
    assert len(taken) == 60
    sizes = [size for _, size in begun]
    assert max(sizes) == lots._BLOCK
    firsts = [60 - sum(sizes[number:]) for number in range(len(sizes))]  # the last block ends with the last step
    assert firsts[0] <= lots._TRIED + lots._BLOCK
    assert [before for before, _ in begun[1:]] == firsts[:-1]  # begun when the first lot of the one before is asked for


def test_long_draws_are_made_beside_the_training(monkeypatch):
    monkeypatch.setattr(lots, "_LONG", 0.0)
    list(paced(drawn(Own(9, 1), 9, RNG, 0, 40)))
    assert any(name.startswith("tacit-sampler") for name in THREADS)
    THREADS.clear()
    monkeypatch.setattr(lots, "_LONG", np.inf)
    list(paced(drawn(Own(9, 1), 9, RNG, 0, 40)))
    assert set(THREADS) == {HERE}


def test_a_sampler_that_draws_in_its_own_way_is_not_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(lots, "compiled_subsets", lambda: compiled.append(True))
    for sampler in (Own(9, 1), Shuffled(9, 1)):
        list(paced(drawn(sampler, 9, RNG, 0, 5)))
    assert not compiled


def test_steps_do_not_wait_for_the_compiler_and_neither_does_the_end(monkeypatch):
    going_on = threading.Event()
    monkeypatch.setattr(lots, "compiled_subsets", lambda: going_on.wait(30) and refuse())
    try:
        assert len(list(drawn(FixedSize(90, 40), 90, RNG, 0, 50))) == 50
        half = drawn(FixedSize(90, 40), 90, RNG, 0, 50)
        assert len(list(itertools.islice(half, 20))) == 20
        half.close()
        assert not going_on.is_set()
    finally:
        going_on.set()


def test_errors_of_a_draw_reach_the_training(monkeypatch, subsets):
    def fail(examples, sizes, keys):
        raise ValueError("planted")

    monkeypatch.setattr(lots, "compiled_subsets", lambda: fail)
    with pytest.raises(ValueError, match="planted"):
        list(paced(drawn(FixedSize(90, 40), 90, RNG, 0, 50)))
