"""What the kernels compute, in plain PyTorch: the definition they are tested against, and the path without Triton.

Half-precision operands are widened to float32 before they are multiplied, as the kernels accumulate in float32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from tacit.gradients.kernels.geometry import Geometry

_BLOCK = 1 << 26  # Elements of per-example gradients that a norm writes out at a time.


def product_norms(left: Tensor, right: Tensor) -> Tensor:
    """``|left[i].T @ right[i]|²`` for every example i, in float64; a block of examples is written out at a time."""
    if left.shape[0] == 0:
        return left.new_empty(0, dtype=torch.float64)
    block = max(1, _BLOCK // max(1, left.shape[2] * right.shape[2]))
    return torch.cat(
        [
            _squared_norms(_widened(left[i : i + block]).transpose(1, 2) @ _widened(right[i : i + block]))
            for i in range(0, left.shape[0], block)
        ]
    )


def convolution_products(
    x: Tensor, grad: Tensor, geometry: Geometry, out_dtype: torch.dtype, *, by_offset: bool = False, views: int = 1
) -> Tensor:
    """``grad[i] @ patches[i].T`` for every example i: ``[B, O, C * KH * KW]``, or ``[B, O, KH * KW * C]``.

    The products of an example's ``views`` consecutive rows are added up.
    """
    patches = F.unfold(_widened(x), geometry.kernel_size, geometry.dilation, geometry.padding, geometry.stride)
    if by_offset:
        patches = patches.view(len(x), x.shape[1], geometry.offsets, patches.shape[2]).transpose(1, 2).flatten(1, 2)
    products = _widened(grad).flatten(2) @ patches.transpose(1, 2)
    return products.reshape(len(x) // views, views, *products.shape[1:]).sum(1).to(out_dtype)


def convolution_norms(x: Tensor, grad: Tensor, geometry: Geometry, views: int = 1) -> Tensor:
    """Squared norms of `convolution_products`, in float64; a block of examples is written out at a time."""
    if x.shape[0] == 0:
        return x.new_empty(0, dtype=torch.float64)
    columns, dtype = x.shape[1] * geometry.offsets, _widened(x[:0]).dtype
    block = views * max(1, _BLOCK // max(1, views * columns * (grad.shape[1] + grad.shape[2] * grad.shape[3])))
    return torch.cat(
        [
            _squared_norms(convolution_products(x[i : i + block], grad[i : i + block], geometry, dtype, views=views))
            for i in range(0, x.shape[0], block)
        ]
    )


def patch_grams(x: Tensor, grad: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms of `convolution_products` from Gram matrices over positions, and the diagonals of both; exactly."""
    patches = F.unfold(x.double(), geometry.kernel_size, geometry.dilation, geometry.padding, geometry.stride)
    left, right = (side.transpose(1, 2) @ side for side in (grad.double().flatten(2), patches))
    lefts, rights = (gram.diagonal(dim1=1, dim2=2).float().contiguous() for gram in (left, right))
    return (left * right).sum((1, 2)), lefts, rights


def convolution_sum(x: Tensor, grad: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
    """``sum_i weights[i] products_i`` over the rows of x whose weight is not zero, ``[O, C, KH, KW]``, in float64."""
    counted = (weights != 0)[:, None, None, None]
    x, grad = (torch.where(counted, side.double(), 0.0) for side in (x, grad))
    total: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        x,
        [grad.shape[1], x.shape[1], *geometry.kernel_size],
        grad * weights.double()[:, None, None, None],
        geometry.stride,
        geometry.padding,
        geometry.dilation,
    )
    return total.to(weights.dtype).contiguous()


def zero_rows_(values: Tensor, keep: Tensor) -> None:
    """``values[i] = 0`` where ``keep[i]`` is false, whatever stood there, NaN included."""
    values.masked_fill_(~keep.reshape(-1, *[1] * (values.dim() - 1)), 0)


def weighted_rows(rows: Tensor, weights: Tensor, keep: Tensor | None) -> Tensor:
    """``sum_i weights[i] rows[i]`` over the rows that are kept, in float32 at least."""
    rows = _widened(rows) if keep is None else _kept(_widened(rows), keep)
    return torch.mv(rows.t(), weights)


def outer_sum(left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
    """``sum_i left[i] right[i].T`` over the examples that are kept, in float32 at least."""
    left, right = (_widened(side) if keep is None else _kept(_widened(side), keep) for side in (left, right))
    return left.t() @ right


def fetch_box_(there: Tensor, boxes: Tensor, counts: Tensor) -> None:
    """``there = boxes[count % len(boxes)]``, which must begin with its number ``count``; every count goes up by one."""
    count = int(counts[0])
    box = boxes[count % len(boxes)]
    assert int(box[0]) == count, "a parcel was fetched out of turn"
    there.copy_(box)
    counts += 1


def _kept(rows: Tensor, keep: Tensor) -> Tensor:
    return torch.where(keep[:, None], rows, torch.zeros((), dtype=rows.dtype, device=rows.device))


def _widened(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _squared_norms(products: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(products.flatten(1), dim=1, dtype=torch.float64)
    return norms.square()
