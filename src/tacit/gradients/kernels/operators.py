# ruff: noqa: ARG001 (a fake takes what its operator takes)
r"""Per-example gradients and their norms as operators: Triton on a GPU that has it, the plain twin elsewhere.

Example i's gradient of a linear layer is :math:`P_i = L_i^T R_i`, with the output gradients :math:`L_i` and the inputs
:math:`R_i` of its tokens; a convolution's is the same over its output positions, with the patches of the input as
:math:`R_i`. Each operator is registered with PyTorch (``torch.ops.tacit``), so that tracing and compiling see one node.

Guarantees: no sum is atomic, so results repeat bit for bit with the same tile (tiles are timed once for each
shape and process; another process may choose another, which changes the order of sums); an example that is not finite
spoils its own row alone. Norms are summed in float64 over tiles; within a tile products and squares are float32
(float64 squares where ``input_precision`` is "ieee"), so a gradient with entries beyond about 1e19 in magnitude has an
infinite norm, and the squares of entries below about 1e-23 vanish. A thread adds at most 128 squares of its own in
float32, then a tree does: a tile's sum is off by less than 2^-16 of itself.

With "tf32" the matrix units may cut float32 operands to eleven significant bits and their sums to float32, both toward
zero (Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, 2021): an operand loses up to 2^-10
of itself and a sum up to a whole unit in the last place a term, twice what rounding to nearest would, and norms come
out small on average. Whoever clips by these norms has to add that first.
"""

import importlib

import torch
from torch import Tensor

from tacit.core.errors import InputError, UnsupportedError
from tacit.gradients.kernels import twins
from tacit.gradients.kernels.fitting import are_aligned, cutouts_fit, grams_fit, use_triton
from tacit.gradients.kernels.geometry import Geometry, Pair

_PRECISIONS = ("ieee", "tf32")


def product_norms(left: Tensor, right: Tensor, *, input_precision: str | None = None) -> Tensor:
    r"""Squared Frobenius norms :math:`|L_i^T R_i|_F^2` of every example, without writing the products.

    Args:
        left: ``[B, T, m]``, float32, float16, bfloat16 or (through the twin) float64; strides are free.
        right: ``[B, T, n]`` of the same type.
        input_precision: "ieee" or "tf32" for float32 products on the GPU; None follows PyTorch's matmul precision.

    Returns:
        ``[B]`` in float64. No tokens, or no features, is a norm of zero.
    """
    if left.dim() != 3 or right.dim() != 3 or left.shape[:2] != right.shape[:2]:
        raise InputError(
            f"left={list(left.shape)}, right={list(right.shape)}: must be [B, T, m] and [B, T, n]. Flatten the tokens."
        )
    _check_types("left", left, "right", right)
    norms: Tensor = torch.ops.tacit.product_norms(left, right, _precision(input_precision))
    return norms


def convolution_products(
    x: Tensor,
    grad: Tensor,
    kernel_size: Pair,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    *,
    groups: int = 1,
    input_precision: str | None = None,
    out_dtype: torch.dtype | None = None,
    by_offset: bool = False,
    views: int = 1,
) -> Tensor:
    """Every example's weight gradient of a two-dimensional convolution, written once; patches are never unfolded.

    Args:
        x: inputs ``[B, C, H, W]``, in any memory format.
        grad: gradients of the outputs, ``[B, O, OH, OW]``, of the same type.
        kernel_size: (KH, KW); also ``stride``, ``padding`` (with zeros) and ``dilation`` by height and width.
        groups: must be 1.
        input_precision: as in `product_norms`.
        out_dtype: of the result; None keeps the type of x.
        by_offset: writes the columns in the order (KH, KW, C) and not (C, KH, KW). The kernel writes neighbours
            together in this order where it gathers channels (half precision, C a multiple of 8), else in the other.
        views: how many consecutive rows of x belong to one example, whose gradients add up.

    Returns:
        ``[B, O, C * KH * KW]``, contiguous: a view as ``[B, O, C, KH, KW]`` is the gradient of the weight (with
        ``by_offset``, one as ``[B, O, KH, KW, C]`` is, but for the order of its dimensions).
    """
    geometry = _check_convolution(x, grad, Geometry(kernel_size, stride, padding, dilation), groups)
    products: Tensor = torch.ops.tacit.convolution_products(
        x, grad, geometry.numbers, _precision(input_precision), out_dtype or x.dtype, by_offset, _views(x, views)
    )
    return products


