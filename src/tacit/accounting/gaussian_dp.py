r"""Gaussian differential privacy (Dong, Roth and Su 2019): exact for plain Gaussians, an estimate under sampling.

T plain Gaussians are :math:`\mu`-GDP with :math:`\mu^2 = \sum \sigma_i^{-2}`, exactly. For Poisson sampling the central
limit theorem (Bu, Dong, Long and Su 2020) gives :math:`\mu = q\sqrt{T (e^{1/\sigma^2} - 1)}` in the limit of many
steps. At any finite number of steps that **underestimates** epsilon, so this accountant is no upper bound.
"""

import dataclasses
import math

from dp_accounting import DpEvent

from tacit.accounting.base import refuse_relation
from tacit.accounting.conversion import gdp_to_delta, gdp_to_epsilon
from tacit.accounting.events import sampled_gaussians
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours


@dataclasses.dataclass(frozen=True)
class GaussianDpAccountant:
    """The central limit estimate. Look at it, plot it, never plan with it."""

    name: str = "gdp"
    is_upper_bound: bool = False

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            self.mu(event, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        mu = self.mu(event, neighbours)
        return math.inf if mu == math.inf else gdp_to_epsilon(mu, delta)

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        mu = self.mu(event, neighbours)
        return 1.0 if mu == math.inf else gdp_to_delta(mu, epsilon)

    def mu(self, event: DpEvent, neighbours: Neighbours) -> float:
        """The parameter of the composition; infinite where there is no noise."""
        if neighbours is Neighbours.REPLACE_ONE:
            raise refuse_relation(self.name, neighbours, "Use 'pld'.")
        squared = 0.0
        for part in sampled_gaussians(event, self.name):
            if part.noise_multiplier == 0:
                return math.inf
            precision = part.noise_multiplier**-2
            if part.sampling_rate < 1:
                precision = part.sampling_rate**2 * math.expm1(min(precision, 700.0))
            squared += part.count * precision
        return math.sqrt(squared)
