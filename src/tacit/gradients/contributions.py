r"""What one use of a parameter adds to its per-example gradients, without writing those gradients out.

A use of a parameter contributes in one of three forms:

- `Outer`: example i adds :math:`\sum_t l_{it} r_{it}^T`, a sum of outer products over the tokens t that it sent
  through the layer. Linear layers and embeddings (l is one-hot) are of this form;
- `Convolved`: a convolution, which is an `Outer` over patches that need not be laid out;
- `Direct`: the gradient of every example, written out. Biases and normalisation weights are, because they are small.

How the norm is found is decided in `tacit.gradients.ways`. The weighted sum over the examples is one product here. It
leaves examples out that are not ``finite``, where such flags are given: a weight of zero is not enough, since 0 * inf
is NaN and would spoil the whole sum.
"""

import dataclasses
import functools

import torch
from torch import Tensor

from tacit.gradients.convolving import Geometry, patches, weight_gradient
from tacit.gradients.kernels import (
    NARROW,
    convolution_products,
    convolution_sum,
    cutouts_fit,
    outer_sum,
    triton_is_installed,
    weighted_rows,
    zero_rows_,
)
from tacit.gradients.kernels import Geometry as ImageGeometry
from tacit.gradients.rounding import TF32_BITS, operand_bits

_MANY = 2**20  # numbers for which a kernel of our own reads rows faster than a compiler's


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

    def weighted_sum(self, weights: Tensor, finite: Tensor | None = None) -> Tensor:
        """``sum_i weights[i] * gradient_i``, of the parameter's shape."""
        flat = self.grads.flatten(1)
        scale = _round_down(weights, torch.promote_types(flat.dtype, torch.float32))
        if flat.is_cuda and flat.numel() >= _MANY:
            total = weighted_rows(flat, scale, finite)
        else:
            total = torch.mv(_chosen(at_least_float32(flat), finite).t(), scale)
        return self._arrange(total[None], 1)[0].reshape(self._shape)

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

    @property
    def _is_narrow(self) -> bool:
        """Whether an example has one token, with few numbers on the left: their sum is a kernel by itself."""
        return self.tokens == 1 and self.rows <= NARROW and self.rows < self.columns

    def write_out(self) -> Tensor:
        """The gradient of every example: ``[examples, *shape]``."""
        if self.one_hot:
            out = self.right.new_zeros(self.examples, self.rows, self.columns)
            index = self.left[:, 0, :, None].expand(-1, -1, self.columns)
            return out.scatter_add(1, index, self.right[:, 0]).reshape(self.examples, *self.shape)
        return (self.left.transpose(2, 3) @ self.right).reshape(self.examples, *self.shape)

    def weighted_sum(self, weights: Tensor, finite: Tensor | None = None) -> Tensor:
        """``sum_i weights[i] * gradient_i`` as one product, of the parameter's shape; the narrower side is scaled."""
        if self.right.dtype == torch.bfloat16 and not self.one_hot and self.right.shape[1] == 1:
            return self._weighted_sum_in_bfloat16(weights, finite)
        right = at_least_float32(self.right)
        if self.one_hot:
            out = right.new_zeros(self.rows, self.columns)
            return out.index_add(0, self.left.flatten(), _scaled(right, weights, finite).flatten(0, 2)).reshape(
                self.shape
            )
        left = at_least_float32(self.left)
        if self.rows < self.columns:
            left, right = _scaled(left, weights, finite), _cleared(right, finite)
        else:
            left, right = _cleared(left, finite), _scaled(right, weights, finite)
        if left.shape[1] == 1:
            left, right = left.flatten(0, 2), right.flatten(0, 2)
            if self.rows < self.columns:
                left = _by_token(left)
            else:
                right = _by_token(right)
            return (left.t() @ right).reshape(self.shape)
        # [examples, groups, tokens, m] -> [groups, m, examples * tokens]: one matrix product for each group.
        left = left.transpose(0, 1).flatten(1, 2).transpose(1, 2)
        return (left @ right.transpose(0, 1).flatten(1, 2)).reshape(self.shape)

    def _weighted_sum_in_bfloat16(self, weights: Tensor, finite: Tensor | None) -> Tensor:
        """In bfloat16's fast products: the scaled side as a sum of two, which is right to 16 bits.

        One token's outer product is as long as its sides are, so that one bfloat16 number does, if it is not larger
        than the scaled one. Several tokens may cancel each other, and what rounding adds to each need not.
        """
        left, right = self.left.flatten(0, 2), self.right.flatten(0, 2)
        parts = _halves if self.tokens > 1 else _rounded_below
        if self.tokens > 1:
            weights = weights.repeat_interleave(self.tokens)
            finite = None if finite is None else finite.repeat_interleave(self.tokens)
        if self._is_narrow and left.is_cuda and triton_is_installed():
            [narrow] = _rounded_below(_scaled(left.float(), weights, None))
            return outer_sum(narrow, right, finite).reshape(self.shape)
        if self.rows < self.columns:
            right = _cleared(right, finite)
            products = [_product(part, right) for part in parts(_scaled(left.float(), weights, finite))]
        else:
            left = _cleared(left, finite)
            products = [_product(left, part) for part in parts(_scaled(right.float(), weights, finite))]
        return functools.reduce(torch.add, products).reshape(self.shape)  # a sum from 0 would be one operation more


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

    @property
    def fold(self) -> int:
        return self.input.shape[0] // max(self.examples, 1)

    @property
    def tokens(self) -> int:
        return self.fold * self.grad.shape[2:].numel()

    @property
    def is_image(self) -> bool:
        """Whether the kernels for images take it: two dimensions, and every output sees every channel."""
        return len(self.geometry.stride) == 2 and self.geometry.groups == 1

    @property
    def as_image(self) -> ImageGeometry:
        """The geometry as those kernels take it."""
        numbers = (self.shape[2:], self.geometry.stride, self.geometry.padding, self.geometry.dilation)
        return ImageGeometry(*((int(pair[0]), int(pair[1])) for pair in numbers))

    @property
    def is_cut_out(self) -> bool:
        """Whether gradients and sum are taken from operands as they are, by kernels for half precision or by twins."""
        return self.is_image and cutouts_fit(self.input, self.grad, self.as_image)

    def as_outer(self) -> Outer:
        """The same as outer products over patches, which are copied out."""
        grads = self.grad.reshape(self.examples, self.fold, self.geometry.groups, -1, self.grad.shape[2:].numel())
        left = grads.permute(0, 2, 1, 4, 3).flatten(2, 3)
        return Outer(left, patches(self.input, self.shape, self.geometry, self.examples), self.shape)

    def write_out(self) -> Tensor:
        """The gradient of every example: ``[examples, *shape]``."""
        if not self.is_cut_out:
            return self.as_outer().write_out()
        outputs, channels, *kernel = self.shape
        products = convolution_products(self.input, self.grad, *self.as_image, views=self.fold, by_offset=True)
        return products.view(self.examples, outputs, *kernel, channels).movedim(-1, 2)

    def weighted_sum(self, weights: Tensor, finite: Tensor | None = None) -> Tensor:
        """``sum_i weights[i] * gradient_i``: the weight gradient of the whole batch, with its smaller side scaled."""
        if self.fold > 1:
            weights = weights.repeat_interleave(self.fold)
            finite = None if finite is None else finite.repeat_interleave(self.fold)
        if self.is_cut_out:
            scale = _chosen(_round_down(weights, torch.float32), finite)
            return convolution_sum(self.input, self.grad, scale, self.as_image)
        values, grad = at_least_float32(self.input), at_least_float32(self.grad)
        if grad.numel() <= values.numel():
            values, grad = _cleared(values, finite), _scaled(grad, weights, finite)
        else:
            values, grad = _scaled(values, weights, finite), _cleared(grad, finite)
        return weight_gradient(values, grad, self.shape, self.geometry)


