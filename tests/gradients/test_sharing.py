"""Sums that a graph takes twice are taken once, and nothing else changes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.kernels import zero_rows_
from tacit.gradients.sharing import share_sums
from tacit.gradients.tidying import without_layout_copies

SUM = torch.ops.aten.sum.dim_IntList
BACKWARD = torch.ops.aten.native_group_norm_backward.default


def traced(function: Callable[..., object], *inputs: Tensor) -> GraphModule:
    return without_layout_copies(make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs))


def count(graph: GraphModule, target: object) -> int:
    return len(graph.graph.find_nodes(op="call_function", target=target))


def gradient_and_sums(x: Tensor, weight: Tensor | None, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GroupNorm's gradient, and the two sums by channel that its weight and bias take from each example."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        bias = None if weight is None else torch.zeros_like(weight)
        y = F.group_norm(leaf, 2, weight, bias)
        (dx,) = torch.autograd.grad(y, leaf, g)
    shape = (len(x), 4, 30)
    with torch.no_grad():
        return dx, (g * leaf).reshape(shape).sum(2), g.reshape(shape).sum(2)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_group_norm_and_its_weight_share_their_sums(weighted: bool, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(3, 4, 5, 6).to(memory_format=layout) for _ in range(2))
    weight = torch.randn(4) if weighted else None
    given = (x, g) if weight is None else (x, g, weight)

    def function(x: Tensor, g: Tensor, *weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return gradient_and_sums(x, weight[0] if weight else None, g)

    graph = traced(function, *given)
    share_sums(graph)
    assert count(graph, BACKWARD) == 0
    assert count(graph, SUM) == 4  # over positions and then over a group's channels, of g x and of g
    for found, expected in zip(graph(*given), function(*given), strict=True):
        torch.testing.assert_close(found, expected)


def test_double_precision_keeps_torchs_own_operation() -> None:
    x, g, weight = torch.randn(3, 4, 5, 6).double(), torch.randn(3, 4, 5, 6).double(), torch.randn(4).double()
    graph = traced(lambda x, g, w: gradient_and_sums(x, w, g), x, g, weight)
    share_sums(graph)
    assert count(graph, BACKWARD) == 1


def test_what_was_changed_in_between_is_not_the_same() -> None:
    keep, values = torch.tensor([True, False, True]), torch.randn(3, 4)

    def before_and_after(values: Tensor, keep: Tensor) -> Tensor:
        mine = values + 1
        before = mine.sum(1)
        return before - zero_rows_(mine, keep).sum(1)

    graph = traced(before_and_after, values, keep)
    share_sums(graph)
    torch.testing.assert_close(graph(values, keep), torch.where(keep, 0.0, (values + 1).sum(1)))
