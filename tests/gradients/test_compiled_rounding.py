"""Compiled steps of half precision keep the bound to the last bit that is accounted for, as eager ones do."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config
from torch.fx.experimental.proxy_tensor import make_fx
from torch.torch_version import TorchVersion

from tacit.clipping import Flat
from tacit.gradients import clipped_grad, compiling
from tacit.gradients.compiling import can_compile
from tacit.gradients.open_sums import Results
from tacit.gradients.tracing import Trace

BOUND, EXAMPLES = 0.05, 512
DEVICES = [name for name in ("cpu", "cuda") if can_compile(torch.device(name))]


class Narrow(nn.Module):
    """Two layers of one weight, so that what is rounded in one number is not evened out by others.

    The first one's bias is added as ``F.linear`` does it, whose gradient stays in half precision, or as ``addmm`` does.
    """

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layer = layer
        self.weight, self.bias = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.zeros(1))
        self.second = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        linear = self.layer == "linear"
        first = F.linear(x, self.weight, self.bias) if linear else torch.addmm(self.bias, x, self.weight)
        return self.second(F.gelu(first))


def steep(model: nn.Module, x: Tensor) -> Tensor:
    outputs = model(x).float().flatten()
    return 10 * (outputs.square() + (3 * outputs).sin())


@pytest.fixture(params=[(device, layer) for device in DEVICES for layer in ("addmm", "linear")])
def largest(monkeypatch, request) -> float:
    """The longest sum that any example alone adds, in bounds."""
    device, layer = torch.device(request.param[0]), request.param[1]
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)  # which takes longer
    grad = clipped_grad(Narrow(layer).to(device), steep, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=True)
    x = 0.5 + 8 * torch.rand(EXAMPLES, 1, generator=torch.Generator().manual_seed(0)).to(device)
    lengths = []
    with torch.autocast(device.type, dtype=torch.bfloat16):
        grad(x)
        for place in range(EXAMPLES):
            sums = grad(x, mask=torch.arange(EXAMPLES, device=device) == place).grads
            lengths.append(float(torch.cat([value.flatten().double() for value in sums.values()]).norm()))
    assert grad.compilation.startswith("compiled")
    return max(lengths) / BOUND


def test_no_example_adds_more_than_its_bound(largest):
    assert 0.99 < largest <= 1.0


@pytest.fixture
def unrounded(monkeypatch):
    """What torch's compiler does unless it is told."""
    monkeypatch.setattr(compiling, "_needed_options", lambda trace: {})


@pytest.mark.parametrize("largest", [(device, "addmm") for device in DEVICES[:1]], indirect=True)
def test_fused_code_that_does_not_round_would_add_more(unrounded, largest):
    assert largest > 1.0


@pytest.mark.parametrize(
    ("version", "half", "options"),
    [
        ("2.13.0", True, {"emulate_precision_casts"}),
        ("2.9.1", True, {"emulate_precision_casts", "joint_custom_pre_pass"}),
        ("2.11.0+cu130", True, {"emulate_precision_casts", "joint_custom_pre_pass"}),
        ("2.9.1", False, set()),
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
    compiling.compile_graph(Trace(graph, (), Results()), [torch.ones(1)], apart=False)
    assert set(tried[0].options) >= options
    assert set(tried[1].options) == options
    assert all(tried[1].options.values())


SHORT = {"combo_kernels", "triton.autotune_pointwise"}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (nn.Linear(4, 4), SHORT),
        (nn.Sequential(*[nn.Tanh()] * 298), SHORT),  # and a node for what it is given and what it gives
        (nn.Sequential(*[nn.Tanh()] * 299), set()),
        (nn.Conv1d(4, 4, 1), SHORT | {"force_layout_optimization"}),
        (
            nn.GroupNorm(2, 4),
            SHORT | {"realize_opcount_threshold", "realize_reads_threshold", "realize_acc_reads_threshold"},
        ),
    ],
)
def test_what_makes_programs_faster_on_a_gpu_is_asked_for_where_it_does(model, names):
    """Normalisations in one kernel, convolutions with the channels last, fewer launches where all is over soon."""
    graph = make_fx(model)(torch.randn(4, 4, 4))
    options = compiling._options(Trace(graph, (), Results()), torch.device("cuda"))
    assert set(options) == names
    known = config.get_config_copy()
    assert names <= set(known)
