"""One private step, in the order that the guarantee needs.

1. The clipped sum over the lot: bounded sensitivity, no noise yet, nothing leaves the step.
2. The ledger records durably that this step's noise is about to be drawn.
3. Noise on the sum, from a stream that belongs to this step and parameter alone.
4. Division by the plan's public constant, and the optimizer's update: post-processing.

A crash between 2 and 3 wastes budget and leaks nothing; the other order could leak what was never counted. Where sum,
noise and update are one launch, the ledger records before it.
"""

from collections.abc import Mapping

from torch import Tensor

from tacit.core.randomness import Randomness
from tacit.ledger import Reservation
from tacit.mechanisms import StepNoise


def release_gradient(
    sums: Mapping[str, Tensor],
    noise: StepNoise,
    reservation: Reservation,
    randomness: Randomness,
    step: int,
    *,
    recorded: bool = False,
) -> None:
    """The clipped sums become the noisy mean gradient of the step, in place; those of an empty lot are noise alone.

    ``recorded`` says that the ledger has recorded the step before, for a launch that came to nothing.
    """
    if not recorded:
        reservation.before_noise(step)
    noise.apply_(sums, randomness, step)
