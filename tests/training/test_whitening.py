"""Private centring and whitening: what one record can do, the noise, and the maps that are made."""

import dataclasses
import math

import pytest
import torch
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.mechanisms import Gaussian
from tacit.plan import DPSGD
from tacit.training import prepare
from tacit.training.preparation import Centring, ChannelWhitening, apply
from tacit.training.preparation.rows import symmetric_matrix, upper_triangle

KINDS = [Centring, ChannelWhitening]
both = pytest.mark.parametrize("kind", KINDS)


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


# --- the statistics ---


def test_several_kinds_are_summed_one_by_one():
    first, second = rand(40, 5, 6) - 0.3, rand(40, 2, 3, seed=1) - 0.5
    rows = torch.cat([first.flatten(1), second.flatten(1)], dim=1)
    found = ChannelWhitening(40, 1.0, kinds=((5, 6), (2, 3))).statistic(rows)
    due = [ChannelWhitening(40, 1.0).statistic(kind) for kind in (first, second)]
    assert torch.equal(found, torch.cat(due))


def test_one_record_moves_several_kinds_by_no_more_than_the_root_of_their_number():
    preparation = ChannelWhitening(10, 3.0, kinds=((4, 2), (3, 5), (2, 2)))
    assert preparation.mechanism == Gaussian(3.0, math.sqrt(3))
    for seed in range(20):
        record = rand(1, 27, seed=seed) - 0.5
        assert preparation.statistic(record).norm() <= math.sqrt(3)
    # Records of one direction in every kind come near the bound, so that it is no larger than need be.
    record = torch.zeros(1, 27, dtype=torch.float64)
    record[0, [0, 8, 23]] = 1
    assert preparation.statistic(record).norm() > math.sqrt(3) * (1 - 1e-4)


def test_statements_count_the_kinds():
    assert ChannelWhitening(10, 3.0, kinds=((4, 2), (3, 5))).describe().endswith("3, 2 kinds of features together")
    assert ChannelWhitening(10, 3.0, kinds=((4, 2),)).describe().endswith("noise multiplier 3")


def test_kinds_that_do_not_fill_a_row_are_refused():
    with pytest.raises(InputError, match="hold 10 numbers"):
        ChannelWhitening(10, 1.0, kinds=((5, 2),)).statistic(rand(4, 11))
    with pytest.raises(InputError, match="kinds=0"):
        ChannelWhitening(10, 1.0, kinds=((0, 2),))


def test_each_kind_is_whitened_as_if_it_were_alone():
    first, second = rand(400, 5, 6).float() - 0.3, rand(400, 2, 3, seed=1).float() - 0.5
    rows = torch.cat([first.flatten(1), second.flatten(1)], dim=1)
    kinds = ((5, 6), (2, 3))
    preparation = ChannelWhitening(400, 1e-3, kinds=kinds)
    found = preparation.transform(preparation.statistic(rows), (36,))(rows)
    for kind, part in zip((first, second), found.split([30, 6], dim=1), strict=True):
        alone = ChannelWhitening(400, 1e-3)
        due = alone.transform(alone.statistic(kind), tuple(kind.shape[1:]))(kind)
        torch.testing.assert_close(part, due.flatten(1), rtol=1e-4, atol=1e-4)


def test_centring_sums_unit_vectors():
    inputs = rand(40, 3, 4) - 0.3
    due = sum(record.flatten() / record.norm() for record in inputs)
    torch.testing.assert_close(Centring(40, 1.0).statistic(inputs), due, rtol=0, atol=40 * 2.0**-29)


def test_whitening_sums_second_moments_of_unit_vectors():
    inputs = rand(40, 5, 3, 2) - 0.3
    due = torch.zeros(5, 5, dtype=torch.float64)
    for record in inputs / inputs.flatten(1).norm(dim=1).view(-1, 1, 1, 1):
        for place in record.flatten(1).T:
            due += torch.outer(place, place)
    found = ChannelWhitening(40, 1.0).statistic(inputs)
    torch.testing.assert_close(symmetric_matrix(found, 5), due, rtol=0, atol=40 * 2.0**-14)


def test_symmetric_matrices_as_vectors_keep_their_norm():
    matrix = rand(6, 6)
    matrix = matrix + matrix.T
    vector = upper_triangle(matrix)
    assert vector.shape == (21,)
    assert vector.norm() == pytest.approx(matrix.norm())
    torch.testing.assert_close(symmetric_matrix(vector, 6), matrix)


