"""Where nothing can be compiled, or nobody asked for it, the step stays eager and says why."""

import numpy as np
import pytest
import torch
from compiled_checks import BOUND, check_equal, eager_twin, squares, wait_for_programs
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import clipped_grad, compiled_engine, compiling
from tacit.gradients.batches import Rows
from tacit.gradients.compiled_engine import CompiledEngine
from tacit.gradients.compiling import can_compile


class Branching(nn.Module):
    """Decides by a value, and never otherwise than here."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return out if float(out.detach().abs().max()) < 1e9 else torch.tanh(out)


def test_a_model_that_branches_on_values_stays_eager_and_says_why(traced):
    grad, x = traced(Branching()), torch.randn(5, 4)
    for _ in range(3):
        check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.startswith("eager, because it could not be compiled: model: cannot be compiled (")
    assert "set compile=False" in grad.compilation
    assert not grad.compiles


def test_without_a_compiler_steps_stay_eager(traced, monkeypatch):
    monkeypatch.setattr(compiled_engine, "can_compile", lambda device: False)
    grad, x = traced(nn.Linear(4, 3)), torch.randn(5, 4)
    check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.endswith("no compiler for cpu: install Triton for GPUs, g++ for the CPU")


def test_can_compile_looks_for_a_compiler(monkeypatch):
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    assert not can_compile(torch.device("cpu"))
    monkeypatch.setattr(compiling.shutil, "which", lambda name: f"/bin/{name}" if name == "clang++" else None)
    assert can_compile(torch.device("cpu"))
    assert not can_compile(torch.device("meta"))


@pytest.mark.parametrize("wait", [True, False])
def test_a_compilation_that_fails_leaves_the_eager_step(traced, monkeypatch, wait):
    def fails(trace, inputs, *, apart):
        raise RuntimeError("the compiler broke\nwith many lines")

    monkeypatch.setattr(compiling, "compile_graph", fails)
    grad, x = traced(nn.Linear(4, 3), wait=wait), torch.randn(5, 4)
    for _ in range(3):
        check_equal(grad(x), eager_twin(grad)(x))
        wait_for_programs(grad)
    assert grad.compilation == "eager, because it could not be compiled: the compiler broke"
    assert grad.compile_seconds == 0  # whoever takes time for a program would wait for this one in the next run


@pytest.mark.parametrize("engine", ["functional", "reference"])
def test_other_engines_are_not_compiled(engine):
    grad = clipped_grad(nn.Linear(4, 3), squares, clipping=Flat(BOUND), engine=engine)
    grad.start_compiling(wait=True)
    grad.forget_programs()
    with grad.eagerly():
        grad(torch.randn(2, 4))
    assert grad.compilation == "eager"
    assert not grad.compiles


def test_nothing_is_compiled_unless_asked(monkeypatch):
    monkeypatch.setattr(compiling, "compile_graph", lambda trace, inputs, apart: pytest.fail("compiled"))
    grad = clipped_grad(nn.Linear(4, 3), squares, clipping=Flat(BOUND))
    for _ in range(3):
        grad(torch.randn(5, 4))
    assert grad.compilation == "eager, since nothing was compiled yet"
    assert isinstance(grad._engine, CompiledEngine)


def test_a_model_that_mixes_examples_is_refused_as_before(traced):
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x)
            return out - out.mean(0)

    with pytest.raises(UnsupportedError):
        traced(Mixing())(torch.randn(5, 4))


class Centred(nn.Module):
    """Mixes examples, which shows in examples that differ alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.detach().mean(0))


def in_one_piece(x: Tensor) -> tuple[Tensor]:
    return (x,)


def as_rows(x: Tensor) -> Rows:
    return Rows((x,), np.arange(len(x)))


@pytest.mark.parametrize("given", [in_one_piece, as_rows])
def test_nothing_is_compiled_before_a_batch_that_shows_mixing(traced, given):
    """A padded lot of one is a batch of equal rows."""
    grad = traced(Centred())
    for _ in range(2):
        grad.accumulate([(given(torch.randn(1, 4).repeat(8, 1)), None)])
    assert not grad._engine._programs
    with pytest.raises(UnsupportedError, match="depends on the others"):
        grad.accumulate([(given(torch.randn(8, 4)), None)])


@pytest.mark.parametrize("given", [in_one_piece, as_rows])
def test_a_model_that_does_not_mix_is_compiled_with_the_first_batch_that_shows_it(traced, given):
    grad = traced(nn.Linear(4, 3))
    for batch in (torch.randn(1, 4).repeat(8, 1), torch.randn(8, 4)):
        assert not grad._engine._programs
        grad.accumulate([(given(batch), None)])
    assert grad.compilation == "compiled"


def test_examples_that_come_one_by_one_are_compiled(traced):
    grad = traced(nn.Linear(4, 3))
    x = torch.randn(1, 4)
    for _ in range(2):
        check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation == "compiled"
