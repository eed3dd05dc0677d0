"""Gaussian noise that is rounded: the masses are those of the normal distribution, and so is the guarantee."""

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import gaussian_delta
from tacit.core import InputError
from tacit.core.randomness import Randomness
from tacit.mechanisms import RoundedGaussian
from tacit.mechanisms.integer_noise import RandomBits
from tacit.mechanisms.rounded_gaussian import rounded_gaussian

RNG = Randomness(unsafe_seed=23)


def masses(scale: float, support: np.ndarray) -> np.ndarray:
    return stats.norm.cdf((support + 0.5) / scale) - stats.norm.cdf((support - 0.5) / scale)


def pvalue(draws: np.ndarray, scale: float) -> float:
    """Chi-square over the integers; those with few expected draws are pooled into the two tails."""
    reach = max(int(stats.norm.isf(20 / len(draws)) * scale), 1)
    support = np.arange(-reach, reach + 1)
    inner = masses(scale, support)
    tail = (1 - inner.sum()) / 2
    expected = len(draws) * np.concatenate([[tail], inner, [tail]])
    counts = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=len(expected))
    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize("scale", [0.7, Fraction(13, 5)])
def test_draws_have_the_masses_of_the_normal_distribution(scale: float | Fraction) -> None:
    draws = np.array(RoundedGaussian(scale, 1).draw(20_000, RNG.stream("masses", str(scale))))
    assert pvalue(draws, float(scale)) > 1e-3
    for near_miss in (0.95, 1.05):
        assert pvalue(draws, near_miss * float(scale)) < 1e-4


def test_the_discrete_gaussian_is_a_near_miss() -> None:
    """Both are exact, but they are not the same distribution: at small scales the test tells them apart."""
    support = np.arange(-12, 13)
    weights = np.exp(-(support**2) / (2 * 0.5**2))
    draws = RNG.stream("discrete").choice(support, size=20_000, p=weights / weights.sum())
    assert pvalue(draws, 0.5) < 1e-6


def test_large_scales_are_as_good_as_continuous() -> None:
    draws = np.array(RoundedGaussian(2.0**32, 1).draw(8_000, RNG.stream("large"))) / 2.0**32
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    for near_miss in (0.95, 1.05):
        squares = float(np.sum((draws / near_miss) ** 2))
        assert 2 * min(stats.chi2.sf(squares, 8_000), stats.chi2.cdf(squares, 8_000)) < 1e-6


class IntegersOnly(RandomBits):
    """A source that refuses anything but integers, to show that no float reaches a decision."""

    def below(self, bound: int) -> int:
        assert type(bound) is int
        return super().below(bound)


@given(st.fractions(Fraction(1, 10), 10**4, max_denominator=10**6), st.integers(0, 2**32))
def test_the_sampler_works_on_integers_alone(scale: Fraction, seed: int) -> None:
    bits = IntegersOnly(Randomness(unsafe_seed=seed).stream("integers"))
    assert type(rounded_gaussian(scale**2, bits)) is int


@pytest.mark.parametrize("scale", [0.4, 0.8, 1.5, 4.0])
@pytest.mark.parametrize("moved", [1, 2, 5])
def test_no_epsilon_has_a_larger_delta_than_the_real_gaussian(scale: float, moved: int) -> None:
    """Post-processing, seen in the masses: the exact hockey-stick divergence stays below Balle and Wang's."""
    support = np.arange(-400, 401)
    here, there = masses(scale, support), masses(scale, support - moved)
    for epsilon in np.linspace(0, 6, 61):
        exact = np.maximum(here - math.exp(epsilon) * there, 0).sum()
        assert exact <= gaussian_delta(scale / moved, epsilon) + 1e-14


def test_the_discrete_gaussian_has_no_such_bound() -> None:
    """Why the noise is rounded: the discrete Gaussian of the same scale exceeds the real delta at some epsilon."""
    scale, support = 1.5, np.arange(-400, 401)
    weights = np.exp(-(support**2) / (2 * scale**2))
    here = weights / weights.sum()
    there = np.roll(here, 1)
    excess = [
        np.maximum(here - math.exp(epsilon) * there, 0).sum() / gaussian_delta(scale, epsilon)
        for epsilon in np.linspace(0, 3, 61)
    ]
    assert max(excess) > 1.05


def test_the_event_is_the_gaussian_mechanisms_and_never_overstates_the_noise() -> None:
    assert RoundedGaussian(6, 2).event() == dp_event.GaussianDpEvent(3.0)
    event = RoundedGaussian(Fraction(1), Fraction(3)).event()
    assert Fraction(event.noise_multiplier) <= Fraction(1, 3)


def test_integers_are_noised_and_bad_parameters_refused() -> None:
    noised = RoundedGaussian(5, 1).add_noise(np.arange(6), RNG.stream("kind"))
    noise = RoundedGaussian(5, 1).draw(6, RNG.stream("kind"))
    assert noised.tolist() == [i + n for i, n in enumerate(noise)]
    with pytest.raises(InputError, match="scale=0"):
        RoundedGaussian(0, 1)
    with pytest.raises(InputError, match="sensitivity="):
        RoundedGaussian(1, -1)
