"""Automatic clipping: every gradient is brought to nearly the same norm."""

import dataclasses
import functools
from collections.abc import Collection

import torch

from tacit.clipping.bound import BoundClipping, check_names, round_down
from tacit.core.validation import check_positive


@dataclasses.dataclass(frozen=True)
class Automatic:
    r"""Scales an example's whole gradient g by :math:`C / (\|g\|_2 + \gamma)`: nothing is left to tune.

    The contribution's norm is :math:`C \|g\| / (\|g\| + \gamma) < C`, so the sensitivity of the sum is C when
    an example is added, removed or zeroed and 2C when it is replaced: approached by large gradients, never
    reached. C only rescales the learning rate. The stability :math:`\gamma > 0` keeps small gradients apart
    from large ones, which convergence needs, and keeps the factor of a zero gradient finite.

    Reference: Bu, Wang, Zha, Karypis, Automatic Clipping, 2022, https://arxiv.org/abs/2206.07136.

    Args:
        bound: C, above 0.
        stability: gamma, above 0.
    """

    bound: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_positive("bound", self.bound, remedy="It only rescales the learning rate; 1.0 is a good choice.")
        check_positive("stability", self.stability, remedy="0.01 is a good choice.")

    def bind(self, names: Collection[str]) -> BoundClipping:
        """One group that holds every parameter."""
        rule = functools.partial(_normalise, stability=float(self.stability))
        return BoundClipping(groups=(check_names(names),), bounds=(float(self.bound),), rule=rule)

    def describe(self) -> str:
        """A clause for statements and reports."""
        return f"automatic clipping to norm {self.bound:g} with stability {self.stability:g}"


def _normalise(norms: torch.Tensor, bounds: torch.Tensor, *, stability: float) -> torch.Tensor:
    """bound / (norm + stability), rounded towards zero; the sum rounds to no less than the norm itself."""
    return round_down(bounds / (norms + stability))
