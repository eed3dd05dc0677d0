r"""What one use of a parameter adds to its per-example gradients, without writing those gradients out where possible.

A use of a parameter contributes in one of two forms:

- `Outer`: example i adds :math:`\sum_t l_{it} r_{it}^T`, a sum of outer products over the tokens t that it sent
  through the layer. Linear layers, convolutions (tokens are output positions) and embeddings (l is one-hot) are of this
  form, and the squared norm follows from two small Gram matrices.
- `Direct`: the gradient of every example, written out. Biases and normalisation weights are, because they are small.

Several uses of one parameter (tied weights, time steps of a recurrent layer) add up *before* the norm is taken, so the
norm needs their cross terms; `ParameterGradients` holds all uses of one parameter and does just that.
"""

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Direct:
    """Per-example gradients, written out: ``grads[i]`` has the parameter's shape."""

    grads: Tensor

    def keep(self, finite: Tensor) -> "Direct":
        return Direct(_zero_rows(self.grads, finite))


@dataclasses.dataclass(frozen=True)
class Outer:
    """Sums of outer products: example i, group g contributes ``left[i, g].T @ right[i, g]``.

    Attributes:
        left: ``[examples, groups, tokens, m]``, or ``[examples, 1, tokens]`` of int64: row numbers of one-hot vectors.
        right: ``[examples, groups, tokens, n]``.
        shape: the parameter's shape; ``[groups, m, n]`` flattens to it in order.
    """

    left: Tensor
    right: Tensor
    shape: torch.Size

    @property
    def one_hot(self) -> bool:
        return self.left.dim() == 3

    @property
    def rows(self) -> int:
        """m: how many rows one group of the parameter has."""
        return self.shape[0] if self.one_hot else self.left.shape[-1]

    def keep(self, finite: Tensor) -> "Outer":
        left = self.left if self.one_hot else _zero_rows(self.left, finite)
        return Outer(left, _zero_rows(self.right, finite), self.shape)

    def gram_is_cheaper(self) -> bool:
        """Compares the Gram matrices' T²(m + n) with the T·m·n of writing the gradient out (V·n for one-hot)."""
        tokens, columns = self.right.shape[2], self.right.shape[3]
        if self.one_hot:
            return tokens * tokens < self.rows
        return tokens * (self.rows + columns) < self.rows * columns

    def write_out(self) -> Tensor:
        """The gradient of every example: ``[examples, *shape]``."""
        examples, _, _, columns = self.right.shape
        if self.one_hot:
            out = self.right.new_zeros(examples, self.rows, columns)
            index = self.left[:, 0, :, None].expand(-1, -1, columns)
            out.scatter_add_(1, index, self.right[:, 0])
        else:
            out = self.left.transpose(2, 3) @ self.right
        return out.reshape(examples, *self.shape)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """``sum_i weights[i] * gradient_i`` as one product, of the parameter's shape."""
        right = self.right
        if self.one_hot:
            out = right.new_zeros(self.rows, right.shape[-1])
            scaled = right * weights.to(right.dtype)[:, None, None, None]
            return out.index_add_(0, self.left.flatten(), scaled.flatten(0, 2)).reshape(self.shape)
        scaled = self.left * weights.to(right.dtype)[:, None, None, None]
        # [examples, groups, tokens, m] -> [groups, m, examples * tokens]: one matrix product for each group.
        left = scaled.permute(1, 0, 2, 3).flatten(1, 2).transpose(1, 2)
        return (left @ right.permute(1, 0, 2, 3).flatten(1, 2)).reshape(self.shape)


Contribution = Direct | Outer


