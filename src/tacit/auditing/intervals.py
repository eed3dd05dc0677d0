"""Shares with confidence intervals."""

import dataclasses
import math

from scipy import stats

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_open_unit


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and the ends between which the true value lies with the confidence that was asked for."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """A share of independent trials with its exact two-sided interval (Clopper and Pearson, 1934).

    Whatever the true share is, the interval holds it with at least ``confidence``; each end fails with at most half of
    the rest. With no success it starts at 0, with nothing else it ends at 1.
    """
    check_count("trials", trials)
    check_count("successes", successes, minimum=0)
    check_open_unit("confidence", confidence, remedy="Usual is 0.95.")
    if successes > trials:
        raise InputError(f"successes={successes}: must be at most the {trials} trials.")
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = stats.beta.isf(tail, successes + 1, trials - successes) if successes < trials else 1.0
    return Interval(successes / trials, float(low), float(high))


def wilson(share: float, trials: int, *, confidence: float = 0.95) -> Interval:
    r"""A mean of values in [0, 1] whose variance is at most :math:`p(1-p)` / trials (Wilson, 1927).

    All p with :math:`|\hat p - p| \le z \sqrt{p (1-p) / n}`. It is approximate, by the normal distribution, and
    keeps a width at 0 and at 1.
    """
    check_count("trials", trials)
    check_open_unit("confidence", confidence, remedy="Usual is 0.95.")
    z = float(stats.norm.isf((1 - confidence) / 2))
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))
