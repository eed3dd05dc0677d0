"""Private normalisation: what one record can do to the sums, the noise that they get, and the map that is made."""

import dataclasses
import math

import pytest
import torch
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tacit.accounting import epsilon
from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.mechanisms import Gaussian
from tacit.plan import DPSGD
from tacit.training import prepare
from tacit.training.preparation import ChannelNormalisation

ROOT2 = math.sqrt(2)


def make_plan(*preparations, **options):
    return DPSGD(
        expected_batch_size=10,
        examples=100,
        steps=3,
        clipping=Flat(1.0),
        delta=1e-5,
        preparations=preparations,
        **(options or {"noise_multiplier": 2.0}),
    )


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the statistic ---


def slow_sums(inputs, mean_bound, square_bound):
    means, squares = [], []
    for record in inputs:
        rows = record.flatten(1)
        for bound, values, kept in ((mean_bound, rows, means), (square_bound, rows**2, squares)):
            vector = values.mean(1) / bound
            kept.append(vector / max(1.0, float(vector.norm())))
    return torch.cat([sum(means), sum(squares)])


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.5, 0.1), (100.0, 30.0)])
def test_statistic_is_the_sum_of_clipped_means_and_mean_squares(bounds):
    inputs = rand(30, 5, 4, 3) - 0.3
    found = ChannelNormalisation(30, 1.0, *bounds).statistic(inputs)
    torch.testing.assert_close(found, slow_sums(inputs, *bounds), rtol=0, atol=30 * 2.0**-29)


def test_the_sum_of_no_records_is_zero_and_inputs_need_no_places():
    normalisation = ChannelNormalisation(10, 1.0, 3.0, 3.0)
    assert torch.equal(normalisation.statistic(torch.rand(0, 5, 4, 4)), torch.zeros(10, dtype=torch.float64))
    rows = rand(8, 5)
    torch.testing.assert_close(
        normalisation.statistic(rows), normalisation.statistic(rows[:, :, None, None]), rtol=0, atol=0
    )


def test_statistic_is_exact_whatever_the_order(monkeypatch):
    inputs = rand(300, 6, 5).float()
    normalisation = ChannelNormalisation(300, 1.0, 0.7, 0.4)
    whole = normalisation.statistic(inputs)
    assert torch.equal(whole, normalisation.statistic(inputs[torch.randperm(300)]))
    assert torch.equal(whole, normalisation.statistic(inputs[:77]) + normalisation.statistic(inputs[77:]))
    monkeypatch.setattr("tacit.training.preparation.normalisation._CHUNK", 7)
    assert torch.equal(whole, normalisation.statistic(inputs))


# --- sensitivity ---

_OTHERS = rand(20, 4, 6)
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.sampled_from(
    [0.0, 1e-42, 3.4e38, -3.4e38, 1.0, -1.0, 1e19, 1e-19]
)


@given(
    record=arrays("float32", (1, 4, 6), elements=numbers),
    bounds=st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)),
)
def test_no_record_moves_the_statistic_further_than_the_sensitivity(record, bounds):
    normalisation = ChannelNormalisation(20, 1.0, *bounds)
    with_it = normalisation.statistic(torch.cat([_OTHERS, torch.from_numpy(record).double()]))
    moved = with_it - normalisation.statistic(_OTHERS)
    assert moved.isfinite().all()
    assert moved[:4].norm() <= 1
    assert moved[4:].norm() <= 1
    assert moved.norm() <= normalisation.mechanism.sensitivity


@given(
    record=arrays("float64", (1, 3, 2), elements=st.floats(allow_nan=True, allow_infinity=True)),
    factor=st.floats(0.1, 10),
)
def test_double_precision_records_move_no_further_either(record, factor):
    normalisation = ChannelNormalisation(20, 1.0, factor, 1 / factor)
    moved = normalisation.statistic(torch.from_numpy(record))
    assert moved.isfinite().all()
    assert moved.norm() <= normalisation.mechanism.sensitivity


