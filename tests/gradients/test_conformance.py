"""One suite for all engines: on every layer they claim, they equal the reference engine in float64."""

import pytest
import torch
from layer_cases import CASES, EXAMPLES, Case, squared_outputs

from tacit.clipping import Automatic, Flat, PerLayer
from tacit.gradients import ClippedSum, clipped_grad

# torch says once that uneven "same" padding copies the input.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

TOLERANCE = 1e-9
PAIRS = [(name, engine) for name, case in CASES.items() for engine in case.engines]


def prepare(case: Case) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return case.build().double(), case.inputs()


def run(case_name, engine, *, clipping=None, chunk_size=None, mask=None, rows=slice(None)) -> ClippedSum:
    model, batch = prepare(CASES[case_name])
    batch = tuple(leaf[rows] if leaf.shape[0] == EXAMPLES else leaf for leaf in batch)
    clipping = clipping or Flat(0.7)
    return clipped_grad(model, squared_outputs, clipping=clipping, engine=engine, chunk_size=chunk_size)(
        *batch, mask=mask
    )


def assert_equal(actual: ClippedSum, expected: ClippedSum) -> None:
    assert actual.grads.keys() == expected.grads.keys()
    for name, grad in expected.grads.items():
        torch.testing.assert_close(actual.grads[name], grad, rtol=TOLERANCE, atol=TOLERANCE, msg=name)
    torch.testing.assert_close(actual.unsafe_norms, expected.unsafe_norms, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("case", "engine"), PAIRS)
def test_engine_equals_reference_pitfalls_09_10_28_29_30_31(case, engine):
    expected = run(case, "reference")
    assert any(float(g.abs().max()) > 0 for g in expected.grads.values())
    for chunk_size in (None, 1, 3):
        assert_equal(run(case, engine, chunk_size=chunk_size), expected)


@pytest.mark.parametrize(("case", "engine"), PAIRS)
def test_engine_equals_reference_with_mask(case, engine):
    mask = torch.tensor([True, False, True, True, False])
    expected = run(case, "reference", mask=mask)
    assert_equal(run(case, engine, mask=mask, chunk_size=2), expected)
    kept = run(case, "reference", rows=mask)
    for name, grad in kept.grads.items():
        torch.testing.assert_close(expected.grads[name], grad, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("clipping", [Flat(0.3), Flat(1e9), PerLayer(0.4), Automatic(0.9, stability=0.05)], ids=repr)
@pytest.mark.parametrize("case", ["conv2d", "tied", "lstm", "raw-parameters", "frozen", "attention-self"])
@pytest.mark.parametrize("engine", ["functional", "bookkeeping"])
def test_every_clipping_in_every_engine(case, engine, clipping):
    assert_equal(run(case, engine, clipping=clipping), run(case, "reference", clipping=clipping))


@pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping", "auto"])
@pytest.mark.parametrize("case", ["linear-2d", "conv2d", "tied", "broadcast"])
def test_pitfall_04_empty_batch_is_exactly_zero(case, engine):
    out = run(case, engine, rows=slice(0, 0))
    assert all(bool((grad == 0).all()) for grad in out.grads.values())
    assert out.unsafe_norms.shape[0] == 0


@pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
@pytest.mark.parametrize("case", ["linear-3d", "conv2d", "layer-norm", "raw-parameters", "lstm"])
def test_pitfall_05_example_that_is_not_finite_contributes_zero(case, value, engine):
    model, (batch,) = prepare(CASES[case])
    spoilt = batch.clone()
    spoilt[1].view(-1)[0] = value
    grad = clipped_grad(model, squared_outputs, clipping=Flat(0.7), engine=engine)
    out = grad(spoilt)
    rest = grad(batch[[0, 2, 3, 4]])
    if not bool(torch.isfinite(out.unsafe_norms[1]).all()):
        for name, expected in rest.grads.items():
            torch.testing.assert_close(out.grads[name], expected, rtol=TOLERANCE, atol=TOLERANCE)
    difference = sum(float((out.grads[n] - rest.grads[n]).square().sum()) for n in rest.grads) ** 0.5
    assert difference <= 0.7 * (1 + 1e-9)


@pytest.mark.parametrize("engine", ["functional", "bookkeeping"])
def test_pitfall_12_contribution_is_the_same_whatever_the_batch_mates(engine):
    model, (batch,) = prepare(CASES["attention-self"])
    grad = clipped_grad(model, squared_outputs, clipping=Flat(0.7), engine=engine)
    alone = grad(batch[:1])
    for mates in (batch[:2], batch[:5], torch.cat([batch[:1], batch[1:] * 100])):
        with_mates, mates_alone = grad(mates), grad(mates[1:])
        for name, expected in alone.grads.items():
            contribution = with_mates.grads[name] - mates_alone.grads[name]
            torch.testing.assert_close(contribution, expected, rtol=1e-8, atol=1e-9)


def test_pitfall_11_order_of_registration_does_not_matter():
    class Backwards(torch.nn.Module):
        def __init__(self, backwards):
            super().__init__()
            layers = {"a": torch.nn.Linear(3, 4), "b": torch.nn.Linear(4, 4), "c": torch.nn.Linear(4, 2)}
            for name in sorted(layers, reverse=backwards):
                self.add_module(name, layers[name])

        def forward(self, x):
            return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))

    x = torch.randn(4, 3, dtype=torch.float64)
    forwards, backwards = Backwards(False).double(), Backwards(True).double()
    backwards.load_state_dict(forwards.state_dict())
    norms = [
        clipped_grad(m, squared_outputs, clipping=Flat(1.0), engine="bookkeeping")(x).unsafe_norms
        for m in (forwards, backwards)
    ]
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-12, atol=0)


