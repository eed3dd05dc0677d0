r"""White-box audit in one run: gradient canaries, seen at every step.

Canary j is a record whose gradient is a multiple of the unit vector :math:`e_j`, clipped to :math:`C e_j` (a Dirac
canary, Nasr et al. 2023). Each is included by a fair coin, and a plan runs on the included ones as on any data set:
`tacit.Private` draws the lots, clips, sums and adds noise. Whoever sees the noisy gradients of all steps sees of it

.. math:: x_{tj} = b_{tj} + \sigma z_{tj}, \qquad b_{tj} \sim \mathrm{Bernoulli}(q) \text{ if it is included, else } 0,

in units of C. The likelihood ratio of in against out, by which the best test decides (Neyman and Pearson), is

.. math:: \sum_t \log\big(1 - q + q\,e^{(2 x_{tj} - 1) / (2\sigma^2)}\big).

This is the pair of distributions that the accounting is tight for, so a correct program is found to leak nearly what
it claims, and one that leaks more is caught.

Which bound: with independent coordinates, as the plan claims them, `DiracRun.bound` comes close to the claimed epsilon
(see `tacit.auditing.lower_bounds.independent_guesses` for why that refutes a claim without further assumptions).
`DiracRun.bound_for_any_mechanism` holds however canaries act together, and stays further below.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.auditing.arrays import FloatArray
from tacit.auditing.lower_bounds import (
    DpSgdFamily,
    Family,
    GaussianFamily,
    Guesses,
    LowerBound,
    independent_guesses_bound,
    one_run_tradeoff_bound,
)
from tacit.auditing.watching import still
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.plan import DPSGD
from tacit.training.execution import Execution
from tacit.training.private import Private

_STEEPNESS = 10.0  # gradients before clipping, in units of C
_SUREST_SHARE = 64  # one canary in so many is guessed by the bound for any mechanism


class DiracModel(nn.Module):
    """A model with one parameter for each canary: the loss of canary j is linear in parameter j alone."""

    def __init__(self, canaries: int) -> None:
        super().__init__()
        self.weights = nn.Embedding(canaries, 1)
        nn.init.zeros_(self.weights.weight)

    def forward(self, canary: Tensor) -> Tensor:
        """The parameters of these canaries."""
        chosen: Tensor = self.weights(canary).squeeze(-1)
        return chosen


@dataclasses.dataclass(frozen=True)
class DiracRun:
    """One run of a plan on Dirac canaries, with the coins and the log likelihood ratio of each canary."""

    plan: DPSGD
    included: npt.NDArray[np.bool_]
    scores: FloatArray

    @property
    def claimed(self) -> float:
        """Epsilon of the plan, at its delta."""
        return self.plan.epsilon()

    @property
    def correct(self) -> int:
        """How many canaries the likelihood ratio puts on the right side."""
        return int(np.count_nonzero((self.scores > 0) == self.included))

    def bound(self, confidence: float = 0.95) -> LowerBound:
        """A lower bound that exceeds `claimed` with a chance of at most 1 - ``confidence`` if the plan is kept to."""
        return independent_guesses_bound(
            self.correct, self.included.size, family=_family(self.plan), delta=self.plan.delta, confidence=confidence
        )

    def bound_for_any_mechanism(self, confidence: float = 0.95) -> LowerBound:
        """A lower bound for whatever mechanism has the plan's trade-off function, from the surest guesses alone."""
        few = max(2, self.included.size // _SUREST_SHARE)
        return one_run_tradeoff_bound(
            self.scores,
            self.included,
            family=_family(self.plan),
            delta=self.plan.delta,
            confidence=confidence,
            guesses=(Guesses.balanced(few), Guesses(few // 2, 0)),
        )


def run_on_dirac_canaries(plan: DPSGD, canaries: int, *, randomness: Randomness | None = None) -> DiracRun:
    """Runs a plan once on canaries that are included by fair coins, and scores each of them.

    Args:
        plan: with Poisson sampling, under add-remove; what else it says of the data, such as the number of examples, is
            public and need not agree with the canaries.
        canaries: how many coins are thrown. The spread of the bound falls with their square root.
        randomness: of coins, lots and noise; keyed by the operating system unless given.
    """
    _check_plan(plan)
    check_count("canaries", canaries, minimum=2)
    source = Randomness() if randomness is None else randomness
    included = source.stream("audit", "coins").random(canaries) < 0.5
    scores = np.zeros(canaries)
    for sums in noisy_sums(plan, included, source):
        scores += log_likelihood_ratio(sums, plan.sampling_rate, plan.noise_multiplier)
    return DiracRun(plan, included, scores)


def noisy_sums(plan: DPSGD, included: npt.NDArray[np.bool_], randomness: Randomness) -> Iterator[FloatArray]:
    """What each step releases of the canaries' coordinates, in units of the clipping norm."""
    model = DiracModel(included.size)
    parameter = model.weights.weight
    norm = plan.clipping.bind({"weights.weight": included.size}).total

    def loss(model: nn.Module, canary: Tensor) -> Tensor:
        steep: Tensor = _STEEPNESS * norm * model(canary)
        return steep

    execution = Execution(chunk_size=included.size, compile=False)
    private = Private(model, loss, still(model), plan, randomness=randomness, execution=execution)
    for lot in private.batches((torch.from_numpy(np.flatnonzero(included)),)):
        private.step(lot)
        assert parameter.grad is not None
        yield parameter.grad.squeeze(-1).double().numpy() * (plan.expected_batch_size / norm)


def log_likelihood_ratio(sums: FloatArray, sampling_rate: float, noise_multiplier: float | FloatArray) -> FloatArray:
    """Of one step, a canary that is in, and moves its sum by 1, against one that is out."""
    drawn = (2 * sums - 1) / (2 * noise_multiplier**2)
    if sampling_rate == 1:
        return drawn
    return np.logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + drawn)


def _family(plan: DPSGD) -> Family:
    """Full lots compose to one Gaussian, whose trade-off function is exact."""
    return GaussianFamily() if plan.sampling_rate == 1 else DpSgdFamily(plan.sampling_rate, plan.steps)


def _check_plan(plan: DPSGD) -> None:
    """Refuses what the likelihood ratio and the family of trade-off functions do not speak for."""
    plain = plan.sampler.name == "poisson" and plan.neighbours is Neighbours.ADD_REMOVE and not plan.preparations
    if not plain or plan.unit.max_examples != 1 or plan.noise_multiplier == 0:
        raise UnsupportedError(
            f"plan with {plan.sampler.describe()}, {plan.neighbours.value}, {plan.unit}, noise multiplier "
            f"{plan.noise_multiplier:g}, {len(plan.preparations)} preparations: Dirac canaries audit Poisson sampling "
            "with noise under add-remove for single examples, without preparations. Use such a plan."
        )
