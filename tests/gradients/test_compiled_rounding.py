"""Compiled steps of half precision keep the bound to the last bit that is accounted for, as eager ones do."""

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from tacit.clipping import Flat
from tacit.gradients import clipped_grad, compiling
from tacit.gradients.compiling import can_compile
from tacit.gradients.tracing import Trace

BOUND, EXAMPLES = 0.05, 512
pytestmark = pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="no compiler for C++")


class Narrow(nn.Module):
    """Two layers of one weight, so that what is rounded in one number is not evened out by others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1, bias=False)
        for parameter, value in zip(self.parameters(), (1.0, 0.0, 1.0), strict=True):
            nn.init.constant_(parameter, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.gelu(self.first(x)))


def steep(model: nn.Module, x: Tensor) -> Tensor:
    outputs = model(x).float().flatten()
    return 10 * (outputs.square() + (3 * outputs).sin())


@pytest.fixture
def largest(monkeypatch) -> float:
    """The longest sum that any example alone adds, in bounds."""
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)  # which takes longer
    grad = clipped_grad(Narrow(), steep, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=True)
    x = 0.5 + 8 * torch.rand(EXAMPLES, 1, generator=torch.Generator().manual_seed(0))
    lengths = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grad(x)
        for place in range(EXAMPLES):
            sums = grad(x, mask=torch.arange(EXAMPLES) == place).grads
            lengths.append(float(torch.cat([value.flatten().double() for value in sums.values()]).norm()))
    assert grad.compilation == "compiled"
    return max(lengths) / BOUND


def test_no_example_adds_more_than_its_bound(largest):
    assert 0.99 < largest <= 1.0


@pytest.fixture
def unrounded(monkeypatch):
    """What torch's compiler does unless it is told."""
    monkeypatch.setattr(compiling, "_needed_options", lambda trace: {})


def test_fused_code_that_does_not_round_would_add_more(unrounded, largest):
    assert largest > 1.0


@pytest.mark.parametrize(
    ("version", "half", "options"),
    [
        ("2.13.0", True, {"emulate_precision_casts": True}),
        ("2.9.1", True, {"emulate_precision_casts": True, "pattern_matcher": False}),
        ("2.11.0+cu130", True, {"emulate_precision_casts": True, "pattern_matcher": False}),
        ("2.9.1", False, {}),
    ],
)
def test_what_the_bound_rests_on_is_never_left_out(monkeypatch, version, half, options):
    """Also where the compiler failed with all that makes a program faster."""
    tried = []

    def compile_within(job):
        tried.append(job)
        if len(tried) == 1:
            raise RuntimeError("failed")
        return

    monkeypatch.setattr(compiling, "_compile_within", compile_within)
    monkeypatch.setattr(Trace, "half_precision", half)
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    graph = torch.fx.symbolic_trace(nn.Identity())
    compiling.compile_graph(Trace(graph, (), ()), [torch.ones(1)], apart=False)
    assert tried[0].options.items() >= options.items()
    assert tried[1].options == options
