"""Augmentation: every batch changed on its way to the loss, and several views of an example as one gradient."""

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.gradients.batches import count_examples
from tacit.gradients.losses import LossFunction

Augment = Callable[..., tuple[Any, ...]]
"""Takes a batch, as the loss function takes it after the model, and returns one that takes its place."""


@dataclasses.dataclass(frozen=True)
class Augmented:
    """A data set whose batches are changed, on the model's device, before the loss sees them.

    Give it to `fit` or `Private.batches` in the data set's place. Which records a step takes is decided before, so that
    the accounting does not change: for whatever draws each record has, the sums over neighbouring data sets differ by
    one record's clipped gradient.

    That takes draws that are unknown (`tacit.training.secret_draws` says why). In a private step those of torch's own
    generators are. For a generator of the augmentation's own take the ``torch_generator`` of that module, under
    ``Randomness().device_key("views")``, and publish no views.

    Attributes:
        records: the data set.
        augment: treats every example by itself. One that looks at other examples voids the guarantee, and nothing here
            can see that; its results are checked for the number of examples alone.
    """

    records: Any
    augment: Augment

    def __len__(self) -> int:
        return len(self.records)

    def changed(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        """The batch after the augmentation, with one row for each example as before."""
        changed = self.augment(*batch)
        if count_examples(changed) != count_examples(batch):
            raise InputError(
                f"augment: made {count_examples(changed)} examples of {count_examples(batch)}. Keep one row for each "
                "example, with its views in the second dimension."
            )
        return changed


def over_views(loss_fn: LossFunction) -> LossFunction:
    r"""A loss over several views of each example: :math:`\ell_i = \frac{1}{K} \sum_k \ell(x_{ik}, y_i)`.

    Inputs are ``[examples, views, ...]`` and targets ``[examples, ...]``. The gradients of an example's views are
    averaged before they are clipped, so that K views cost no more privacy than one.

    Reference: De, Berrada, Hayes, Smith, Balle, Unlocking High-Accuracy Differentially Private Image Classification
    through Scale, 2022.
    """

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        if inputs.dim() < 2 or len(inputs) != len(targets):
            raise InputError(
                f"inputs={tuple(inputs.shape)}, targets={tuple(targets.shape)}: must be [examples, views, ...] and "
                "[examples, ...]. Let the augmentation return them so."
            )
        views = inputs.shape[1]
        losses = loss_fn(model, inputs.flatten(0, 1), targets.repeat_interleave(views, dim=0))
        return losses.view(len(inputs), views).mean(dim=1)

    return loss
