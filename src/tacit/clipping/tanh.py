"""The tanh filter: every number of a gradient is bounded by itself."""

import dataclasses
import math
from collections.abc import Collection, Mapping

import torch

from tacit.clipping.bound import BoundClipping, check_names, shrink
from tacit.core.errors import InputError
from tacit.core.validation import check_positive

# A compiler may work tanh out once for the norm and once more for the sum, by code that rounds otherwise. The two are
# then a few units of float32 apart, which this covers; it matters only for gradients that reach the bound.
_RAISED = 1 + 2.0**-20


@dataclasses.dataclass(frozen=True)
class Tanh:
    r"""Sends every number g of an example's gradient through :math:`c \tanh(g / k)`, then bounds the norm.

    With ``bound=C`` the filtered gradient is scaled by :math:`\min(1, C / \|\cdot\|_2)`, as `Flat` does: the
    sensitivity of the sum is C when an example is added, removed or zeroed, 2C when it is replaced.

    Without it, the filter is all there is. Each of n numbers then lies in [-c, c], and an example can have all of them
    near c. So the sensitivity is :math:`c \sqrt n` (twice that when an example is replaced), and the noise of a private
    step is in proportion to it. That it is not 1 is why a paper's epsilon that counts it as 1 is no guarantee
    (`tacit.accounting.tanh_filter_statements`). Rounding cannot exceed :math:`c \sqrt n` either: the norm of what is
    added is measured and held to it.

    A gradient with a number that is not finite adds zero, as everywhere, though tanh of infinity is 1.

    Reference: Amian, Improving the Algorithm of Deep Learning with Differential Privacy, 2021. Its equation 4 is
    tanh(x / 2), which is this filter with k = 2.

    Args:
        c: the largest value of a filtered number, above 0.
        k: how far the range that is nearly linear is stretched, above 0. Numbers far below k keep their direction and
            are scaled by c / k; those far above it keep their signs alone.
        bound: C, above 0, or ``None`` for the filter alone.
    """

    c: float = 1.0
    k: float = 1.0
    bound: float | None = None

    def __post_init__(self) -> None:
        check_positive("c", self.c, remedy="1.0 is the filter's own range.")
        check_positive("k", self.k, remedy="Take it near the size of a gradient's larger numbers.")
        if self.bound is not None:
            check_positive("bound", self.bound, remedy="Leave it out for the filter alone.")

    def filter(self, gradient: torch.Tensor) -> torch.Tensor:
        """:math:`c \\tanh(g / k)`, number by number; plain training can use it against exploding gradients."""
        return self.c * torch.tanh(gradient / self.k)

    def bind(self, names: Collection[str]) -> BoundClipping:
        """One group that holds every parameter; without a bound the numbers must be counted."""
        group = check_names(names)
        total = self.c * math.sqrt(_count(names)) if self.bound is None else float(self.bound)
        return BoundClipping(groups=(group,), bounds=(total,), rule=_shrink, filter=self.filter)

    def describe(self) -> str:
        """A clause for statements and reports."""
        numbers = f"gradients filtered by {self.c:g} tanh(g / {self.k:g})"
        if self.bound is None:
            return f"{numbers} and clipped at norm {self.c:g} sqrt(n), n being how many numbers train"
        return f"{numbers}, then clipped at norm {self.bound:g}"


def _count(names: Collection[str]) -> int:
    if not isinstance(names, Mapping):
        raise InputError(
            "names: must be a mapping from each parameter to how many numbers it holds, since the sensitivity of a "
            "tanh filter without a bound grows with them. Give {name: parameter.numel()}, or a bound."
        )
    return sum(int(count) for count in names.values())


def _shrink(norms: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    return shrink(norms * _RAISED, bounds)
