r"""A lower bound from many runs, for any mechanism.

Half of the runs see a record, half do not, and a test tries to tell them apart. An
:math:`(\epsilon, \delta)`-DP mechanism leaves every test with

.. math:: 1 - \delta - \mathrm{FNR} \le e^\epsilon \mathrm{FPR} \quad\text{and}\quad
          1 - \delta - \mathrm{FPR} \le e^\epsilon \mathrm{FNR}

(Kairouz, Oh and Viswanath 2015), so that upper limits on both rates (Clopper and Pearson 1934) bound epsilon from below
(Jagielski, Ullman and Oprea 2020; Nasr et al. 2021).
"""

import functools
import math

import numpy.typing as npt

from tacit.auditing.lower_bounds.bound import LowerBound, check_confidence, check_delta
from tacit.auditing.lower_bounds.error_rates import ErrorLimits, Trials, counted


def clopper_pearson_bound(
    scores_in: npt.ArrayLike,
    scores_out: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
) -> LowerBound:
    """A lower bound on epsilon at ``delta`` from independent runs with a record and without it.

    Guarantee: where the mechanism is (epsilon, delta)-DP and the runs are independent, the bound exceeds epsilon with a
    chance of at most 1 - ``confidence``. Nothing is assumed about the scores.

    Args:
        scores_in, scores_out: one score for each run with the record, and without it; higher for rather with.
        delta: of the claim that is tested; 0 bounds pure epsilon.
        confidence: of the bound.
        threshold: a run is guessed to hold the record where its score is above. It must not come from these runs. By
            default the first quarter of them chooses it and is not counted.
    """
    check_delta(delta)
    check_confidence(confidence)
    trials = Trials.of(scores_in, scores_out)
    epsilon, largest = counted(trials, threshold, functools.partial(_epsilon, delta=delta), confidence)
    runs = trials.inside.size + trials.outside.size
    return LowerBound(epsilon, delta, confidence, largest, f"{runs} runs, Clopper-Pearson limits on both error rates")


def _epsilon(limits: ErrorLimits, *, delta: float) -> float:
    """The least epsilon that allows error rates of at most these."""
    errors = limits.false_positive, limits.false_negative
    odds = [(1 - delta - missed) / error for error, missed in (errors, errors[::-1])]
    return math.log(max(1.0, *odds))
