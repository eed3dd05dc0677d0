"""From per-example gradients in any form to factors: the one place where norms meet clipping."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.clipping import BoundClipping
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.gradients.settling import settled
from tacit.gradients.strategies import Strategies


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
    grads: Mapping[str, ParameterGradients],
    bound: BoundClipping,
    mask: Tensor,
    strategies: Strategies,
    *,
    branch_free: bool = False,
) -> tuple[dict[str, Tensor], Tensor]:
    """The sum of clipped gradients of every parameter in ``grads``, and the norms before clipping.

    ``branch_free`` never asks a value on the way, so that the whole can be traced and runs without waiting for a
    device; otherwise rows are only zeroed where that is needed.
    """
    # Autocast would round operands and sums to half precision, which the norms' bounds know nothing of.
    with torch.autocast(mask.device.type, enabled=False):
        measured = {name: each.measured(strategies) for name, each in grads.items()}
        norms = group_norms({name: squared for name, (squared, _) in measured.items()}, bound, len(mask), mask.device)
        factors = clip_factors(norms, bound, mask)
        if branch_free:
            factors = settled(factors)
        finite = torch.isfinite(norms).all(1)
        wanted = finite if branch_free or not bool(finite.all()) else None
        sums = {
            name: measured[name][1].weighted_sum(factors[:, column], wanted)
            for column, group in enumerate(bound.groups)
            for name in group
            if name in measured
        }
        return sums, norms
