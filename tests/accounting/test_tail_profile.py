"""Profiles from a spectrum against masses that are convolved and summed one by one."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.accounting import dominating
from tacit.accounting.convolution import TiltedLoss, Window, compose, tilt
from tacit.accounting.discretisation import LossDistribution, on_uniform_grid
from tacit.accounting.tail_profile import Spectrum, transform_size


def slow_delta(first: int, loss: LossDistribution, count: int, spacing: float, epsilon: float) -> float:
    """Delta of the composition on the grid, by plain convolution and one sum, nothing tilted or transformed."""
    masses = loss.masses
    for _ in range(count - 1):
        masses = np.convolve(masses, loss.masses)
    losses = spacing * (count * first + np.arange(masses.size))
    above = losses > epsilon
    infinite = 1 - (1 - loss.infinity_mass) ** count
    return float(masses[above] @ -np.expm1(epsilon - losses[above])) + infinite


@given(st.floats(0.5, 3), st.floats(0.02, 1), st.integers(2, 12), st.floats(0.3, 6), st.floats(0.1, 3), st.booleans())
@settings(max_examples=40)
def test_delta_and_epsilon_are_those_of_the_plain_sum(
    sigma: float, rate: float, count: int, order: float, epsilon: float, reverse: bool
) -> None:
    pair = dominating.poisson_sampled(dominating.gaussian(sigma), rate)
    spacing = 0.02
    first, loss = on_uniform_grid(pair.reversed() if reverse else pair, spacing, (-6.0, 12.0))
    infinity = 1 - (1 - loss.infinity_mass) ** count
    window = Window(order, count * first * spacing, math.inf, 0.0)
    profile = compose([tilt(first, loss, count, order, count)], window, spacing, infinity)
    exact = slow_delta(first, loss, count, spacing, epsilon)
    assume(exact > 1e-12)
    found = profile.delta(epsilon)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-6) + 1e-9 * math.exp(profile.log_moment - order * epsilon)
    if 1e-6 < exact < 0.5:
        certified = profile.epsilon(exact)
        assert slow_delta(first, loss, count, spacing, certified) <= exact * (1 + 1e-9)
        assert certified == pytest.approx(
            epsilon, abs=1e-6 + 2e-9 * math.exp(profile.log_moment - order * epsilon) / exact
        )


@given(st.integers(2, 3000), st.integers(0, 10**6), st.integers(0, 400))
def test_strides_and_single_masses_show_the_same_signal(length: int, seed: int, bandwidth: int) -> None:
    size = transform_size(length)
    assert size >= length
    generator = np.random.default_rng(seed)
    frequencies = np.arange(min(bandwidth, size // 2) + 1)
    values = generator.normal(size=frequencies.size) + 1j * generator.normal(size=frequencies.size)
    values[(frequencies == 0) | (2 * frequencies == size)] = 1.0
    spectrum = Spectrum(size, frequencies, values)
    whole = np.zeros(size // 2 + 1, dtype=complex)
    whole[frequencies] = values
    signal = np.fft.irfft(whole, size)
    ones = np.ones_like(values)
    np.testing.assert_allclose(spectrum.every_stride(ones), signal[:: spectrum.stride], atol=1e-10)
    index = seed % size
    assert spectrum.at(index, ones) == pytest.approx(signal[index], abs=1e-10)
    assert spectrum.stride == 1 or size // spectrum.stride > 2 * frequencies[-1]


def test_a_window_cuts_off_what_the_period_repeats() -> None:
    # Under a weak tilt the next period weighs nearly as much as this one; counted in, it would double delta.
    loss = LossDistribution(np.asarray([-0.5, 0.0, 0.5]), np.asarray([0.2, 0.3, 0.5]), 0.0)
    tilted = TiltedLoss(-1, loss.masses * np.exp(0.01 * loss.losses), 4, 0.0)
    profile = compose([tilted], Window(0.01, -2.0, math.inf, 0.0), 0.5, 0.0)
    assert profile.delta(0.7) == pytest.approx(slow_delta(-1, loss, 4, 0.5, 0.7), rel=1e-9)
