"""An event for one number that was published with noise in proportion to its smooth sensitivity."""

import math

import attr
from dp_accounting import DpEvent
from scipy import special

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit, check_positive


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SmoothReleaseDpEvent(DpEvent):  # type: ignore[misc]  # dp-accounting carries no types
    r"""Gaussian noise scaled by smooth sensitivity (GNSS): how a private cost v(D) is published.

    .. math:: v(D) + S_\beta(D)\,\sigma\,(z + k), \qquad z \sim N(0, 1),\; k = \Phi^{-1}(1 - \text{failure}).

    The shift k makes the published number an upper bound of v(D) except with chance ``failure``. All fields are public
    and must be chosen without a look at the votes.

    What it costs does not depend on the neighbouring relation: smooth sensitivity was taken for the one that counts.

    Attributes:
        beta: the smoothness; :math:`\lambda (1 - e^{-2\beta}) < 1` at the order :math:`\lambda` of the cost.
        noise_multiplier: :math:`\sigma`, the noise in units of the smooth sensitivity.
        failure: the chance that the published number is too small; 0.5 is the plain mechanism of the paper.
    """

    beta: float
    noise_multiplier: float
    failure: float = 0.5

    def __attrs_post_init__(self) -> None:
        check_positive("beta", self.beta)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_open_unit("failure", self.failure)
        if self.failure > 0.5:
            raise InputError(f"failure={self.failure!r}: must be at most 0.5, the chance without any shift.")

    @property
    def shift(self) -> float:
        """k, by how many standard deviations the published number is raised."""
        return max(0.0, float(-special.ndtri(self.failure)))

    def is_bounded_at(self, order: float) -> bool:
        """Whether the order is above 1 and beta small enough for it, so that the divergence is finite."""
        return order > 1 and -order * math.expm1(-2 * self.beta) < 1

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
        if not self.is_bounded_at(order):
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
