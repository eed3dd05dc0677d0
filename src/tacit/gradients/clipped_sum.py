"""From per-example gradients in any form to factors: the one place where norms meet clipping."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.clipping import BoundClipping
from tacit.gradients.contributions import Direct
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
    grads: dict[str, ParameterGradients],
    bound: BoundClipping,
    mask: Tensor,
    strategies: Strategies,
    *,
    branch_free: bool = False,
) -> tuple[dict[str, Tensor], Tensor]:
    """The sum of clipped gradients of every parameter in ``grads``, and the norms before clipping and filtering.

    ``grads`` is emptied on the way: a layer's input and output gradient are let go as soon as its own gradients are
    written out, or both would fill the memory at once.

    ``branch_free`` never asks a value on the way, so that the whole can be traced and runs without waiting for a
    device; otherwise rows are only zeroed where that is needed.
    """
    # Autocast would round operands and sums to half precision, which the norms' bounds know nothing of.
    with torch.autocast(mask.device.type, enabled=False):
        sources, norms, taken = _filtered(grads, bound, mask, strategies)
        finite = torch.isfinite(norms).all(1) & torch.isfinite(taken).all(1)
        factors = clip_factors(taken, bound, mask & finite)
        if branch_free:
            factors = settled(factors)
        wanted = finite if branch_free or not bool(finite.all()) else None
        sums = {
            name: sources[name].weighted_sum(factors[:, column], wanted)
            for column, group in enumerate(bound.groups)
            for name in group
            if name in sources
        }
        return sums, norms


def _filtered(
    grads: dict[str, ParameterGradients], bound: BoundClipping, mask: Tensor, strategies: Strategies
) -> tuple[dict[str, ParameterGradients], Tensor, Tensor]:
    """What the sum is taken from, the norms before the filter, and those after it.

    Norms from before show a wrong scale, which a filter may hide. What is not finite stays so: it could come out of the
    filter as an ordinary number.
    """
    sources, norms = _measured(grads, bound, mask, strategies)
    if bound.filter is None:
        return sources, norms, norms
    filtered = {}
    for name in list(sources):
        each = sources.pop(name).written_out()
        filtered[name] = ParameterGradients([Direct(torch.where(torch.isfinite(each), bound.filter(each), each))])
    sources, taken = _measured(filtered, bound, mask, strategies)
    return sources, norms, taken


def _measured(
    grads: dict[str, ParameterGradients], bound: BoundClipping, mask: Tensor, strategies: Strategies
) -> tuple[dict[str, ParameterGradients], Tensor]:
    """The gradients in the form that the sum is taken from, and the norms; ``grads`` is emptied."""
    found = {name: grads.pop(name).measured(strategies) for name in list(grads)}
    norms = group_norms({name: squared for name, (squared, _) in found.items()}, bound, len(mask), mask.device)
    return {name: source for name, (_, source) in found.items()}, norms
