"""Training goes on while something is compiled, and nothing is traced twice at once."""

import threading
import time

import pytest
import torch
from compiled_checks import BOUND, a_network, check_equal, cross_entropy, eager_twin, images
from torch import nn
from torch._inductor.loop_body import InterpreterShim

from tacit.clipping import Flat
from tacit.gradients import ClippedGrad, clipped_grad, compiling
from tacit.gradients.compiling import can_compile

pytestmark = [
    pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="no compiler for C++"),
]


@pytest.fixture
def slow_compiler(monkeypatch):
    """A compiler that takes until it is told, and gives what it was given."""
    go_on = threading.Event()

    def compile_graph(trace, inputs, *, apart):
        go_on.wait(60)
        return lambda arguments: list(trace.graph(*arguments))

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    yield go_on
    go_on.set()
    compiling.wait_for_compiler()


def a_grad() -> ClippedGrad:
    grad = clipped_grad(a_network(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=False)
    return grad


def test_another_shape_waits_for_the_first_and_runs_eagerly(slow_compiler):
    grad, (x, y) = a_grad(), images()
    grad(x, y)
    assert compiling.compiling()
    check_equal(grad(x[:3], y[:3]), eager_twin(grad)(x[:3], y[:3]))
    assert len(grad._engine._programs) == 1
    slow_compiler.set()
    compiling.wait_for_compiler()
    grad(x[:3], y[:3])
    assert len(grad._engine._programs) == 2


def test_the_one_trace_that_refuses_other_calls_is_made_before(slow_compiler, monkeypatch):
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)
    compiling._prepare_inductor.cache_clear()
    InterpreterShim._dummy_gm.cache_clear()
    grad = a_grad()
    grad(*images())
    assert compiling.compiling()
    assert InterpreterShim._dummy_gm.cache_info().currsize == 1


def test_modules_are_called_as_ever_when_all_is_done(monkeypatch):
    """Torch's compiler replaces how they are called, where it is in the same process."""
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)
    call = nn.Module.__call__
    grad = clipped_grad(nn.Linear(2, 1), lambda m, x: m(x).square().sum(1), clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=False)
    other = nn.Linear(2, 2)
    grad(torch.randn(5, 2))
    (compilation,) = (program.compilation for program in grad._engine._programs.values())
    while compiling.compiling() or not (compilation.ready or compilation.failure):  # its thread may not have begun
        other(torch.randn(1, 2))
        time.sleep(1e-3)  # for the compiler
    assert nn.Module.__call__ is call
    assert "could not" not in grad.compilation
