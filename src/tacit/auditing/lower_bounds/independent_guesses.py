r"""A lower bound from one run of a mechanism that treats canaries independently.

Let each canary be included by a fair coin, and let what its guess is made from depend on no other canary's coin or
noise. Then the guesses are independent, each is right with a chance of at most (1 + TV)/2, where TV is the largest
distance that the mechanism keeps between neighbours, and the number of right ones is at most
:math:`\mathrm{Binomial}(m, (1 + TV)/2)`. The observed number bounds TV, TV the family's parameter, and that epsilon.

**What the independence rests on.** Gradient canaries that are orthogonal unit vectors each own a coordinate. Under the
mechanism *as claimed*, lots are drawn by independent coins and every coordinate gets noise of its own, so that their
guesses are independent as a matter of the claim. A bound above the claimed epsilon therefore refutes the claim at the
stated confidence, with no assumption at all: the claimed mechanism itself would show it with a chance of at most
1 - confidence. Read as a bound on a mechanism that is *not* as claimed, it needs the independence;
`one_run_tradeoff_bound` does without, and is looser, as every such method must be.
"""

from scipy import stats

from tacit.auditing.lower_bounds.bound import LowerBound, check_confidence
from tacit.auditing.lower_bounds.families import Family, largest_rejected_leakage
from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_open_unit


def independent_guesses_bound(
    correct: int, guesses: int, *, family: Family, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on epsilon at ``delta`` of a mechanism in ``family`` from independent guesses about fair coins.

    Guarantee: where the mechanism is as hard to tell apart as a member of the family and the guesses are independent
    (see above), the bound exceeds that member's epsilon with a chance of at most 1 - ``confidence``.

    Args:
        correct: how many guesses were right.
        guesses: how many were made, one for each canary; none may be left out for what it says.
        family: the shape of the claim.
        delta: above 0.
        confidence: of the bound.
    """
    check_count("guesses", guesses)
    check_count("correct", correct, minimum=0)
    check_open_unit("delta", delta, remedy="Give the delta of the claim, such as 1e-5.")
    check_confidence(confidence)
    if correct > guesses:
        raise InputError(f"correct={correct}: must be at most the {guesses} guesses.")

    def epsilon(right: int) -> float:
        def rejects(leakage: float) -> bool:
            accuracy = (1 + family.total_variation(leakage)) / 2
            return float(stats.binom.sf(right - 1, guesses, accuracy)) <= 1 - confidence

        return family.epsilon(largest_rejected_leakage(rejects, family.most), delta)

    return LowerBound(
        epsilon=epsilon(correct),
        delta=delta,
        confidence=confidence,
        largest=epsilon(guesses),
        method=f"one run, {guesses} independent canaries, {family.describe()}",
    )
