"""Searches over a monotone parameter that spend few evaluations.

Both work on the gap log(epsilon / target), which is nearly linear in the logarithm of noise, sampling rate or steps.
They follow its chord, and bisect whenever the chord stops to shrink the bracket.
"""

import math
from collections.abc import Callable

from tacit.core.errors import InputError

TOLERANCE = 4e-4
_LONGEST_STEP = 2.5
_MOST_EVALUATIONS = 100


def least_feasible(gap: Callable[[float], float], start: float, low: float, high: float) -> float:
    """The least x in [low, high] with gap(x) <= 0, from above and within `TOLERANCE`; the gap falls with x.

    ``low`` itself where that is feasible. An `InputError` where ``high`` is not.
    """
    bad, good = _bracket(gap, start, low, high)
    if bad is None:
        return good[0]
    last_was_good = True
    stalls = 0
    for _ in range(_MOST_EVALUATIONS):
        width = good[0] - bad[0]
        if width <= TOLERANCE:
            break
        nudge = -0.3 * TOLERANCE if last_was_good else 0.3 * TOLERANCE
        x = _on_chord(bad, good) + nudge
        if stalls >= 2 or not bad[0] < x < good[0]:
            x, stalls = (bad[0] + good[0]) / 2, 0
        value = gap(x)
        last_was_good = value <= 0
        bad, good = (bad, (x, value)) if last_was_good else ((x, value), good)
        stalls = stalls + 1 if good[0] - bad[0] > width / 2 else 0
    return good[0]


def _bracket(
    gap: Callable[[float], float], start: float, low: float, high: float
) -> tuple[tuple[float, float] | None, tuple[float, float]]:
    """An infeasible and a feasible point with their gaps, or none of the former where all is feasible."""
    x, bad, good, stretch = start, None, None, 0.9
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
        # Epsilon mostly changes as fast as the parameter, so that a step by the gap, and a little more, suffices.
        stretch *= 1.2
        length = min(max(stretch * abs(value), TOLERANCE), _LONGEST_STEP)
        x = max(x - length, low) if value <= 0 else min(x + length, high)
    raise InputError("epsilon: does not fall with the parameter, so nothing can be calibrated.")


def _on_chord(bad: tuple[float, float], good: tuple[float, float]) -> float:
    if math.isinf(bad[1]) or math.isinf(good[1]):
        return (bad[0] + good[0]) / 2
    return bad[0] + (good[0] - bad[0]) * bad[1] / (bad[1] - good[1])


def largest_feasible(gap: Callable[[int], float], highest: int) -> int:
    """The largest n in 1..highest with gap(n) <= 0, where the gap rises with n; 0 where not even 1 is feasible."""
    good = 1, gap(1)
    if good[1] > 0:
        return 0
    bad: tuple[int, float] | None = None
    stalls = 0
    while bad is None or bad[0] - good[0] > 1:
        if bad is None:
            if good[0] == highest:
                return highest
            # Epsilon grows like the square root at first; overshooting costs one evaluation.
            growth = math.exp(min(max(-2.2 * good[1], 0.7), 7.0))
            n = min(highest, max(good[0] + 1, math.ceil(good[0] * growth)))
        else:
            n = _between(good, bad, bisect=stalls >= 2)
        width = math.inf if bad is None else bad[0] - good[0]
        value = gap(n)
        good, bad = ((n, value), bad) if value <= 0 else (good, (n, value))
        stalls = 0 if bad is None or bad[0] - good[0] <= width / 2 else stalls + 1
        stalls = 0 if stalls > 2 else stalls
    return good[0]


def _between(good: tuple[int, float], bad: tuple[int, float], *, bisect: bool) -> int:
    low, high = math.log(good[0]), math.log(bad[0])
    share = 0.5
    if not bisect and math.isfinite(good[1]) and math.isfinite(bad[1]):
        share = good[1] / (good[1] - bad[1])
    return min(max(math.floor(math.exp(low + share * (high - low))), good[0] + 1), bad[0] - 1)