Contribution = Direct | Outer | Convolved


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision becomes float32, so that norms and sums are not taken in half precision; integers stay."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """Two bfloat16 numbers for each, whose sum is off by 2^-16 of it at most."""
    high = values.to(torch.bfloat16)
    return high, (values - high.float()).to(torch.bfloat16)


def _rounded_below(values: Tensor) -> tuple[Tensor]:
    """One bfloat16 number for each, with eight significant bits, so that a vector of them is no longer than before."""
    return ((values * (1 - 2.0**-8)).to(torch.bfloat16),)


def _by_token(values: Tensor) -> Tensor:
    """The same matrix with its tokens contiguous, as TF32 units like both sides best; where it is written anyway."""
    if values.is_cuda and values.dtype == torch.float32 and operand_bits() == TF32_BITS:
        return values.t().contiguous().t()
    return values


def _product(left: Tensor, right: Tensor) -> Tensor:
    """``left.T @ right`` of bfloat16, whose products are exact in float32, summed and returned in float32."""
    if left.is_cuda:
        found: Tensor = torch.mm(left.t(), right, out_dtype=torch.float32)
        return found
    return left.t().float() @ right.float()


def _round_down(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 weights in the precision of the sum, a hair smaller: neither they nor their products round upwards.

    A weight of 1 stays: nothing is rounded then.
    """
    if dtype == torch.float64:
        return weights
    return torch.where(weights == 1, weights, weights * (1 - 4 * torch.finfo(dtype).eps)).to(dtype)


def _scaled(values: Tensor, weights: Tensor, finite: Tensor | None) -> Tensor:
    """Every example's rows times its weight."""
    scale = _round_down(weights, values.dtype)
    return _chosen(values * scale.reshape(-1, *[1] * (values.dim() - 1)), finite)


def _chosen(values: Tensor, finite: Tensor | None) -> Tensor:
    """Zeros in the rows that are not finite, on the way to something that reads all rows anyway."""
    if finite is None:
        return values
    keep = finite.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(keep, values, torch.zeros((), dtype=values.dtype, device=values.device))


def _cleared(values: Tensor, finite: Tensor | None) -> Tensor:
    """The same for values that stay as they are: a compiler drops the copy, and rows that are kept are not touched."""
    return values if finite is None else zero_rows_(values.clone(), finite)
