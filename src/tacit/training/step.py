"""One private step, in the order that the guarantee needs.

1. The clipped sum over the lot: bounded sensitivity, no noise yet, nothing leaves this function.
2. The ledger records durably that this step's noise is about to be drawn.
3. Noise on the sum, from a stream that belongs to this step and parameter alone.
4. Division by the plan's public constant, and the optimizer's update: post-processing.

A crash between 2 and 3 wastes budget and leaks nothing; the other order could leak what was never counted.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.gradients import ClippedGrad
from tacit.ledger import Reservation
from tacit.plan import DPSGD

Chunk = tuple[tuple[Any, ...], Tensor | None]
"""A physical batch and its mask."""


def private_gradient(
    grad: ClippedGrad, chunks: Iterable[Chunk], plan: DPSGD, reservation: Reservation, randomness: Randomness, step: int
) -> dict[str, Tensor]:
    """The noisy mean gradient of one lot; an empty lot is noise alone."""
    sums = _zeros(grad)
    for batch, mask in chunks:
        found = grad(*batch, mask=mask)
        for name, value in found.grads.items():
            sums[name] += value
    mechanism = plan.mechanism(grad.sensitivity(Neighbours.ADD_REMOVE))
    reservation.before_noise(step)
    noisy = mechanism.add_noise_to(sums, lambda name: randomness.stream("noise", step, name))
    return {name: value / plan.expected_batch_size for name, value in noisy.items()}


def apply_gradient(
    parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Hands the gradient to the optimizer and takes its step.

    Whatever gradients were left on the optimizer's parameters before, by a backward pass on raw data, are dropped: a
    parameter that does not train here must not move.
    """
    optimizer.zero_grad(set_to_none=True)
    for name, parameter in parameters.items():
        parameter.grad = gradient[name].to(parameter.dtype)
    optimizer.step()


def _zeros(grad: ClippedGrad) -> dict[str, Tensor]:
    return {
        name: torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32), requires_grad=False)
        for name, p in grad.model.named_parameters()
        if p.requires_grad
    }
