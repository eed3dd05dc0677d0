"""The user's loss function: one loss an example, never a mean."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError, UnsupportedError

LossFunction = Callable[..., Tensor]
"""``loss_fn(model, *batch)`` returns one loss for each example of the batch."""


def losses_of(loss_fn: LossFunction, model: nn.Module, batch: tuple[Any, ...], examples: int) -> Tensor:
    """Calls the loss function and checks that it returned one loss for each example."""
    losses = loss_fn(model, *batch)
    if not isinstance(losses, Tensor):
        raise InputError(
            f"loss_fn returned {type(losses).__name__}: must return a tensor with one loss for each example."
        )
    if losses.dim() == 0:
        raise InputError(
            f"loss_fn returned a scalar for a batch of {examples}: must return one loss for each example, since a mean "
            "or sum cannot be clipped one by one. Pass reduction='none' to the loss."
        )
    if losses.shape != (examples,):
        raise InputError(
            f"loss_fn returned shape {tuple(losses.shape)} for a batch of {examples}: must be ({examples},), one loss "
            "for each example. Sum or average over the other dimensions of each example, such as its tokens."
        )
    return losses


class LossModule(nn.Module):
    """Model and loss function as one module, so that torch.func can run both with other parameters."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.model = model
        self._loss_fn = loss_fn

    def forward(self, *batch: Any) -> Tensor:
        """The loss of a batch of one example, as a scalar."""
        return losses_of(self._loss_fn, self.model, batch, 1)[0]


def laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """The value in the parameter's memory format, as optimizers like gradients best.

    Noise is drawn in the order of memory, so that it does not depend on how the value was computed.
    """
    last = parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
    return value.contiguous(
        memory_format=torch.channels_last if last and not parameter.is_contiguous() else torch.contiguous_format
    )


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Name to parameter for all that train; a tied parameter appears once, under its first name."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise InputError("model: has no trainable parameter. Set requires_grad on what should train.")
    for name, parameter in parameters.items():
        if parameter.is_complex():
            raise UnsupportedError(
                f"{name}: is complex, and norms and noise are those of real numbers. Keep its real and imaginary part "
                "as two parameters."
            )
    return parameters


def sum_dtype(parameter: Tensor) -> torch.dtype:
    """Sums of gradients are kept in at least float32."""
    return torch.promote_types(parameter.dtype, torch.float32)
