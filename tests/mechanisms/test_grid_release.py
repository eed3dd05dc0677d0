"""Released statistics lie on the declared grid, and rounding is paid for."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.core import InputError
from tacit.core.randomness import Randomness
from tacit.mechanisms import GridRelease, grid_l1_sensitivity, grid_l2_sensitivity

RNG = Randomness(unsafe_seed=17)
LAPLACE = GridRelease.laplace(scale=2.0, sensitivity=1.0, granularity=0.25, changed_coordinates=1)
GAUSSIAN = GridRelease.gaussian(scale=2.0, sensitivity=1.0, granularity=0.25, changed_coordinates=1)
either = pytest.mark.parametrize("release", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30)


@given(value=finite, granularity=st.floats(1e-6, 1e6), seed=st.integers(0, 2**32))
def test_pitfall_22_released_values_lie_on_the_grid_for_all_inputs(value: float, granularity: float, seed: int) -> None:
    for make in (GridRelease.laplace, GridRelease.gaussian):
        release = make(scale=3.0, sensitivity=1.0, granularity=granularity, changed_coordinates=1)
        released = release.add_noise(value, Randomness(unsafe_seed=seed).stream("grid"))
        multiple = round(Fraction(released) / Fraction(granularity))
        assert released == float(multiple * Fraction(granularity))


@given(value=finite, shift=st.integers(-(2**40), 2**40))
def test_pitfall_22_the_low_bits_of_the_value_leave_no_trace(value: float, shift: int) -> None:
    """Two values that round alike are released as the very same numbers."""
    cell = math.floor(Fraction(value) * 4 + Fraction(1, 2))
    twin = float(Fraction(cell, 4))
    for release in (LAPLACE, GAUSSIAN):
        stream = ("twin", shift)
        assert release.add_noise(value, RNG.stream(*stream)) == release.add_noise(twin, RNG.stream(*stream))


@either
def test_released_values_are_the_rounded_value_plus_noise_of_the_scale(release: GridRelease) -> None:
    released = release.add_noise(np.full(25_000, 100.1), RNG.stream("scale"))
    steps = (released - 100.0) / 0.25
    assert (steps == np.rint(steps)).all()
    family = stats.laplace if release is LAPLACE else stats.norm
    # Half a step of jitter makes the integers continuous without moving their mean.
    jittered = (steps + RNG.stream("jitter").random(25_000) - 0.5) * 0.25
    assert stats.kstest(jittered, family(scale=2.0).cdf).pvalue > 1e-3
    for near_miss in (0.9, 1.1):
        assert stats.kstest(jittered, family(scale=2.0 * near_miss).cdf).pvalue < 1e-6


def test_scale_and_event_are_those_of_the_grid_units() -> None:
    assert LAPLACE.scale == GAUSSIAN.scale == 2.0
    assert LAPLACE.event() == dp_event.DiscreteLaplaceDpEvent(1 / 8, 4)
    assert GAUSSIAN.event() == dp_event.ZCDpEvent(16 / (2 * 64))
    coarse = GridRelease.laplace(scale=2.0, sensitivity=1.0, granularity=4.0, changed_coordinates=1)
    assert coarse.event() == dp_event.DiscreteLaplaceDpEvent(2.0, 1)  # a coarse grid costs more than 1 / 2


@either
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_arrays_keep_their_shape(release: GridRelease, shape: tuple[int, ...]) -> None:
    value = np.full(shape, 0.3)
    released = release.add_noise(value, RNG.stream("shape"))
    assert released.shape == shape
    assert released.dtype == np.float64
    assert (value == 0.3).all()
    assert type(release.add_noise(0.3, RNG.stream("shape"))) is float
    assert type(release.add_noise(3, RNG.stream("shape"))) is float


def rounded(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def worst_moves(total: Fraction, coordinates: int, power: int) -> list[tuple[Fraction, ...]]:
    """Moves on a fine grid whose L1 (power 1) or L2 (power 2) norm is at most ``total``."""
    quarter = [Fraction(k, 4) for k in range(math.ceil(total) * 4 + 1)]
    return [
        move for move in itertools.product(quarter, repeat=coordinates) if sum(m**power for m in move) <= total**power
    ]


def largest_change(total: Fraction, coordinates: int, power: int) -> int:
    """By brute force: each coordinate starts where its own move crosses the most boundaries."""
    starts = [Fraction(k, 8) for k in range(8)]
    crossed = {
        move: max(rounded(start + move) - rounded(start) for start in starts)
        for move in {m for moves in worst_moves(total, coordinates, power) for m in moves}
    }
    return max(sum(crossed[m] ** power for m in moves) for moves in worst_moves(total, coordinates, power))


@pytest.mark.parametrize("total", [Fraction(1, 2), Fraction(1), Fraction(5, 4), Fraction(2), Fraction(11, 4)])
@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_sensitivity_after_rounding_is_never_exceeded(total: Fraction, coordinates: int) -> None:
    l1 = grid_l1_sensitivity(float(total), 1.0, coordinates)
    l2 = grid_l2_sensitivity(float(total), 1.0, coordinates)
    assert largest_change(total, coordinates, power=1) <= l1
    assert largest_change(total, coordinates, power=2) <= l2**2
    assert l2 <= float(total) + math.sqrt(coordinates) + 1e-12 or coordinates == 1


@pytest.mark.parametrize(("total", "coordinates", "l1"), [(0.5, 1, 1), (1, 1, 1), (1.5, 1, 2), (1, 3, 3), (2.5, 3, 5)])
def test_l1_sensitivity_is_attained_by_pushes_over_boundaries(total: float, coordinates: int, l1: int) -> None:
    assert grid_l1_sensitivity(total, 1.0, coordinates) == l1
    push = Fraction(1, 1000)
    start = [Fraction(1, 2) - push / 2] * coordinates  # just below a boundary
    whole = Fraction(total) - (coordinates - 1) * push
    move = [whole, *[push] * (coordinates - 1)]
    if Fraction(total).denominator == 1 and coordinates == 1:
        start[0] = Fraction(0)
    moved = sum(rounded(s + m) - rounded(s) for s, m in zip(start, move, strict=True))
    assert moved == l1


@pytest.mark.parametrize(("total", "coordinates", "squared"), [(0.5, 1, 1), (2, 1, 4), (0.5, 4, 4), (1.5, 4, 10)])
def test_l2_sensitivity_of_known_cases(total: float, coordinates: int, squared: int) -> None:
    """1.5 in four coordinates: two of them cross two boundaries, two cross one: 4 + 4 + 1 + 1."""
    assert grid_l2_sensitivity(total, 1.0, coordinates) ** 2 == pytest.approx(squared, rel=1e-15)
    assert grid_l2_sensitivity(total * 8, 8.0, coordinates) == grid_l2_sensitivity(total, 1.0, coordinates)


def test_half_way_values_round_up_so_that_whole_shifts_are_kept() -> None:
    """Rounding half to even would turn a move of one step, from 0.5 to 1.5, into two."""
    silent = GridRelease(GAUSSIAN.mechanism.__class__(0, 1, unsafe_no_noise=True), 1.0)
    values = [silent.add_noise(v, RNG.stream("silent")) for v in (-1.5, -0.5, 0.5, 1.5, 2.5)]
    assert values == [-1.0, 0.0, 1.0, 2.0, 3.0]


@either
@pytest.mark.parametrize("value", [math.nan, math.inf, np.array([1.0, math.nan]), "x", None, [1.0, 2.0]])
def test_values_that_are_not_finite_numbers_are_refused(release: GridRelease, value: float) -> None:
    with pytest.raises(InputError, match="finite"):
        release.add_noise(value, RNG.stream("bad"))


@pytest.mark.parametrize("make", [GridRelease.laplace, GridRelease.gaussian])
@pytest.mark.parametrize(
    "bad",
    [
        {"scale": 0.0},
        {"scale": math.nan},
        {"sensitivity": 0.0},
        {"sensitivity": math.inf},
        {"granularity": 0.0},
        {"granularity": -1.0},
        {"changed_coordinates": 0},
        {"changed_coordinates": 1.5},
    ],
)
def test_parameters_out_of_range_are_refused_by_name(make: object, bad: dict[str, float]) -> None:
    good = {"scale": 1.0, "sensitivity": 1.0, "granularity": 1.0, "changed_coordinates": 1}
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        make(**{**good, **bad})  # type: ignore[operator]
