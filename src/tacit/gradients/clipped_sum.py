"""From per-example gradients in any form to factors: the one place where norms meet clipping."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tacit.clipping import BoundClipping


class PerExampleGradients(Protocol):
    """The gradients that each example gives one parameter, in whatever form an engine has them."""

    def squared_norms(self) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def keep(self, finite: Tensor) -> "PerExampleGradients": ...


def group_norms(squared: Mapping[str, Tensor], bound: BoundClipping, examples: int, device: torch.device) -> Tensor:
    """L2 norms ``[examples, groups]`` in float64; a parameter without gradients has norm zero."""
    zero = torch.zeros(examples, dtype=torch.float64, device=device)
    columns = [torch.stack([zero, *(squared[n] for n in group if n in squared)]).sum(0) for group in bound.groups]
    return torch.stack(columns, dim=1).sqrt()


def clip_factors(norms: Tensor, bound: BoundClipping, mask: Tensor) -> Tensor:
    """What each example's gradients are multiplied with, ``[examples, groups]``.

    Zero for examples outside the mask, and in all groups for an example with a norm that is not finite in any.
    """
    counted = mask & torch.isfinite(norms).all(1)
    return torch.where(counted[:, None], bound.factors(norms), torch.zeros_like(norms))


def sum_clipped(
    grads: Mapping[str, PerExampleGradients], bound: BoundClipping, mask: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """The sum of clipped gradients of every parameter in ``grads``, and the norms before clipping."""
    squared = {name: g.squared_norms() for name, g in grads.items()}
    norms = group_norms(squared, bound, len(mask), mask.device)
    factors = clip_factors(norms, bound, mask)
    finite = torch.isfinite(norms).all(1)
    if not bool(finite.all()):
        # Multiplying with zero is not enough: 0 * inf is NaN and would spoil the whole sum.
        grads = {name: g.keep(finite) for name, g in grads.items()}
    sums = {
        name: grads[name].weighted_sum(factors[:, column])
        for column, group in enumerate(bound.groups)
        for name in group
        if name in grads
    }
    return sums, norms