def convolution_norms(
    x: Tensor,
    grad: Tensor,
    kernel_size: Pair,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    *,
    groups: int = 1,
    input_precision: str | None = None,
    views: int = 1,
) -> Tensor:
    """Squared norms of `convolution_products`, ``[B]`` in float64, without writing the products."""
    geometry = _check_convolution(x, grad, Geometry(kernel_size, stride, padding, dilation), groups)
    norms: Tensor = torch.ops.tacit.convolution_norms(
        x, grad, geometry.numbers, _precision(input_precision), _views(x, views)
    )
    return norms


def patch_grams(x: Tensor, grad: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    r"""Squared norms of a convolution's gradients from Gram matrices over its output positions, which are few.

    :math:`\|\sum_t l_t r_t^T\|^2 = \sum_{ts} (l_t \cdot l_s)(r_t \cdot r_s)` with the output gradients l and the
    patches r of one example. The kernel takes half precision, contiguous channels and up to `MOST_POSITIONS` positions.

    Returns:
        ``[B]`` in float64, and the squared lengths of l and of r, ``[B, positions]`` in float32. Dot products are sums
        in float32, by the kernel in blocks of `GRAM_BLOCK` terms; all that follows is float64.
    """
    _check_convolution(x, grad, geometry, 1)
    squared, lefts, rights = torch.ops.tacit.patch_grams(x, grad, geometry.numbers)
    return squared, lefts, rights


def convolution_sum(x: Tensor, grad: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
    """The weight gradients of all rows of x, each times its weight, added up: ``[O, C, KH, KW]`` in float32.

    For half precision, whose products are exact. A row's products are added up in float32 before they are multiplied by
    the weight, so that no operand is rounded. The kernel takes what `fitting.cutouts_fit` says; the twin, in its place,
    computes in float64.

    Args:
        x, grad: as in `convolution_products`, of a convolution of this ``geometry``.
        weights: ``[B]`` of float32. A row of weight zero adds nothing, NaN and infinity included.
    """
    _check_convolution(x, grad, geometry, 1)
    if weights.shape != x.shape[:1] or weights.dtype != torch.float32 or weights.device != x.device:
        raise InputError(
            f"weights={list(weights.shape)} of {weights.dtype} on {weights.device}: must be [{len(x)}] of float32 on "
            f"{x.device}. Pass one weight for each row of x."
        )
    total: Tensor = torch.ops.tacit.convolution_sum(x, grad, weights, geometry.numbers)
    return total


@torch.library.custom_op("tacit::product_norms", mutates_args=())
def _product_norms(left: Tensor, right: Tensor, input_precision: str) -> Tensor:
    if use_triton(left):
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.fits(left, right):
            norms: Tensor = launch.product_norms(left, right, input_precision)
            return norms
    return twins.product_norms(left, right)


@torch.library.custom_op("tacit::convolution_products", mutates_args=())
def _convolution_products(
    x: Tensor,
    grad: Tensor,
    geometry: list[int],
    input_precision: str,
    out_dtype: torch.dtype,
    by_offset: bool,
    views: int,
) -> Tensor:
    form = Geometry.of(geometry)
    if use_triton(x):
        products: Tensor
        if by_offset and _are_cut_out(x, grad, form):
            half_launch = importlib.import_module("tacit.gradients.kernels.half_launch")
            products = half_launch.cutout_products(x, grad, form, out_dtype=out_dtype, views=views)
            return products
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.fits(x, grad):
            products = launch.convolution(
                x, grad, form, input_precision, out_dtype=out_dtype, by_offset=by_offset, views=views
            )
            return products
    return twins.convolution_products(x, grad, form, out_dtype, by_offset=by_offset, views=views).contiguous()


@torch.library.custom_op("tacit::convolution_norms", mutates_args=())
def _convolution_norms(x: Tensor, grad: Tensor, geometry: list[int], input_precision: str, views: int) -> Tensor:
    form = Geometry.of(geometry)
    if use_triton(x):
        norms: Tensor
        if _are_cut_out(x, grad, form):
            half_launch = importlib.import_module("tacit.gradients.kernels.half_launch")
            norms = half_launch.cutout_products(x, grad, form, out_dtype=None, views=views)
            return norms
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.fits(x, grad):
            norms = launch.convolution(x, grad, form, input_precision, out_dtype=None, views=views)
            return norms
    return twins.convolution_norms(x, grad, form, views)


@torch.library.custom_op("tacit::patch_grams", mutates_args=())
def _patch_grams(x: Tensor, grad: Tensor, geometry: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    if use_triton(x) and grams_fit(x, grad):
        half_launch = importlib.import_module("tacit.gradients.kernels.half_launch")
        found: tuple[Tensor, Tensor, Tensor] = half_launch.patch_grams(x, grad, Geometry.of(geometry))
        return found
    return twins.patch_grams(x, grad, Geometry.of(geometry))


@torch.library.custom_op("tacit::convolution_sum", mutates_args=())
def _convolution_sum(x: Tensor, grad: Tensor, weights: Tensor, geometry: list[int]) -> Tensor:
    form = Geometry.of(geometry)
    if use_triton(x) and _are_cut_out(x, grad, form):
        half_launch = importlib.import_module("tacit.gradients.kernels.half_launch")
        total: Tensor = half_launch.cutout_sum(x, grad, weights.contiguous(), form)
        return total
    return twins.convolution_sum(x, grad, weights, form)


@_product_norms.register_fake
def _(left: Tensor, right: Tensor, input_precision: str) -> Tensor:
    return left.new_empty(left.shape[0], dtype=torch.float64)


@_convolution_products.register_fake
def _(
    x: Tensor,
    grad: Tensor,
    geometry: list[int],
    input_precision: str,
    out_dtype: torch.dtype,
    by_offset: bool,
    views: int,
) -> Tensor:
    columns = x.shape[1] * Geometry.of(geometry).offsets
    return x.new_empty(x.shape[0] // views, grad.shape[1], columns, dtype=out_dtype)


@_convolution_norms.register_fake
def _(x: Tensor, grad: Tensor, geometry: list[int], input_precision: str, views: int) -> Tensor:
    return x.new_empty(x.shape[0] // views, dtype=torch.float64)


@_patch_grams.register_fake
def _(x: Tensor, grad: Tensor, geometry: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    examples, positions = x.shape[0], grad.shape[2] * grad.shape[3]
    lefts, rights = (x.new_empty(examples, positions, dtype=torch.float32) for _ in range(2))
    return x.new_empty(examples, dtype=torch.float64), lefts, rights


@_convolution_sum.register_fake
def _(x: Tensor, grad: Tensor, weights: Tensor, geometry: list[int]) -> Tensor:
    return weights.new_empty(grad.shape[1], x.shape[1], *Geometry.of(geometry).kernel_size)


def _are_cut_out(x: Tensor, grad: Tensor, geometry: Geometry) -> bool:
    return cutouts_fit(x, grad, geometry) and are_aligned(x, grad)


def _precision(input_precision: str | None) -> str:
    if input_precision is None:
        # PyTorch 2.9 has one setting for each backend, and refuses the older question once that has been used.
        setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None) or torch.get_float32_matmul_precision()
        return "ieee" if setting in ("ieee", "none", "highest") else "tf32"
    if input_precision not in _PRECISIONS:
        raise InputError(f"input_precision={input_precision!r}: must be one of {', '.join(_PRECISIONS)}. Or pass None.")
    return input_precision


def _views(x: Tensor, views: int) -> int:
    if views < 1 or x.shape[0] % views:
        raise InputError(f"views={views}: must be a divisor of the {x.shape[0]} rows. Pass the rows of an example.")
    return views


def _check_types(first_name: str, first: Tensor, second_name: str, second: Tensor) -> None:
    if first.dtype != second.dtype or not first.is_floating_point() or first.device != second.device:
        raise InputError(
            f"{first_name}={first.dtype} on {first.device}, {second_name}={second.dtype} on {second.device}: "
            "must be of one floating type on one device. Convert one of them."
        )


def _check_convolution(x: Tensor, grad: Tensor, geometry: Geometry, groups: int) -> Geometry:
    if groups != 1:
        raise UnsupportedError(f"groups={groups}: must be 1. Split the channels and call once for each group.")
    geometry.check(x, grad)
    _check_types("x", x, "grad", grad)
    return geometry