@both
def test_statistics_are_exact_whatever_the_order(kind, monkeypatch):
    inputs = rand(300, 6, 5).float()
    preparation = kind(300, 1.0)
    whole = preparation.statistic(inputs)
    assert torch.equal(whole, preparation.statistic(inputs[torch.randperm(300)]))
    monkeypatch.setattr("tacit.training.preparation.whitening._CHUNK", 7)
    assert torch.equal(whole, preparation.statistic(inputs))


@both
def test_the_sum_of_no_records_is_zero(kind):
    assert not kind(10, 1.0).statistic(torch.rand(0, 4, 3)).any()
    flat = rand(9, 4)
    torch.testing.assert_close(kind(9, 1.0).statistic(flat), kind(9, 1.0).statistic(flat[:, :, None]), rtol=0, atol=0)


# --- sensitivity ---

_OTHERS = rand(20, 4, 6)
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.sampled_from(
    [0.0, 1e-42, 3.4e38, -3.4e38, 1.0, -1.0, 1e19, 1e-19]
)


@both
@given(record=arrays("float32", (1, 4, 6), elements=numbers))
def test_no_record_moves_the_statistic_further_than_the_sensitivity(kind, record):
    preparation = kind(20, 1.0)
    with_it = preparation.statistic(torch.cat([_OTHERS, torch.from_numpy(record).double()]))
    moved = with_it - preparation.statistic(_OTHERS)
    assert moved.isfinite().all()
    assert moved.norm() <= preparation.mechanism.sensitivity


