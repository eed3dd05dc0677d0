"""Searches over a monotone parameter that spend few evaluations.

They work on the gap log(epsilon / target), which is nearly linear in the logarithm of noise, sampling rate or steps.
They follow its chord, and bisect whenever the chord stops to shrink the bracket. A cheap estimate of the gap may find
the place to start from; what is returned rests on the gap alone.
"""

import dataclasses
import math
from collections.abc import Callable

from scipy import optimize

from tacit.core.errors import InputError

TOLERANCE = 4e-4
_NUDGE = 0.15 * TOLERANCE
_CLOSE = 0.02  # from so close one more step along the chord lands within the accuracy of an estimate
_MOST_ESTIMATES = 12
_LONGEST_STEP = 2.5
_MOST_EVALUATIONS = 100
_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a search begins, and the rate at which the gap falls there."""

    x: float
    rate: float = 1.0


_FROM_ONE = Start(0.0, rate=0.5)  # epsilon grows like the square root of the steps at first


def approximate_root(estimate: Callable[[float], float], start: Start, low: float, high: float) -> Start:
    """Follows the chords of an estimated gap to about where it vanishes, or as far as there is an estimate."""
    x, rate = min(max(start.x, low), high), start.rate
    before: tuple[float, float] | None = None
    for _ in range(_MOST_ESTIMATES):
        value = estimate(x)
        if math.isnan(value):
            break
        rate = _falling_rate(before, (x, value), rate)
        is_close = abs(value) <= (_CLOSE if before is not None else _CLOSE / 10)
        before = x, value
        x = min(max(x + min(max(value / rate, -_LONGEST_STEP), _LONGEST_STEP), low), high)
        if is_close or x == before[0]:
            break
    return Start(x, rate)


def _falling_rate(before: tuple[float, float] | None, now: tuple[float, float], otherwise: float) -> float:
    """The rate at which the gap falls between two points, where that makes sense."""
    if before is None or before[0] == now[0] or not math.isfinite(before[1] - now[1]):
        return otherwise
    rate = (before[1] - now[1]) / (now[0] - before[0])
    return rate if 0.05 < rate < 1e4 else otherwise


def least_feasible(gap: Callable[[float], float], start: Start, low: float, high: float) -> float:
    """The least x in [low, high] with gap(x) <= 0, from above and within `TOLERANCE`; the gap falls with x.

    ``low`` itself where that is feasible. An `InputError` where ``high`` is not.
    """
    bad, good = _bracket(gap, start, low, high)
    if bad is None:
        return good[0]
    stalls = 0
    for _ in range(_MOST_EVALUATIONS):
        width = good[0] - bad[0]
        if width <= TOLERANCE:
            break
        root = _on_chord(bad, good)
        # Across the root from its nearer end, so that the bracket closes if the chord is right.
        x = root + (_NUDGE if root - bad[0] < good[0] - root else -_NUDGE)
        if stalls >= 2 or not bad[0] < x < good[0]:
            x, stalls = (bad[0] + good[0]) / 2, 0
        value = gap(x)
        bad, good = (bad, (x, value)) if value <= 0 else ((x, value), good)
        stalls = stalls + 1 if good[0] - bad[0] > width / 2 else 0
    return good[0]


def _bracket(
    gap: Callable[[float], float], start: Start, low: float, high: float
) -> tuple[tuple[float, float] | None, tuple[float, float]]:
    """An infeasible and a feasible point with their gaps, or none of the former where all is feasible."""
    x, rate, stretch = min(max(start.x, low), high), start.rate, 1.0
    before, bad, good = None, None, None
    for _ in range(_MOST_EVALUATIONS):
        value = gap(x)
        if value <= 0:
            good = x, value
        else:
            bad = x, value
        if good is not None and (bad is not None or good[0] <= low):
            return bad, good
        if good is None and x >= high:
            raise InputError(
                f"epsilon: stays at {math.exp(min(value, 700.0)):.3g} times the target, however private this part is. "
                "Allow a larger epsilon, or let the other parts spend less."
            )
        rate = _falling_rate(before, (x, value), rate)
        before = x, value
        # Just beyond the root: the next point then closes the bracket or nearly so.
        length = min(stretch * abs(value) / rate + _NUDGE, _LONGEST_STEP)
        stretch *= 1.2
        x = max(x - length, low) if value <= 0 else min(x + length, high)
    raise InputError("epsilon: does not fall with the parameter, so nothing can be calibrated.")


def _on_chord(bad: tuple[float, float], good: tuple[float, float]) -> float:
    if math.isinf(bad[1]) or math.isinf(good[1]):
        return (bad[0] + good[0]) / 2
    return bad[0] + (good[0] - bad[0]) * bad[1] / (bad[1] - good[1])


def least_within(tail: Callable[[float], float], limit: float, low: float, high: float) -> float:
    """The least x with tail(x) <= limit, up to rounding and never below; tail falls, and keeps to it at ``high``."""
    log_limit = math.log(limit)

    def excess(x: float) -> float:
        return math.log(max(tail(x), 1e-300)) - log_limit

    if excess(low) <= 0:
        return low
    if not excess(high) < 0:  # where numbers are so large that the tail is lost in rounding; ``high`` is proven
        return high
    root = float(optimize.brentq(excess, low, high, xtol=1e-300, rtol=_ROUNDING))
    step = _ROUNDING
    while tail(root) > limit and root < high:
        root, step = min(root * (1 + step), high), 2 * step
    return root


def largest_feasible(gap: Callable[[int], float], highest: int, start: Start = _FROM_ONE) -> int:
    """The largest n in 1..highest with gap(n) <= 0, where the gap rises with n; 0 where not even 1 is feasible.

    The search starts at n = e^-x for the start's x; its rate is that at which the gap rises with log n.
    """
    good, bad = _whole_bracket(gap, highest, start)
    if good is None or bad is None:
        return 0 if good is None else highest
    stalls = 0
    while bad[0] - good[0] > 1:
        width = bad[0] - good[0]
        n = _between(good, bad, bisect=stalls >= 2)
        value = gap(n)
        good, bad = ((n, value), bad) if value <= 0 else (good, (n, value))
        stalls = 0 if bad[0] - good[0] <= width / 2 or stalls >= 2 else stalls + 1
    return good[0]


def _whole_bracket(
    gap: Callable[[int], float], highest: int, start: Start
) -> tuple[tuple[int, float] | None, tuple[int, float] | None]:
    """A feasible and an infeasible number; no feasible one where 1 is not, no infeasible one where all are."""
    good: tuple[int, float] | None = None
    bad: tuple[int, float] | None = None
    n, stretch = min(max(round(math.exp(-start.x)), 1), highest), 1.1
    while True:
        value = gap(n)
        good, bad = ((n, value), bad) if value <= 0 else (good, (n, value))
        if (good is not None and bad is not None) or (good is None and n == 1) or (bad is None and n == highest):
            return good, bad
        growth = math.exp(min(stretch * abs(value) / start.rate, 7.0))
        stretch *= 1.2
        n = min(highest, max(n + 1, math.ceil(n * growth))) if value <= 0 else max(1, min(n - 1, int(n / growth)))


def _between(good: tuple[int, float], bad: tuple[int, float], *, bisect: bool) -> int:
    low, high = math.log(good[0]), math.log(bad[0])
    share = 0.5
    if not bisect and math.isfinite(good[1]) and math.isfinite(bad[1]):
        share = good[1] / (good[1] - bad[1])
    return min(max(math.floor(math.exp(low + share * (high - low))), good[0] + 1), bad[0] - 1)
