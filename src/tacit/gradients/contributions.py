r"""What one use of a parameter adds to its per-example gradients, without writing those gradients out.

A use of a parameter contributes in one of three forms:

- `Outer`: example i adds :math:`\sum_t l_{it} r_{it}^T`, a sum of outer products over the tokens t that it sent
  through the layer. Linear layers and embeddings (l is one-hot) are of this form;
- `Convolved`: a convolution, which is an `Outer` over patches that need not be laid out;
- `Direct`: the gradient of every example, written out. Biases and normalisation weights are, because they are small.

How the norm is found is decided in `tacit.gradients.ways`. The weighted sum over the examples is one product here.
"""

import dataclasses

import torch
from torch import Tensor

from tacit.gradients.convolving import Geometry, patches, weight_gradient


@dataclasses.dataclass(frozen=True)
class Direct:
    """Per-example gradients, written out: ``grads[i]`` holds the parameter's entries, in the order of ``shape``.

    Attributes:
        grads: ``[examples, …]``.
        shape: the parameter's shape, unless it is that of ``grads[0]``.
        order: where the entries lie in another order: a shape to view them in, and the permutation back.
    """

    grads: Tensor
    shape: torch.Size | None = None
    order: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def examples(self) -> int:
        return self.grads.shape[0]

    def write_out(self) -> Tensor:
        """``[examples, *shape]``."""
        return self._arrange(self.grads, self.examples)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """``sum_i weights[i] * gradient_i``, of the parameter's shape."""
        flat = self.grads.flatten(1)
        flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
        return self._arrange(torch.mv(flat.t(), _round_down(weights, flat.dtype))[None], 1)[0].reshape(self._shape)

    def keep(self, finite: Tensor) -> "Direct":
        return dataclasses.replace(self, grads=_zero_rows(self.grads, finite))

    @property
    def _shape(self) -> torch.Size:
        return self.grads.shape[1:] if self.shape is None else self.shape

    def _arrange(self, rows: Tensor, count: int) -> Tensor:
        if self.order is not None:
            view, permutation = self.order
            rows = rows.reshape(count, *view).permute(0, *(1 + d for d in permutation))
        return rows.reshape(count, *self._shape)


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
    def examples(self) -> int:
        return self.right.shape[0]

    @property
    def tokens(self) -> int:
        return self.right.shape[2]

    @property
    def one_hot(self) -> bool:
        return self.left.dim() == 3

    @property
    def rows(self) -> int:
        """m: how many rows one group of the parameter has."""
        return self.shape[0] if self.one_hot else self.left.shape[-1]

    @property
    def columns(self) -> int:
        """n: how many columns one group of the parameter has."""
        return self.right.shape[-1]

    def keep(self, finite: Tensor) -> "Outer":
        left = self.left if self.one_hot else _zero_rows(self.left, finite)
        return Outer(left, _zero_rows(self.right, finite), self.shape)

    def write_out(self) -> Tensor:
        """The gradient of every example: ``[examples, *shape]``."""
        if self.one_hot:
            out = self.right.new_zeros(self.examples, self.rows, self.columns)
            index = self.left[:, 0, :, None].expand(-1, -1, self.columns)
            return out.scatter_add(1, index, self.right[:, 0]).reshape(self.examples, *self.shape)
        return (self.left.transpose(2, 3) @ self.right).reshape(self.examples, *self.shape)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """``sum_i weights[i] * gradient_i`` as one product, of the parameter's shape."""
        right = _at_least_float32(self.right)
        scale = _round_down(weights, right.dtype)[:, None, None, None]
        if self.one_hot:
            out = right.new_zeros(self.rows, self.columns)
            return out.index_add(0, self.left.flatten(), (right * scale).flatten(0, 2)).reshape(self.shape)
        left = _at_least_float32(self.left) * scale
        if left.shape[1] == 1:
            return (left.flatten(0, 2).t() @ right.flatten(0, 2)).reshape(self.shape)
        # [examples, groups, tokens, m] -> [groups, m, examples * tokens]: one matrix product for each group.
        left = left.transpose(0, 1).flatten(1, 2).transpose(1, 2)
        return (left @ right.transpose(0, 1).flatten(1, 2)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Convolved:
    """A convolution: example i adds the weight gradient of its own rows.

    Attributes:
        input: ``[rows, channels, *positions]``; an example has ``rows / examples`` consecutive rows.
        grad: the gradient of the output, ``[rows, outputs, *positions]``.
        shape: the weight's shape.
        geometry: stride, padding, dilation and groups.
        examples: how many examples there are.
    """

    input: Tensor
    grad: Tensor
    shape: torch.Size
    geometry: Geometry
    examples: int

    def keep(self, finite: Tensor) -> "Convolved":
        rows = finite.repeat_interleave(self.fold) if self.fold > 1 else finite
        return dataclasses.replace(self, input=_zero_rows(self.input, rows), grad=_zero_rows(self.grad, rows))

    @property
    def fold(self) -> int:
        return self.input.shape[0] // max(self.examples, 1)

    @property
    def tokens(self) -> int:
        return self.fold * self.grad.shape[2:].numel()

    def as_outer(self) -> Outer:
        """The same as outer products over patches, which are copied out."""
        grads = self.grad.reshape(self.examples, self.fold, self.geometry.groups, -1, self.grad.shape[2:].numel())
        left = grads.permute(0, 2, 1, 4, 3).flatten(2, 3)
        return Outer(left, patches(self.input, self.shape, self.geometry, self.examples), self.shape)

    def write_out(self) -> Tensor:
        """The gradient of every example: ``[examples, *shape]``."""
        return self.as_outer().write_out()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """``sum_i weights[i] * gradient_i``: the weight gradient of the whole batch, from scaled output gradients."""
        grad = _at_least_float32(self.grad)
        scale = _round_down(weights, grad.dtype)
        scale = scale.repeat_interleave(self.fold) if self.fold > 1 else scale
        scaled = grad * scale.reshape(-1, *[1] * (grad.dim() - 1))
        return weight_gradient(_at_least_float32(self.input), scaled, self.shape, self.geometry)


Contribution = Direct | Outer | Convolved


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _round_down(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 weights in the precision of the sum, a hair smaller: neither they nor their products round upwards.

    A weight of 1 stays: nothing is rounded then.
    """
    if dtype == torch.float64:
        return weights
    return torch.where(weights == 1, weights, weights * (1 - 4 * torch.finfo(dtype).eps)).to(dtype)


def _zero_rows(values: Tensor, finite: Tensor) -> Tensor:
    keep = finite.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(keep, values, torch.zeros((), dtype=values.dtype, device=values.device))
