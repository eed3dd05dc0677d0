"""The tanh filter in every engine: the right sum, within its sensitivity, in any precision."""

import math

import pytest
import torch
from compiled_checks import a_network, check_against_eager, cross_entropy, images
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_cases import CASES, EXAMPLES, Case, squared_outputs
from rounding_checks import FLOAT64_ROUNDING
from torch import Tensor, nn

from tacit.clipping import Clipping, Flat, Tanh
from tacit.core.privacy import Neighbours
from tacit.gradients import ClippedGrad, ClippedSum, clipped_grad
from tacit.gradients.compiling import can_compile
from tacit.gradients.losses import trainable

# torch says once that uneven "same" padding copies the input.
pytestmark = [pytest.mark.filterwarnings("ignore:Using padding='same'")]

TOLERANCE = 1e-9
MARGIN = 1 + 2.0**-20  # by which norms are raised, for rounding
RULES = [Tanh(0.3, 2.0), Tanh(0.3, 2.0, bound=0.5)]
PAIRS = [(name, engine) for name, case in CASES.items() for engine in ("reference", *case.engines)]
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: "alone" if rule.bound is None else "bounded")
engines = pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping"])


def prepare(case: Case) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    return case.build().double(), case.inputs()


def twin(case: Case, rule: Tanh, mask: Tensor) -> dict[str, Tensor]:
    """The definition, by plain autograd and formulas of its own."""
    model, batch = prepare(case)
    parameters = trainable(model)
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    limit = rule.c * math.sqrt(sum(p.numel() for p in parameters.values())) if rule.bound is None else rule.bound
    for i in mask.nonzero().flatten().tolist():
        example = tuple(leaf[i : i + 1] if leaf.shape[0] == EXAMPLES else leaf for leaf in batch)
        found = torch.autograd.grad(squared_outputs(model, *example)[0], list(parameters.values()), allow_unused=True)
        grads = {name: g for name, g in zip(parameters, found, strict=True) if g is not None}
        e = {name: torch.exp(2 * g / rule.k) for name, g in grads.items()}
        filtered = {name: torch.where(v.isinf(), rule.c, rule.c * (v - 1) / (v + 1)) for name, v in e.items()}
        length = math.sqrt(sum(float(v.square().sum()) for v in filtered.values())) * MARGIN
        for name, value in filtered.items():
            total[name] += value * min(1.0, limit / length if length else 1.0)
    return total


def run(
    case: Case, engine: str, rule: Clipping, *, chunk_size: int | None = None, mask: Tensor | None = None
) -> ClippedSum:
    model, batch = prepare(case)
    grad = clipped_grad(model, squared_outputs, clipping=rule, engine=engine, chunk_size=chunk_size)
    return grad(*batch, mask=mask)


@rules
@pytest.mark.parametrize(("case", "engine"), PAIRS)
def test_engines_equal_the_definition(case, engine, rule):
    mask = torch.tensor([True, False, True, True, True])
    expected = twin(CASES[case], rule, mask)
    found = run(CASES[case], engine, rule, chunk_size=3, mask=mask).grads
    assert any(float(g.abs().max()) > 0 for g in expected.values())
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=TOLERANCE, atol=TOLERANCE, msg=name)


@rules
@engines
def test_norms_are_those_before_the_filter(engine, rule):
    case = CASES["conv2d"]
    expected = run(case, engine, Flat(1.0)).unsafe_norms
    torch.testing.assert_close(run(case, engine, rule).unsafe_norms, expected, rtol=TOLERANCE, atol=TOLERANCE)


@rules
@pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping", "auto"])
def test_pitfall_04_an_empty_batch_is_exactly_zero(engine, rule):
    model, (batch,) = prepare(CASES["conv2d"])
    out = clipped_grad(model, squared_outputs, clipping=rule, engine=engine)(batch[:0])
    assert all(bool((grad == 0).all()) for grad in out.grads.values())


@rules
@engines
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
@pytest.mark.parametrize("case", ["linear-3d", "conv2d", "layer-norm", "raw-parameters", "lstm"])
def test_pitfall_05_an_example_that_is_not_finite_adds_zero(case, value, engine, rule):
    model, (batch,) = prepare(CASES[case])
    spoilt = batch.clone()
    spoilt[1].view(-1)[0] = value
    grad = clipped_grad(model, squared_outputs, clipping=rule, engine=engine)
    out, rest = grad(spoilt), grad(batch[[0, 2, 3, 4]])
    moved = math.sqrt(sum(float((out.grads[n] - rest.grads[n]).square().sum()) for n in rest.grads))
    assert moved <= grad.sensitivity(Neighbours.ADD_REMOVE) * FLOAT64_ROUNDING
    if not bool(torch.isfinite(out.unsafe_norms[1]).all()):
        assert moved <= TOLERANCE


