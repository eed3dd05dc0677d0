"""What the samplers with batches of one size share."""

import dataclasses

from tacit.sampling.sampler import check_batch_fits, check_public_size


@dataclasses.dataclass(frozen=True)
class OneSize:
    """Batches of exactly ``batch_size`` records, of a data set whose size is public.

    Args:
        examples: the public number of examples.
        batch_size: at most ``examples``.
    """

    examples: int
    batch_size: int

    def __post_init__(self) -> None:
        check_batch_fits(self.examples, self.batch_size)

    def expected_batch_size(self, examples: int) -> float:
        """The batch size."""
        return float(self.largest_batch_size(examples))

    def largest_batch_size(self, examples: int) -> int:
        """The batch size."""
        check_public_size(self.examples, examples)
        return self.batch_size