@dataclasses.dataclass
class ParameterGradients:
    """The per-example gradients of one parameter: the sum of all its uses in one forward pass."""

    uses: list[Contribution]

    def __post_init__(self) -> None:
        self.uses = _simplify(self.uses)

    def squared_norms(self) -> Tensor:
        """Squared L2 norm of each example's gradient, summed in float64: float32 sums of long rows come out small."""
        if isinstance(self.uses[0], Direct):
            grads = self.uses[0].grads.flatten(1)
            norms: Tensor = torch.linalg.vector_norm(grads, dim=1, dtype=torch.float64)
            return norms.square()
        outers = [use for use in self.uses if isinstance(use, Outer)]
        total = torch.zeros(outers[0].right.shape[0], dtype=torch.float64, device=outers[0].right.device)
        for i, first in enumerate(outers):
            total = total + _inner_product(first, first)
            for second in outers[i + 1 :]:
                total = total + 2 * _inner_product(first, second)
        return total.clamp(min=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """``sum_i weights[i] * gradient_i``."""
        sums = [
            torch.einsum("b,b...->...", weights.to(use.grads.dtype), use.grads)
            if isinstance(use, Direct)
            else use.weighted_sum(weights)
            for use in self.uses
        ]
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)

    def keep(self, finite: Tensor) -> "ParameterGradients":
        """The same with the rows of all examples that are not ``finite`` set to zero: 0 * inf would be NaN."""
        return ParameterGradients([use.keep(finite) for use in self.uses])


def _simplify(uses: Sequence[Contribution]) -> list[Contribution]:
    """Either outer products alone, where Gram matrices are the cheaper way to the norm, or one `Direct`."""
    outers = _merge([use for use in uses if isinstance(use, Outer)])
    directs = [use.grads for use in uses if isinstance(use, Direct)]
    if not directs and all(outer.gram_is_cheaper() for outer in outers):
        return list(outers)
    return [Direct(functools.reduce(torch.add, [*directs, *(outer.write_out() for outer in outers)]))]


def _merge(outers: Sequence[Outer]) -> list[Outer]:
    """Joins uses of one kind along the tokens, so that T time steps cost one product and not T² of them."""
    merged = []
    for kind in (False, True):
        same = [outer for outer in outers if outer.one_hot is kind]
        if len(same) > 1:
            left = torch.cat([outer.left for outer in same], dim=2)
            right = torch.cat([outer.right for outer in same], dim=2)
            same = [Outer(left, right, same[0].shape)]
        merged += same
    return merged


def _inner_product(first: Outer, second: Outer) -> Tensor:
    r"""Inner product of two per-example gradients, :math:`\sum_{ts} (l_t \cdot l'_s)(r_t \cdot r'_s)`, plus an
    allowance for its rounding error.

    A dot product of length k in precision u is off by up to k·u times the size of its terms. Where tokens cancel, that
    error can exceed the result, and a norm that came out too small would be clipped too little. So the error is
    added to the result: where it matters at all, it makes the norm larger. The same holds for products of tiny numbers
    that come out as zero, each off by up to the smallest normal number: beside huge ones they may count.
    """
    left = _left_products(first, second)
    right = first.right @ second.right.transpose(2, 3)
    products = left * right
    precision = torch.finfo(right.dtype)
    left_terms, right_terms = first.rows * (not first.one_hot), first.right.shape[-1]
    error = (left_terms + right_terms + 2) * precision.eps * _size(products)
    lost = precision.tiny * (left_terms * _size(right) + right_terms * _size(left))
    return products.sum((1, 2, 3), dtype=torch.float64) + error + lost


def _size(products: Tensor) -> Tensor:
    """The sum of absolute values, for each example."""
    return products.abs().sum((1, 2, 3), dtype=torch.float64)


def _left_products(first: Outer, second: Outer) -> Tensor:
    """``l_t . l'_s`` for all pairs of tokens: ``[examples, groups, tokens, tokens']``."""
    if first.one_hot and second.one_hot:
        return (first.left[..., :, None] == second.left[..., None, :]).to(first.right.dtype)
    if first.one_hot:
        return _left_products(second, first).transpose(2, 3)
    if second.one_hot:
        # l'_s is one-hot, so the product picks coordinate ids_s of l_t.
        index = second.left[:, :, None, :].expand(-1, -1, first.left.shape[2], -1)
        return first.left.gather(3, index)
    return first.left @ second.left.transpose(2, 3)


def _zero_rows(values: Tensor, finite: Tensor) -> Tensor:
    keep = finite.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(keep, values, torch.zeros((), dtype=values.dtype, device=values.device))
