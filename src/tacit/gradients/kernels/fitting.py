"""Which operands the kernels take: where there is Triton, and for half precision by what a trace knows of them too."""

import functools
import importlib.util
import os

import torch
from torch import Tensor

from tacit.gradients.kernels.geometry import Geometry, Pair

GRAM_BLOCK = 64  # terms of a dot product that the matrix units add up by themselves in `patch_grams`
MOST_POSITIONS = 128  # of which `patch_grams` holds all pairs twice
NARROW = 16  # numbers on the narrower side of `outer_sum` at most, as many as the matrix units take at once
HALF = (torch.float16, torch.bfloat16)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_STEP = 64  # positions at a time, which are one row of the output or several
_NARROWEST = 8  # of rows
_MOST_WASTE = 1.5  # times the output's positions that whole steps may have
_FEWEST_CHANNELS = 16  # that the matrix units take
_ALIGNED = 16  # bytes, of which the hardware that cuts boxes out wants all strides to be multiples
_LARGEST = 2**31 - 1


def cutouts_fit(x: Tensor, grad: Tensor, geometry: Geometry) -> bool:
    """Whether gradients may be formed from boxes of the input: rows of up to 64 positions that nearly fill whole steps,
    channels contiguous on both sides, stride 1, on hardware that cuts boxes out.

    Margins make zeros of what they meet, unless it is infinite: so there may be no input that no output meets.
    """
    height, width = whole_steps(grad)
    return (
        (INTERPRETED or _cuts_out(x.device))
        and _are_half_and_last(x, grad)
        and geometry.stride == (1, 1)
        and _read_all_of_the_input(geometry, grad)
        and width <= _STEP
        and height * width <= _MOST_WASTE * grad.shape[2] * grad.shape[3]
        and min(x.shape[1], grad.shape[1]) >= _FEWEST_CHANNELS
        and grad.is_contiguous(memory_format=torch.channels_last)
        and all(stride * each.element_size() % _ALIGNED == 0 for each in (x, grad) for stride in _others(each))
    )


def whole_steps(grad: Tensor) -> Pair:
    """The least height and width, not less than the output's, whose positions are whole steps of whole rows."""
    width = max(_NARROWEST, 1 << (grad.shape[3] - 1).bit_length())
    rows = max(1, _STEP // width)
    return -(-grad.shape[2] // rows) * rows, width


def are_aligned(*tensors: Tensor) -> bool:
    """Whether they begin where that hardware can begin, which no trace knows."""
    return all(tensor.data_ptr() % _ALIGNED == 0 for tensor in tensors)


def grams_fit(x: Tensor, grad: Tensor) -> bool:
    """Whether one kernel may take both Gram matrices: few positions, channels contiguous on both sides."""
    by_row = grad.shape[2] == 1 or grad.shape[3] == 1 or grad.stride(2) == grad.shape[3] * grad.stride(3)
    return _are_half_and_last(x, grad) and by_row and grad.shape[2] * grad.shape[3] <= MOST_POSITIONS


@functools.cache
def triton_is_installed() -> bool:
    """Whether Triton can be imported here, with or without a GPU."""
    return importlib.util.find_spec("triton") is not None


def use_triton(tensor: Tensor) -> bool:
    """Whether a kernel may take this tensor."""
    return tensor.is_cuda and triton_is_installed()


def _read_all_of_the_input(geometry: Geometry, grad: Tensor) -> bool:
    sides = zip(geometry.kernel_size, geometry.dilation, grad.shape[2:], strict=True)
    return all(kernel == 1 or dilation <= outputs for kernel, dilation, outputs in sides)


def _are_half_and_last(x: Tensor, grad: Tensor) -> bool:
    return x.dtype in HALF and x.dtype == grad.dtype and all(_is_ordinary(each) for each in (x, grad))


def _is_ordinary(image: Tensor) -> bool:
    """Channels contiguous, no number in two places, and all of it within reach of 32 bits."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(image.shape, image.stride(), strict=True))
    return image.stride(1) == 1 and 0 < image.numel() <= span <= _LARGEST


def _others(tensor: Tensor) -> list[int]:
    return [stride for dim, stride in enumerate(tensor.stride()) if dim != 1]


@functools.cache
def _cuts_out(device: torch.device) -> bool:
    """Some for desktops do, too, but have too little memory beside the processors."""
    if device.type != "cuda" or not triton_is_installed():
        return False
    return torch.cuda.get_device_capability(device)[0] in (9, 10)