@engines
def test_pitfall_05_infinite_gradients_do_not_pass_as_saturated_ones(engine):
    """Tanh of infinity is 1: only the norm before the filter tells."""
    model = nn.Linear(2, 1, bias=False)
    grad = clipped_grad(model, lambda m, x: m(x)[:, 0] * 3e38, clipping=Tanh(), engine=engine)
    out = grad(torch.tensor([[100.0, -100.0], [0.0, 0.0]]))
    assert float(out.grads["weight"].abs().max()) == 0


@engines
def test_a_filter_that_overflows_adds_zero(engine):
    """A range beyond float32, and an expansion below it."""
    x = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    for rule in (Tanh(c=1e300), Tanh(k=1e-300), Tanh(c=1e-300), Tanh(k=1e300)):
        grads = clipped_grad(nn.Linear(2, 1), lambda m, x: m(x)[:, 0], clipping=rule, engine=engine)(x).grads
        assert all(bool(torch.isfinite(g).all()) for g in grads.values())


class Network(nn.Module):
    """All kinds of contributions: a table, a convolution, a norm, several tokens, a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.conv = nn.Embedding(5, 4), nn.Conv1d(4, 3, 2)
        self.norm, self.head = nn.LayerNorm(3), nn.Linear(3, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(self.words(ids).transpose(1, 2)).transpose(1, 2)))


SCALES, DTYPES = [0.0, 1e-30, 1e-3, 1.0, 1e3, 1e30], [torch.float32, torch.bfloat16]


@rules
@engines
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), scale=st.sampled_from(SCALES), dtype=st.sampled_from(DTYPES))
def test_pitfall_23_one_example_keeps_the_sensitivity(engine, rule, seed, scale, dtype):
    """With gradients of any size, in the precision that the model runs in."""
    torch.manual_seed(seed)
    model = Network().to(dtype)
    grad = clipped_grad(model, lambda m, x: scale * squared_outputs(m, x).float(), clipping=rule, engine=engine)
    ids = torch.randint(0, 5, (3, 6))
    limit = grad.sensitivity(Neighbours.ADD_REMOVE)
    for i in range(3):
        sums = grad(ids, mask=torch.arange(3) == i).grads.values()
        assert all(value.dtype == torch.float32 for value in sums)
        length = math.sqrt(sum(float(value.double().square().sum()) for value in sums))
        assert length <= limit * FLOAT64_ROUNDING


@engines
@pytest.mark.parametrize("c", [1.0, 0.1, 1 / 3, 0.7, 1e-3])
def test_saturated_gradients_attain_the_sensitivity_and_never_exceed_it(engine, c):
    """All numbers at c, or at what float32 makes of it, which may be more: the noise is for c sqrt(n) and not less."""
    model = nn.Linear(50, 20)
    grad = clipped_grad(model, lambda m, x: 1e4 * m(x).sum(1), clipping=Tanh(c), engine=engine)
    sums = grad(torch.ones(1, 50)).grads.values()
    length = math.sqrt(sum(float(value.double().square().sum()) for value in sums))
    limit = c * math.sqrt(20 * 51)
    assert grad.sensitivity(Neighbours.ADD_REMOVE) == limit
    assert limit * (1 - 3e-6) <= length <= limit * FLOAT64_ROUNDING


def test_pitfall_32_dropout_is_drawn_once_for_norm_and_sum():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    grad = clipped_grad(model, lambda m, x: 1e3 * squared_outputs(m, x), clipping=Tanh(1.0, 1e-3, bound=0.1))
    for _ in range(5):
        sums = grad(torch.randn(1, 6)).grads.values()
        assert math.sqrt(sum(float(value.double().square().sum()) for value in sums)) <= 0.1 * FLOAT64_ROUNDING


def check_compiled(grad: ClippedGrad) -> None:
    grad(*images())
    check_against_eager(grad, *images(seed=2), mask=torch.tensor([True, False, True, True, False, True]))
    x, y = images()
    x[2] = float("inf")
    assert all(bool(torch.isfinite(value).all()) for value in check_against_eager(grad, x, y).grads.values())
    for i in range(6):
        sums = grad(*images(), mask=torch.arange(6) == i).grads.values()
        assert 0 < math.sqrt(sum(float(value.double().square().sum()) for value in sums)) <= 0.5 * FLOAT64_ROUNDING


def test_a_traced_step_filters_as_an_eager_one(traced):
    check_compiled(traced(a_network(), cross_entropy, clipping=Tanh(1 / 3, 1e-3, bound=0.5)))


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="no compiler for C++")
def test_a_compiled_step_filters_as_an_eager_one():
    grad = clipped_grad(a_network(), cross_entropy, clipping=Tanh(1 / 3, 1e-3, bound=0.5), engine="bookkeeping")
    grad.start_compiling(wait=True)
    check_compiled(grad)
