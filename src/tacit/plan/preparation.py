r"""Preparations: private looks at the data before training, paid from the same account.

A preparation learns something about all records at once, such as principal directions or the mean of each feature, and
turns it into a public map of the inputs that the model is then trained on. It has three parts:

1. `Preparation.statistic`, a sum over the records :math:`\sum_i t(x_i)` with :math:`\|t(x)\|_2 \le \Delta` for every
   possible x; no noise yet, nothing leaves;
2. `Preparation.mechanism`, the Gaussian noise that the sum is released with, for the sensitivity :math:`\Delta`;
3. `Preparation.transform`, from the released numbers to a map of inputs: post-processing, which may see nothing else.

**Guarantee.** The release is the Gaussian mechanism, whose event is ``mechanism.event()``, and the plan composes it
with the events of the training steps: in the calibration of the noise, in every epsilon and in every statement, also
in that of a model after no step. `tacit.training.prepare` runs the preparations of a plan, each on what the maps before
it made of the inputs, and is the only one to draw their noise: after the ledger has recorded durably that it is about
to be drawn. The ledger then holds the preparations as an entry of their own, before the entry of the training steps, so
that each is counted once, whatever becomes of the training. A preparation that is in the plan and was never run makes
statements larger than they need be, never smaller.

Inputs may be anything: a record that is not finite must contribute zero, and the sum of no records is zero. The
released map applies to training and test inputs alike, and is part of the released model.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from tacit.mechanisms import Gaussian


@runtime_checkable
class Preparation(Protocol):
    """A private statistic of all records and the map of inputs that is made from it. All fields are public."""

    @property
    def mechanism(self) -> Gaussian:
        """The noise of the release; its sensitivity bounds what one record adds to the statistic, in L2 norm."""
        ...

    def statistic(self, inputs: Tensor) -> Tensor:
        """The sum over the records, the first dimension of ``inputs``; in float64. It is private."""
        ...

    def transform(self, released: Tensor, input_shape: tuple[int, ...]) -> nn.Module:
        """The map from a batch of inputs to a batch of new ones, from the noisy statistic alone.

        Args:
            released: the statistic with its noise.
            input_shape: the shape of one input.
        """
        ...

    def describe(self) -> str:
        """A clause for statements, such as ``DP-PCA to 60 dimensions with noise multiplier 7``."""
        ...
