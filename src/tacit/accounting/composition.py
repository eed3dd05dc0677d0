r"""Basic and strong composition of (epsilon, delta) guarantees, as they stood before moments were accounted.

Every step is first given an (epsilon0, delta0) guarantee, amplified by its sampling, and then composed.

- `basic`: epsilons and deltas add up. Rigorous.
- `strong`: what Abadi et al. (2016) compare against. The Gaussian mechanism with
  :math:`\sigma = \sqrt{2\ln(1.25/\delta_0)}/\epsilon_0`, amplified to :math:`(q\epsilon_0, q\delta_0)` (the constant
  in the paper's O(q epsilon) taken as 1), then Dwork and Roth (2014), theorem 3.20. Neither that amplification nor
  the first formula beyond epsilon0 = 1 is a theorem, so this is **no upper bound**.
- `strong-rigorous`: the exact Gaussian (Balle and Wang 2018), amplified to
  :math:`(\log(1 + q(e^{\epsilon_0} - 1)), q\delta_0)`, then Kairouz, Oh and Viswanath (2015), theorem 3.5. Rigorous.

One choice is left, how delta is shared between the steps and the slack of the theorem; the best of a fixed grid is
taken, so that epsilon stays monotone in every parameter.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from dp_accounting import DpEvent, dp_event

from tacit.accounting.base import refuse_event, refuse_relation
from tacit.accounting.conversion import gaussian_epsilons
from tacit.accounting.dominating import FloatArray
from tacit.accounting.events import SampledGaussian, as_sampled_gaussian, flatten
from tacit.accounting.relations import contributions_moved
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours

_SLACK_SHARES: FloatArray = 1 / (1 + np.exp(np.linspace(-12, 12, 193)))
_LOG_DELTA_RANGE = (-690.0, -1e-9)
_BISECTIONS = 50


@dataclasses.dataclass(frozen=True)
class PureStep:
    """``count`` mechanisms that are epsilon-DP with delta 0, each on its own Poisson sample."""

    sampling_rate: float
    epsilon: float
    count: int


@dataclasses.dataclass(frozen=True)
class Steps:
    """A composition, sorted by what kind of guarantee a step can have."""

    gaussian: tuple[SampledGaussian, ...]
    pure: tuple[PureStep, ...]

    @property
    def counts(self) -> FloatArray:
        """How often each kind of step occurs, the Gaussian ones first."""
        return np.asarray([step.count for step in self.gaussian] + [step.count for step in self.pure], dtype=np.float64)

    @property
    def delta_weight(self) -> float:
        """What all steps together spend when each of them has delta0 = 1 before amplification."""
        return sum(step.count * step.sampling_rate for step in self.gaussian)


# From the steps and delta to epsilon.
_Theorem = Callable[[Steps, float], float]


@dataclasses.dataclass(frozen=True)
class CompositionAccountant:
    """One of the three composition theorems, for Gaussian and Laplace noise with or without Poisson sampling.

    A replaced record moves two contributions, which doubles a pure epsilon and halves a noise multiplier; with sampling
    that relation is refused.
    """

    name: str
    is_upper_bound: bool
    theorem: _Theorem

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            self._steps(event, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        steps = self._steps(event, neighbours)
        if any(step.noise_multiplier == 0 for step in steps.gaussian):
            return math.inf
        if not steps.gaussian and not steps.pure:
            return 0.0
        with np.errstate(over="ignore"):  # an overflow is an infinite epsilon
            return self.theorem(steps, delta)

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        """The least delta whose epsilon is small enough, by bisection on its logarithm, rounded upwards."""
        low, high = _LOG_DELTA_RANGE
        if self.epsilon(event, math.exp(high), neighbours) > epsilon:
            return 1.0
        if self.epsilon(event, math.exp(low), neighbours) <= epsilon:
            return math.exp(low)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            enough = self.epsilon(event, math.exp(middle), neighbours) <= epsilon
            low, high = (low, middle) if enough else (middle, high)
        return math.exp(high)

    def _steps(self, event: DpEvent, neighbours: Neighbours) -> Steps:
        moved = contributions_moved(neighbours)
        gaussian: list[SampledGaussian] = []
        pure: list[PureStep] = []
        for leaf, count in flatten(event):
            step = as_sampled_gaussian(leaf, count) or as_pure_step(leaf, count)
            if step is None:
                raise refuse_event(self.name, leaf, neighbours, "Use 'pld' or 'rdp'.")
            if moved > 1 and step.sampling_rate != 1:  # the formulas of amplification are for a record more or less
                raise refuse_relation(self.name, neighbours, "Use 'pld'.")
            if not step.count:
                continue
            if isinstance(step, SampledGaussian):
                gaussian.append(dataclasses.replace(step, noise_multiplier=step.noise_multiplier / moved))
            else:
                pure.append(dataclasses.replace(step, epsilon=step.epsilon * moved))
        return Steps(tuple(gaussian), tuple(pure))


def as_pure_step(leaf: DpEvent, count: int) -> PureStep | None:
    """A leaf with Laplace or discrete Laplace noise, or None where it is something else."""
    sampled = isinstance(leaf, dp_event.PoissonSampledDpEvent)
    rate, inner = (leaf.sampling_probability, leaf.event) if sampled else (1.0, leaf)
    if isinstance(inner, dp_event.LaplaceDpEvent):
        epsilon = 1 / inner.noise_multiplier if inner.noise_multiplier else math.inf
    elif isinstance(inner, dp_event.DiscreteLaplaceDpEvent):
        epsilon = inner.noise_parameter * inner.sensitivity
    else:
        return None
    return PureStep(rate, epsilon, count if rate else 0)


def _amplified(epsilon: FloatArray, sampling_rate: float) -> FloatArray:
    """log(1 + q (e^epsilon - 1)), for epsilons that may be large."""
    return np.asarray(epsilon + np.log1p((1 - sampling_rate) * np.expm1(-epsilon)))


def _step_epsilons(steps: Steps, step_deltas: FloatArray) -> FloatArray:
    """Amplified epsilons: one row a kind of step, one column a delta0."""
    rows = [
        _amplified(gaussian_epsilons(step.noise_multiplier, step_deltas), step.sampling_rate) for step in steps.gaussian
    ]
    rows += [_amplified(np.full_like(step_deltas, step.epsilon), step.sampling_rate) for step in steps.pure]
    return np.stack(rows)


def _share(steps: Steps, delta: FloatArray) -> FloatArray:
    """The delta0 that every Gaussian step may have so that all of them together spend ``delta``."""
    return np.minimum(delta / steps.delta_weight, 1.0) if steps.gaussian else delta


def basic(steps: Steps, delta: float) -> float:
    """The sum of the amplified epsilons, with all of delta shared among the steps. Delta may be 0."""
    if delta == 0 and steps.gaussian:
        return math.inf
    epsilons = _step_epsilons(steps, _share(steps, np.asarray([delta])))
    return float((steps.counts @ epsilons)[0])


def strong_rigorous(steps: Steps, delta: float) -> float:
    """The best of basic composition and of theorem 3.5 of Kairouz, Oh and Viswanath over the shares."""
    epsilons = _step_epsilons(steps, _share(steps, (1 - _SLACK_SHARES) * delta))
    drift = steps.counts @ (epsilons * np.tanh(epsilons / 2))
    spread = np.sqrt(-2 * np.log(_SLACK_SHARES * delta) * (steps.counts @ epsilons**2))
    return min(float(np.min(drift + spread)), basic(steps, delta))


def strong_of_the_paper(steps: Steps, delta: float) -> float:
    """Theorem 3.20 of Dwork and Roth on the amplification of Abadi et al. (2016). Not rigorous."""
    deltas = _share(steps, (1 - _SLACK_SHARES) * delta)
    rows = [step.sampling_rate * np.sqrt(2 * np.log(1.25 / deltas)) / step.noise_multiplier for step in steps.gaussian]
    rows += [np.full_like(deltas, step.sampling_rate * step.epsilon) for step in steps.pure]
    epsilons = np.stack(rows)
    drift = steps.counts @ (epsilons * np.expm1(epsilons))
    spread = np.sqrt(-2 * np.log(_SLACK_SHARES * delta) * (steps.counts @ epsilons**2))
    return float(np.min(drift + spread))


BASIC = CompositionAccountant("basic", is_upper_bound=True, theorem=basic)
STRONG = CompositionAccountant("strong", is_upper_bound=False, theorem=strong_of_the_paper)
STRONG_RIGOROUS = CompositionAccountant("strong-rigorous", is_upper_bound=True, theorem=strong_rigorous)
