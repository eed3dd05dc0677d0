"""The exponential mechanism and report noisy max: exact probabilities, and the guarantee they are proved to have."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import epsilon as epsilon_of
from tacit.core import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.mechanisms import Exponential, NoisyMax
from tacit.mechanisms.selection import Selection, pure_event

RNG = Randomness(unsafe_seed=29)
LOSSES = np.array([3, 0, 1, 1, 7])
DRAWS = 40_000
each = pytest.mark.parametrize("kind", [Exponential, NoisyMax])


def exponential_masses(losses: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(-rate * (losses - losses.min()))
    return weights / weights.sum()


def permute_and_flip_masses(losses: np.ndarray, rate: float) -> np.ndarray:
    """By brute force over all orders: the first coin of probability exp(-rate (loss - least)) that shows heads."""
    heads = np.exp(-rate * (losses - losses.min()))
    masses = np.zeros(len(losses))
    orders = list(itertools.permutations(range(len(losses))))
    for order in orders:
        reached = 1.0
        for place in order:
            masses[place] += reached * heads[place] / len(orders)
            reached *= 1 - heads[place]
    return masses


def noisy_max_masses(losses: np.ndarray, rate: float) -> np.ndarray:
    """P[i wins] for exponential noise, by numerical integration over its noise."""
    grid = np.linspace(0, 60 / rate, 600_001)
    density = rate * np.exp(-rate * grid)
    masses = []
    for i, loss in enumerate(losses):
        below = np.ones_like(grid)
        for j, other in enumerate(losses):
            if j != i:
                below *= -np.expm1(-rate * np.maximum(grid - loss + other, 0.0))
        masses.append(np.trapezoid(density * below, grid))
    return np.array(masses)


EXACT = {Exponential: exponential_masses, NoisyMax: permute_and_flip_masses}


@each
@pytest.mark.parametrize("rate", [Fraction(1, 3), 0.8])
def test_choices_have_their_exact_probabilities(kind: type[Selection], rate: float | Fraction) -> None:
    stream, chooser = RNG.stream("choices", kind.__name__, str(rate)), kind(rate, 1)
    counts = np.bincount([chooser.choose(LOSSES, stream) for _ in range(DRAWS)], minlength=len(LOSSES))

    def pvalue(at: float) -> float:
        return float(stats.chisquare(counts, DRAWS * EXACT[kind](LOSSES, at)).pvalue)

    assert pvalue(float(rate)) > 1e-3
    for near_miss in (0.93, 1.07):
        assert pvalue(near_miss * float(rate)) < 1e-3


def test_permute_and_flip_is_noisy_max_with_exponential_noise() -> None:
    assert permute_and_flip_masses(LOSSES, 0.6) == pytest.approx(noisy_max_masses(LOSSES, 0.6), abs=1e-6)


def test_the_two_mechanisms_are_told_apart() -> None:
    """Otherwise the test of probabilities could not fail for one that was run as the other."""
    assert np.abs(permute_and_flip_masses(LOSSES, 0.8) - exponential_masses(LOSSES, 0.8)).max() > 0.02


@each
@pytest.mark.parametrize("monotone", [True, False])
def test_no_neighbour_exceeds_epsilon_and_some_come_near(kind: type[Selection], monotone: bool) -> None:
    """All losses of three candidates, all changes: of one sign with spread 1, or of both with spread 2."""
    rate, changes = 0.5, (0, 1) if monotone else (-1, 0, 1)
    spread, worst = changes[-1] - changes[0], 0.0
    for losses in itertools.product(range(5), repeat=3):
        for change in itertools.product(changes, repeat=3):
            here, there = EXACT[kind](np.array(losses), rate), EXACT[kind](np.array(losses) + change, rate)
            worst = max(worst, float(np.abs(np.log(here / there)).max()))
    assert worst <= rate * spread + 1e-9
    assert worst > 0.6 * rate * spread
    assert kind(rate, spread).epsilon == rate * spread


@each
def test_losses_far_above_the_least_are_bounded(kind: type[Selection]) -> None:
    chooser = kind.from_epsilon(1.0, 2)
    losses = np.arange(400) // 4
    bound = chooser.loss_bound(len(losses), 0.9)
    masses = exponential_masses(losses, 0.5)
    assert masses[losses >= bound].sum() <= 0.1
    stream = RNG.stream("far", kind.__name__)
    beyond = sum(losses[chooser.choose(losses, stream)] >= bound for _ in range(500))
    assert stats.binomtest(beyond, 500, 0.1, alternative="greater").pvalue > 1e-3


@each
def test_the_best_of_very_different_candidates_is_chosen(kind: type[Selection]) -> None:
    losses = np.array([10**15, 10**15 + 4000, 10**17])
    assert kind.from_epsilon(1.0, 2).choose(losses, RNG.stream("best")) == 0
    assert kind.from_epsilon(1.0, 2).choose(np.array([5]), RNG.stream("one")) == 0


@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT])
@pytest.mark.parametrize("epsilon", [0.01, 0.7, 5.0])
def test_a_pure_event_is_randomised_response_under_each_relation(neighbours: Neighbours, epsilon: float) -> None:
    event = pure_event(epsilon, neighbours)
    for delta in (1e-9, 1e-3):
        # delta(e) = (e^epsilon - e^e) / (1 + e^epsilon), which no mechanism of pure epsilon exceeds
        exact = math.log(math.exp(epsilon) - delta * (1 + math.exp(epsilon)))
        found = epsilon_of(event, delta, neighbours=neighbours)
        assert exact * (1 - 1e-12) <= found <= exact * 1.001 + 1e-6


@each
def test_bad_input_is_refused(kind: type[Selection]) -> None:
    for arguments, message in [((0, 1), "epsilon=0"), ((1, 0), "spread=0"), ((math.nan, 1), "epsilon=nan")]:
        with pytest.raises(InputError, match=message):
            kind.from_epsilon(*arguments)
    with pytest.raises(InputError, match="rate="):
        kind(-1.0, 1.0)
    for losses in (np.array([]), np.array([1.0, 2.0]), np.zeros((2, 2), dtype=int)):
        with pytest.raises(InputError, match="losses of shape"):
            kind(1.0, 1.0).choose(losses, RNG.stream("bad"))
