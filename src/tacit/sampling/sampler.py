"""The contract that every sampler keeps, and what samplers share."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, runtime_checkable

from dp_accounting import dp_event

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_non_negative, check_positive
from tacit.sampling.subset import Indices as Indices


@runtime_checkable
class Sampler(Protocol):
    """Chooses the records of each step and knows what that choice costs.

    All fields are public. Samplers hold no state: step t can be asked for alone, again, or on another
    machine, and gives the same records under the same `Randomness`.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    @property
    def relations(self) -> frozenset[Neighbours]:
        """The neighbouring relations under which this sampler can be accounted for."""
        ...

    def expected_batch_size(self, examples: int) -> float:
        """The mean number of records in a step, for a public number of examples."""
        ...

    def largest_batch_size(self, examples: int) -> int:
        """The largest number of records that a step can hold."""
        ...

    def indices(self, step: int, examples: int, randomness: Randomness) -> Indices:
        """The positions of the records of step ``step`` (from 0): unique, sorted, possibly none.

        Args:
            step: which step.
            examples: the number of records that are really there. Where the size is public it must be the
                declared one.
            randomness: where the choice comes from; only streams and keys under ``"sampling"`` are used.
        """
        ...

    def event(self, noise_multiplier: float, steps: int, neighbours: Neighbours) -> dp_event.DpEvent:
        """What an accountant must know of ``steps`` steps.

        The event states noise over C, the bound on one record's contribution, under every relation; tacit's
        accountants know that a replaced record moves a sum by 2C.

        Args:
            noise_multiplier: the noise's standard deviation divided by the clipping norm C, whatever the
                relation. 0 gives an event without privacy.
            steps: how many steps were or will be taken; 0 gives an event that costs nothing.
            neighbours: the relation; the event must be handed to an accountant for the same one.

        Raises:
            UnsupportedError: where no guarantee is known for this sampler under this relation.
        """
        ...

    def describe(self) -> str:
        """A clause for statements, such as ``Poisson sampling at rate 0.01``."""
        ...


def check_sampler(sampler: object) -> Sampler:
    """The sampler, or a refusal: what cannot say its own event gets no epsilon; no rate is guessed for it."""
    if not isinstance(sampler, Sampler):
        raise UnsupportedError(
            f"sampler={type(sampler).__name__}: cannot be accounted for, since it does not state its event. "
            "Use Poisson, TruncatedPoisson, FixedSize or Shuffled of tacit.sampling."
        )
    return sampler


def steps_for_epochs(epochs: float, *, examples: int, batch_size: int) -> int:
    """The number of steps whose batches hold ``epochs * examples`` records in expectation, rounded up.

    Computed with the fractions that the decimal digits of ``epochs`` mean, so that no step is lost or gained
    to a rounding error: one epoch of n examples in batches of 1 is n steps for every n.
    """
    check_positive("epochs", epochs, remedy="Give a number of passes over the data, such as 10.")
    check_count("examples", examples)
    check_count("batch_size", batch_size)
    return math.ceil(Fraction(str(epochs)) * examples / batch_size)


def check_public_size(declared: int, examples: int) -> int:
    """The size, which is public under this sampler and must be what the event was computed for."""
    if examples != declared:
        raise InputError(
            f"examples={examples!r}: must be the declared {declared}, since the sampler's event depends on it. "
            f"Make the sampler with examples={examples} where the size is public."
        )
    return declared


def check_batch_fits(examples: int, batch_size: int) -> None:
    """Positive sizes, and a batch that the data set can fill."""
    check_count("examples", examples)
    check_count("batch_size", batch_size)
    if batch_size > examples:
        raise InputError(f"batch_size={batch_size}: must be at most the {examples} examples. Take a smaller batch.")


def check_relation(sampler: Sampler, neighbours: Neighbours, *, reason: str) -> None:
    """Refuses a relation under which nothing is known of this sampler, and says why."""
    if neighbours not in sampler.relations:
        supported = " or ".join(sorted(relation.value for relation in sampler.relations))
        raise UnsupportedError(
            f"neighbours={neighbours.value}: {sampler.name} sampling has no event under this relation, since "
            f"{reason}. Use {supported}, or Poisson sampling."
        )


def compose(one: Callable[[float], dp_event.DpEvent], noise_multiplier: float, repetitions: int) -> dp_event.DpEvent:
    """``repetitions`` adaptive repetitions of ``one(noise_multiplier)``.

    No repetition costs nothing; no noise means no privacy.
    """
    check_non_negative("noise_multiplier", noise_multiplier)
    check_count("steps", repetitions, minimum=0)
    if repetitions == 0:
        return dp_event.NoOpDpEvent()
    if noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    return dp_event.SelfComposedDpEvent(one(float(noise_multiplier)), int(repetitions))
