r"""Attacks on the tanh filter: is the epsilon that its paper claims a bound on what it gives away?

The paper (Amian 2021) sends each number of a gradient through :math:`c \tanh(g / k)`, adds noise of standard deviation
1.1 to the sum over a lot, and accounts for it as if one record moved that sum by 1. It moves it by up to
:math:`c \sqrt n`, as the paper says itself; it expects gradients to be small in practice, and leaves attacks to others.
Here are three, from the plainest to the most natural:

- `worst_case_step`: a record whose gradient is large in every number, in one step, against the same step without it.
  Everything is the real step on all n numbers;
- `worst_case_run`: that record in whole runs, drawn at the paper's rate. All that a run tells of it is the sums'
  component along one direction, so that this component alone is drawn, with the mechanism's own noise;
- `records_in_one_run`: hundreds of real records, each there by a fair coin, and one run of the real thing that holds
  the weights. It asks whether ordinary gradients are as small as the paper hopes.

Each gives a lower bound on epsilon, which must not exceed a true epsilon but with the chance that its confidence
leaves: not that of the filter alone, for :math:`c \sqrt n`, nor that of the sound variant, whose norm is bounded.
"""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor, nn

from tacit.auditing.arrays import FloatArray
from tacit.auditing.lower_bounds import LowerBound, clopper_pearson_bound, one_run_bound
from tacit.auditing.watching import contributions, gradients, still
from tacit.auditing.white_box import log_likelihood_ratio
from tacit.clipping import Tanh
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.gradients.losses import LossFunction, trainable
from tacit.mechanisms import Gaussian
from tacit.plan import DPSGD
from tacit.training import Execution, Private

_STEEP = 1e4  # a gradient so large in each number that tanh is 1
_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True)
class TanhRun:
    """A run with the tanh filter: the paper's noise, rate and steps by default, for MNIST.

    Attributes:
        rule: the filter, alone as published, or with the norm bound that makes it sound.
        numbers: n, how many numbers are trained.
        noise_std: of the noise on the sum over a lot.
        batch_size, examples, steps: lots of 256 of 60,000 records; 15 epochs.
        delta: of the claim.
    """

    rule: Tanh
    numbers: int
    noise_std: float = 1.1
    batch_size: int = 256
    examples: int = 60_000
    steps: int = 3516
    delta: float = 1e-5

    @property
    def sensitivity(self) -> float:
        """How far one record can really move the sum: c sqrt(n), or the bound."""
        return self.rule.bind({"all": self.numbers}).total

    def mechanism(self) -> Gaussian:
        """The noise of a step."""
        return Gaussian(self.noise_std / self.sensitivity, self.sensitivity)

    def plan(self) -> DPSGD:
        """What really runs, with its true epsilon."""
        return DPSGD(
            expected_batch_size=self.batch_size,
            examples=self.examples,
            steps=self.steps,
            clipping=self.rule,
            delta=self.delta,
            noise_multiplier=self.noise_std / self.sensitivity,
        )

    def one_step(self) -> "TanhRun":
        """One step that everyone takes part in."""
        return dataclasses.replace(self, batch_size=1, examples=1, steps=1)


def worst_case_step(
    run: TanhRun, draws: int, *, confidence: float = 0.95, randomness: Randomness | None = None
) -> LowerBound:
    """One step, with a record that moves every number as far as it goes, and without it.

    Args:
        run: its filter, numbers, noise and delta count; the record takes part for sure.
        draws: how many steps are taken on either side, each with noise of its own.
        confidence: of the bound.
        randomness: of signs and noise; keyed by the operating system unless given.
    """
    check_count("draws", draws, minimum=8)
    source = randomness or Randomness()
    signs = torch.from_numpy(source.stream("signs").choice([-1.0, 1.0], run.numbers)).float()
    plan = dataclasses.replace(run.one_step(), steps=draws).plan()
    with_it, without = (_projections(plan, signs, records, source) for records in (signs[None], signs[None][:0]))
    return clopper_pearson_bound(with_it, without, delta=run.delta, confidence=confidence)


def _projections(plan: DPSGD, signs: Tensor, records: Tensor, randomness: Randomness) -> FloatArray:
    """Of what each step releases, the component along the signs."""
    model = nn.Linear(len(signs), 1, bias=False)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        steep: Tensor = _STEEP * model(x)[:, 0]
        return steep

    private = _still(model, loss, plan, randomness)
    direction, found = (signs / math.sqrt(len(signs))).double(), []
    for lot in private.batches((records,)):
        private.step(lot)
        assert model.weight.grad is not None
        found.append(float(model.weight.grad[0].double() @ direction) * plan.expected_batch_size)
    return np.array(found)


