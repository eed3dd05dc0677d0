"""The contract between clipping and the engines.

A clipping rule (`Flat`, `PerLayer`, `Automatic`, `Tanh`) is a frozen description that knows no model.
``rule.bind(names)`` fits it to the names of a model's trainable parameters and gives a `BoundClipping`, which
an engine uses for every batch:

- ``bound.groups``: the parameter names, partitioned; the norm of a group is that of all its gradients
  together;
- ``bound.bounds``: the largest L2 norm that one example may contribute to each group;
- ``bound.filter``: an elementwise function that every gradient goes through before its norm is taken, or
  ``None``; an engine writes gradients out for it, one by one;
- ``bound.factors(norms)``: float64 norms ``[examples, groups]`` to float64 factors of the same shape;
- ``bound.sensitivity(neighbours)``: how far the sum of the clipped gradients moves between neighbouring data
  sets.
"""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Protocol, runtime_checkable

import torch

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours

FactorRule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From norms ``[examples, groups]`` and bounds ``[groups]`` to factors that are right up to one rounding."""

Filter = Callable[[torch.Tensor], torch.Tensor]
"""From a gradient, in float32 at least, to one of the same shape, number by number."""


@dataclasses.dataclass(frozen=True)
class BoundClipping:
    r"""A clipping rule that has been fitted to the parameters of one model.

    One example's gradient, split into groups :math:`g_1, \dots, g_G`, contributes
    :math:`(f_1 g_1, \dots, f_G g_G)` with :math:`\|f_k g_k\|_2 \le C_k`, hence at most
    :math:`C = \sqrt{\sum_k C_k^2}` in all. Where there is a filter, :math:`g_k` is what comes out of it.

    Attributes:
        groups: a partition of the parameter names.
        bounds: :math:`C_k`, one for each group.
        rule: how factors follow from norms.
        filter: what gradients go through, number by number, before their norms are taken.
    """

    groups: tuple[tuple[str, ...], ...]
    bounds: tuple[float, ...]
    rule: FactorRule
    filter: Filter | None = None

    @property
    def total(self) -> float:
        """The L2 norm :math:`C` that one example contributes at most."""
        return math.hypot(*self.bounds)

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        r"""What each example's gradient is multiplied with, group by group.

        Guarantee: :math:`0 \le f_k \|g_k\| \le C_k` in exact arithmetic on the returned float64 numbers, and
        hence in float64 too: a factor that had to be rounded is rounded towards zero.

        Edge cases: a norm that is not finite gets factor 0 exactly (the engine must then drop the gradient
        rather than multiply it, since ``0 * inf`` is not 0); a norm of 0 gets a finite factor; no examples
        give no factors.

        Args:
            norms: ``[examples, groups]``, the L2 norms after the filter, if there is one; best in float64.

        Returns:
            float64 factors of the same shape, on the same device.
        """
        if norms.ndim != 2 or norms.shape[1] != len(self.groups):
            raise InputError(
                f"norms of shape {tuple(norms.shape)}: must be [examples, {len(self.groups)}]. "
                "Give one norm for each example and each group of bound.groups."
            )
        exact = norms.to(torch.float64).abs()
        bounds = torch.tensor(self.bounds, dtype=torch.float64, device=norms.device)
        factors = self.rule(exact, bounds)
        return torch.where(torch.isfinite(exact), factors, torch.zeros_like(factors))

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The L2 distance by which the sum of clipped gradients moves at most when one example changes.

        C where an example comes, goes or is zeroed; 2C where it is replaced, from one end of a diameter to
        the other. Noise multipliers in events are relative to `total` under every relation: accountants do
        the doubling, so that noise of standard deviation ``noise_multiplier * total`` is what an event says.
        """
        return 2 * self.total if neighbours is Neighbours.REPLACE_ONE else self.total


@runtime_checkable
class Clipping(Protocol):
    """A rule that bounds what one example contributes, before any model is known."""

    def bind(self, names: Collection[str]) -> BoundClipping:
        """The rule fitted to these trainable parameters; refuses names that it has no bound for.

        Engines give a mapping from each name to how many numbers the parameter holds, for rules whose bound depends
        on that.
        """
        ...

    def describe(self) -> str:
        """A clause for statements and reports, such as ``flat clipping at norm 0.1``."""
        ...


def check_names(names: Collection[str]) -> tuple[str, ...]:
    """The names as a tuple; none at all and duplicates are refused."""
    if not names:
        raise InputError("names=[]: must hold at least one trainable parameter. Unfreeze a parameter of the model.")
    repeated = sorted({name for name in names if list(names).count(name) > 1})
    if repeated:
        raise InputError(f"names={repeated!r}: must be unique. Give each parameter once, tied ones under one name.")
    return tuple(names)


def shrink(norms: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """min(1, bound / norm), rounded towards zero where it is below 1."""
    return torch.where(norms <= bounds, torch.ones_like(norms), round_down(bounds / norms))


def round_down(quotients: torch.Tensor) -> torch.Tensor:
    """The floats just below: at most the real quotients, since a division rounds to a nearest float."""
    return torch.nextafter(quotients, torch.zeros_like(quotients))
