"""Runs the kernels for convolutions in half precision, where operands are as they want them. Needs Triton.

Nothing is copied: channels must be contiguous on both sides already, as tensor cores like them.
"""

import dataclasses
import functools
import os

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from tacit.gradients.kernels import half_tiles
from tacit.gradients.kernels.geometry import Geometry
from tacit.gradients.kernels.operators import GRAM_BLOCK, MOST_POSITIONS
from tacit.gradients.kernels.tuning import choose

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_ALIGNED = 16  # bytes, of which a descriptor's strides are multiples
_LARGEST = 2**31 - 1
_HALF = (torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Cutout:
    """Rows and channels of a gradient that one program forms, neighbouring offsets, positions a step, and the rest."""

    rows: int
    channels: int
    taps: int
    positions: int
    warps: int
    stages: int


# The fastest ones on an H200 for 16 to 256 channels. Shared memory holds stages of one cutout for each tap.
_CUTOUTS = (
    Cutout(128, 128, 1, 64, 8, 4),
    Cutout(128, 128, 3, 64, 8, 3),
    Cutout(128, 64, 3, 64, 4, 3),
    Cutout(64, 128, 1, 64, 4, 3),
    Cutout(64, 64, 3, 64, 4, 3),
    Cutout(64, 64, 1, 64, 4, 4),
    Cutout(64, 32, 3, 64, 4, 3),
    Cutout(64, 16, 3, 64, 4, 3),
)


def cutouts_fit(x: Tensor, grad: Tensor, geometry: Geometry) -> bool:
    """Whether `cutout_norms` takes these: rows of 8 to 64 positions in whole boxes, on hardware that cuts boxes out."""
    width, positions = grad.shape[3], grad.shape[2] * grad.shape[3]
    return (
        _are_half_and_last(x, grad)
        and geometry.stride == (1, 1)
        and width in (8, 16, 32, 64)
        and positions % 64 == 0
        and min(x.shape[1], grad.shape[1]) >= 16
        and grad.permute(0, 2, 3, 1).is_contiguous()
        and all(_is_describable(tensor) for tensor in (x, grad))
        and (_INTERPRETED or _cuts_out(x.device))
    )


def cutout_norms(x: Tensor, grad: Tensor, geometry: Geometry, views: int) -> Tensor:
    """Squared norms of every example's weight gradient ``[B / views]``, in float64."""
    examples, channels, rows = x.shape[0] // views, x.shape[1], grad.shape[1]
    positions, width, (height, breadth) = grad.shape[2] * grad.shape[3], grad.shape[3], geometry.kernel_size
    image, flat = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1).reshape(-1, rows)

    def launch(cutout: Cutout) -> Tensor:
        channel_tiles, tap_groups = -(-channels // cutout.channels), height * breadth // cutout.taps
        count = channel_tiles * tap_groups * -(-rows // cutout.rows)
        out = torch.empty(examples, count, dtype=torch.float64, device=x.device)
        half_tiles.cutout_norms_kernel[(examples * count,)](
            _described(image, [1, cutout.positions // width, width, cutout.channels]),
            _described(flat, [cutout.positions, cutout.rows]),
            *(out, positions, count, channel_tiles, tap_groups, *geometry.padding, *geometry.dilation),
            KW=breadth,
            TAPS=cutout.taps,
            VIEWS=views,
            OW=width,
            BM=cutout.rows,
            BC=cutout.channels,
            BT=cutout.positions,
            num_warps=cutout.warps,
            num_stages=cutout.stages,
        )
        return out

    key = ("cutouts", x.device, x.dtype, geometry, x.shape[1:], rows, views)
    return launch(choose(key, _cutouts_for(rows, channels, breadth), launch, can_time=not _INTERPRETED)).sum(1)


def grams_fit(x: Tensor, grad: Tensor) -> bool:
    """Whether `patch_grams` takes these: few positions, channels contiguous on both sides."""
    by_row = grad.shape[2] == 1 or grad.shape[3] == 1 or grad.stride(2) == grad.shape[3] * grad.stride(3)
    return _are_half_and_last(x, grad) and by_row and grad.shape[2] * grad.shape[3] <= MOST_POSITIONS


def patch_grams(x: Tensor, grad: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms ``[B]`` in float64, and squared lengths of output gradients and patches, ``[B, positions]``."""
    examples, positions = x.shape[0], grad.shape[2] * grad.shape[3]
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


def _cutouts_for(rows: int, channels: int, breadth: int) -> list[Cutout]:
    """Those that the gradient fills; an offset's neighbours are taken with it where a kernel's rows hold three."""
    most_rows, most_channels = (max(low, 1 << (n - 1).bit_length()) for low, n in ((64, rows), (16, channels)))
    fitting = [cutout for cutout in _CUTOUTS if cutout.rows <= most_rows and cutout.channels <= most_channels]
    return [dataclasses.replace(cutout, taps=cutout.taps if breadth == 3 else 1) for cutout in fitting][:4]


def _are_half_and_last(x: Tensor, grad: Tensor) -> bool:
    return (
        x.dtype in _HALF
        and x.dtype == grad.dtype
        and all(each.numel() > 0 and each.stride(1) == 1 and each.numel() <= _LARGEST for each in (x, grad))
    )


def _is_describable(tensor: Tensor) -> bool:
    size = tensor.element_size()
    others = (stride for dim, stride in enumerate(tensor.stride()) if dim != 1)
    return tensor.data_ptr() % _ALIGNED == 0 and all(stride * size % _ALIGNED == 0 for stride in others)


def _described(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


@functools.cache
def _cuts_out(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)
