"""What one example contributes must not depend on the other examples of its batch.

The layout probe asks autograd, which does not see everything: statistics of the raw inputs, detached ones, hooks on
gradients, an order that depends on values. So here the same example is run among different others, and its gradient
must stay what it was. Gradients are compared by a few random projections :math:`u^T G v`, which cost next to nothing to
take from layer inputs and output gradients, and which differ where gradients do.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.contributions import Contribution, Direct, ParameterGradients

_PROJECTIONS = 4

Places = tuple[int, ...]
"""Which of the probe's examples are in a batch, in order."""


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over a batch.

    Attributes:
        fingerprints: parameter name to projections of its gradients, ``[examples, projections]`` in float64.
        random: whether the pass drew random numbers.
        precision: the coarsest relative rounding error of a layer's output in this pass.
    """

    fingerprints: Mapping[str, Tensor]
    random: bool
    precision: float


def check_independence(run: Callable[[Places], Pass | None], examples: int) -> bool:
    """Changes one example at a time, and leaves one out where nothing random could differ: the others must not move.

    Args:
        run: runs the model on a batch of the probe's examples, with the same random numbers each time; ``None`` where
            it cannot.
        examples: how many examples the probe has; at least three.

    Returns:
        Whether all gradients were finite; others are no evidence.

    Raises:
        UnsupportedError: an example's gradient depends on the others.
    """
    everyone = tuple(range(examples))
    base = run(everyone)
    if base is None:
        return False
    for changed in everyone:
        mates = tuple((place + 1) % examples if place == changed else place for place in everyone)
        _compare(base, run(mates), [place for place in everyone if place != changed])
    if not base.random:
        _compare(base, run(everyone[:-1]), list(everyone[:-1]))
    return all(bool(values.isfinite().all()) for values in base.fingerprints.values())


def fingerprint(gradients: ParameterGradients, shape: torch.Size, seed: int) -> Tensor:
    """Random projections of each example's gradient of one parameter; equal seeds project alike."""
    generator = torch.Generator().manual_seed(seed)
    rows = shape[0] if shape else 1
    along_rows = torch.randn(rows, _PROJECTIONS, generator=generator)
    along_columns = torch.randn(math.prod(shape[1:]), _PROJECTIONS, generator=generator)
    return sum(
        (_project(use, along_rows, along_columns) for use in gradients.uses[1:]),
        start=_project(gradients.uses[0], along_rows, along_columns),
    )


def _project(use: Contribution, along_rows: Tensor, along_columns: Tensor) -> Tensor:
    values = use.grads if isinstance(use, Direct) else use.right
    u, v = along_rows.to(values), along_columns.to(values)
    if isinstance(use, Direct):
        matrices = values.reshape(len(values), len(u), len(v))
        return torch.einsum("brp,rp->bp", matrices @ v, u).double()
    left = u[use.left] if use.one_hot else use.left @ u.reshape(use.left.shape[1], use.left.shape[3], -1)
    return (left * (use.right @ v)).double().sum((1, 2))


def _compare(base: Pass, other: Pass | None, places: Sequence[int]) -> None:
    if other is None:
        return
    tolerance = math.sqrt(base.precision)  # half the digits: passes round alike, but for the order of sums
    # A gradient that is zero but for rounding, such as that of a key's bias in attention, has no scale of its own.
    noise = tolerance / 10 * max(_largest(base), _largest(other))
    for name in {**base.fingerprints, **other.fingerprints}:
        found = [each.fingerprints[name] for each in (base, other) if name in each.fingerprints]
        scale = torch.cat(found).abs().max()
        before, now = (found[0][places], found[1][places]) if len(found) == 2 else (found[0][places], 0.0)
        # Comparisons with NaN are false: an example that is not finite is no evidence.
        if bool(((before - now).abs() > tolerance * scale + noise).any()):
            raise UnsupportedError(
                f"{name}: the gradient of one example depends on the others of its batch, so the model or its loss "
                "mixes examples. Replace what couples them (statistics, sums, counts or sorting along the batch, "
                "division by its size), or use engine='functional', which runs each example alone."
            )


def _largest(each: Pass) -> float:
    return max((float(values.abs().max()) for values in each.fingerprints.values()), default=0.0)
