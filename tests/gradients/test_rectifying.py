"""A ReLU is taken with the product that it alone reads, and nothing else changes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients import compiling
from tacit.gradients.graphs import storage_of
from tacit.gradients.rectifying import rectify_at_once

BOTH = torch.ops.aten._addmm_activation.default
X, WEIGHT, BIAS = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in ((5, 3), (4, 3), (4,)))


def traced(function: Callable[..., object], *inputs: Tensor) -> GraphModule:
    return make_fx(function, tracing_mode="fake")(*inputs)


def fused(graph: GraphModule) -> int:
    return len(graph.graph.find_nodes(op="call_function", target=BOTH))


def agrees(graph: GraphModule, function: Callable[..., object], *inputs: Tensor) -> None:
    torch.testing.assert_close(graph(*inputs), function(*inputs), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_layer_and_its_relu_are_one(kind: torch.dtype) -> None:
    x, weight, bias = (each.to(kind) for each in (X, WEIGHT, BIAS))
    x = torch.where(X > 2, torch.nan, x)

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        product = F.linear(x, weight, bias)
        product.view(-1)  # which nobody reads
        return torch.relu(product)

    graph = traced(function, x, weight, bias)
    relu = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    known = storage_of(relu)
    rectify_at_once(graph)
    graph.graph.lint()
    assert fused(graph) == 1
    assert storage_of(graph.graph.find_nodes(op="call_function", target=BOTH)[0]) == known
    assert not graph.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    agrees(graph, function, x, weight, bias)


def product_read_twice(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    product = F.linear(x, weight, bias)
    return torch.relu(product), product


def changed_in_between(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    product = F.linear(x, weight, bias)
    bias.mul_(2)
    return torch.relu(product) + bias


def changed_afterwards(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.linear(x, weight, bias)).add_(1)


LEFT_ALONE = {
    "a product that others read": product_read_twice,
    "a bias that is changed in between": changed_in_between,
    "a result that is changed": changed_afterwards,
    "no bias": lambda x, weight, bias: torch.relu(x @ weight.t()) + bias,
    "a bias for each number": lambda x, weight, bias: torch.relu(torch.addmm(bias.expand(5, 4), x, weight.t())),
    "factors": lambda x, weight, bias: torch.relu(torch.addmm(bias, x, weight.t(), beta=2, alpha=3)),
    "another activation": lambda x, weight, bias: torch.tanh(F.linear(x, weight, bias)),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_all_else_is_left_alone(name: str) -> None:
    function = LEFT_ALONE[name]
    graph = traced(function, X, WEIGHT, BIAS.clone())
    rectify_at_once(graph)
    graph.graph.lint()
    assert fused(graph) == 0
    torch.testing.assert_close(graph(X, WEIGHT, BIAS.clone()), function(X, WEIGHT, BIAS.clone()), rtol=0, atol=0)


def test_double_precision_is_left_alone() -> None:
    graph = traced(lambda x, w, b: torch.relu(F.linear(x, w, b)), X.double(), WEIGHT.double(), BIAS.double())
    rectify_at_once(graph)
    assert fused(graph) == 0


@pytest.mark.parametrize(("gpu", "found"), [(True, 1), (False, 0)])
def test_it_is_for_gpus(gpu: bool, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch has no such kernel, and takes one after the other."""
    if gpu:
        monkeypatch.setattr(compiling, "on_gpu", lambda graph: True)
    graph = traced(lambda x, w, b: torch.relu(F.linear(x, w, b)), X, WEIGHT, BIAS)
    assert fused(compiling.improved(graph)) == found
