"""Differential privacy by counting: what fits on neighbouring tables release, and how often.

The outcomes that are counted are those whose likelihood ratio, by the noise as it was planned, exceeds a threshold.
"""

import math

import numpy as np
import pytest
from transcripts import as_examples, binomial_bounds, delta_shown, losses, small_problem

from tacit.core.privacy import Neighbours
from tacit.linear import AdaSSP, Functional, Guarantee, Newton, SufficientStatistics

# The row that differs stands in a corner, where sensitivities are attained.
_SHARED = ([[-1.0]], [0.0])
_CORNER = ([[-1.0], [1.0]], [0.0, 1.0])
_OPPOSITE = ([[-1.0], [-1.0]], [0.0, -1.0])
_THRESHOLDS = np.array([0.0, 0.4, 0.6, 0.7, 0.8])


def _losses(method, guarantee, tables, *, noise, laplace, repeats):
    """The loss of one table against the other in many fits of the one, and in many of the other."""
    (one, scale), (other, _) = (as_examples(*table) for table in tables)
    return losses(method, small_problem(scale), guarantee, (one, other), noise=noise, laplace=laplace, repeats=repeats)


def _epsilon_shown(ones, others, epsilon):
    """The largest epsilon that counts prove, over a few outcomes."""
    counts = ((int((ones > least).sum()), int((others > least).sum())) for least in epsilon * _THRESHOLDS)
    pairs = [(binomial_bounds(a, len(ones))[0], binomial_bounds(b, len(others))[1]) for a, b in counts]
    return max(math.log(low / high) for low, high in pairs if low > 0)


def test_a_pure_guarantee_holds_and_half_the_noise_breaks_it():
    guarantee, method = Guarantee(1.0), Functional(split=0.5)

    def shown(noise):
        one, other = _losses(method, guarantee, (_CORNER, _SHARED), noise=noise, laplace=True, repeats=2200)
        return _epsilon_shown(one, other, guarantee.epsilon)

    assert 0.2 < shown(1.0) <= guarantee.epsilon
    assert shown(0.5) > guarantee.epsilon


@pytest.mark.parametrize(
    ("relation", "tables", "attained"),
    [(Neighbours.ADD_REMOVE, (_CORNER, _SHARED), 1.0), (Neighbours.REPLACE_ONE, (_CORNER, _OPPOSITE), 0.5)],
)
def test_no_outcome_of_a_pure_guarantee_tells_more_than_epsilon(relation, tables, attained):
    """A row that is added moves all coefficients at once; of a replaced one the squares stay."""
    one, other = _losses(
        Functional(split=0.5), Guarantee(1.0, 0.0, relation), tables, noise=1.0, laplace=True, repeats=200
    )
    largest = max(np.abs(one).max(), np.abs(other).max())
    assert 0.99 * attained < largest <= attained


@pytest.mark.parametrize(
    "method", [SufficientStatistics(), AdaSSP(), Newton(steps=2, cut=0.2)], ids=["sufficient", "adassp", "newton"]
)
def test_an_approximate_guarantee_holds_and_half_the_noise_breaks_it(method):
    guarantee, repeats = Guarantee(0.5, 0.1), 600

    def shown(noise):
        one, other = _losses(method, guarantee, (_CORNER, _SHARED), noise=noise, laplace=False, repeats=repeats)
        counts = [(int((one > least).sum()), int((other > least).sum())) for least in (0.0, guarantee.epsilon)]
        return max(delta_shown(hits, others, repeats, guarantee.epsilon) for hits, others in counts)

    assert shown(1.0) <= guarantee.delta
    assert shown(0.5) > guarantee.delta
