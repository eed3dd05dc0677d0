"""Answers have the distribution that they are accounted for, under every relation at the same price."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import epsilon, gaussian_epsilon
from tacit.core import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.pate import ConfidentGNMax, GNMax, LNMax

RNG = Randomness(unsafe_seed=11)
DRAWS = 20_000
GAP = 30
VOTES = np.array([40, 40 + GAP])


def share(decide: Callable[[np.random.Generator], bool]) -> float:
    stream = RNG.stream("votes")
    return sum(decide(stream) for _ in range(DRAWS)) / DRAWS


def check_share(found: float, right: float, near_misses: list[float]) -> None:
    def score(expected: float) -> float:
        return abs(found - expected) / math.sqrt(expected * (1 - expected) / DRAWS)

    assert score(right) < 4
    assert all(score(wrong) > 6 for wrong in near_misses)


def laplace_error(gamma: float) -> float:
    return (2 + gamma * GAP) / (4 * math.exp(gamma * GAP))


def gaussian_error(sigma: float) -> float:
    return 0.5 * math.erfc(GAP / (2 * sigma))


def test_lnmax_errs_as_laplace_noise_of_one_over_gamma_does():
    aggregator = LNMax(0.05)
    found = share(lambda stream: aggregator.answer(VOTES, stream) == 0)
    check_share(found, laplace_error(0.05), [laplace_error(0.045), laplace_error(0.055), laplace_error(0.1)])


def test_gnmax_errs_as_gaussian_noise_on_each_count_does():
    aggregator = GNMax(25.0)
    found = share(lambda stream: aggregator.answer(VOTES, stream) == 0)
    check_share(
        found, gaussian_error(25), [gaussian_error(23), gaussian_error(27.5), gaussian_error(25 / math.sqrt(2))]
    )


def test_confident_gnmax_tests_the_largest_count():
    aggregator = ConfidentGNMax(threshold=80, sigma_threshold=20, sigma=25)

    def probability(sigma: float, threshold: float = 80) -> float:
        return float(stats.norm.sf((threshold - 70) / sigma))

    found = share(lambda stream: aggregator.passes(VOTES, stream))
    check_share(found, probability(20), [probability(17), probability(24), probability(20, 78)])
    errors = share(lambda stream: aggregator.answer(VOTES, stream) == 0)
    check_share(errors, gaussian_error(25), [gaussian_error(20)])


def test_questions_without_a_test_always_pass():
    assert LNMax(0.1).passes(VOTES, RNG.stream("x"))
    assert GNMax(10.0).passes(VOTES, RNG.stream("x"))


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_an_answer_costs_the_same_under_every_relation(neighbours):
    """One vote moves, however the person changed: epsilon is 2 gamma, zCDP is 1 / sigma^2, or half of it for a test."""
    found = epsilon(LNMax(0.1).answer_event(neighbours), 1e-9, neighbours=neighbours)
    assert found == pytest.approx(0.2, rel=1e-3)
    aggregator = ConfidentGNMax(threshold=80, sigma_threshold=20, sigma=25)
    for event, distance in (
        (aggregator.answer_event(neighbours), math.sqrt(2) / 25),
        (aggregator.question_event(neighbours), 1 / 20),
    ):
        exact = gaussian_epsilon(1 / distance, 1e-5)
        assert epsilon(event, 1e-5, neighbours=neighbours) == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LNMax(0.0), "gamma=0.0"),
        (lambda: GNMax(-1.0), "sigma=-1.0"),
        (lambda: ConfidentGNMax(0.0, 1.0, 1.0), "threshold=0.0"),
        (lambda: ConfidentGNMax(1.0, math.nan, 1.0), "sigma_threshold=nan"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