def test_pitfall_39_strategy_is_chosen_anew_for_every_length():
    model, _ = prepare(CASES["tied"])
    fast = clipped_grad(model, squared_outputs, clipping=Flat(0.7), engine="bookkeeping")
    slow = clipped_grad(model, squared_outputs, clipping=Flat(0.7), engine="reference")
    for length in (1, 2, 7, 3, 5, 7):
        ids = torch.randint(0, 11, (4, length))
        assert_equal(fast(ids), slow(ids))


def test_pitfall_32_norm_and_sum_share_one_dropout_mask():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 50), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(50, 3)
    ).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    for engine in ("functional", "bookkeeping"):
        grad = clipped_grad(model, squared_outputs, clipping=Flat(1e9), engine=engine)
        for _ in range(5):
            out = grad(x)
            length = sum(float(g.square().sum()) for g in out.grads.values()) ** 0.5
            assert length == pytest.approx(float(out.unsafe_norms), rel=1e-9)


def test_pitfall_27_padding_row_gets_no_gradient_in_any_engine():
    for engine in ("reference", "functional", "bookkeeping"):
        assert bool((run("embedding-padding", engine).grads["weight"][1] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["linear-wide", "conv2d", "tied", "layer-norm-tokens", "attention-self"])
def test_pitfall_23_low_precision_keeps_the_bound(case, dtype):
    model, batch = prepare(CASES[case])
    model = model.to(dtype)
    batch = tuple(leaf.to(dtype) if leaf.is_floating_point() else leaf for leaf in batch)
    bound = 0.05
    grad = clipped_grad(model, squared_outputs, clipping=Flat(bound), engine="bookkeeping")
    for i in range(EXAMPLES):
        out = grad(*(leaf[i : i + 1] for leaf in batch))
        assert all(g.dtype == torch.float32 for g in out.grads.values())
        length = sum(float(g.double().square().sum()) for g in out.grads.values()) ** 0.5
        assert length <= bound * (1 + 1e-5)


def test_cancelling_tokens_do_not_hide_a_norm():
    """Tokens that cancel leave a small true norm under a large rounding error; it must not come out too small."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(64, 64, bias=False)
    x = torch.randn(1, 1, 64)
    batch = torch.cat([1000 * x, 1000 * x + 1e-4 * torch.randn_like(x)], dim=1)

    def loss(model, values):
        out = model(values)
        return (out[:, 0] - out[:, 1]).sum(1) * 100

    exact = clipped_grad(layer.double(), loss, clipping=Flat(1.0), engine="reference")(batch.double())
    rounded = clipped_grad(layer.float(), loss, clipping=Flat(1.0), engine="bookkeeping")(batch)
    assert float(rounded.unsafe_norms) >= float(exact.unsafe_norms) * (1 - 1e-6)


@pytest.mark.parametrize("engine", ["functional", "bookkeeping"])
def test_pitfall_13_ignored_targets_weigh_nothing_whatever_the_batch_mates(engine):
    """Targets of different lengths: an example's mean over its own tokens is what it would be alone."""
    model, (ids,) = prepare(CASES["tied"])
    targets = torch.randint(0, 11, ids.shape)
    for row, length in enumerate((1, 3, 5, 2, 4)):
        targets[row, length:] = -100

    def loss(language_model, tokens, wanted):
        logits = language_model(tokens).transpose(1, 2)
        each = torch.nn.functional.cross_entropy(logits, wanted, ignore_index=-100, reduction="none")
        return each.sum(1) / (wanted != -100).sum(1)

    grad = clipped_grad(model, loss, clipping=Flat(0.7), engine=engine)
    together = grad(ids, targets)
    assert_equal(together, clipped_grad(model, loss, clipping=Flat(0.7), engine="reference")(ids, targets))
    alone = torch.cat([grad(ids[i : i + 1], targets[i : i + 1]).unsafe_norms for i in range(EXAMPLES)])
    torch.testing.assert_close(together.unsafe_norms, alone, rtol=TOLERANCE, atol=TOLERANCE)