def worst_case_run(
    run: TanhRun, runs: int, *, confidence: float = 0.95, randomness: Randomness | None = None
) -> LowerBound:
    r"""Whole runs, half of them with a record that moves every number as far as it goes.

    Noise of one scale on all numbers is noise of the same scale along any direction, independent of the rest. So each
    step tells :math:`x = s b + N(0, 1.1^2)` of the record, where b says whether it was drawn and s is the sensitivity;
    runs are scored by the likelihood ratio :math:`\sum_t \log(1 - q + q e^{s (2 x_t - s) / (2 \cdot 1.1^2)})`, which
    no test beats.
    """
    check_count("runs", runs, minimum=8)
    source, mechanism, rate = randomness or Randomness(), run.mechanism(), run.batch_size / run.examples
    at_once = max(1, _NUMBERS_AT_ONCE // run.steps)

    def scores(side: str, chance: float) -> FloatArray:
        found = []
        for start in range(0, runs, at_once):
            shape = (min(at_once, runs - start), run.steps)
            drawn = source.stream("lots", side, start).random(shape) < chance
            sums = mechanism.add_noise(
                torch.from_numpy(run.sensitivity * drawn), source.stream("noise", side, start)
            ).numpy()
            found.append(log_likelihood_ratio(sums / run.sensitivity, rate, mechanism.noise_multiplier).sum(1))
        return np.concatenate(found)

    return clopper_pearson_bound(scores("in", rate), scores("out", 0.0), delta=run.delta, confidence=confidence)


def records_in_one_run(
    run: TanhRun,
    model: nn.Module,
    loss_fn: LossFunction,
    records: tuple[Tensor, ...],
    *,
    confidence: float = 0.95,
    randomness: Randomness | None = None,
) -> LowerBound:
    """One run on real records, each of which is there by a fair coin, with weights that are held where they are.

    What is claimed for training is claimed for every learning rate, so for none, too; each record then adds the same to
    every sum that it is drawn for, and whoever knows the records looks for it. How much of each record a released sum
    holds is estimated by least squares, since the records' gradients point much the same way; their likelihood ratios
    add up over the steps. The bound is that of Steinke et al. 2023 and assumes nothing of all this.

    Args:
        run: of the model's own numbers.
        model: with weights that do not come from these records. They stay.
        loss_fn: one loss for each example.
        records: the candidates, a row for each, in tensors; nobody else takes part.
        confidence: of the bound.
        randomness: of coins, lots and noise; keyed by the operating system unless given.
    """
    numbers = sum(parameter.numel() for parameter in trainable(model).values())
    if numbers != run.numbers:
        raise InputError(f"numbers={run.numbers}: must be the {numbers} that the model trains. Give that number.")
    source = randomness or Randomness()
    coins = source.stream("coins").random(len(records[0])) < 0.5
    chosen = torch.from_numpy(coins)
    plan = run.plan()
    search = _Search(contributions(model, loss_fn, run.rule, records), run.noise_std, plan.sampling_rate)
    private = _still(model, loss_fn, plan, source)
    scores = np.zeros(len(coins))
    for lot in private.batches(tuple(column[chosen] for column in records)):
        private.step(lot)
        scores += search(plan.expected_batch_size * gradients(model))
    return one_run_bound(scores, coins, delta=run.delta, confidence=confidence)


class _Search:
    """How much rather each record is in a run than not, by one released sum."""

    def __init__(self, added: FloatArray, noise_std: float, rate: float) -> None:
        # A prior of variance 1 on each share keeps the estimate sane where records add nearly the same.
        inverse = np.linalg.inv(added @ added.T + noise_std**2 * np.eye(len(added)))
        self._shares = (inverse @ added).astype(np.float32)  # read whole at every step
        precision = np.maximum(1 / np.diag(inverse) - noise_std**2, 0.0)
        with np.errstate(divide="ignore"):  # a share that nothing tells of has infinite noise
            self._noise = noise_std / np.sqrt(precision)
        self._rate = rate

    def __call__(self, released: FloatArray) -> FloatArray:
        shares = (self._shares @ released.astype(np.float32)).astype(np.float64)
        return log_likelihood_ratio(shares, self._rate, self._noise)


def _still(model: nn.Module, loss_fn: LossFunction, plan: DPSGD, randomness: Randomness) -> Private:
    """The real run, with an update that leaves the weights where they are."""
    execution = Execution(preflight=False, compile=False)
    return Private(model, loss_fn, still(model), plan, randomness=randomness, execution=execution)
