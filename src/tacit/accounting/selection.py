r"""The cost of trying many hyperparameters and releasing the best trial alone, when the number of trials is random.

A base mechanism Q (draw hyperparameters by a public rule, train, score) is run K times independently, and the output
that is largest in a fixed total order, such as the score's, is returned. K is drawn without a look at the data. The
guarantee is for **that one output**: neither K nor anything of the other trials may be published.

- K truncated negative binomial, with Rényi divergences of Q: Papernot and Steinke 2021, theorem 2.
- K Poisson, likewise: their theorem 6.
- Q of pure or approximate differential privacy: Liu and Talwar 2019 for a geometric K, here for every truncated
  negative binomial one.

Ties in the score do no harm: the first of the best is distributed as if a random number, drawn with each output,
broke the tie.

References: Papernot, Steinke, Hyperparameter Tuning with Rényi Differential Privacy, 2021,
https://arxiv.org/abs/2110.03620; Liu, Talwar, Private Selection from Private Candidates, 2019,
https://arxiv.org/abs/1811.07971.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import numpy as np
from dp_accounting import DpEvent, dp_event
from scipy import optimize

from tacit.accounting.dominating import FloatArray
from tacit.core.errors import InputError
from tacit.core.validation import check_non_negative, check_positive, check_probability

_LEAST_LOG_GAMMA = -60.0
_ROUNDED_UP = 1 + 1e-12


@dataclasses.dataclass(frozen=True)
class TruncatedNegativeBinomial:
    r"""K at least 1 with

    .. math:: P[K=k] = \frac{(1-\gamma)^k}{\gamma^{-\eta}-1}\prod_{\ell=0}^{k-1}\frac{\ell+\eta}{\ell+1},
        \qquad \eta = 0:\quad P[K=k] = \frac{(1-\gamma)^k}{k\ln(1/\gamma)}

    (Papernot and Steinke 2021, definition 1). :math:`\eta = 1` is geometric, :math:`\eta = 0` logarithmic. Its
    derivative of the generating function is :math:`f'(x) = E[K]\,(\gamma / (1-(1-\gamma)x))^{1+\eta}`, on which every
    bound here rests.

    Args:
        shape: eta, above -1. The smaller, the less a selection costs and the more K varies for the same mean.
        gamma: above 0 and up to 1, where K is 1.
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        check_shape(self.shape)
        check_probability("gamma", self.gamma)

    @classmethod
    def with_mean(cls, mean: float, shape: float) -> Self:
        """The distribution of a mean of at least 1, whose own mean is that up to rounding and never less."""
        check_shape(shape)
        if check_positive("mean", mean) < 1:
            raise InputError(f"mean={mean!r}: must be at least 1, as there always is a trial.")
        if mean == 1:
            return cls(shape, 1.0)
        if shape == 1:
            return cls(shape, math.nextafter(1 / mean, 0.0))

        def excess(log_gamma: float) -> float:
            return math.log(_mean(shape, math.exp(log_gamma)) / mean)

        if excess(_LEAST_LOG_GAMMA) < 0:
            raise InputError(f"mean={mean!r}: is too large for shape {shape!r}. Take fewer trials or a larger shape.")
        root = float(optimize.brentq(excess, _LEAST_LOG_GAMMA, 0.0, xtol=1e-15, rtol=1e-14))
        while root > _LEAST_LOG_GAMMA and excess(root) < 0:
            root -= 1e-14 * (1 + abs(root))
        return cls(shape, math.exp(root))

    @property
    def mean(self) -> float:
        """How many trials there are on average."""
        return _mean(self.shape, self.gamma)

    def describe(self) -> str:
        """For statements."""
        names = {0.0: "logarithmic", 1.0: "geometric"}
        name = names.get(float(self.shape), f"truncated negative binomial with shape {self.shape:g}")
        return f"{name} with mean {self.mean:.4g}"