@both
@given(record=arrays("float64", (1, 3, 2), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_double_precision_records_move_no_further_either(kind, record):
    moved = kind(20, 1.0).statistic(torch.from_numpy(record))
    assert moved.isfinite().all()
    assert moved.norm() <= 1


@both
def test_some_records_attain_the_sensitivity_so_noise_for_less_would_be_too_little(kind):
    record = torch.zeros(1, 4, 6)
    record[0, 2, 1:4] = 1e30  # one channel alone: all of the second moment is in one entry
    assert kind(20, 1.0).statistic(record).norm() == pytest.approx(1, rel=1e-4)


@both
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_contributes_zero(kind, value):
    odd = _OTHERS[:1].clone()
    odd[0, 2, 3] = value
    assert torch.equal(kind(20, 1.0).statistic(torch.cat([_OTHERS, odd])), kind(20, 1.0).statistic(_OTHERS))


# --- the noise ---


@dataclasses.dataclass(frozen=True)
class _Recording:
    """Keeps what was released; with a share below 1 its noise is too small."""

    inner: Centring | ChannelWhitening
    released: list = dataclasses.field(default_factory=list)
    share: float = 1.0

    @property
    def mechanism(self):
        return Gaussian(self.inner.mechanism.noise_multiplier * self.share, self.inner.mechanism.sensitivity)

    def statistic(self, inputs):
        return self.inner.statistic(inputs)

    def transform(self, released, input_shape):
        self.released.append(released)
        return self.inner.transform(released, input_shape)

    def describe(self):
        return self.inner.describe()


@both
@pytest.mark.parametrize(("share", "passes"), [(1.0, True), (0.9, False), (1.1, False), (0.5, False)])
def test_noise_has_the_law_that_the_event_claims(kind, share, passes):
    inputs = rand(5, 100, 50)
    recording = _Recording(kind(5, 3.0), share=share)
    for _ in range(4):
        prepare(make_plan(recording), inputs)
    due = recording.statistic(inputs)
    drawn = torch.cat([(released - due) / 3.0 for released in recording.released]).numpy()
    p_value = stats.kstest(drawn, "norm").pvalue
    assert p_value > 1e-4 if passes else p_value < 1e-6


@both
def test_the_event_and_the_plan(kind):
    preparation = kind(100, 8.0)
    assert preparation.mechanism.event() == dp_event.GaussianDpEvent(8.0)
    plain, paying = make_plan(epsilon=2.0), make_plan(preparation, epsilon=2.0)
    assert paying.noise_multiplier > plain.noise_multiplier
    assert paying.epsilon() <= 2.0
    assert "with noise multiplier 8, then 3 steps" in str(paying.statement())


# --- the maps ---


def correlated(count, seed=0):
    mix = torch.tensor([[1.0, 0, 0], [0.9, 0.3, 0], [0.1, 0.2, 0.1]], dtype=torch.float64)
    noise = torch.randn(count, 3, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (mix @ noise + torch.tensor([2.0, -1.0, 0.5])[:, None]).float()


def test_centring_leaves_vectors_of_one_length_with_little_mean():
    inputs = correlated(2000)
    outputs = prepare(make_plan(Centring(2000, 1.0)), inputs)(inputs)
    torch.testing.assert_close(outputs.flatten(1).norm(dim=1), torch.full((2000,), math.sqrt(24)))
    before = inputs / inputs.flatten(1).norm(dim=1).view(-1, 1, 1)
    assert outputs.mean(0).norm() / math.sqrt(24) < 0.3 * before.mean(0).norm()


def test_without_noise_the_mean_of_unit_vectors_is_subtracted():
    inputs = correlated(50).double()
    preparation = Centring(50, 1.0)
    found = preparation.transform(preparation.statistic(inputs), (3, 8))(inputs.float())
    units = inputs / inputs.flatten(1).norm(dim=1).view(-1, 1, 1)
    centred = units - units.mean(0)
    due = centred / centred.flatten(1).norm(dim=1).view(-1, 1, 1) * math.sqrt(24)
    torch.testing.assert_close(found, due.float(), rtol=1e-4, atol=1e-5)


def test_whitened_channels_are_nearly_uncorrelated_and_of_one_variance():
    inputs = correlated(5000)
    plan = make_plan(Centring(5000, 0.5), ChannelWhitening(5000, 0.5))
    outputs = prepare(plan, inputs)(inputs).double()
    moments = torch.einsum("ncp,ndp->cd", outputs, outputs) / (5000 * 8)
    torch.testing.assert_close(moments, torch.eye(3, dtype=torch.float64), atol=0.25, rtol=0)


@pytest.mark.parametrize("power", [1.0, 0.7])
def test_directions_below_the_noise_are_not_blown_up(power):
    preparation = ChannelWhitening(100, 1.0, power)
    released = upper_triangle(torch.diag(torch.tensor([50.0, 0.0, -3.0], dtype=torch.float64)))
    matrix = preparation.transform(released, (3, 8)).turns[0].matrix.double()
    floor = math.sqrt(6) / 100
    due = torch.diag(torch.tensor([0.5, floor, floor], dtype=torch.float64) ** (-power / 2))
    torch.testing.assert_close(matrix, due, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 256, 300])
def test_maps_always_see_blocks_of_one_size(count):
    # Libraries choose their algorithm by the number of rows: a record more must not move the others' last digits.
    sizes = []

    class Doubled(torch.nn.Module):
        def forward(self, rows):
            sizes.append(len(rows))
            return 2 * rows

    inputs = rand(count, 3)
    assert torch.equal(apply(Doubled(), inputs), 2 * inputs)
    assert set(sizes) == {256}


def test_pitfall_01_the_divisor_is_public():
    released = torch.linspace(0.5, 2.0, 24, dtype=torch.float64)
    mean = Centring(40, 1.0).transform(released, (3, 8)).mean
    torch.testing.assert_close(mean.flatten().double(), released / 40 * math.sqrt(24))


@both
def test_maps_keep_the_shape_and_zeros_and_do_not_train(kind):
    inputs = rand(30, 4, 3, 2).float()
    transform = prepare(make_plan(kind(30, 1.0)), inputs)
    assert transform(inputs).shape == inputs.shape
    assert transform(inputs[:0]).shape == (0, 4, 3, 2)
    assert transform(torch.zeros(1, 4, 3, 2)).isfinite().all()
    assert not list(transform.parameters())
    assert len(transform.state_dict()) == 1


@both
@pytest.mark.parametrize(("arguments", "message"), [((0, 1.0), "examples=0"), ((10, 0.0), "noise_multiplier=0")])
def test_bad_parameters(kind, arguments, message):
    with pytest.raises(InputError, match=message):
        kind(*arguments)


@pytest.mark.parametrize("power", [0.0, 1.1, -1.0])
def test_powers_out_of_range_are_refused(power):
    with pytest.raises(InputError, match="power="):
        ChannelWhitening(10, 1.0, power)


def test_inputs_without_channels_are_refused():
    with pytest.raises(InputError, match="inputs: single numbers have no channels"):
        ChannelWhitening(10, 1.0).statistic(torch.rand(4))
