r"""A lower bound from one run, by a trade-off function (Mahloujifar, Melis and Chaudhuri 2024, *Auditing f-DP*).

As in `one_run`, each of m canaries is included by a fair coin and c guesses are made. Let :math:`p_l` be the chance
that exactly l of them are right. For one canary, given all other coins, "this guess is made, and i - 1 of the others
are right" is an event that hardly depends on the canary's coin. Averaged over canaries and coins, which a convex bound
allows, this gives for every i, with g the least chance of a wrong guess beside a right one (`TradeOff`),

.. math:: H_{i-1} \ge g(R_i), \qquad R_i = \tfrac1m \sum_{l \ge i} l\,p_l,
          \quad H_i = \tfrac1m \sum_{l \ge i} (c - l)\,p_l.

With guesses of one kind, all in or all out, only that half of the coins counts, so 2/m stands for 1/m.

A chance :math:`P_v` for v right guesses or more so demands some chance for v - 1, that for v - 2, and so on down. With
:math:`Y_i = \tfrac1m \sum_{l \ge i} (l - i + 1) p_l` the demands read

.. math:: P_{i-1} \ge \max\Big(P_i,\; m\,\frac{g(R_i) + Y_i}{c - i + 1}\Big), \qquad Y_{i-1} = Y_i + P_{i-1}/m,
          \qquad R_{i-1} = Y_i + (i-1) P_{i-1}/m,

and each right side grows with all that it depends on. So what follows from the least values is the least, and a chance
of v right guesses is impossible if it demands a :math:`P_0` above 1.

Nothing is assumed about how canaries act together. The price: a mechanism may be at its worst for all of them at once,
in a few runs among a hundred, and a bound that holds for every mechanism must allow for that. Whoever runs a mechanism
with probability :math:`\kappa` and else releases nothing turns :math:`(\epsilon, \delta/\kappa)` into
:math:`(\epsilon, \delta)`. So, whatever the method and the number of canaries, a bound of confidence 0.95 that holds
for every :math:`(\epsilon, \delta)`-DP mechanism exceeds :math:`\epsilon(\delta/\kappa)` with a chance of at most
:math:`0.05/\kappa`; a trade-off function, which bounds rarer events too, softens this a little. See
`independent_guesses_bound` for what more can be said of a mechanism whose noise is independent.
"""

from collections.abc import Sequence

import numpy.typing as npt

from tacit.auditing.lower_bounds.bound import LowerBound, check_confidence
from tacit.auditing.lower_bounds.families import Family, largest_rejected_leakage
from tacit.auditing.lower_bounds.guesses import Evidence, Guesses, check_tried
from tacit.auditing.lower_bounds.tradeoff import TradeOff
from tacit.core.validation import check_open_unit

_STILL = 1e-12


def one_run_tradeoff_bound(
    scores: npt.ArrayLike,
    included: npt.ArrayLike,
    *,
    family: Family,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[Guesses] | None = None,
) -> LowerBound:
    """A lower bound on epsilon at ``delta`` of a mechanism in ``family``, from the scores of canaries in one run.

    Guarantee: where the mechanism is as hard to tell apart as a member of the family, for adding and for removing a
    record, each canary was included by a fair coin of its own, and the scores were computed from what was released, the
    bound exceeds that member's epsilon with a chance of at most 1 - ``confidence``.

    Args:
        scores, included, confidence, guesses: as for `one_run_bound`.
        family: the shape of the claim, such as `GaussianFamily` or `DpSgdFamily`.
        delta: above 0.
    """
    check_open_unit("delta", delta, remedy="Give the delta of the claim, such as 1e-5.")
    check_confidence(confidence)
    evidence = Evidence.of(scores, included)
    tried = check_tried(guesses, evidence.canaries)
    level = (1 - confidence) / len(tried)

    def leakage(each: Guesses, correct: int) -> float:
        return largest_rejected_leakage(
            lambda leakage: not _allows(family, leakage, evidence.canaries, each, correct, level), family.most
        )

    found = max(leakage(each, evidence.correct(each)) for each in tried)
    largest = max(leakage(each, each.total) for each in tried)
    return LowerBound(
        epsilon=family.epsilon(found, delta),
        delta=delta,
        confidence=confidence,
        largest=family.epsilon(largest, delta),
        method=(
            f"one run, {evidence.canaries} canaries, best of {len(tried)} numbers of guesses, {family.describe()} "
            "(Mahloujifar et al. 2024)"
        ),
    )


def _allows(family: Family, leakage: float, canaries: int, guesses: Guesses, correct: int, chance: float) -> bool:
    inside, outside = guesses.inside > 0, guesses.outside > 0
    tradeoff = family.profile(leakage).for_guesses(inside=inside, outside=outside)
    weight = (1 if inside and outside else 2) / canaries
    return allows_correct(tradeoff, weight, guesses.total, correct, chance)


def allows_correct(tradeoff: TradeOff, weight: float, guesses: int, correct: int, chance: float) -> bool:
    """Whether so many right guesses or more may have this chance, by the demands above; ``weight`` is 1/m or 2/m.

    It says yes as well where the demands have stopped to grow on the way down, which is the safe side.
    """
    mass, moment = chance, weight * chance  # P and Y at i = correct
    patience = still = guesses // 32 + 64
    for i in range(correct, 0, -1):
        right = moment + weight * (i - 1) * mass
        demand = (tradeoff.least_wrong(right) + moment) / (weight * (guesses - i + 1))
        still = patience if demand > mass + _STILL else still - 1
        mass = max(mass, demand)
        if mass > 1:
            return False
        if not still:
            break
        moment += weight * mass
    return True
