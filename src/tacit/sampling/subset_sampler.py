"""What the samplers share that draw a size and then a uniform subset of that size."""

import abc

from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.sampling.compiled_subset import Drawing, Subsets
from tacit.sampling.subset import Indices, uniform_subset

_PATH = ("sampling", "subset")


class SubsetSampler(abc.ABC):
    """Each step sees a uniformly random subset, of a size that the sampler draws first.

    The subset's key belongs to the step alone, and the size is drawn from another stream: given the size, every subset
    of that size is equally likely.
    """

    @abc.abstractmethod
    def size(self, step: int, examples: int, randomness: Randomness) -> int:
        """How many records the step sees; refuses sizes of the data set that `indices` refuses."""

    def indices(self, step: int, examples: int, randomness: Randomness) -> Indices:
        """The records of one step; where the number of examples is public, it must be the declared one."""
        size = self.size(check_count("step", step, minimum=0), examples, randomness)
        return uniform_subset(examples, size, randomness.device_key(*_PATH, step))

    def begin(self, steps: range, examples: int, randomness: Randomness, subsets: Subsets) -> Drawing:
        """Begins to draw the `indices` of many steps by ``subsets``: the same records, while the caller goes on."""
        check_count("step", min(steps, default=0), minimum=0)
        sizes = [self.size(step, examples, randomness) for step in steps]
        return subsets(examples, sizes, list(map(randomness.device_keys(*_PATH), steps)))