@dataclasses.dataclass(frozen=True)
class Poisson:
    """K with a Poisson distribution: the most concentrated one here. It can be 0, and then nothing is returned.

    Args:
        mean: at least 1.
    """

    mean: float

    def __post_init__(self) -> None:
        if check_positive("mean", self.mean) < 1:
            raise InputError(f"mean={self.mean!r}: must be at least 1. Fewer trials choose nothing.")

    @property
    def shape(self) -> float:
        """Infinite, as dp-accounting has it."""
        return math.inf

    def describe(self) -> str:
        """For statements."""
        return f"Poisson with mean {self.mean:.4g}"


TrialCount = TruncatedNegativeBinomial | Poisson


def selection_event(event: DpEvent, trials: TrialCount) -> DpEvent:
    """The selection of the best of ``trials`` runs of ``event``, for accountants and ledgers.

    The event knows shape and mean; the mean is rounded up, so that no less is counted than was drawn.

    Raises:
        InputError: the shape is below 0, for which there is no such event; `selection_divergences` knows it.
    """
    if trials.shape < 0:
        raise InputError(f"shape={trials.shape!r}: events know shapes of at least 0. Use 0, the logarithmic one.")
    return dp_event.RepeatAndSelectDpEvent(event, trials.mean * _ROUNDED_UP, trials.shape)


def trial_count_of(event: DpEvent) -> TrialCount:
    """How the number of trials of a `RepeatAndSelectDpEvent` is distributed."""
    if event.shape == math.inf:
        return Poisson(event.mean)
    return TruncatedNegativeBinomial.with_mean(event.mean, event.shape)


def selection_divergences(orders: FloatArray, divergences: FloatArray, trials: TrialCount) -> FloatArray:
    r"""The Rényi divergences of the selection, from those :math:`\epsilon(\lambda)` of one trial at the same orders.

    Truncated negative binomial (Papernot and Steinke 2021, theorem 2), for any :math:`\hat\lambda`, the best of which
    is taken:

    .. math:: \epsilon'(\lambda) = \epsilon(\lambda) + (1+\eta)\Big(1-\frac1{\hat\lambda}\Big)\epsilon(\hat\lambda)
        + \frac{(1+\eta)\ln(1/\gamma)}{\hat\lambda} + \frac{\ln E[K]}{\lambda-1}.

    Poisson (theorem 6), where Q is :math:`(\hat\epsilon, \hat\delta)`-DP with :math:`e^{\hat\epsilon} \le
    1 + 1/(\lambda-1)`; the largest such :math:`\hat\epsilon` is taken, and :math:`\hat\delta` from the divergences:

    .. math:: \epsilon'(\lambda) = \epsilon(\lambda) + E[K]\,\hat\delta + \frac{\ln E[K]}{\lambda-1}.

    Divergences grow with the order, so that what a larger order allows bounds the smaller ones too.

    Args:
        orders: above 1, in ascending order.
        divergences: of one trial; may be infinite.
        trials: of K.
    """
    if isinstance(trials, TruncatedNegativeBinomial):
        if trials.gamma == 1:
            return divergences
        terms = (1 - 1 / orders) * divergences - math.log(trials.gamma) / orders
        extra = np.full_like(orders, (1 + trials.shape) * float(np.min(terms)))
    else:
        extra = trials.mean * _deltas(orders, divergences, -np.log1p(-1 / orders))
    bounds = divergences + extra + math.log(trials.mean) / (orders - 1)
    return np.asarray(np.minimum.accumulate(bounds[::-1])[::-1])


def pure_selection_epsilon(epsilon: float, trials: TruncatedNegativeBinomial) -> float:
    r"""Epsilon of the selection from trials that each are pure epsilon-DP: :math:`(2+\eta)\epsilon`, with delta 0.

    Three times epsilon for a geometric K (Liu and Talwar 2019), twice for a logarithmic one (Papernot and Steinke 2021,
    corollary 3). It is the limit :math:`\lambda, \hat\lambda \to \infty` of their theorem 2, and no less is true for
    all mechanisms as gamma goes to 0.
    """
    check_non_negative("epsilon", epsilon)
    return epsilon if trials.gamma == 1 else (2 + trials.shape) * epsilon


