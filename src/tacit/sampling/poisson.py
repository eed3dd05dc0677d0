"""Poisson sampling: every record takes part in a step by a coin of its own."""

import dataclasses

from dp_accounting import dp_event

from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_probability
from tacit.sampling.sampler import check_relation, compose
from tacit.sampling.subset_sampler import SubsetSampler


@dataclasses.dataclass(frozen=True)
class Poisson(SubsetSampler):
    """Each record is in each step with probability ``sampling_rate``, independently of all others.

    This is the sampling that amplification by subsampling is proved for. The number of records in a step is
    binomial; a step without records is an ordinary step.

    Drawn exactly in O(batch): first the size K from Binomial(examples, rate), then a uniform subset of size
    K. Each set S of size k has probability ``P[K = k] / C(n, k) = rate^k (1 - rate)^(n - k)``, as with n
    coins.

    Event: T Poisson-sampled Gaussians, with the noise multiplier relative to C under every relation.

    - add-remove: a record of norm up to C is there with the rate as its probability, or not at all.
    - zero-out: the same pair of distributions, since a zeroed record contributes nothing when it is drawn.
    - replace-one: the record contributes up to C on either side,
      ``rate N(-C) + (1 - rate) N(0)`` against ``rate N(C) + (1 - rate) N(0)``. The PLD accountant
      takes this pair by itself; RDP refuses the relation.

    Args:
        sampling_rate: above 0 and at most 1; a public number, not computed from a private size.
    """

    sampling_rate: float

    def __post_init__(self) -> None:
        check_probability(
            "sampling_rate",
            self.sampling_rate,
            remedy="Take expected batch size / number of examples, with a batch no larger than the data set.",
        )

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "poisson"

    @property
    def relations(self) -> frozenset[Neighbours]:
        """All three relations."""
        return frozenset(Neighbours)

    def expected_batch_size(self, examples: int) -> float:
        """Rate times examples."""
        return self.sampling_rate * check_count("examples", examples, minimum=0)

    def largest_batch_size(self, examples: int) -> int:
        """All examples: a Poisson sample has no smaller bound."""
        return check_count("examples", examples, minimum=0)

    def size(self, step: int, examples: int, randomness: Randomness) -> int:
        """Binomial, for any number of examples, 0 included."""
        check_count("examples", examples, minimum=0)
        return int(randomness.stream("sampling", step).binomial(examples, self.sampling_rate))

    def event(self, noise_multiplier: float, steps: int, neighbours: Neighbours) -> dp_event.DpEvent:
        """``steps`` Poisson-sampled Gaussians: the relation is the accountant's to read, see the class."""
        check_relation(self, neighbours, reason="it is unknown")

        def one(multiplier: float) -> dp_event.DpEvent:
            return dp_event.PoissonSampledDpEvent(float(self.sampling_rate), dp_event.GaussianDpEvent(multiplier))

        return compose(one, noise_multiplier, steps)

    def describe(self) -> str:
        """A clause for statements."""
        return f"Poisson sampling at rate {self.sampling_rate:.6g}"
