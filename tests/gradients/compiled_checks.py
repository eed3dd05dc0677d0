"""A model, its batches and the comparison with the eager step, for the compiled step. Not a test file itself."""

import time

import torch
from torch import Tensor, nn

from tacit.gradients import ClippedGrad, ClippedSum, clipped_grad

BOUND = 0.5


class Network(nn.Module):
    """A convolution, a layer norm, a frozen layer, two layers that run side by side, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3)
        self.norm = nn.LayerNorm(12)
        self.frozen = nn.Linear(12, 12).requires_grad_(False)
        self.first, self.second = nn.Linear(12, 4), nn.Linear(12, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.frozen(self.norm(torch.tanh(self.convolution(x)).flatten(1))))
        return (self.first(x) + self.second(x)) * self.scale


class OnDevice(torch.Tensor):
    """Says that it lies on a GPU."""

    @property
    def is_cuda(self) -> bool:
        return True


def said_on_device(values: Tensor) -> Tensor:
    """The same values, which say so."""
    return values.as_subclass(OnDevice)  # type: ignore[no-untyped-call, no-any-return]


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).flatten(1).square().sum(1)


def a_network() -> Network:
    torch.manual_seed(0)
    return Network()


def images(count: int = 6, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, 4, 4, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def eager_twin(grad: ClippedGrad) -> ClippedGrad:
    return clipped_grad(grad.model, grad.loss_fn, clipping=grad.clipping, engine="bookkeeping")


def check_equal(found: ClippedSum, expected: ClippedSum, tolerance: float = 1e-5) -> None:
    assert found.grads.keys() == expected.grads.keys()
    for name, value in expected.grads.items():
        torch.testing.assert_close(found.grads[name], value, rtol=tolerance, atol=tolerance, msg=name)
    torch.testing.assert_close(found.unsafe_norms, expected.unsafe_norms, rtol=1e-4, atol=1e-6, equal_nan=True)


def check_against_eager(grad: ClippedGrad, *batch: Tensor, mask: Tensor | None = None) -> ClippedSum:
    found = grad(*batch, mask=mask)
    assert grad.compilation == "compiled"
    check_equal(found, eager_twin(grad)(*batch, mask=mask))
    return found


def graph_itself(trace, inputs, *, apart):
    """In the place of a program: the traced graph, which runs operation by operation."""
    return lambda arguments: list(trace.graph(*arguments))


def wait_for_programs(grad: ClippedGrad) -> None:
    """Returns when everything that is compiled in the background is ready, or has failed."""
    for program in grad._engine._programs.values():
        while not program.compilation.ready and program.compilation.failure is None:
            time.sleep(0.01)
