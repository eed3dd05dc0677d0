"""Products with few columns are taken from the records where they lie, and are what they were."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.utils import get_code
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.clipping import Flat
from tacit.gradients import clipped_grad, compiling
from tacit.gradients.batches import Rows
from tacit.gradients.kernels import zero_rows_
from tacit.gradients.narrow_products import read_rows_where_they_lie
from tacit.gradients.tidying import without_layout_copies

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
RECORDS, LOT, WIDTH = 9, 5, 7


def traced(function: Callable[..., object], *inputs: Tensor) -> GraphModule:
    graph = without_layout_copies(make_fx(function, tracing_mode="fake")(*inputs))
    read_rows_where_they_lie(graph)
    return graph


def products(graph: GraphModule) -> int:
    return sum(len(graph.graph.find_nodes(op="call_function", target=target)) for target in PRODUCTS)


def given(columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    records, weight = torch.randn(RECORDS, WIDTH, dtype=dtype), torch.randn(columns, WIDTH, dtype=dtype)
    lines, index = torch.randn(LOT, columns, dtype=dtype), torch.tensor([8, 0, 3, 3, 5])
    return records, index, weight, torch.randn(columns, dtype=dtype), lines, torch.ones(LOT, dtype=torch.bool)


def step(records: Tensor, index: Tensor, weight: Tensor, bias: Tensor, lines: Tensor, keep: Tensor) -> list[Tensor]:
    """What logistic regression does with its lot."""
    rows = records.index_select(0, index)
    outputs = torch.addmm(bias, rows, weight.t())
    first, rest = rows.view(LOT, 1, WIDTH).split(4, -1)
    norms = torch.linalg.vector_norm(first, 2, [-1]) + torch.linalg.vector_norm(rest, 2, [-1])
    zero_rows_(rows, keep)
    return [outputs, norms, torch.where(keep[:, None], lines, 0.0).t() @ rows.view(LOT, 1, 1, WIDTH).view(LOT, WIDTH)]


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_few_columns_are_sums(columns: int) -> None:
    inputs = given(columns)
    graph = traced(step, *inputs)
    assert products(graph) == 0
    for found, expected in zip(graph(*inputs), step(*inputs), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_rows_that_are_cleared_do_not_count(value: float) -> None:
    *inputs, keep = given(2)
    inputs[0][3, 2] = value  # twice in the lot
    keep[2:4] = False
    graph = traced(step, *inputs, keep)
    assert products(graph) == 0
    found, expected = graph(*inputs, keep), step(*inputs, keep)
    assert found[2].isfinite().all()
    assert not found[0][2:4].isfinite().any()
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_lot_is_never_written_down() -> None:
    """In the code that would be compiled, where a product with ten columns needs it."""

    def code(columns: int) -> str:
        return "\n".join(get_code(torch._inductor.compile, traced(step, *given(columns)), list(given(columns))))

    lot = f"empty_strided_cpu(({LOT}, {WIDTH})"
    assert lot in code(columns=10)
    assert lot not in code(columns=2)


@pytest.mark.parametrize("columns", [1, 5])
def test_other_numbers_of_columns_stay_products(columns: int) -> None:
    assert products(traced(step, *given(columns))) == 2


def test_double_precision_stays_a_product() -> None:
    assert products(traced(step, *given(2, torch.float64))) == 2


def test_rows_that_something_else_needs_stay() -> None:
    records, index, weight, bias, *_ = given(2)

    def both(records: Tensor, index: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        return torch.addmm(bias, rows, weight.t()), rows.sigmoid() @ weight.t()

    assert products(traced(both, records, index, weight, bias)) == 2


@pytest.mark.parametrize("view", [Tensor.t, lambda rows: rows.view(WIDTH, LOT)], ids=["turned", "cut otherwise"])
def test_a_product_of_another_view_of_the_rows_stays(view: Callable[[Tensor], Tensor]) -> None:
    records, index, weight, _, lines, _ = given(2)

    def both(records: Tensor, index: Tensor, weight: Tensor, lines: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        return rows @ weight.t(), view(rows) @ lines

    graph = traced(both, records, index, weight, lines)
    assert products(graph) == 2
    torch.testing.assert_close(graph(records, index, weight, lines), both(records, index, weight, lines))


def test_numbers_that_are_read_in_another_way_stay() -> None:
    records, index, weight, *_ = given(2)

    def as_whole_numbers(records: Tensor, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        return rows @ weight.t(), rows.view(torch.int32) @ weight.t().sign().int()

    def negated(records: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        return torch._neg_view(records.index_select(0, index)) @ weight.t()

    for function in (as_whole_numbers, negated):
        graph = traced(function, records, index, weight)
        torch.testing.assert_close(graph(records, index, weight), function(records, index, weight))


def test_columns_that_are_cleared_are_no_rows() -> None:
    _, index, _, _, lines, keep = given(2)
    records, weight = torch.randn(RECORDS, LOT), torch.randn(2, LOT)  # as wide as the lot is long
    keep[1] = False

    def turned(records: Tensor, index: Tensor, weight: Tensor, lines: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        outputs = rows @ weight.t()
        zero_rows_(rows.t(), keep)
        return outputs, lines.t() @ rows

    inputs = records, index, weight, lines, keep
    torch.testing.assert_close(traced(turned, *inputs)(*inputs), turned(*inputs))


def test_a_scaled_product_stays() -> None:
    records, index, weight, bias, *_ = given(2)

    def scaled(records: Tensor, index: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, records.index_select(0, index), weight.t(), alpha=2)

    assert products(traced(scaled, records, index, weight, bias)) == 1


@pytest.mark.parametrize("change", [Tensor.sin_, lambda rows: rows.view(-1).mul_(2.0)], ids=["rows", "a view of them"])
@pytest.mark.parametrize("first", [True, False])
def test_rows_that_are_changed_stay(change: Callable[[Tensor], Tensor], first: bool) -> None:
    """As by a model whose first layer works in place, before the product or after it."""
    records, index, weight, *_ = given(2)

    def changing(records: Tensor, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        if first:
            change(rows)
        outputs = rows @ weight.t()
        if not first:
            change(rows)
        return outputs, torch.linalg.vector_norm(rows, 2, [1])

    graph = traced(changing, records, index, weight)
    assert products(graph) == 1
    torch.testing.assert_close(graph(records, index, weight), changing(records, index, weight))


@pytest.mark.parametrize("read", [lambda rows, _: torch.linalg.vector_norm(rows, 2, [1]), lambda rows, w: rows @ w.t()])
def test_what_is_read_of_cleared_rows_is_theirs(read: Callable[[Tensor, Tensor], Tensor]) -> None:
    records, index, weight, _, _, keep = given(2)
    keep[1] = False

    def cleared(records: Tensor, index: Tensor, weight: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        rows = records.index_select(0, index)
        outputs = rows @ weight.t()
        return outputs, read(zero_rows_(rows, keep), weight)

    graph = traced(cleared, records, index, weight, keep)
    torch.testing.assert_close(graph(records, index, weight, keep), cleared(records, index, weight, keep))


def test_a_compiled_linear_model_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)  # which takes longer
    torch.manual_seed(0)
    model, clipping = nn.Linear(WIDTH, 3), Flat(0.5)
    records = torch.randn(RECORDS, WIDTH), torch.randint(3, (RECORDS,))
    records[0][4] = torch.inf

    def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y, reduction="none")

    index = torch.tensor([8, 0, 3, 4, 5])
    batch = tuple(tensor[index] for tensor in records)
    expected = clipped_grad(model, losses, clipping=clipping, engine="reference")(*batch)
    grad = clipped_grad(model, losses, clipping=clipping, engine="bookkeeping")
    grad.start_compiling(wait=True)
    for _ in range(3):
        found = grad.accumulate([(Rows(records, index.numpy()), None)])
    assert grad.compilation == "compiled"
    for name, value in expected.grads.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
