"""Poisson sampling with an upper limit on the batch, for a memory of fixed size."""

import dataclasses

import numpy as np
from dp_accounting import dp_event
from scipy import stats

from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_probability
from tacit.sampling.sampler import check_public_size, check_relation, compose
from tacit.sampling.subset_sampler import SubsetSampler


@dataclasses.dataclass(frozen=True)
class TruncatedPoisson(SubsetSampler):
    """A Poisson sample of which a uniformly random ``max_batch_size`` records are kept where it holds more.

    Drawn as a uniform subset of size ``min(K, max_batch_size)`` with K binomial, which is the same
    distribution.

    Event: T truncated subsampled Gaussians (https://arxiv.org/abs/2508.15089), noise multiplier relative to C.
    Given how many of the *other* n - 1 records were drawn,

    - fewer than the limit: the record is there with the sampling rate, as with plain Poisson sampling, and
      moves the sum by up to C (2C between the two values of a replaced record);
    - at least the limit: a record that gets in pushes another one out, so the sum moves by up to 2C on either
      side. This branch is bounded by the replace-one pair at norm 2C, under every relation.

    Both probabilities depend on n, so the event speaks of one size of the data set only: the size is public,
    the relations are zero-out and replace-one, and `indices` refuses any other number of examples. Under
    add-remove the guarantee would have to hold for every size, which this event does not say. Zero-out gives
    the same epsilon.

    Only the PLD accountant knows this event.

    Args:
        sampling_rate: the rate before truncation, above 0 and at most 1.
        examples: the public number of examples.
        max_batch_size: the largest batch.
    """

    sampling_rate: float
    examples: int
    max_batch_size: int

    def __post_init__(self) -> None:
        check_probability("sampling_rate", self.sampling_rate)
        check_count("examples", self.examples)
        check_count("max_batch_size", self.max_batch_size)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "truncated-poisson"

    @property
    def relations(self) -> frozenset[Neighbours]:
        """The relations under which the size is public."""
        return frozenset({Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE})

    def expected_batch_size(self, examples: int) -> float:
        """The mean of min(K, max_batch_size): the sum of P[K > k] over all k below the limit."""
        check_public_size(self.examples, examples)
        below = np.arange(self.largest_batch_size(examples))
        return float(np.sum(stats.binom.sf(below, self.examples, self.sampling_rate)))

    def largest_batch_size(self, examples: int) -> int:
        """The limit, or all examples where there are fewer."""
        return min(check_public_size(self.examples, examples), self.max_batch_size)

    def size(self, step: int, examples: int, randomness: Randomness) -> int:
        """Binomial up to the limit; refuses a number of examples other than the declared one."""
        check_public_size(self.examples, examples)
        return min(int(randomness.stream("sampling", step).binomial(examples, self.sampling_rate)), self.max_batch_size)

    def event(self, noise_multiplier: float, steps: int, neighbours: Neighbours) -> dp_event.DpEvent:
        """``steps`` truncated subsampled Gaussians at the declared size."""
        check_relation(self, neighbours, reason="its event holds for one public size of the data set only")

        def one(multiplier: float) -> dp_event.DpEvent:
            return dp_event.TruncatedSubsampledGaussianDpEvent(
                dataset_size=self.examples,
                sampling_probability=float(self.sampling_rate),
                truncated_batch_size=self.max_batch_size,
                noise_multiplier=multiplier,
            )

        return compose(one, noise_multiplier, steps)

    def describe(self) -> str:
        """A clause for statements."""
        return (
            f"Poisson sampling at rate {self.sampling_rate:.6g} truncated to {self.max_batch_size} "
            f"of {self.examples} examples"
        )
