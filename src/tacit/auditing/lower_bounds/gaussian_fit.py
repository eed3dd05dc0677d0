r"""A lower bound from many runs of a mechanism that is Gaussian DP (Nasr et al. 2023, *Tight auditing*, section 4).

A :math:`\mu`-GDP mechanism is no easier to tell apart than N(0, 1) and N(mu, 1) (Dong, Roth and Su 2019), so that every
test has :math:`\Phi^{-1}(1 - \mathrm{FPR}) - \Phi^{-1}(\mathrm{FNR}) \le \mu`. Moderate error rates, which few runs
show well, so bound mu, and mu gives epsilon at any delta, however small.
"""

import numpy.typing as npt
from scipy import special

from tacit.accounting import gdp_to_epsilon
from tacit.auditing.lower_bounds.bound import LowerBound, check_confidence
from tacit.auditing.lower_bounds.error_rates import ErrorLimits, Trials, counted
from tacit.core.validation import check_open_unit


def gaussian_bound(
    scores_in: npt.ArrayLike,
    scores_out: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    threshold: float | None = None,
) -> LowerBound:
    """A lower bound on epsilon at ``delta`` of a Gaussian DP mechanism, from independent runs.

    Guarantee: where the mechanism is mu-GDP, as Gaussian noise and compositions of it are, the bound exceeds the
    epsilon of mu-GDP with a chance of at most 1 - ``confidence``. For a mechanism of another shape that is the epsilon
    of the best Gaussian claim about it, which may lie above its own at ``delta``.

    Args:
        scores_in, scores_out, confidence, threshold: as for `clopper_pearson_bound`.
        delta: above 0, since no Gaussian mechanism is pure.
    """
    check_open_unit("delta", delta, remedy="Gaussian DP has an epsilon at every delta above 0, such as 1e-5.")
    check_confidence(confidence)
    trials = Trials.of(scores_in, scores_out)
    mu, largest = counted(trials, threshold, _mu, confidence)
    runs = trials.inside.size + trials.outside.size
    method = f"{runs} runs, Gaussian DP of mu {mu:.4g} at least"
    return LowerBound(gdp_to_epsilon(mu, delta), delta, confidence, gdp_to_epsilon(largest, delta), method)


def _mu(limits: ErrorLimits) -> float:
    """The least mu that allows error rates of at most these."""
    right = float(special.ndtri(1 - limits.false_positive))
    return max(0.0, right - float(special.ndtri(limits.false_negative)))
