r"""A lower bound from one run: Steinke, Nasr and Jagielski, *Privacy auditing with one (1) training run*, 2023.

Each of m canaries is included in the data by a fair coin of its own, the mechanism runs once, and whoever sees what it
released guesses about r of the coins and abstains on the others. Their theorem: where the mechanism is
:math:`(\epsilon, \delta)`-DP for adding and removing a record, the number W of right guesses has

.. math:: P[W \ge v] \le P[B \ge v] + \delta m \max_{1 \le i \le m} \frac{2}{i} P[v > B \ge v - i], \qquad
          B \sim \mathrm{Binomial}\Big(r, \frac{e^\epsilon}{e^\epsilon + 1}\Big).

Nothing is assumed about how the canaries act together within the mechanism. That is what the coins are for: given all
other coins, and what was released, privacy bounds how far the odds of one coin can be from even, and the guesses are
right with no more than that chance, one after the other. Dependence between guesses can therefore not push the tail
beyond that of independent ones.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from tacit.auditing.lower_bounds.bound import LowerBound, check_confidence, check_delta
from tacit.auditing.lower_bounds.guesses import Evidence, Guesses, check_tried

_BISECTIONS = 32
_FIRST_WIDTH = 256


def one_run_bound(
    scores: npt.ArrayLike,
    included: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[Guesses] | None = None,
) -> LowerBound:
    """A lower bound on epsilon at ``delta`` from the scores of canaries in one run.

    Guarantee: where the mechanism is (epsilon, delta)-DP for adding and removing a record, each canary was included by
    a fair coin of its own, and the scores were computed from what the mechanism released and not from the coins, the
    bound exceeds epsilon with a chance of at most 1 - ``confidence``. A mechanism of a known shape is bounded far more
    tightly by `one_run_tradeoff_bound`.

    Args:
        scores: one for each canary, higher where it was rather included.
        included: what the coins said.
        delta: of the claim that is tested; 0 bounds pure epsilon.
        confidence: of the bound.
        guesses: the numbers of guesses to try, chosen without a look at the coins; by default those of `halving`. Each
            is tested at its share of 1 - confidence, and the largest bound counts.

    Edge cases: guesses that are right no more than half of the time give 0. Scores may be infinite, and equal.
    """
    check_delta(delta)
    check_confidence(confidence)
    evidence = Evidence.of(scores, included)
    tried = check_tried(guesses, evidence.canaries)
    level = (1 - confidence) / len(tried)

    def bound(total: int, correct: int) -> float:
        return largest_rejected(
            lambda epsilon: chance_of_correct(evidence.canaries, total, correct, epsilon, delta), level
        )

    return LowerBound(
        epsilon=max(bound(each.total, evidence.correct(each)) for each in tried),
        delta=delta,
        confidence=confidence,
        largest=max(bound(each.total, each.total) for each in tried),
        method=f"one run, {evidence.canaries} canaries, best of {len(tried)} numbers of guesses (Steinke et al. 2023)",
    )


def chance_of_correct(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest chance that an (epsilon, delta)-DP mechanism leaves for so many right guesses or more."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    tail = float(special.bdtrc(correct - 1, guesses, accuracy)) if correct else 1.0
    if delta == 0 or tail >= 1:
        return tail
    return min(1.0, tail + 2 * delta * canaries * _steepest_share(guesses, correct, accuracy))


def _steepest_share(guesses: int, correct: int, accuracy: float) -> float:
    """The largest over i of P[correct > B >= correct - i] / i: of the means of the masses just below ``correct``.

    The masses rise and fall once, downwards too. So their mean rises until a mass falls below it, falls from then on,
    and the window may end where it has begun to fall.
    """
    width = min(_FIRST_WIDTH, correct)
    while width:
        masses = _masses(np.arange(correct - 1, correct - 1 - width, -1), guesses, accuracy)
        means = np.cumsum(masses) / np.arange(1, width + 1)
        if width == correct or means[-1] < means.max():
            return float(means.max())
        width = min(4 * width, correct)
    return 0.0


def _masses(counts: npt.NDArray[np.int64], guesses: int, accuracy: float) -> npt.NDArray[np.float64]:
    """Those of the binomial distribution; scipy's own take most of their time for checks."""
    ways = special.gammaln(guesses + 1) - special.gammaln(counts + 1) - special.gammaln(guesses - counts + 1)
    return np.asarray(np.exp(ways + counts * math.log(accuracy) + special.xlog1py(guesses - counts, -accuracy)))


def largest_rejected(chance: Callable[[float], float], level: float) -> float:
    """The largest parameter that is rejected, from below: what was seen has at most the chance ``level`` under it.

    Zero where not even that is rejected. The chance must come to exceed the level as the parameter grows. Where it does
    not rise all the way, what is found is still rejected, and since a guarantee holds for every larger parameter too,
    that is enough.
    """
    if chance(0.0) > level:
        return 0.0
    low, high = 0.0, 1.0
    while chance(high) <= level:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) <= level else (low, middle)
    return low
