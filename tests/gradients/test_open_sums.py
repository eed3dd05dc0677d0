"""Sums that a program leaves open: which ones, and that nothing but the place of the sum changes."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.clipping import Flat
from tacit.core.row_sums import RowForm, RowSum
from tacit.gradients import clipped_grad, compiling
from tacit.gradients.contributions import Direct
from tacit.gradients.kernels import weighted_rows, zero_rows_
from tacit.gradients.open_sums import Finished, Results, leave_open


def traced(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def given(rows=4, dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, 5, generator=random).to(dtype)
    return x, torch.rand(rows, generator=random), torch.arange(rows) != 1


def two_sums(x, weights, keep):
    """One in the parameter's own order, one permuted; and norms."""
    first = weighted_rows((2 * x).flatten(1), weights, keep).unsqueeze(0).view(1, 3, 5)[0]
    second = weighted_rows((3 * x).flatten(1), weights, keep).view(3, 5).t().contiguous()
    return [first, second, x.float().flatten(1).norm(dim=1)]


def test_a_last_sum_is_left_open_and_what_is_permuted_is_not():
    inputs = given()
    graph = traced(two_sums, *inputs)
    expected = graph(*inputs)
    results = leave_open(graph, ["a", "b"])
    assert results == Results(("a", "b"), {"a": torch.Size([3, 5])})
    found = graph(*inputs)
    assert len(found) == 5  # rows, weights and flags; a sum; norms
    for one, two in zip(results.taken(found), expected, strict=True):
        torch.testing.assert_close(one, two)


def test_open_sums_come_with_their_rows_and_a_place():
    inputs = given()
    graph = traced(two_sums, *inputs)
    expected = graph(*inputs)
    results = leave_open(graph, ["a", "b"])
    sums = results.read(results.with_places(graph(*inputs)))
    first = sums["a"]
    assert isinstance(first, RowSum)
    assert first.total.shape == (3, 5)
    torch.testing.assert_close(weighted_rows(first.rows, first.weights, first.keep).view(3, 5), expected[0])
    torch.testing.assert_close(sums["b"], expected[1])
    finished = Finished.of(sums)
    assert finished.form == RowForm(4, "float32", 1)  # of 15 numbers each
    assert finished.sums["a"] is first.total
    assert finished.sums["b"] is sums["b"]
    assert finished.open_sums == {"a": first}
    assert Finished.of({"b": sums["b"]}).form is None


def without_flags(x, weights, keep):
    return [weighted_rows(x.flatten(1), weights), x.sum((1, 2))]


def added_to(x, weights, keep):
    return [weighted_rows(x.flatten(1), weights, keep) + 1, x.sum((1, 2))]


def a_part(x, weights, keep):
    return [weighted_rows(x.flatten(1), weights, keep)[:7], x.sum((1, 2))]


def rows_apart(x, weights, keep):
    return [weighted_rows(x[:, 0], weights, keep), x.sum((1, 2))]


def added_to_in_place(x, weights, keep):
    return [weighted_rows(x.flatten(1), weights, keep).add_(1), x.sum((1, 2))]


def of_rows_that_change(x, weights, keep):
    rows = 2 * x.flatten(1)
    total = weighted_rows(rows, weights, keep)
    rows.mul_(0)
    return [total, x.sum((1, 2))]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (without_flags, given()),
        (added_to_in_place, given()),
        (of_rows_that_change, given()),
        (added_to, given()),
        (a_part, given()),
        (rows_apart, given()),
        (lambda x, weights, keep: [x.flatten(1).sum(0), x.sum((1, 2))], given()),
        (lambda x, weights, keep: [weighted_rows(x.flatten(1), weights, keep), x.sum((1, 2))], given(rows=33)),
    ],
    ids=[
        "no flags",
        "added to in place",
        "rows that change",
        "added to",
        "a part",
        "rows apart",
        "no such sum",
        "many rows",
    ],
)
def test_what_the_noise_could_not_take_stays_as_it_is(function, inputs):
    graph = traced(function, *inputs)
    before = graph.code
    assert leave_open(graph, ["a"]) == Results(("a",))
    assert graph.code == before


def test_sums_of_one_form_are_left_open_of_which_there_are_most_numbers():
    def function(x, weights, keep):
        halves = weighted_rows(x.flatten(1).bfloat16(), weights, keep)
        few = weighted_rows(x[:, 0].contiguous(), weights, keep)
        return [few, halves, x.sum((1, 2))]

    graph = traced(function, *given())
    assert leave_open(graph, ["few", "halves"]).open == {"halves": torch.Size([15])}


def test_clearing_rows_that_are_not_kept_is_no_change():
    def function(x, weights, keep):
        rows = 2 * x.flatten(1)
        total = weighted_rows(rows, weights, keep)
        zero_rows_(rows, keep)
        return [total, rows]

    assert leave_open(traced(function, *given()), ["a"]).open == {"a": torch.Size([15])}


def test_sums_of_several_forms_have_none():
    weights, keep = torch.ones(4), torch.ones(4, dtype=torch.bool)
    sums = [RowSum(torch.zeros(4, 8, dtype=kind), weights, keep, torch.zeros(8)) for kind in (torch.half, torch.float)]
    with pytest.raises(ValueError, match="too many"):
        RowForm.of(sums)
    assert RowForm.of(sums[:1]) == RowForm(4, "float16", 2)


@pytest.fixture
def sums_by_rows(monkeypatch):
    """Written gradients are added up as they are on a GPU."""

    def weighted_sum(self, weights, finite=None):
        total = weighted_rows(self.grads.flatten(1).float(), weights.float(), finite)
        return self._arrange(total[None], 1)[0].reshape(self._shape)

    monkeypatch.setattr(Direct, "weighted_sum", weighted_sum)


@pytest.mark.usefixtures("sums_by_rows")
def test_a_compiled_step_that_leaves_sums_open_gives_the_eager_sums(monkeypatch):
    monkeypatch.setattr(compiling, "can_compile_apart", lambda graph, device: False)  # which takes longer
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    grad = clipped_grad(
        model, lambda m, x: m(x).square().sum((1, 2)), clipping=Flat(0.5), engine="bookkeeping", strategy="keep"
    )
    x = torch.randn(8, 5, 6)
    x[3, 0, 0] = float("nan")
    eager = grad(x)
    grad.start_compiling(wait=True)
    for _ in range(3):
        found = grad(x)
    assert grad.compilation == "compiled"
    (program,) = grad._engine._programs.values()
    assert set(program.compilation.trace.results.open) == set(dict(model.named_parameters()))
    for name, value in eager.grads.items():
        torch.testing.assert_close(found.grads[name], value)
