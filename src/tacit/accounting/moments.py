r"""The moments accountant of Abadi et al. (2016), *Deep learning with differential privacy*, as it was published.

With :math:`\mu_0 = N(0, \sigma^2)` and :math:`\mu = (1-q)\,\mu_0 + q\,N(1, \sigma^2)` the log moment of one step is

.. math:: \alpha(\lambda) = \log\max\left(
          E_{z\sim\mu_0}\left(\frac{\mu_0(z)}{\mu(z)}\right)^\lambda,\;
          E_{z\sim\mu}\left(\frac{\mu(z)}{\mu_0(z)}\right)^\lambda\right),

taken by numerical integration at the integers :math:`\lambda = 1, \dots, 32`. Log moments add up over the steps, and
the tail bound gives :math:`\epsilon = \min_\lambda (\sum\alpha(\lambda) + \log(1/\delta))/\lambda`.
"""

import dataclasses
import functools
import math

import numpy as np
from dp_accounting import DpEvent

from tacit.accounting.base import refuse_relation
from tacit.accounting.dominating import FloatArray
from tacit.accounting.events import sampled_gaussians
from tacit.accounting.gaussian_moments import log_ratio_moments
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count


@dataclasses.dataclass(frozen=True)
class MomentsAccountant:
    """The published moments accountant: an upper bound for Poisson-sampled Gaussians under add-remove.

    Attributes:
        max_moment: the largest of the integer moments. 32 is the paper's choice; with small budgets a larger one helps.
    """

    max_moment: int = 32
    name: str = "moments"
    is_upper_bound: bool = True

    def __post_init__(self) -> None:
        check_count("max_moment", self.max_moment)

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            self._log_moments(event, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        total = self._log_moments(event, neighbours)
        if not total.any():
            return 0.0
        return max(0.0, float(np.min((total - math.log(delta)) / self._moments())))

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        total = self._log_moments(event, neighbours)
        if not total.any():
            return 0.0
        return math.exp(min(0.0, float(np.min(total - self._moments() * epsilon))))

    def _moments(self) -> FloatArray:
        return np.arange(1.0, self.max_moment + 1)

    def _log_moments(self, event: DpEvent, neighbours: Neighbours) -> FloatArray:
        if neighbours is not Neighbours.ADD_REMOVE:
            raise refuse_relation(self.name, neighbours, "It was published for add-remove; use 'pld'.")
        total = np.zeros(self.max_moment)
        for part in sampled_gaussians(event, self.name):
            total += part.count * _step_log_moments(part.sampling_rate, part.noise_multiplier, self.max_moment)
        return total


@functools.lru_cache(maxsize=256)
def _step_log_moments(sampling_rate: float, noise_multiplier: float, max_moment: int) -> FloatArray:
    if noise_multiplier == 0:
        return np.full(max_moment, np.inf)
    moments = np.arange(1.0, max_moment + 1)
    remove = log_ratio_moments(moments + 1, sampling_rate, noise_multiplier)
    add = log_ratio_moments(-moments, sampling_rate, noise_multiplier)
    return np.maximum(np.maximum(remove, add), 0.0)
