r"""What Poisson-sampled Gaussians cost where each inclusion alone costs much: by the number of inclusions.

A record takes part in K of n steps, K binomial. Composed, the pair of distributions is a mixture over all patterns of
inclusions, of one Gaussian against another for each. The hockey-stick divergence is jointly convex, so it is at most
its mean over the patterns, and given k inclusions it is at most the probability that the loss exceeds epsilon:

.. math:: \delta(\varepsilon) \le \sum_k P(K = k) \, \Phi\left(\frac{\sqrt{m_k}}{2} - \frac{\varepsilon}{\sqrt{m_k}}
    \right), \qquad m_k = m_0 + k \mu^2

with :math:`\mu` the distance of one inclusion in standard deviations of the noise, and :math:`m_0` that of all that is
released in any case. The same holds with the two distributions exchanged. Where noise is ample this is far from the
truth, as it forgets that nobody sees who was included. Where it is so small that everybody sees it, it is close, and a
grid of losses would need more points than there is memory. Under replace-one it is no more than safe: two records are
there compared as if both were included, twice as far apart.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special, stats

_TAIL_SHARE = 1e-6  # of delta, for more inclusions than are looked at
_FEW = 1e-12  # probability of fewer, which are counted as the fewest that are
_ROUNDING = 1e-9  # of delta, far above that of the probabilities and sums
_CANCELLED = 1e-14  # of a distance, by which the argument of a tail may be off, and that times ten its tail
_SMALLEST = 1e-300  # probability that is told from zero
_HALVINGS = 60


@dataclasses.dataclass(frozen=True)
class Inclusions:
    """A composition of one kind of Poisson-sampled Gaussian, and of Gaussians on all records.

    Attributes:
        steps: how often the sampled one is run.
        rate: the probability that a record takes part.
        precision: the squared distance of one inclusion, in variances of the noise.
        always: that of the Gaussians on all records, together.
    """

    steps: int
    rate: float
    precision: float
    always: float = 0.0

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at ``epsilon``, which is not negative."""
        probabilities, distances, tail = self._counts(_SMALLEST)
        return min(1.0, (_delta(epsilon, probabilities, distances) + tail) * (1 + _rounding(distances)))

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon at ``delta``; 0 < delta < 1."""
        probabilities, distances, tail = self._counts(max(_TAIL_SHARE * delta, _SMALLEST))
        allowed = delta * (1 - _rounding(distances)) - tail
        if allowed <= 0:
            return math.inf
        # Given the most inclusions, the loss stays below this but for a probability of delta.
        low, high = 0.0, float(distances[-1] ** 2 / 2 + distances[-1] * -special.ndtri(allowed))
        high = max(high, math.ulp(1.0))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _delta(middle, probabilities, distances) <= allowed:
                high = middle
            else:
                low = middle
        return high

    def _counts(self, tail: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
        """How likely each number of inclusions is, the distance then, and what is left out, at most ``tail``."""
        law = stats.binom(self.steps, self.rate)
        fewest, most = self._range(tail)
        counts = np.arange(fewest, most + 1)
        probabilities = law.pmf(counts)
        probabilities[0] = law.cdf(fewest)
        return probabilities, np.sqrt(self.always + counts * self.precision), float(law.sf(most))

    def _range(self, tail: float) -> tuple[int, int]:
        """Numbers of inclusions beyond which few runs are: by the inequalities of Chernoff and Bernstein."""
        mean, low, high = self.steps * self.rate, -math.log(_FEW), -math.log(tail)
        variance = mean * (1 - self.rate)
        below, above = math.sqrt(2 * mean * low), high / 3 + math.sqrt(high**2 / 9 + 2 * variance * high)
        return max(0, math.floor(mean - below)), min(self.steps, math.ceil(mean + above))


def _rounding(distances: npt.NDArray[np.float64]) -> float:
    """By which share of itself delta may come out too small, for tails beyond 1e-20."""
    return _ROUNDING + 10 * _CANCELLED * float(distances[-1])


def _delta(epsilon: float, probabilities: npt.NDArray[np.float64], distances: npt.NDArray[np.float64]) -> float:
    moved = distances > 0  # what does not move at all has no loss
    tails = special.ndtr(distances[moved] / 2 - epsilon / distances[moved])
    return float(probabilities[moved] @ tails)
