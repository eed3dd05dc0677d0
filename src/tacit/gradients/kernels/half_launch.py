"""Runs the kernels for convolutions in half precision, where `fitting` says that they take the operands. Needs Triton.

Channels are contiguous on both sides already, as tensor cores like them. Nothing is copied but output gradients whose
positions fill no whole steps: they get a margin of zeros.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from tacit.gradients.kernels import half_tiles
from tacit.gradients.kernels.fitting import GRAM_BLOCK, INTERPRETED, MOST_POSITIONS, whole_steps
from tacit.gradients.kernels.geometry import Geometry
from tacit.gradients.kernels.tuning import choose

_CANDIDATES = 4


@dataclasses.dataclass(frozen=True)
class Cutout:
    """How the work is cut up.

    Attributes:
        rows, channels: of a gradient, that one program forms.
        positions: that it takes a step.
        warps, stages: of a program.
        taps: neighbouring offsets of the kernel that it forms together, one or three.
        programs: for every processor of the GPU, where a sum is cut into parts.
    """

    rows: int
    channels: int
    positions: int
    warps: int
    stages: int
    taps: int = 1
    programs: int = 1


# The fastest ones of an H200 for 16 to 256 channels. Shared memory holds stages of one box for each tap.
_PRODUCTS = (
    Cutout(128, 128, 64, 8, 3, taps=3),
    Cutout(128, 128, 64, 8, 4),
    Cutout(64, 128, 64, 4, 3),
    Cutout(128, 64, 64, 4, 3, taps=3),
    Cutout(64, 64, 64, 4, 4),
    Cutout(64, 64, 64, 4, 3, taps=3),
    Cutout(64, 32, 64, 4, 3, taps=3),
    Cutout(64, 16, 64, 4, 3, taps=3),
)
_SUMS = (
    Cutout(128, 128, 128, 8, 3),
    Cutout(64, 128, 64, 4, 3, programs=2),
    Cutout(128, 64, 64, 4, 4, programs=4),
    Cutout(64, 128, 64, 4, 4, programs=4),
    Cutout(64, 64, 128, 4, 3, programs=4),
    Cutout(64, 64, 64, 4, 3, programs=4),
    Cutout(64, 32, 64, 4, 3, programs=4),
    Cutout(64, 16, 64, 4, 3, programs=4),
)


def cutout_products(
    x: Tensor, grad: Tensor, geometry: Geometry, *, out_dtype: torch.dtype | None, views: int
) -> Tensor:
    """Per-example weight gradients ``[B, O, KH * KW * C]`` in ``out_dtype``; with None their squared norms."""
    grad = _in_whole_steps(grad)
    examples, channels, rows = x.shape[0] // views, x.shape[1], grad.shape[1]
    writes, offsets = out_dtype is not None, geometry.offsets

    def launch(cutout: Cutout) -> Tensor:
        channel_tiles, tap_groups = -(-channels // cutout.channels), offsets // cutout.taps
        count = channel_tiles * tap_groups * -(-rows // cutout.rows)
        shape = (examples, rows, offsets * channels) if writes else (examples, count)
        out = torch.empty(shape, dtype=out_dtype or torch.float64, device=x.device)
        half_tiles.cutout_products_kernel[(examples * count,)](
            *_described(x, grad, cutout),
            *(out, _positions(grad), count, channel_tiles, tap_groups, *geometry.padding, *geometry.dilation),
            *(rows, channels, offsets),
            KW=geometry.kernel_size[1],
            TAPS=cutout.taps,
            VIEWS=views,
            OW=grad.shape[3],
            WRITE=writes,
            BM=cutout.rows,
            BC=cutout.channels,
            BT=cutout.positions,
            num_warps=cutout.warps,
            num_stages=cutout.stages,
        )
        return out

    key = ("cutout products", x.device, x.dtype, out_dtype, geometry, x.shape[1:], grad.shape[1:], views)
    out = launch(choose(key, _fitting(_PRODUCTS, x, grad, geometry), launch, can_time=not INTERPRETED))
    return out if writes else out.sum(1)


def cutout_sum(x: Tensor, grad: Tensor, weights: Tensor, geometry: Geometry) -> Tensor:
    """``[O, C, KH, KW]`` in float32: the sum of every row's weight gradient times its weight."""
    grad = _in_whole_steps(grad)
    count, channels, rows = x.shape[0], x.shape[1], grad.shape[1]
    positions, offsets = _positions(grad), geometry.offsets

    def launch(cutout: Cutout) -> Tensor:
        channel_tiles = -(-channels // cutout.channels)
        tiles = channel_tiles * offsets * -(-rows // cutout.rows)
        share = -(-count // max(1, cutout.programs * _processors(x.device) // tiles))
        parts = torch.empty(-(-count // share), rows, *geometry.kernel_size, channels, device=x.device)
        half_tiles.cutout_sums_kernel[(tiles * len(parts),)](
            *_described(x, grad, cutout),
            *(weights, parts, count, share, positions, tiles, channel_tiles, *geometry.padding, *geometry.dilation),
            *(rows, channels, offsets),
            KW=geometry.kernel_size[1],
            OW=grad.shape[3],
            STEPS=positions // cutout.positions,
            BM=cutout.rows,
            BC=cutout.channels,
            BT=cutout.positions,
            num_warps=cutout.warps,
            num_stages=cutout.stages,
        )
        total = torch.empty(rows, channels, *geometry.kernel_size, device=x.device)
        torch.sum(parts, 0, out=total.permute(0, 2, 3, 1))
        return total

    about = (count - 1).bit_length()  # eager lots differ from step to step, and each would be timed anew
    key = ("cutout sum", x.device, x.dtype, geometry, about, x.shape[1:], grad.shape[1:])
    return launch(choose(key, _fitting(_SUMS, x, grad, geometry), launch, can_time=not INTERPRETED))


def patch_grams(x: Tensor, grad: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms ``[B]`` in float64, and squared lengths of output gradients and patches, ``[B, positions]``."""
    examples, positions = x.shape[0], _positions(grad)
    squared = torch.empty(examples, dtype=torch.float64, device=x.device)
    lefts, rights = (torch.empty(examples, positions, device=x.device) for _ in range(2))
    along = grad.stride(3) if grad.shape[3] > 1 else grad.stride(2)
    half_tiles.patch_grams_kernel[(examples,)](
        *(x, grad, squared, lefts, rights, 1.0, positions, *x.shape[2:]),
        *(x.stride(0), x.stride(2), x.stride(3), grad.stride(0), along),
        *(*geometry.stride, *geometry.padding, *geometry.dilation),
        C=x.shape[1],
        M=grad.shape[1],
        KH=geometry.kernel_size[0],
        KW=geometry.kernel_size[1],
        OW=grad.shape[3],
        BT=max(16, 1 << (positions - 1).bit_length()),
        BK=GRAM_BLOCK,
        num_warps=4 if positions <= MOST_POSITIONS // 2 else 8,
        num_stages=4,
    )
    return squared, lefts, rights


def _fitting(table: tuple[Cutout, ...], x: Tensor, grad: Tensor, geometry: Geometry) -> list[Cutout]:
    """The first few that the gradient fills; neighbours are taken together where a kernel's rows hold three."""
    positions, width = _positions(grad), grad.shape[3]
    most_rows, most_channels = (1 << (size - 1).bit_length() for size in (max(64, grad.shape[1]), x.shape[1]))
    fitting = [
        dataclasses.replace(each, taps=each.taps if geometry.kernel_size[1] == 3 else 1)
        for each in table
        if each.rows <= most_rows and each.channels <= most_channels
        if positions % each.positions == 0 and each.positions % width == 0
    ]
    return fitting[:_CANDIDATES]


def _in_whole_steps(grad: Tensor) -> Tensor:
    """With zeros below and to the right, where positions that are none meet whatever the input has there."""
    height, width = whole_steps(grad)
    if (height, width) == tuple(grad.shape[2:]):
        return grad
    return F.pad(grad, (0, width - grad.shape[3], 0, height - grad.shape[2])).contiguous(
        memory_format=torch.channels_last
    )


def _described(x: Tensor, grad: Tensor, cutout: Cutout) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Both with the channels last: the input in boxes of whole output rows, the gradient as one long matrix."""
    width = grad.shape[3]
    image, flat = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1).reshape(-1, grad.shape[1])
    boxes = [1, cutout.positions // width, width, cutout.channels]
    return (
        TensorDescriptor(image, list(image.shape), list(image.stride()), boxes),
        TensorDescriptor(flat, list(flat.shape), list(flat.stride()), [cutout.positions, cutout.rows]),
    )


def _positions(grad: Tensor) -> int:
    return grad.shape[2] * grad.shape[3]


def _processors(device: torch.device) -> int:
    return 4 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count