def test_large_records_attain_the_sensitivity_so_noise_for_less_would_be_too_little():
    normalisation = ChannelNormalisation(20, 1.0)
    moved = normalisation.statistic(torch.full((1, 4, 6), 1e30))
    assert moved.norm() == pytest.approx(ROOT2, rel=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_contributes_zero(value):
    odd = _OTHERS[:1].clone()
    odd[0, 2, 3] = value
    normalisation = ChannelNormalisation(20, 1.0)
    assert torch.equal(normalisation.statistic(torch.cat([_OTHERS, odd])), normalisation.statistic(_OTHERS))


def test_pitfall_01_the_divisor_is_public():
    released = torch.linspace(0.5, 2.0, 8, dtype=torch.float64)
    transform = ChannelNormalisation(40, 1.0).transform(released, (4, 6))
    torch.testing.assert_close(transform.shift.double(), released[:4] / 40)


# --- the noise ---


@dataclasses.dataclass(frozen=True)
class _Recording:
    """Keeps what was released; with a share below 1 its noise is too small."""

    inner: ChannelNormalisation
    released: list = dataclasses.field(default_factory=list)
    share: float = 1.0

    @property
    def mechanism(self):
        due = self.inner.mechanism
        return Gaussian(due.noise_multiplier * self.share, due.sensitivity)

    def statistic(self, inputs):
        return self.inner.statistic(inputs)

    def transform(self, released, input_shape):
        self.released.append(released)
        return self.inner.transform(released, input_shape)

    def describe(self):
        return self.inner.describe()


@pytest.mark.parametrize(("share", "passes"), [(1.0, True), (0.9, False), (1.1, False), (0.5, False)])
def test_noise_has_the_law_that_the_event_claims(share, passes):
    inputs = rand(5, 4000, 2)
    recording = _Recording(ChannelNormalisation(5, 3.0), share=share)
    for _ in range(5):
        prepare(make_plan(recording), inputs)
    due = recording.statistic(inputs)
    for part in (slice(0, 4000), slice(4000, None)):  # on either sum
        drawn = torch.cat([(released - due)[part] / 3.0 for released in recording.released]).numpy()
        p_value = stats.kstest(drawn, "norm").pvalue
        assert p_value > 1e-4 if passes else p_value < 1e-6


def test_the_event_is_that_of_two_gaussians():
    mechanism = ChannelNormalisation(60_000, 8.0, 0.3, 0.2).mechanism
    assert mechanism.scale == pytest.approx(8.0)
    two = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(8.0)] * 2)
    assert epsilon(mechanism.event(), 1e-5) == pytest.approx(epsilon(two, 1e-5), rel=2e-3)


def test_the_plan_pays_for_it():
    normalisation = ChannelNormalisation(100, 8.0)
    plain, paying = make_plan(epsilon=2.0), make_plan(normalisation, epsilon=2.0)
    assert paying.noise_multiplier > plain.noise_multiplier
    assert paying.epsilon() <= 2.0
    assert "normalisation of channels by two noisy sums with noise multiplier 8 each" in str(paying.statement())


# --- the map ---


def test_channels_come_out_with_mean_zero_and_variance_one():
    inputs = rand(5000, 4, 3, 3) * torch.tensor([1.0, 2.0, 1.2, 1.5]).view(4, 1, 1) + 0.3
    normalisation = ChannelNormalisation(5000, 1.0, 4.0, 8.0)
    outputs = prepare(make_plan(normalisation), inputs.float())(inputs.float()).double()
    torch.testing.assert_close(outputs.mean((0, 2, 3)), torch.zeros(4, dtype=torch.float64), atol=0.05, rtol=0)
    torch.testing.assert_close(outputs.var((0, 2, 3)), torch.ones(4, dtype=torch.float64), atol=0.15, rtol=0)


def test_without_noise_it_is_batch_normalisation():
    inputs = rand(200, 5, 4, 4)
    normalisation = ChannelNormalisation(200, 1.0, 10.0, 10.0)
    found = normalisation.transform(normalisation.statistic(inputs), (5, 4, 4))(inputs.float())
    due = torch.nn.functional.batch_norm(inputs.float(), None, None, training=True)
    torch.testing.assert_close(found, due, atol=1e-4, rtol=1e-4)


def test_channels_without_variance_become_zero():
    released = torch.tensor([10.0, 10.0, 5.0, 20.0], dtype=torch.float64)  # mean squares 0.5 and 2 for means of 1
    transform = ChannelNormalisation(10, 1.0).transform(released, (2, 3))
    outputs = transform(torch.rand(4, 2, 3))
    assert not outputs[:, 0].any()
    assert outputs[:, 1].any()
    assert set(transform.state_dict()) == {"shift", "scale"}
    assert not list(transform.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0), "examples=0"),
        ((10, 0.0), "noise_multiplier=0"),
        ((10, 1.0, -1.0), "mean_bound=-1"),
        ((10, 1.0, 1.0, math.inf), "square_bound=inf"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(InputError, match=message):
        ChannelNormalisation(*arguments)


def test_inputs_without_channels_are_refused():
    with pytest.raises(InputError, match="inputs: single numbers have no channels"):
        ChannelNormalisation(10, 1.0).statistic(torch.rand(4))
