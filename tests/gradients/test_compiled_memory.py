"""Where memory is short, eager steps run in pieces and a program goes without its CUDA graph; the results stay."""

import weakref
from unittest import mock

import numpy as np
import pytest
import torch
from compiled_checks import a_network, check_equal, cross_entropy, eager_twin, images, said_on_device

from tacit.gradients import ClippedSum, capturing, compiled_engine, compiling
from tacit.gradients.batches import Rows
from tacit.gradients.engines import BookkeepingEngine

MOST = 2  # examples that an eager step holds


@pytest.fixture
def scarce(monkeypatch) -> list[int]:
    """An eager step runs out of memory on more than a few examples; the sizes that were tried."""
    tried: list[int] = []
    real = BookkeepingEngine.__call__

    def call(self, batch, mask):
        tried.append(len(mask))
        if len(mask) > MOST:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, mask)

    monkeypatch.setattr(BookkeepingEngine, "__call__", call)
    return tried


def test_a_program_is_compared_with_eager_steps_in_pieces(traced, scarce):
    expected = eager_twin(traced(a_network(), cross_entropy))
    grad, batch = traced(a_network(), cross_entropy), images()
    for _ in range(3):
        found = grad(*batch)
    assert grad.compilation == "compiled"
    assert scarce == [3, 2, 2, 2, 2, 2, 2]  # halves do not fit; before the program, and beside its first result
    check_equal(found, sum_of_pieces(expected, batch))


def test_a_wrong_program_is_found_out_by_pieces(traced, scarce, monkeypatch):
    def twice(trace, inputs, *, apart):
        return lambda arguments: [2 * value for value in trace.graph(*arguments)]

    monkeypatch.setattr(compiling, "compile_graph", twice)
    expected, grad, batch = eager_twin(traced(a_network(), cross_entropy)), traced(a_network(), cross_entropy), images()
    check_equal(grad(*batch), sum_of_pieces(expected, batch))
    assert "its result is not that of the eager step" in grad.compilation


def test_who_forgets_programs_tries_halves_again(traced, scarce):
    grad, batch = traced(a_network(), cross_entropy), images()
    grad(*batch)
    grad.forget_programs()
    scarce.clear()
    grad(*batch)
    assert scarce[0] == 3


def test_a_program_that_is_too_large_for_a_graph_runs_without(traced, monkeypatch):
    captures = []

    def too_large(*_):
        captures.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(compiled_engine, "Replay", too_large)
    grad, batch = traced(a_network(), cross_entropy), images()
    expected = grad(*batch)
    engine = grad._engine
    (program,) = engine._programs.values()
    mask = said_on_device(torch.ones(6, dtype=torch.bool))
    for _ in range(2):
        sums, _ = engine._replayed(program, batch, mask)
        for name, value in expected.grads.items():
            torch.testing.assert_close(torch.Tensor(sums[name]), value)
    assert len(captures) == 1
    assert engine.captured(batch, mask, lambda sums, letter: sums) is None
    assert len(captures) == 1


def sum_of_pieces(grad, batch):
    """What a step that holds few examples finds for all of them."""
    parts = [grad(*(values[place : place + MOST] for values in batch)) for place in range(0, len(batch[0]), MOST)]
    sums = {name: sum(part.grads[name] for part in parts) for name in parts[0].grads}
    return ClippedSum(sums, torch.cat([part.unsafe_norms for part in parts]))


@pytest.mark.parametrize(
    ("size", "lot", "pieces"),
    [(48, 6, [3, 3]), (32, 6, [2, 2, 2]), (1, 6, [1] * 6), (10**6, 6, [3, 3]), (1, 20, [3] * 6 + [2])],
)
def test_wide_rows_are_gathered_in_smaller_pieces(traced, monkeypatch, size, lot, pieces):
    """A row is 16 bytes: half of them at once, or what so many bytes hold, but never less than an eighth."""
    monkeypatch.setattr(compiled_engine, "_GATHERED", size)
    tried: list[int] = []
    real = Rows.gather
    monkeypatch.setattr(Rows, "gather", lambda rows: tried.append(len(rows.index)) or real(rows))
    grad = traced(torch.nn.Linear(4, 2))
    grad.accumulate([(Rows((torch.randn(20, 4),), np.arange(lot)), None)])
    assert tried[: len(pieces)] == pieces


class Memory:
    """What a capture takes while it runs."""


NEEDED = 6400


@pytest.mark.parametrize(
    ("held", "fits", "spares"),
    [
        ([NEEDED], 1.0, [0]),  # nothing is wasted
        ([NEEDED + 90], 1.0, [0]),  # less than the least spare
        ([NEEDED + 2000, NEEDED + 100], 1.0, [0, 1 / 64]),
        ([NEEDED + 150, NEEDED + 2000], 1.0, [0, 1 / 64, 0]),  # more blocks than before, and no better spare is left
        ([9000] * 6, 1.0, [0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 0]),
        ([9000] * 5 + [8000], 1.0, [0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4]),
        ([9000, 8000, 8500], 1 / 32, [0, 1 / 64, 1 / 32, 1 / 16, 1 / 64]),
        ([9000], 0.0, [0, 1 / 64, 0]),
    ],
)
def test_a_capture_holds_as_little_as_the_leanest_that_was_tried(monkeypatch, held, fits, spares):
    """And where more spare is too much, the one that failed leaves no memory behind for the last one."""
    tried, left = [], iter(held)
    taken: list[weakref.ref] = []

    def capture(spare):
        assert not any(memory() for memory in taken)
        memory = Memory()
        taken.append(weakref.ref(memory))
        tried.append(spare)
        if spare > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return mock.Mock()

    monkeypatch.setattr(capturing, "_held_bytes", lambda graph: next(left))
    capturing.captured_leanly(capture, NEEDED)
    assert tried == spares