def approximate_selection_delta(
    delta_at: Callable[[float], float], epsilon: float, inner_epsilon: float, trials: TruncatedNegativeBinomial
) -> float:
    r"""Delta of the selection at ``epsilon``, from the privacy curve :math:`\delta(\cdot)` of one trial:

    .. math:: \delta'(\epsilon) \le E[K]\;\delta(\epsilon - \ln C), \qquad
        C = \max\Big(e^{\epsilon_1},\; 1 + \frac{1-\gamma}\gamma\,\delta(\epsilon_1)\Big)^{1+\eta},

    for any :math:`\epsilon_1` = ``inner_epsilon``. With delta 0 it is `pure_selection_epsilon`. Liu and Talwar (2019)
    treat the geometric K; Koskela, Redberg and Wang 2024, https://arxiv.org/abs/2402.06701, have this form with
    :math:`e^{\epsilon_1} + \frac{1-\gamma}\gamma\delta(\epsilon_1)` in the place of the larger of the two.

    Proof. With F the distribution function of Q in the order of selection and q its density, the selection has density
    :math:`q f'(F)`, where :math:`f'(F) = E[K] (\gamma / (\gamma + (1-\gamma)(1-F)))^{1+\eta}` increases to E[K]. From
    :math:`1-F' \le e^{\epsilon_1}(1-F) + \delta(\epsilon_1)` follows

    .. math:: \Big(\frac{f'(F)}{f'(F')}\Big)^{\frac1{1+\eta}} \le \frac{[\gamma + (1-\gamma)\delta(\epsilon_1)] +
        [(1-\gamma)(1-F)]\,e^{\epsilon_1}}{[\gamma] + [(1-\gamma)(1-F)]},

    which lies between its value at F = 1 and :math:`e^{\epsilon_1}`, so that :math:`f'(F) \le C f'(F')`. So
    :math:`q f'(F) - e^\epsilon q' f'(F') \le f'(F)(q - e^{\epsilon-\ln C} q')`, whose positive part sums to
    :math:`E[K]\,\delta(\epsilon-\ln C)` at most. ∎

    Args:
        delta_at: one trial's delta for every epsilon of at least 0, in both directions of the relation.
        epsilon: of the selection.
        inner_epsilon: of one trial; what is best is for the caller to find.
        trials: of K.

    Returns:
        A bound, 1 where :math:`\epsilon < \ln C` says nothing.
    """
    check_non_negative("epsilon", epsilon)
    check_non_negative("inner_epsilon", inner_epsilon)
    gamma = trials.gamma
    slack = max(math.exp(inner_epsilon), 1 + (1 - gamma) / gamma * delta_at(inner_epsilon))
    left = epsilon - (1 + trials.shape) * math.log(slack)
    return 1.0 if left < 0 else min(1.0, trials.mean * delta_at(left))


def check_shape(shape: float) -> float:
    """Eta: a finite number above -1."""
    if not -1 < shape < math.inf:
        raise InputError(f"shape={shape!r}: must be above -1 and finite: 0 is logarithmic, 1 geometric.")
    return shape


def _mean(shape: float, gamma: float) -> float:
    """eta (1/gamma - 1) / (1 - gamma^eta), by its limits at eta 0 and gamma 1."""
    log_gamma = math.log(gamma)
    if log_gamma == 0:
        return 1.0
    exponent = shape * log_gamma
    of_shape = -1 / log_gamma if exponent == 0 else -shape / math.expm1(exponent)
    return of_shape * -math.expm1(log_gamma) / gamma


def _deltas(orders: FloatArray, divergences: FloatArray, epsilons: FloatArray) -> FloatArray:
    """Delta at each epsilon by the best order: `tacit.accounting.conversion.rdp_to_delta`, for many at once."""
    rows = divergences + np.log1p(-1 / orders) - epsilons[:, None]
    logs = np.min((orders - 1) * rows - np.log(orders), axis=1)
    return np.asarray(np.exp(np.minimum(logs, 0.0)))
