"""What the tanh filter costs: the epsilon that is claimed for it, the one that is true, and that of a sound variant."""

import dataclasses
import math

from tacit.accounting.statements import dpsgd_statement
from tacit.core.privacy import Statement
from tacit.core.validation import check_count, check_positive


@dataclasses.dataclass(frozen=True)
class TanhFilterStatements:
    """Three guarantees for one noise, each with its own account of how far one record moves the sum.

    Attributes:
        claimed: as published, for a sensitivity of 1 that the filter does not have. Not a guarantee, and it says so.
        actual: of that very mechanism, for its sensitivity c sqrt(n). True, and usually worthless; epsilon may be
            infinite.
        sound: of the filter followed by a norm bound C. True.
    """

    claimed: Statement
    actual: Statement
    sound: Statement


def tanh_filter_statements(
    *,
    sampling_rate: float,
    noise_std: float,
    steps: int,
    delta: float,
    numbers: int,
    c: float = 1.0,
    bound: float = 1.0,
    claimed_accountant: str = "rdp",
) -> TanhFilterStatements:
    r"""The three epsilons of training with :math:`c \tanh(g / k)` and noise :math:`N(0, s^2 I)` on the filtered sum.

    One record adds a vector of n numbers within [-c, c] to the sum, so its removal moves the sum by up to
    :math:`c \sqrt n`: the noise multiplier is :math:`s / (c \sqrt n)`. Counting it as s takes the sensitivity for 1,
    since gradients are mostly small; but a guarantee is about the records that are not. With the filtered gradients
    clipped to norm C, the multiplier is :math:`s / C`, and with C = 1 what was claimed becomes true. The expansion k
    does not enter: it changes how soon numbers reach c, and not how far they go.

    All three are for Poisson sampling, one record, the add-remove relation, and microbatches of one record. The two
    true ones are proven upper bounds, by PLD.

    Args:
        sampling_rate: the expected lot size over the number of records.
        noise_std: s, the standard deviation of the noise on the sum of filtered gradients.
        steps: how many steps were taken.
        delta: of all three.
        numbers: n, how many numbers are trained.
        c: the filter's range.
        bound: C of the sound variant.
        claimed_accountant: what the claim was computed with.

    Reference: Amian, Improving the Algorithm of Deep Learning with Differential Privacy, 2021, section III A.
    """
    check_positive("noise_std", noise_std)
    check_positive("c", c)
    check_positive("bound", bound)
    sensitivity = c * math.sqrt(check_count("numbers", numbers))
    false = f"the sensitivity was taken for 1 and is {sensitivity:.4g}, so this is a claim and no guarantee"
    claimed = dpsgd_statement(sampling_rate, noise_std, steps, delta, accountant=claimed_accountant)
    return TanhFilterStatements(
        claimed=dataclasses.replace(claimed, caveats=(*claimed.caveats, false)),
        actual=dpsgd_statement(sampling_rate, noise_std / sensitivity, steps, delta),
        sound=dpsgd_statement(sampling_rate, noise_std / bound, steps, delta),
    )
