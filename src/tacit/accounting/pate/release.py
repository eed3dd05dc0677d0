r"""Publishing a data-dependent epsilon: the number that leaves is itself private, and its own cost is in it."""

import dataclasses
import math

from scipy import special

from tacit.accounting.conversion import rdp_to_epsilon
from tacit.accounting.pate.smooth import PrivateCost
from tacit.core.errors import InputError
from tacit.core.validation import check_non_negative, check_open_unit, check_positive


@dataclasses.dataclass(frozen=True)
class SmoothRelease:
    r"""Gaussian noise scaled by smooth sensitivity (GNSS): how a private cost v(D) is published.

    .. math:: v(D) + S_\beta(D)\,\sigma\,(z + k), \qquad z \sim N(0, 1),\; k = \Phi^{-1}(1 - \text{failure}).

    The shift k makes the published number an upper bound of v(D) except with chance ``failure``. All four fields are
    public and must be chosen without a look at the votes.

    Attributes:
        beta: the smoothness; :math:`\lambda (1 - e^{-2\beta}) < 1` at the order :math:`\lambda` of the cost.
        noise_multiplier: :math:`\sigma`, the noise in units of the smooth sensitivity.
        failure: the chance that the published number is too small; 0.5 is the plain mechanism of the paper.
    """

    beta: float
    noise_multiplier: float
    failure: float = 0.5

    def __post_init__(self) -> None:
        check_positive("beta", self.beta)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_open_unit("failure", self.failure)
        if self.failure > 0.5:
            raise InputError(f"failure={self.failure!r}: must be at most 0.5, the chance without any shift.")

    @property
    def shift(self) -> float:
        """k, by how many standard deviations the published number is raised."""
        return max(0.0, float(-special.ndtri(self.failure)))

    def divergence(self, order: float) -> float:
        r"""The Rényi divergence of the release itself.

        Between neighbours the deviations :math:`S\sigma` and :math:`S'\sigma` differ by a factor :math:`e^{t}` with
        :math:`|t| \le \beta`, and the means by at most :math:`\min(S, S')\,c`, :math:`c = 1 + k \sigma (e^\beta - 1)`.
        Two normal distributions that far apart have the divergence

        .. math:: \frac{\lambda c^2 \min(1, e^{2t})}{2\sigma^2 (1 - \lambda + \lambda e^{2t})}
                  + \frac{\lambda t - \frac12\log(1 - \lambda + \lambda e^{2t})}{\lambda - 1},

        whose first part falls with t and whose second part is least at 0: the largest value lies at
        :math:`t = -\beta`, or else is at most the first part at 0 plus the second at :math:`\beta`.
        The closed form of theorem 23 of Papernot et al. 2018, as in the authors' code, lies below this divergence
        where :math:`2\lambda\beta` comes near 1, and is not used.

        Raises:
            InputError: beta is too large for the order, and the divergence infinite.
        """
        check_positive("order", order)
        narrowed = -order * math.expm1(-2 * self.beta)
        if order <= 1 or narrowed >= 1:
            raise InputError(
                f"beta={self.beta!r}: order * (1 - exp(-2 beta)) must be below 1 at order {order:g} > 1. Take about "
                f"{0.2 / order:.3g}."
            )
        sigma = self.noise_multiplier
        mean_part = order * (1 + self.shift * sigma * math.expm1(self.beta)) ** 2 / (2 * sigma**2)
        narrower = mean_part * math.exp(-2 * self.beta) / (1 - narrowed)
        narrower += (-0.5 * math.log1p(-narrowed) - order * self.beta) / (order - 1)
        widened = order * math.expm1(2 * self.beta)
        wider = mean_part + (order * self.beta - 0.5 * math.log1p(widened)) / (order - 1)
        return max(narrower, wider)


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
    release: SmoothRelease,
    delta: float,
    *,
    standard_normal: float,
    public_divergence: float = 0.0,
) -> ReleasedEpsilon:
    r"""Publish the data-dependent epsilon of a cost.

    The noisy divergence is cut to the range from 0 to the data-independent bound, which is known to hold it; the
    divergence of the release is added, and the sum at the cost's one order is turned into epsilon.

    Formal guarantee: the published numbers together with the answers have, for the data set behind the votes and every
    neighbour, a divergence of at most ``unsafe_divergence`` + `SmoothRelease.divergence` + ``public_divergence``, and
    the release alone has `SmoothRelease.divergence` for all data sets. The published epsilon bounds this except with
    chance ``failure``.

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
