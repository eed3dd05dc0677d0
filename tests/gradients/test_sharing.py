"""Sums that a graph takes twice are taken once, and nothing else changes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.graphs import storage_of
from tacit.gradients.kernels import zero_rows_
from tacit.gradients.sharing import share_sums
from tacit.gradients.tidying import without_layout_copies

SUM = torch.ops.aten.sum.dim_IntList
BACKWARD = torch.ops.aten.native_group_norm_backward.default
VAR_MEAN = torch.ops.aten.var_mean.correction
LAYER_NORM = torch.ops.aten.native_layer_norm.default
RSQRT = torch.ops.aten.rsqrt.default
CAST = torch.ops.aten._to_copy.default


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


def test_values_that_are_cast_twice_are_cast_once() -> None:
    """As under autocast, where a normalisation casts for itself what its weight's gradient casts again."""
    torch.manual_seed(0)
    x, g, weight = torch.randn(3, 4, 5, 6).bfloat16(), torch.randn(3, 4, 5, 6), torch.randn(4)

    def function(x: Tensor, g: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            (dx,) = torch.autograd.grad(F.group_norm(leaf.float(), 2, weight, weight), leaf, g)
        with torch.no_grad():
            return dx, (g * leaf.float()).reshape(3, 4, 30).sum(2)

    graph = traced(function, x, g, weight)
    share_sums(graph)
    assert count(graph, SUM) == 4
    for found, expected in zip(graph(x, g, weight), function(x, g, weight), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("groups", "eps", "left"), [(2, 1e-5, 0), (4, 1e-5, 1), (2, 1e-3, 1)])
def test_statistics_of_group_norm_are_those_of_the_forward_pass(groups: int, eps: float, left: int) -> None:
    x = 3 + torch.randn(3, 4, 5, 6)

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = F.group_norm(x, 2)
        spread, mean = torch.var_mean(x.reshape(len(x), groups, 4 // groups, -1), dim=(2, 3), correction=0)
        return y, mean, torch.rsqrt(spread + eps)

    graph = traced(function, x)
    share_sums(graph)
    assert (count(graph, VAR_MEAN), count(graph, RSQRT)) == (left, left)
    for found, expected in zip(graph(x), function(x), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("eps", "left"), [(1e-5, 1), (1e-3, 2)])
def test_layer_norm_is_taken_again_from_its_statistics(eps: float, left: int) -> None:
    x, weight = 3 + torch.randn(3, 4, 6), torch.randn(6)

    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return F.layer_norm(x, [6], weight, weight), F.layer_norm(x, [6], eps=eps)

    graph = traced(function, x, weight)
    share_sums(graph)
    assert count(graph, LAYER_NORM) == left
    for found, expected in zip(graph(x, weight), function(x, weight), strict=True):
        torch.testing.assert_close(found, expected)


def test_statistics_of_values_that_changed_are_taken_anew() -> None:
    keep, values = torch.tensor([True, False, True]), torch.randn(3, 4)

    def before_and_after(values: Tensor, keep: Tensor) -> Tensor:
        mine = values + 1
        return F.layer_norm(mine, [4]) - F.layer_norm(zero_rows_(mine, keep), [4])

    graph = traced(before_and_after, values, keep)
    share_sums(graph)
    assert count(graph, LAYER_NORM) == 2
    torch.testing.assert_close(graph(values, keep), before_and_after(values.clone(), keep))


def test_half_precision_keeps_its_own_statistics() -> None:
    x = torch.randn(3, 4, 6).bfloat16()
    graph = traced(lambda x: (F.layer_norm(x, [6], x[0, 0], x[0, 0]), F.layer_norm(x, [6])), x)
    share_sums(graph)
    assert count(graph, LAYER_NORM) == 2


@pytest.mark.parametrize(("gathers", "left"), [(True, 1), (False, 2)])
def test_a_lot_is_gathered_and_cast_once(gathers: bool, left: int) -> None:
    """A layer casts the lot, and its weight's gradient a view of the lot; what was computed may be computed again."""
    table, index, keep = X.flatten(1), torch.tensor([2, 0, 3]), torch.tensor([True, False, True])

    def function(table: Tensor, index: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        lot = table.index_select(0, index) if gathers else table[:3] * 2
        first = lot.bfloat16() @ table[:2].bfloat16().t()
        again = zero_rows_(lot.view(3, 1, 12).unsqueeze(1).bfloat16(), keep)
        return first, again

    graph = traced(function, table, index, keep)
    share_sums(graph)
    graph.graph.lint()
    assert count(graph, CAST) == 1 + left
    for found, expected in zip(graph(table, index, keep), function(table, index, keep), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("made", "clears", "found"),
    [
        (lambda x: x @ torch.eye(12), True, 1),
        (lambda x: x @ torch.eye(12), False, 0),
        (lambda x: x * 2 + 1, True, 0),  # not written down: another kernel may round it otherwise
    ],
)
def test_norms_of_rectified_products_read_the_products(
    made: Callable[[Tensor], Tensor], clears: bool, found: int
) -> None:
    """Where the values are cleared later; NaN stays NaN, which tells that an example is left out."""
    x, keep = X.flatten(1).clone(), torch.tensor([True, False, True, True])
    x[0], x[1] = -x[0].abs(), torch.nan

    def function(x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        values = torch.relu(made(x))
        norms = torch.linalg.vector_norm(values.view(4, 1, 12).unsqueeze(1).select(2, 0), dim=2, dtype=torch.float64)
        return norms, zero_rows_(values, keep) if clears else values

    graph = traced(function, x, keep)
    share_sums(graph)
    graph.graph.lint()
    assert count(graph, torch.ops.aten.clamp_min.default) == found
    for one, expected in zip(graph(x, keep), function(x, keep), strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("fused", "clears", "of_product", "threshold", "dtype", "found"),
    [
        (True, True, True, 0, torch.bfloat16, 1),
        (True, True, True, 0, torch.float16, 1),
        (True, True, True, 0, torch.float64, 0),
        (True, True, True, 0, torch.float32, 0),  # two results would stay in memory, of twice the size
        (True, False, True, 0, torch.bfloat16, 0),
        (False, True, True, 0, torch.bfloat16, 0),  # the result may round otherwise, to zero
        (True, True, False, 0, torch.bfloat16, 0),  # so may the gradient
        (True, True, True, 0.5, torch.bfloat16, 0),
    ],
)
def test_norms_of_gradients_of_rectified_products_read_the_products(
    fused: bool, clears: bool, of_product: bool, threshold: float, dtype: torch.dtype, found: int
) -> None:
    """Where the gradients are cleared later; what a NaN was rectified to passes its gradient on."""
    x, g, keep = X.flatten(1).to(dtype, copy=True), torch.randn(4, 3).to(dtype), torch.tensor([True, False, True, True])
    x[0, 0], g[2] = torch.nan, torch.nan

    def function(x: Tensor, g: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = torch.eye(12, dtype=dtype), torch.full((12,), -3.0, dtype=dtype)
        values = torch._addmm_activation(bias, x, weight) if fused else torch.relu(x @ weight - 3)
        coming = g @ torch.ones(3, 12, dtype=dtype) if of_product else g.repeat(1, 4) * 3
        grad = torch.ops.aten.threshold_backward(coming, values.detach(), threshold)
        norms = torch.linalg.vector_norm(grad.view(4, 1, 12).unsqueeze(1).select(2, 0), dim=2, dtype=torch.float64)
        return norms, zero_rows_(grad, keep) if clears else grad

    graph = traced(function, x, g, keep)
    share_sums(graph)
    graph.graph.lint()
    assert count(graph, torch.ops.aten.where.ScalarOther) == found
    for one, expected in zip(graph(x, g, keep), function(x, g, keep), strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=0, equal_nan=True)


def rectified_then_changed(x: Tensor) -> tuple[Tensor, ...]:
    values = torch.relu(x.flatten(1) @ torch.eye(12))
    values.add_(1)
    return torch.linalg.vector_norm(values.flatten(1), dim=1), zero_rows_(values, torch.tensor([True] * 3 + [False]))


def changed_once_rectified(x: Tensor) -> tuple[Tensor, ...]:
    before = x.flatten(1) @ torch.eye(12)
    values = torch.relu(before)
    before.add_(1)
    return torch.linalg.vector_norm(values.flatten(1), dim=1), zero_rows_(values, torch.tensor([True] * 3 + [False]))


def cleared_once_rectified(x: Tensor) -> tuple[Tensor, ...]:
    keep, before = torch.tensor([True] * 3 + [False]), x.flatten(1) @ torch.eye(12)
    values = torch.relu(before)
    zero_rows_(before, keep)
    return torch.linalg.vector_norm(values.flatten(1), dim=1), zero_rows_(values, keep)


def test_views_of_a_shared_cast_are_known_as_views_of_it() -> None:
    def function(table: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        lot = table.index_select(0, index)
        return lot.bfloat16(), lot.view(3, 1, 12).bfloat16().unsqueeze(1)

    graph = traced(function, X.flatten(1), torch.tensor([2, 0, 3]))
    share_sums(graph)
    first, second = (storage_of(node) for node in graph.graph.find_nodes(op="output")[0].args[0])
    assert first == second


def gathered_then_changed(x: Tensor) -> tuple[Tensor, ...]:
    lot = x.index_select(0, torch.tensor([1, 0]))
    first, second = lot.double(), lot.flatten(1).double()
    return first.clone(), second.mul_(2), first


def gathered_and(view: Callable[[Tensor], Tensor]) -> Callable[[Tensor], object]:
    """A lot that is cast, and another view of it that is cast, cleared and read as it lies in memory."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        lot = x.index_select(0, torch.tensor([1, 0, 2]))
        first, second = lot.double(), view(lot).double()
        before = torch.as_strided(second, (second.numel(),), (1,)).clone()
        return before, zero_rows_(second, torch.tensor([True, False, True])), first.clone()

    return function


def gathered_with_channels_last(x: Tensor) -> tuple[Tensor, ...]:
    """Casts that are laid out by the shape of what they are given."""
    lot = x.reshape(4, 2, 2, 3).index_select(0, torch.tensor([1, 0, 2]))
    first, second = (
        values.to(torch.float64, memory_format=torch.channels_last) for values in (lot, lot.reshape(3, 3, 2, 2))
    )
    return first, torch.as_strided(second, (36,), (1,))


def gathered_in_two_types(x: Tensor) -> tuple[Tensor, ...]:
    lot = x.index_select(0, torch.tensor([1, 0]))
    return lot.double(), lot.flatten(1).bfloat16()


def cast_from_a_view(x: Tensor) -> tuple[Tensor, ...]:
    lot = x.index_select(0, torch.tensor([1, 0]))
    return lot[:1].double(), lot.flatten(1).double()


def cast_then_changed(x: Tensor) -> Tensor:
    first, second = x.float(), x.float()
    return first.mul_(2) + second


def product_then_changed(x: Tensor) -> Tensor:
    first, second = x * 2, x * 2
    return first.relu_() + second


def mean_then_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = F.group_norm(x, 2)
    first, second = (torch.var_mean(x.reshape(4, 2, 1, 6), dim=(2, 3), correction=0)[1] for _ in range(2))
    return y, first.mul_(2), second


def deviation_then_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = F.group_norm(x, 2)
    spread, _ = torch.var_mean(x.reshape(4, 2, 1, 6), dim=(2, 3), correction=0)
    first, second = (torch.rsqrt(spread + 1e-5) for _ in range(2))
    return y, first.mul_(2), second


def beside_group_norm(
    *shape: int, eps: float = 1e-5, alpha: float = 1, **options: object
) -> Callable[[Tensor], object]:
    """GroupNorm, and statistics of the same values that are not its own."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = F.group_norm(x, 2)
        spread, mean = torch.var_mean(x.reshape(shape), **{"dim": (2, 3), "correction": 0, **options})
        return y, mean, torch.rsqrt(torch.add(spread, eps, alpha=alpha))

    return function


X = 3 + torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(0))
DIFFERENT = {
    "rectified values that are changed": (rectified_then_changed, X),
    "values that are changed once rectified": (changed_once_rectified, X),
    "values that are cleared once rectified": (cleared_once_rectified, X),
    "a lot that is changed": (gathered_then_changed, X),
    "a lot laid out otherwise": (gathered_with_channels_last, X),
    "a lot read as other numbers": (gathered_and(lambda lot: lot.view(torch.int32)), X),
    "a lot spread out": (gathered_and(lambda lot: lot[:1].expand(3, 2, 6)), X),
    "a lot on its side": (gathered_and(lambda lot: lot.transpose(0, 2)[:3]), X),
    "every other number of a lot": (gathered_and(lambda lot: lot[:, :, ::2]), X),
    "other rows of a lot": (gathered_and(lambda lot: lot.reshape(3, 12).reshape(12, 3)[:3]), X),
    "a lot in two types": (gathered_in_two_types, X),
    "a part of a lot": (cast_from_a_view, X),
    "a cast that is changed": (cast_then_changed, X.double()),
    "a product that is changed": (product_then_changed, X - 3),
    "a mean that is changed": (mean_then_changed, X),
    "a deviation that is changed": (deviation_then_changed, X),
    "other examples": (beside_group_norm(2, 2, 2, 6), X),
    "other groups": (beside_group_norm(4, 4, 1, 3), X),
    "another epsilon": (beside_group_norm(4, 2, 1, 6, eps=1e-2), X),
    "a multiple of epsilon": (beside_group_norm(4, 2, 1, 6, alpha=1000), X),
    "an unbiased variance": (beside_group_norm(4, 2, 1, 6, correction=1), X),
    "other dimensions": (beside_group_norm(4, 2, 2, 3, dim=(1, 2)), X),
    "kept dimensions": (beside_group_norm(4, 2, 1, 6, keepdim=True), X),
    "fewer dimensions": (beside_group_norm(4, 2, 6, dim=(2,)), X),
    "one dimension": (beside_group_norm(48, dim=(0,)), X),
    "two weights": (lambda x: (F.layer_norm(x, [6], x[0, 0]), F.layer_norm(x, [6], x[0, 1])), X),
    "a bias alone": (lambda x: (F.layer_norm(x, [6], x[0, 0]), F.layer_norm(x, [6], None, x[0, 1])), X),
    "other features": (lambda x: (F.layer_norm(x, [6]), F.layer_norm(x, [2, 6])), X),
    "several dimensions": (lambda x: (F.layer_norm(x, [2, 6]), F.layer_norm(x, [2, 6])), X),
    "half precision": (lambda x: (F.group_norm(x, 2), *beside_group_norm(4, 2, 1, 6)(x)), X.bfloat16()),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_only_what_is_the_same_is_shared(name: str) -> None:
    function, x = DIFFERENT[name]
    graph = traced(function, x)
    share_sums(graph)
    graph.graph.lint()
    torch.testing.assert_close(graph(x), function(x))
