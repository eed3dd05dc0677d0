"""Batches of one size, drawn without replacement."""

import dataclasses

from dp_accounting import dp_event

from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.sampling.one_size import OneSize
from tacit.sampling.sampler import check_public_size, check_relation, compose
from tacit.sampling.subset_sampler import SubsetSampler


@dataclasses.dataclass(frozen=True)
class FixedSize(OneSize, SubsetSampler):
    r"""Each step sees a uniformly random subset of exactly ``batch_size`` records, drawn anew for every step.

    Event, under replace-one only (the size is public): T Gaussians sampled without replacement, with the
    noise multiplier s / C of every tacit event. The bound is Theorem 27 of Wang, Balle, Kasiviswanathan,
    https://arxiv.org/abs/1808.00087. It starts from the RDP of the *unsampled* mechanism between two batches
    that differ in one record, :math:`\alpha \Delta^2 / (2 s^2)` with :math:`\Delta = 2C`: the diameter of the
    ball that clipped gradients lie in, whether the record itself has changed or another one sits in its
    place. dp-accounting's RDP computes :math:`\alpha / (2 z^2)` from the inner multiplier z and doubles
    nothing, so it must be given :math:`z = s / (2C)`. tacit's RDP accountant restates the event so under
    replace-one; whoever hands the event to dp-accounting directly has to halve the multiplier.

    Args:
        examples: the public number of examples.
        batch_size: at most ``examples``.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "fixed-size"

    @property
    def relations(self) -> frozenset[Neighbours]:
        """Replace-one, the relation that the bound is proved for."""
        return frozenset({Neighbours.REPLACE_ONE})

    def size(self, step: int, examples: int, randomness: Randomness) -> int:
        """The batch size; refuses a number of examples other than the declared one."""
        del step, randomness  # all steps have one size
        check_public_size(self.examples, examples)
        return self.batch_size

    def event(self, noise_multiplier: float, steps: int, neighbours: Neighbours) -> dp_event.DpEvent:
        """``steps`` Gaussians, each on a sample without replacement; see the class for its noise multiplier."""
        check_relation(self, neighbours, reason="its amplification is proved for a replaced record only")

        def one(multiplier: float) -> dp_event.DpEvent:
            return dp_event.SampledWithoutReplacementDpEvent(
                source_dataset_size=self.examples,
                sample_size=self.batch_size,
                event=dp_event.GaussianDpEvent(multiplier),
            )

        return compose(one, noise_multiplier, steps)

    def describe(self) -> str:
        """A clause for statements."""
        return f"sampling of {self.batch_size} of {self.examples} examples without replacement"
