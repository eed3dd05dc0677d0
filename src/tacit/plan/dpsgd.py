"""The plan of a private training run: sampler, clipping, noise and event in one frozen object."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

from dp_accounting import ComposedDpEvent, DpEvent

from tacit.accounting import ACCOUNTANTS, calibrate_noise, find_accountant
from tacit.accounting.base import Accountant
from tacit.accounting.groups import for_unit
from tacit.clipping import Clipping
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit, Statement
from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.mechanisms import Gaussian
from tacit.plan.preparation import Preparation
from tacit.sampling import Sampler, check_sampler, named_sampler

_Kind = TypeVar("_Kind")


class DeltaWarning(UserWarning):
    """Delta is so large that the guarantee allows to publish a whole record."""


@dataclasses.dataclass(frozen=True, init=False)
class DPSGD:
    r"""Differentially private stochastic gradient descent.

    Step t draws a lot :math:`B_t` with the sampler and updates with

    .. math:: \tilde g_t = \frac{1}{L}\Big(\sum_{i \in B_t} \mathrm{clip}_C(\nabla \ell_i) + N(0, \sigma^2 C^2 I)\Big),

    where L is the *expected* lot size: a public constant, never the size of the lot that was drawn or of the data set.

    Everything that the guarantee depends on is here and frozen, so that what was sampled, clipped, noised and accounted
    for cannot disagree. Nothing here depends on private data.

    Args:
        expected_batch_size: L, the expected number of examples in a lot.
        examples: the public number of examples that the sampling rate L / examples refers to. Under add-remove the data
            set that is trained on may hold more or fewer; the rate stays.
        steps: T, how many steps the run takes.
        clipping: how one example's gradient is bounded.
        delta: of the guarantee; should lie well below 1 / examples.
        epsilon: of the guarantee; the least noise that keeps to it is found. Or give
        noise_multiplier: sigma, the noise's standard deviation over the clipping norm.
        sampler: ``poisson``, ``truncated-poisson``, ``fixed-size``, ``shuffled``, or a sampler of `tacit.sampling`.
        neighbours: the relation; by default add-remove where the sampler can be accounted under it, else zero-out,
            else replace-one.
        unit: what is protected. A unit of several examples is accounted by group privacy.
        accountant: a name of `tacit.accounting.ACCOUNTANTS` whose epsilon is a proven bound; by default PLD where it
            covers the sampler, else RDP.
        preparations: private looks at the data before training; their cost is part of every epsilon of the plan, and
            the noise is found for what they leave of the budget. `tacit.training.prepare` runs them.
        unsafe_no_noise: allows ``noise_multiplier=0``, with infinite epsilon.

    Reference: Abadi et al., Deep Learning with Differential Privacy, 2016.
    """

    expected_batch_size: int
    examples: int
    steps: int
    clipping: Clipping
    delta: float
    noise_multiplier: float
    sampler: Sampler
    neighbours: Neighbours
    unit: PrivacyUnit
    accountant: str
    preparations: tuple[Preparation, ...]
    unsafe_no_noise: bool

    def __init__(  # noqa: PLR0913 - one for each thing that the guarantee depends on
        self,
        *,
        expected_batch_size: int,
        examples: int,
        steps: int,
        clipping: Clipping,
        delta: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        sampler: str | Sampler = "poisson",
        neighbours: Neighbours | None = None,
        unit: PrivacyUnit | None = None,
        accountant: str | None = None,
        preparations: Sequence[Preparation] = (),
        unsafe_no_noise: bool = False,
    ) -> None:
        fields = {
            "expected_batch_size": check_count("expected_batch_size", expected_batch_size),
            "examples": check_count("examples", examples),
            "steps": check_count("steps", steps, remedy="A run takes at least one step."),
            "clipping": _check_clipping(clipping),
            "delta": _check_delta(delta, examples),
            "unit": _check_type("unit", unit or PrivacyUnit(), PrivacyUnit),
            "preparations": tuple(_check_preparation(preparation) for preparation in preparations),
            "unsafe_no_noise": unsafe_no_noise,
        }
        if expected_batch_size > examples:
            raise InputError(
                f"expected_batch_size={expected_batch_size}: must be at most the {examples} examples. Take a smaller "
                "batch."
            )
        chosen = (
            named_sampler(sampler, examples=examples, batch_size=expected_batch_size)
            if isinstance(sampler, str)
            else _check_expectation(check_sampler(sampler), examples, expected_batch_size)
        )
        fields["sampler"] = chosen
        fields["neighbours"] = _check_type("neighbours", neighbours or _default_relation(chosen), Neighbours)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "accountant", accountant or self._default_accountant())
        self._check_accountant()
        object.__setattr__(self, "noise_multiplier", self._noise(epsilon, noise_multiplier))

    @property
    def sampling_rate(self) -> float:
        """The share of the declared examples that a step sees in expectation; L / examples, up to rounding."""
        return self.sampler.expected_batch_size(self.examples) / self.examples

    def event(self, steps: int | None = None) -> DpEvent:
        """What preparations and the first ``steps`` steps (all by default) do to the records, for any accountant."""
        return self._event(self.noise_multiplier, self.steps if steps is None else steps)

    def training_event(self, steps: int) -> DpEvent:
        """The same for the steps alone: what a ledger counts of them, beside the entry of the preparations."""
        return self.sampler.event(self.noise_multiplier, steps, self.neighbours)

    def epsilon(self, steps: int | None = None) -> float:
        """Epsilon at the plan's delta after ``steps`` steps, all of them by default."""
        return self.unit_accountant().epsilon(self.event(steps), self.delta, self.neighbours)

    def unit_accountant(self) -> Accountant:
        """The accountant for the plan's privacy unit."""
        return for_unit(ACCOUNTANTS[self.accountant], self.unit.max_examples)

    def mechanism(self, sensitivity: float) -> Gaussian:
        """The noise of one step, for a sum whose terms have norm up to ``sensitivity``."""
        return Gaussian(self.noise_multiplier, sensitivity, unsafe_no_noise=self.unsafe_no_noise)

    def statement(self, steps: int | None = None, *, caveats: tuple[str, ...] = ()) -> Statement:
        """The guarantee of a model after ``steps`` steps, with everything that it depends on."""
        taken = self.steps if steps is None else steps
        before = "".join(f"{preparation.describe()}, then " for preparation in self.preparations)
        return Statement(
            epsilon=self.epsilon(taken),
            delta=self.delta,
            neighbours=self.neighbours,
            unit=self.unit,
            mechanism=(
                f"{before}{taken} steps of DP-SGD with noise multiplier {self.noise_multiplier:.6g} and "
                f"{self.clipping.describe()}"
            ),
            sampler=self.sampler.describe(),
            accountant=self.unit_accountant().name,
            caveats=caveats,
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, for run records and reports."""
        described = [preparation.describe() for preparation in self.preparations]
        return {
            "algorithm": "DP-SGD",
            **({"preparations": described} if described else {}),
            "expected_batch_size": self.expected_batch_size,
            "examples": self.examples,
            "sampling_rate": self.sampling_rate,
            "steps": self.steps,
            "clipping": self.clipping.describe(),
            "noise_multiplier": self.noise_multiplier,
            "sampler": self.sampler.describe(),
            "neighbours": self.neighbours.value,
            "unit": str(self.unit),
            "delta": self.delta,
            "accountant": self.unit_accountant().name,
        }

    def _event(self, noise_multiplier: float, steps: int) -> DpEvent:
        training = self.sampler.event(noise_multiplier, steps, self.neighbours)
        if not self.preparations:
            return training
        return ComposedDpEvent([*(preparation.mechanism.event() for preparation in self.preparations), training])

    def _default_accountant(self) -> str:
        event = self._event(1.0, self.steps)
        for name in ("pld", "rdp"):
            if ACCOUNTANTS[name].supports(event, self.neighbours):
                return name
        raise UnsupportedError(
            f"sampler={self.sampler.name!r}: no accountant bounds it under the {self.neighbours.value} relation. "
            "Use sampler='poisson'."
        )

    def _check_accountant(self) -> None:
        """What cannot be accounted for is refused before training, not after it."""
        chosen = find_accountant(self.accountant, upper_bounds_only=True)
        if not chosen.supports(self._event(1.0, self.steps), self.neighbours):
            raise UnsupportedError(
                f"accountant={self.accountant!r}: does not bound {self.sampler.name} sampling under the "
                f"{self.neighbours.value} relation. Leave the accountant out, or use sampler='poisson'."
            )

    def _noise(self, epsilon: float | None, noise_multiplier: float | None) -> float:
        if (epsilon is None) == (noise_multiplier is None):
            raise InputError(
                f"epsilon={epsilon}, noise_multiplier={noise_multiplier}: exactly one must be given. Give epsilon to "
                "find the noise, or the noise to find epsilon."
            )
        if epsilon is not None:
            budget = Budget(check_positive("epsilon", epsilon, remedy="Typical values lie from 0.5 to 10."), self.delta)
            return calibrate_noise(
                lambda noise: self._event(noise, self.steps),
                budget,
                accountant=self.unit_accountant(),
                neighbours=self.neighbours,
            )
        given = 0.0 if noise_multiplier is None else noise_multiplier
        if given == 0 and self.unsafe_no_noise:
            return 0.0
        remedy = "Only unsafe_no_noise=True allows 0: it gives no privacy."
        return check_positive("noise_multiplier", given, remedy=remedy)


def _check_delta(delta: float, examples: int) -> float:
    check_open_unit("delta", delta, remedy="Take it well below 1 / number of examples, such as 1e-5.")
    if delta >= 1 / examples:
        warnings.warn(
            f"delta={delta:g}: is at least 1 / {examples} examples, so publishing one random record whole would meet "
            f"the guarantee. Take delta well below {1 / examples:.2g}.",
            DeltaWarning,
            stacklevel=3,
        )
    return float(delta)


def _check_clipping(clipping: Clipping) -> Clipping:
    if not isinstance(clipping, Clipping):
        raise InputError(
            f"clipping={clipping!r}: must be a clipping rule. Use one of tacit.clipping, such as Flat(1.0)."
        )
    return clipping


def _check_preparation(preparation: Preparation) -> Preparation:
    if not isinstance(preparation, Preparation):
        raise InputError(
            f"preparations={preparation!r}: must be preparations. Use those of tacit.training.preparation, or an "
            "object that keeps to tacit.plan.preparation.Preparation."
        )
    return preparation


def _check_type(name: str, value: _Kind, kind: type[_Kind]) -> _Kind:
    if not isinstance(value, kind):
        raise InputError(f"{name}={value!r}: must be a {kind.__name__}. Use tacit.{kind.__name__}.")
    return value


def _check_expectation(sampler: Sampler, examples: int, expected_batch_size: int) -> Sampler:
    """The divisor L must be what the sampler draws on average, up to rounding to a whole number."""
    drawn = sampler.expected_batch_size(examples)
    if abs(drawn - expected_batch_size) > 0.5:
        raise InputError(
            f"expected_batch_size={expected_batch_size}: the sampler draws {drawn:.6g} of {examples} examples on "
            "average. Give that number, rounded, or another sampler."
        )
    return sampler


def _default_relation(sampler: Sampler) -> Neighbours:
    order = (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
    return next(relation for relation in order if relation in sampler.relations)
