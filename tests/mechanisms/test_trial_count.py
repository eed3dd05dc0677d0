"""The number of trials of a private selection: the right distribution is accepted, near misses are not."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting.selection import Poisson, TruncatedNegativeBinomial
from tacit.core import InputError
from tacit.core.randomness import Randomness
from tacit.mechanisms.trial_count import draw_candidate, draw_trial_count

DRAWS = 6000
MAKE = TruncatedNegativeBinomial
# Each distribution with near misses: other shapes of the same mean, and other means of the same shape.
CASES = [
    (MAKE.with_mean(3, 0), [MAKE.with_mean(3, 0.5), MAKE.with_mean(3.5, 0)]),
    (MAKE.with_mean(3, 1), [MAKE.with_mean(3, 0.5), MAKE.with_mean(3.5, 1)]),
    (MAKE.with_mean(3, 0.5), [MAKE.with_mean(3, 0), MAKE.with_mean(2.5, 0.5)]),
    (MAKE.with_mean(3, 2.5), [MAKE.with_mean(3, 1), MAKE.with_mean(3.5, 2.5)]),
    (MAKE.with_mean(2, -0.5), [MAKE.with_mean(2, 0), MAKE.with_mean(2.5, -0.5)]),
    (Poisson(3.3), [Poisson(3.0), Poisson(3.6)]),
]


def chances(trials, most):
    """From the definitions, the rest last."""
    if isinstance(trials, Poisson):
        known = stats.poisson.pmf(np.arange(most), trials.mean)
    elif trials.shape == 0:
        known = stats.logser.pmf(np.arange(most), 1 - trials.gamma)
    else:
        factors = [(1 - trials.gamma) * (k + trials.shape) / (k + 1) for k in range(most - 1)]
        known = np.array([0.0, *(np.cumprod(factors) / (trials.gamma**-trials.shape - 1))])
    return np.array([*known, 1 - known.sum()])


def p_value(drawn, trials, most=8):
    expected = DRAWS * chances(trials, most)
    seen = np.bincount(np.minimum(drawn, most), minlength=most + 1)
    possible = expected > 0
    assert not seen[~possible].any()
    return stats.chisquare(seen[possible], expected[possible]).pvalue


@pytest.mark.parametrize(("trials", "others"), CASES, ids=[str(case[0]) for case in CASES])
def test_draws_have_the_distribution_and_no_other(trials, others):
    stream = Randomness(unsafe_seed=7).stream("trials")
    drawn = np.array([draw_trial_count(trials, stream) for _ in range(DRAWS)])
    assert p_value(drawn, trials) > 1e-3
    for other in others:
        assert p_value(drawn, other) < 1e-6


def test_gamma_of_one_is_one_trial():
    stream = Randomness().stream("trials")
    assert {draw_trial_count(MAKE(0.5, 1.0), stream) for _ in range(20)} == {1}


def test_candidates_are_uniform():
    stream = Randomness(unsafe_seed=3).stream("candidates")
    seen = np.bincount([draw_candidate(5, stream) for _ in range(DRAWS)], minlength=5)
    assert stats.chisquare(seen).pvalue > 1e-3
    assert math.isclose(seen.sum(), DRAWS)
    with pytest.raises(InputError, match="candidates=0"):
        draw_candidate(0, stream)
