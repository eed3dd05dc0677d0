"""Epochs over a shuffled data set, accounted as what they are."""

import dataclasses

import numpy as np
from dp_accounting import dp_event

from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.sampling.one_size import OneSize
from tacit.sampling.sampler import Indices, check_public_size, check_relation, compose


@dataclasses.dataclass(frozen=True)
class Shuffled(OneSize):
    """Each epoch cuts a fresh permutation into batches of one size; a last, smaller batch is dropped.

    Event: within an epoch a record is in one batch at most, so that one step alone depends on it and the
    whole epoch costs what one Gaussian mechanism costs (parallel composition). This holds for every
    permutation, public or not: the shuffle is credited with nothing. T steps are ceil(T / steps_per_epoch)
    plain Gaussians, with the noise multiplier relative to C.

    - zero-out: the record's batch moves by up to C, once an epoch.
    - replace-one: the record's batch moves by up to 2C, once an epoch; the accountant doubles C by the
      relation.
    - add-remove is refused: taking a record out shifts every batch boundary behind it, and changes the
      permutation.

    Args:
        examples: the public number of examples.
        batch_size: at most ``examples``.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "shuffled"

    @property
    def steps_per_epoch(self) -> int:
        """The number of full batches in one permutation."""
        return self.examples // self.batch_size

    @property
    def relations(self) -> frozenset[Neighbours]:
        """The relations under which the size is public."""
        return frozenset({Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE})

    def indices(self, step: int, examples: int, randomness: Randomness) -> Indices:
        """The records of one step; refuses a number of examples other than the declared one.

        The epoch's permutation is drawn anew for each step, in O(examples): nothing is kept between calls.
        """
        check_public_size(self.examples, examples)
        epoch, position = divmod(check_count("step", step, minimum=0), self.steps_per_epoch)
        permutation = randomness.stream("sampling", "epoch", epoch).permutation(examples)
        batch = permutation[position * self.batch_size : (position + 1) * self.batch_size]
        return np.sort(batch.astype(np.int64, copy=False))

    def event(self, noise_multiplier: float, steps: int, neighbours: Neighbours) -> dp_event.DpEvent:
        """One plain Gaussian for every epoch that the steps touch."""
        check_relation(self, neighbours, reason="removing a record shifts the boundaries of all batches")
        epochs = -(-check_count("steps", steps, minimum=0) // self.steps_per_epoch)  # rounded up
        return compose(dp_event.GaussianDpEvent, noise_multiplier, epochs)

    def describe(self) -> str:
        """A clause for statements."""
        return f"shuffled batches of {self.batch_size} of {self.examples} examples (no amplification)"
