"""To watch a private step from outside: weights that stay, what each record adds to a sum, and what a step released."""

import numpy as np
import torch
from torch import Tensor, nn

from tacit.auditing.arrays import FloatArray
from tacit.clipping import Clipping
from tacit.gradients import clipped_grad
from tacit.gradients.losses import LossFunction, trainable

Records = tuple[Tensor, ...]
"""A row for each record in every tensor."""


def still(model: nn.Module) -> torch.optim.Optimizer:
    """An update that changes nothing, so that all steps see the same gradients."""
    return torch.optim.SGD(model.parameters(), lr=0.0)


def contributions(model: nn.Module, loss_fn: LossFunction, clipping: Clipping, records: Records) -> FloatArray:
    """What each record adds to the sum, ``[records, numbers]``, one at a time by the reference engine."""
    grad = clipped_grad(model, loss_fn, clipping=clipping, engine="reference")
    rows = [grad(*(column[place : place + 1] for column in records)).grads for place in range(len(records[0]))]
    return np.stack([flat(row) for row in rows])


def gradients(model: nn.Module) -> FloatArray:
    """The gradients that a step left, in one vector; numbers that got none are not finite."""
    found = trainable(model)
    missing = {name: torch.full_like(p, torch.nan) if p.grad is None else p.grad for name, p in found.items()}
    return flat(missing)


def flat(tensors: dict[str, Tensor]) -> FloatArray:
    """One vector of float64."""
    numbers: FloatArray = torch.cat([tensor.detach().flatten() for tensor in tensors.values()]).double().cpu().numpy()
    return numbers
