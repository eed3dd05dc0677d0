"""All uses of one parameter in a forward pass, as one gradient for each example.

Several uses (tied weights, time steps of a recurrent layer) add up *before* the norm is taken, so the norm needs their
cross terms.
"""

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer, at_least_float32
from tacit.gradients.gram_norms import measure_several
from tacit.gradients.strategies import Strategies
from tacit.gradients.ways import cheapest


@dataclasses.dataclass(frozen=True)
class ParameterGradients:
    """The per-example gradients of one parameter: the sum of all its uses in one forward pass."""

    uses: Sequence[Contribution]

    @classmethod
    def of(cls, uses: Sequence[Contribution]) -> "ParameterGradients":
        """Joins what can be joined: time steps into more tokens, and what is written out into one sum."""
        if len(uses) == 1:
            return cls(uses)
        outers = _merge([use.as_outer() if isinstance(use, Convolved) else use for use in uses])
        directs = [at_least_float32(use.write_out()) for use in uses if isinstance(use, Direct)]
        if not directs and (len(outers) == 1 or all(_gram_is_cheaper(outer) for outer in outers)):
            return cls(outers)
        return cls([Direct(functools.reduce(torch.add, [*directs, *(outer.write_out() for outer in outers)]))])

    def measured(self, strategies: Strategies) -> tuple[Tensor, "ParameterGradients"]:
        """Squared norms ``[examples]`` in float64, at least; and these gradients in the form the sum is taken from."""
        if len(self.uses) > 1:
            return measure_several([use for use in self.uses if isinstance(use, Outer)]), self
        found = strategies.measure(self.uses[0])
        return found.squared, ParameterGradients([found.source])

    def written_out(self) -> Tensor:
        """The gradient of every example, ``[examples, *shape]``, in float32 at least."""
        whole = functools.reduce(torch.add, [use.write_out() for use in self.uses])
        return at_least_float32(whole)

    def weighted_sum(self, weights: Tensor, finite: Tensor | None = None) -> Tensor:
        """``sum_i weights[i] * gradient_i``, without the examples that are not ``finite``."""
        return functools.reduce(torch.add, [use.weighted_sum(weights, finite) for use in self.uses])


def _gram_is_cheaper(outer: Outer) -> bool:
    """Compares the Gram matrices' T²(m + n) with the T·m·n of writing the gradient out (V·n for one-hot)."""
    if outer.one_hot:
        return outer.tokens**2 < outer.rows
    return outer.tokens == 1 or cheapest(outer) == "gram"


def _merge(uses: Sequence[Contribution]) -> list[Outer]:
    """Joins uses of one kind along the tokens, so that T time steps cost one product and not T² of them."""
    outers = [use for use in uses if isinstance(use, Outer)]
    merged = []
    for kind in (False, True):
        same = [outer for outer in outers if outer.one_hot is kind]
        if len(same) > 1:
            left = torch.cat([outer.left for outer in same], dim=2)
            right = torch.cat([outer.right for outer in same], dim=2)
            same = [Outer(left, right, same[0].shape)]
        merged += same
    return merged
