"""The discrete samplers draw exactly the masses of their formulas, from integers alone."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import epsilon, event_from_json, event_to_json, zcdp_to_epsilon
from tacit.core import InputError
from tacit.core.randomness import Randomness
from tacit.mechanisms import DiscreteGaussian, DiscreteLaplace
from tacit.mechanisms.integer_noise import RandomBits, discrete_gaussian, discrete_laplace, exponential_coin

RNG = Randomness(unsafe_seed=13)
ACCEPT = 1e-3
SUPPORT = np.arange(-4000, 4001)


def laplace_masses(scale: float) -> np.ndarray:
    return np.tanh(1 / (2 * scale)) * np.exp(-np.abs(SUPPORT) / scale)


def gaussian_masses(scale: float) -> np.ndarray:
    weights = np.exp(-(SUPPORT**2) / (2 * scale**2))
    return weights / weights.sum()


def pvalue(draws: list[int], masses: np.ndarray) -> float:
    """Chi-square over the integers, neighbours pooled into cells of at least a fortieth of the mass each."""
    cumulative = np.cumsum(masses)
    edges = np.unique(np.searchsorted(cumulative, np.arange(1, 40) / 40))
    cells = np.diff(np.concatenate([[0.0], cumulative[edges], [cumulative[-1]]]))
    counts = np.bincount(np.searchsorted(SUPPORT[edges], draws), minlength=len(cells))
    expected = len(draws) * cells
    known = expected > 5
    if counts[~known].sum() > 10:
        return 0.0
    statistic = np.sum((counts - expected)[known] ** 2 / expected[known])
    return float(stats.chi2.sf(statistic, df=known.sum() - 1))


@pytest.mark.parametrize("scale", [0.5, 1, Fraction(7, 3), 12.25, 150])
def test_discrete_laplace_has_its_masses(scale: float | Fraction) -> None:
    draws = DiscreteLaplace(scale, 1).draw(15_000, RNG.stream("laplace", str(scale)))
    assert pvalue(draws, laplace_masses(float(scale))) > ACCEPT
    for near_miss in (0.9, 1.1):
        assert pvalue(draws, laplace_masses(near_miss * float(scale))) < 1e-6


@pytest.mark.parametrize("scale", [0.5, 1, Fraction(7, 3), 12.25, 150])
def test_discrete_gaussian_has_its_masses(scale: float | Fraction) -> None:
    draws = DiscreteGaussian(scale, 1).draw(15_000, RNG.stream("gaussian", str(scale)))
    assert pvalue(draws, gaussian_masses(float(scale))) > ACCEPT
    for near_miss in (0.9, 1.1):
        assert pvalue(draws, gaussian_masses(near_miss * float(scale))) < 1e-6


def test_a_rounded_gaussian_is_a_near_miss() -> None:
    """Rounding continuous noise is not the discrete Gaussian: the test would see it."""
    rounded = np.rint(0.5 * RNG.stream("rounded").standard_normal(15_000)).astype(int)
    assert pvalue(list(rounded), gaussian_masses(0.5)) < 1e-6


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_exponential_coin_has_its_probability(exponent: Fraction) -> None:
    bits, draws = RandomBits(RNG.stream("coin", str(exponent))), 20_000
    heads = sum(exponential_coin(exponent.numerator, exponent.denominator, bits) for _ in range(draws))
    assert stats.binomtest(heads, draws, math.exp(-exponent)).pvalue > ACCEPT
    if exponent:
        assert stats.binomtest(heads, draws, 0.9 * math.exp(-exponent)).pvalue < ACCEPT


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    bits = RandomBits(RNG.stream("below", bound))
    counts = np.bincount([bits.below(bound) for _ in range(20 * bound)], minlength=bound)
    assert len(counts) == bound
    assert bound == 1 or stats.chisquare(counts).pvalue > ACCEPT


@given(st.integers(1, 2**300), st.integers(0, 2**32))
def test_integers_below_any_bound_stay_below_it(bound: int, seed: int) -> None:
    bits = RandomBits(Randomness(unsafe_seed=seed).stream("below"))
    assert all(0 <= bits.below(bound) < bound for _ in range(5))


class CountedBits(RandomBits):
    """A source that refuses anything but integers, to show that no float reaches a decision."""

    def below(self, bound: int) -> int:
        assert type(bound) is int
        return super().below(bound)

    def coin(self, numerator: int, denominator: int) -> bool:
        assert type(numerator) is int
        assert type(denominator) is int
        return super().coin(numerator, denominator)


@given(st.fractions(Fraction(1, 10), 10**4, max_denominator=10**6), st.integers(0, 2**32))
def test_samplers_work_on_integers_alone(scale: Fraction, seed: int) -> None:
    bits = CountedBits(Randomness(unsafe_seed=seed).stream("integers"))
    assert type(discrete_laplace(scale, bits)) is int
    assert type(discrete_gaussian(scale**2, bits)) is int


@pytest.mark.parametrize(
    "mechanism", [DiscreteGaussian(1e-3, 1), DiscreteGaussian(1e9 + 0.1, 1), DiscreteLaplace(1e9, 1)]
)
def test_a_thousand_draws_take_well_below_a_second(mechanism: DiscreteGaussian | DiscreteLaplace) -> None:
    start = time.process_time()
    mechanism.draw(1000, RNG.stream("speed"))
    assert time.process_time() - start < 0.7


@pytest.mark.parametrize("mechanism", [DiscreteGaussian(5, 1), DiscreteLaplace(5, 1)])
def test_integers_and_arrays_are_noised_in_kind(mechanism: DiscreteGaussian | DiscreteLaplace) -> None:
    assert type(mechanism.add_noise(10, RNG.stream("kind"))) is int
    assert type(mechanism.add_noise(np.int32(10), RNG.stream("kind"))) is int
    for shape in [(), (0,), (4,), (2, 3)]:
        value = np.full(shape, 7, dtype=np.int32)
        noised = mechanism.add_noise(value, RNG.stream("kind"))
        assert noised.shape == shape
        assert noised.dtype == np.int64
        assert (value == 7).all()
    noise = mechanism.draw(6, RNG.stream("kind"))
    assert mechanism.add_noise(np.arange(6), RNG.stream("kind")).tolist() == [i + n for i, n in enumerate(noise)]
    assert len(set(mechanism.draw(50, RNG.stream("kind")))) > 3


@pytest.mark.parametrize("value", [1.5, None, "1", True, np.ones(2), np.array([True])])
def test_values_that_are_no_integers_are_refused(value: object) -> None:
    for mechanism in (DiscreteGaussian(5, 1), DiscreteLaplace(5, 1)):
        with pytest.raises(InputError, match=r"integers.*GridRelease"):
            mechanism.add_noise(value, RNG.stream("bad"))  # type: ignore[call-overload]


@pytest.mark.parametrize("make", [DiscreteGaussian, DiscreteLaplace])
def test_discrete_mechanisms_refuse_no_noise_and_bad_parameters(
    make: type[DiscreteGaussian] | type[DiscreteLaplace],
) -> None:
    with pytest.raises(InputError, match="scale=0: gives no privacy"):
        make(0, 1)
    silent = make(0, 1, unsafe_no_noise=True)
    assert silent.event() == dp_event.NonPrivateDpEvent()
    assert silent.add_noise(41, RNG.stream("silent")) == 41
    for scale, sensitivity in [(-1, 1), (math.inf, 1), (math.nan, 1), ("1", 1), (1, 0), (1, -2), (1, None)]:
        with pytest.raises(InputError, match=r"scale=|sensitivity="):
            make(scale, sensitivity)
    with pytest.raises(InputError, match="count="):
        make(1, 1).draw(-1, RNG.stream("bad"))


def test_events_are_exact_and_rounded_up() -> None:
    assert DiscreteGaussian(4, 2).event() == dp_event.ZCDpEvent(0.125)
    assert DiscreteLaplace(4, 3).event() == dp_event.DiscreteLaplaceDpEvent(0.25, 3)
    assert DiscreteLaplace.from_epsilon(0.5, 3) == DiscreteLaplace(Fraction(6), 3)
    with pytest.raises(InputError, match="epsilon="):
        DiscreteLaplace.from_epsilon(0, 3)


def test_accountants_know_the_events() -> None:
    laplace, gaussian = DiscreteLaplace.from_epsilon(0.5, 3).event(), DiscreteGaussian(4, 2).event()
    assert epsilon(laplace, 0) == pytest.approx(0.5)
    assert epsilon(gaussian, 1e-5, accountant="rdp") <= zcdp_to_epsilon(0.125, 1e-5) * (1 + 1e-2)
    for event in (laplace, gaussian):
        assert event_from_json(event_to_json(event)) == event


@given(st.fractions(Fraction(1, 100), 100), st.integers(1, 100))
def test_events_never_state_less_than_the_truth(scale: Fraction, sensitivity: int) -> None:
    assert DiscreteLaplace(scale, sensitivity).event().noise_parameter >= 1 / scale
    assert DiscreteGaussian(scale, sensitivity).event().rho >= Fraction(sensitivity) ** 2 / (2 * scale**2)


@pytest.mark.parametrize(("scale", "sensitivity"), [(0.7, 1), (2.5, 2), (4.0, 3)])
@pytest.mark.parametrize("order", [1.5, 2, 8])
def test_discrete_gaussian_rho_bounds_the_divergence_of_its_masses(
    scale: float, sensitivity: int, order: float
) -> None:
    masses = gaussian_masses(scale)
    moved = np.roll(masses, sensitivity)
    inside = (masses > 1e-280) & (moved > 1e-280)
    powers = order * np.log(masses[inside]) + (1 - order) * np.log(moved[inside])
    divergence = np.log(np.sum(np.exp(powers))) / (order - 1)
    rho = DiscreteGaussian(scale, sensitivity).event().rho
    assert divergence <= rho * order * (1 + 1e-9)
    assert divergence == pytest.approx(rho * order, rel=1e-2)


@pytest.mark.parametrize(("scale", "sensitivity"), [(0.7, 1), (2.5, 2)])
def test_discrete_laplace_epsilon_is_attained_by_its_masses(scale: float, sensitivity: int) -> None:
    masses = laplace_masses(scale)
    middle = slice(3900, 4101)
    losses = np.log(masses[middle]) - np.log(np.roll(masses, sensitivity)[middle])
    event = DiscreteLaplace(scale, sensitivity).event()
    assert np.abs(losses).max() == pytest.approx(event.noise_parameter * event.sensitivity, rel=1e-9)
