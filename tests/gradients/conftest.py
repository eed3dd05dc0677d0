"""What several files of tests ask for by name."""

from collections.abc import Callable

import pytest
import torch
from compiled_checks import BOUND, graph_itself, squares
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.gradients import ClippedGrad, clipped_grad, compiled_engine, compiling


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Five examples of four numbers, with labels of three classes."""
    torch.manual_seed(1)
    return torch.randn(5, 4), torch.randint(0, 3, (5,))


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClippedGrad]:
    """Makes `clipped_grad`s whose programs are traced and not compiled."""
    monkeypatch.setattr(compiling, "compile_graph", graph_itself)
    monkeypatch.setattr(compiled_engine, "can_compile", lambda device: True)

    def make(model: nn.Module, loss_fn=squares, clipping=None, *, wait: bool = True) -> ClippedGrad:
        grad = clipped_grad(model, loss_fn, clipping=clipping or Flat(BOUND), engine="bookkeeping")
        grad.start_compiling(wait=wait)
        return grad

    return make
