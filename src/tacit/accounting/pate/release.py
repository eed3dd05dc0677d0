r"""Publishing a data-dependent epsilon: the number that leaves is itself private, and its own cost is in it."""

import dataclasses
import math

from tacit.accounting.conversion import rdp_to_epsilon
from tacit.accounting.pate.smooth import PrivateCost
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.core.errors import InputError
from tacit.core.validation import check_non_negative, check_open_unit


@dataclasses.dataclass(frozen=True)
class ReleasedEpsilon:
    """An epsilon that may be published: noise was added, and what that cost is included.

    Attributes:
        epsilon, delta: the guarantee for the answers **and** for this number together.
        order: the Rényi order behind it.
        failure: the chance, over the noise of the release, that epsilon is below the true bound.
    """

    epsilon: float
    delta: float
    order: float
    failure: float


def release_epsilon(
    cost: PrivateCost,
    release: SmoothReleaseDpEvent,
    delta: float,
    *,
    standard_normal: float,
    public_divergence: float = 0.0,
) -> ReleasedEpsilon:
    r"""Publish the data-dependent epsilon of a cost.

    The noisy divergence is cut to the range from 0 to the data-independent bound, which is known to hold it; the
    divergence of the release is added, and the sum at the cost's one order is turned into epsilon.

    Formal guarantee: the published numbers together with the answers have, for the data set behind the votes and every
    neighbour, a divergence of at most ``unsafe_divergence`` + ``release.divergence`` + ``public_divergence``, and the
    release alone has ``release.divergence`` for all data sets. The published epsilon bounds this except with chance
    ``failure``.

    Args:
        cost: of the answers, from `gnmax_cost`, `threshold_cost` or `confident_gnmax_cost`, added up.
        release: smoothness and noise.
        delta: of the epsilon.
        standard_normal: one fresh draw from N(0, 1), from the stream of a mechanism, used nowhere else and kept secret.
        public_divergence: of everything else that was done with the same data, at the cost's order; data-independent.
    """
    check_open_unit("delta", delta)
    check_non_negative("public_divergence", public_divergence)
    if not math.isfinite(standard_normal):
        raise InputError(f"standard_normal={standard_normal!r}: must be a finite draw from N(0, 1).")
    own = release.divergence(cost.order)
    spread = cost.unsafe_smooth_sensitivity(release.beta) * release.noise_multiplier
    noisy = cost.unsafe_divergence + spread * (standard_normal + release.shift)
    published = min(max(noisy, 0.0), cost.limit)
    epsilon = rdp_to_epsilon(cost.order, published + own + public_divergence, delta)
    return ReleasedEpsilon(epsilon, delta, cost.order, release.failure)
