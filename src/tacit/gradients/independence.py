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
from tacit.gradients.contributions import Contribution, Convolved, Direct, at_least_float32
from tacit.gradients.parameter_gradients import ParameterGradients

_PROJECTIONS = 4
_ROUNDINGS = 1000

Places = tuple[int, ...]
"""Which of the probe's examples are in a batch, in order."""


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Random projections of the gradients of one parameter.

    Attributes:
        values: ``[examples, projections]`` in float64.
        size: the largest sum of the absolute values of what was added up: where terms cancel, rounding is relative to
            this and not to the result.
    """

    values: Tensor
    size: float


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over a batch.

    Attributes:
        fingerprints: parameter name to the projections of its gradients.
        random: whether the pass drew random numbers.
        precision: the coarsest relative rounding error of a layer's output in this pass.
    """

    fingerprints: Mapping[str, Fingerprint]
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
    return all(bool(found.values.isfinite().all()) for found in base.fingerprints.values())


def check_total(found: Pass, plain: Mapping[str, Fingerprint]) -> None:
    """The gradients of all examples must add up to the batch's own, which are ``plain``.

    Raises:
        UnsupportedError: they do not, so an operation is not what its rule takes it for.
    """
    totals = {
        name: Fingerprint(each.values.sum(0, keepdim=True), each.size) for name, each in found.fingerprints.items()
    }
    name = _first_difference(totals, plain, [0], found.precision)
    if name is not None:
        raise UnsupportedError(
            f"{name}: its gradients do not add up to autograd's own, so something changes them on the way, such as "
            "checkpointing or a hook. Use engine='functional', or engine='reference' where that fails too."
        )


def _compare(base: Pass, other: Pass | None, places: Sequence[int]) -> None:
    if other is None:
        return
    name = _first_difference(base.fingerprints, other.fingerprints, places, base.precision)
    if name is not None:
        raise UnsupportedError(
            f"{name}: the gradient of one example depends on the others of its batch, so the model or its loss mixes "
            "examples. Replace what couples them (statistics, sums, counts or sorting along the batch, division by its "
            "size), or use engine='functional', which runs each example alone."
        )


def _first_difference(
    one: Mapping[str, Fingerprint], two: Mapping[str, Fingerprint], places: Sequence[int], precision: float
) -> str | None:
    """The first parameter whose gradients differ by more than rounding; a missing one is zero.

    Passes round alike but for the order of sums, so they must agree to half the digits. A gradient that is zero but for
    rounding, such as that of a key's bias in attention, has no scale of its own, hence the part of the largest of all.
    """
    half = math.sqrt(precision)
    everything = [each.values.abs().max() for each in (*one.values(), *two.values())]
    noise = half / 10 * max((float(value) for value in everything), default=0.0)
    for name in {**one, **two}:
        found = [each[name] for each in (one, two) if name in each]
        scale = max(float(each.values.abs().max()) for each in found)
        allowed = half * scale + noise + _ROUNDINGS * precision * max(each.size for each in found)
        difference = found[0].values[places] - (found[1].values[places] if len(found) == 2 else 0.0)
        # Comparisons with NaN are false: an example that is not finite is no evidence.
        if bool((difference.abs() > allowed).any()):
            return name
    return None


def fingerprint(gradients: ParameterGradients, shape: torch.Size, seed: int) -> Fingerprint:
    """Random projections of each example's gradient of one parameter; equal seeds project alike."""
    generator = torch.Generator("cpu").manual_seed(seed)
    rows = shape[0] if shape else 1
    along_rows = torch.randn(rows, _PROJECTIONS, generator=generator, device="cpu")
    along_columns = torch.randn(math.prod(shape[1:]), _PROJECTIONS, generator=generator, device="cpu")
    terms = [_terms(use, along_rows, along_columns) for use in gradients.uses]
    values = torch.stack([each.sum(1) for each in terms]).sum(0)
    sizes = torch.stack([each.abs().sum(1) for each in terms]).sum(0)
    return Fingerprint(values, float(sizes.max()) if sizes.numel() else 0.0)


def _terms(use: Contribution, along_rows: Tensor, along_columns: Tensor) -> Tensor:
    """What the projections are sums of: ``[examples, terms, projections]`` in float64."""
    if isinstance(use, Convolved):
        use = use.as_outer()
    values = at_least_float32(use.write_out()) if isinstance(use, Direct) else use.right
    u, v = along_rows.to(values), along_columns.to(values)
    if isinstance(use, Direct):
        return (values.reshape(len(values), len(u), len(v)) @ v * u).double()
    left = u[use.left] if use.one_hot else use.left @ u.reshape(use.left.shape[1], use.left.shape[3], -1)
    return (left * (use.right @ v)).double().flatten(1, 2)
