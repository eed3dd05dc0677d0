"""The algebra of convolutions: patches, weight gradients of a whole batch and of every example, and Gram matrices.

Everything here takes the input that the layer saw and the gradient of its output, for one to three spatial dimensions.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

_WEIGHT_GRADIENTS = {1: conv1d_weight, 2: conv2d_weight, 3: conv3d_weight}
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How a kernel moves: one number for each spatial dimension. Padding is the same before and behind."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def weight_gradient(values: Tensor, grad: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    """The gradient of the weight over a whole batch, as torch's own backward pass computes it."""
    function = _WEIGHT_GRADIENTS[len(geometry.stride)]
    found: Tensor = function(  # type: ignore[no-untyped-call]
        values, list(shape), grad, geometry.stride, geometry.padding, geometry.dilation, geometry.groups
    )
    return found


def patches(values: Tensor, shape: Sequence[int], geometry: Geometry, examples: int) -> Tensor:
    """What the kernel saw at each output position: ``[examples, groups, positions, channels / groups * kernel]``."""
    rank, groups = len(geometry.stride), geometry.groups
    windows = _windows(values, shape, geometry)
    # Now [rows, channels, *positions, *kernel].
    windows = windows.reshape(len(windows), groups, -1, *windows.shape[2:]).movedim(2, 2 + rank)
    windows = windows.flatten(2 + rank).flatten(2, 1 + rank)
    return windows.reshape(examples, -1, *windows.shape[1:]).transpose(1, 2).flatten(2, 3)


def patches_by_offset(values: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    """The same for one row an example and one group, ``[examples, positions, kernel * channels]``.

    With the channels last, in memory too, neighbouring numbers are copied together.
    """
    if values.device.type != "cpu":
        return _laid_out(values, shape, geometry)
    # Out of the compiler's sight: it would gather number by number where torch copies whole rows.
    moves = [*geometry.stride, *geometry.padding, *geometry.dilation]
    found: Tensor = torch.ops.tacit.patches(values, list(shape[2:]), moves)
    return found


def _laid_out(values: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    rank = len(geometry.stride)
    if rank == 2:
        values = values.contiguous(memory_format=torch.channels_last)
    windows = _windows(values, shape, geometry)
    return windows.movedim(1, -1).flatten(1 + rank).flatten(1, rank)


@torch.library.custom_op("tacit::patches", mutates_args=())
def _patches(values: Tensor, kernel: list[int], moves: list[int]) -> Tensor:
    return _laid_out(values, [0, 0, *kernel], _geometry(moves)).contiguous()


@_patches.register_fake
def _(values: Tensor, kernel: list[int], moves: list[int]) -> Tensor:
    geometry = _geometry(moves)
    sizes = zip(values.shape[2:], kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    positions = torch.Size([(size + 2 * pad - d * (k - 1) - 1) // s + 1 for size, k, s, pad, d in sizes]).numel()
    return values.new_empty(values.shape[0], positions, values.shape[1] * torch.Size(kernel).numel())


def _geometry(moves: Sequence[int]) -> Geometry:
    rank = len(moves) // 3
    return Geometry(tuple(moves[:rank]), tuple(moves[rank : 2 * rank]), tuple(moves[2 * rank :]), 1)


def grouped_weight_gradients(values: Tensor, grad: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    """Every example's weight gradient by one convolution with an example to a group, ``[channels, examples, …]``.

    The input is convolved with the output's gradient; stride and dilation change places. One row an example, and no
    groups in the layer itself. Returns ``[channels, examples, outputs, *kernel]``.
    """
    rank = len(geometry.stride)
    examples, outputs = grad.shape[:2]
    found = _CONVOLUTIONS[rank](
        values.transpose(0, 1),
        grad.reshape(examples * outputs, 1, *grad.shape[2:]),
        stride=geometry.dilation,
        padding=geometry.padding,
        dilation=geometry.stride,
        groups=examples,
    )
    for axis in range(rank):
        found = found.narrow(2 + axis, 0, shape[2 + axis])
    return found.reshape(shape[1], examples, outputs, *shape[2:])


def patch_gram_by_shifts(values: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    r"""Inner products of all pairs of patches, ``[examples, positions, positions]``, without patches.

    :math:`\langle p_t, p_s \rangle = \sum_k \langle x_{t+k}, x_{s+k} \rangle`: the Gram matrix of single pixels, added
    up over the kernel's offsets k. One row an example and one group.
    """
    rank = len(geometry.stride)
    padded = F.pad(values, _pads(geometry))
    sizes = padded.shape[2:]
    pixels = padded.flatten(2)
    gram = (pixels.transpose(1, 2) @ pixels).reshape(-1, *sizes, *sizes)
    spans = [d * (k - 1) + 1 for d, k in zip(geometry.dilation, shape[2:], strict=True)]
    counts = [(size - span) // s + 1 for size, span, s in zip(sizes, spans, geometry.stride, strict=True)]
    total = None
    for offset in itertools.product(*(range(k) for k in shape[2:])):
        shifted = gram
        for axis, (step, d) in enumerate(zip(geometry.stride, geometry.dilation, strict=True)):
            start, length = offset[axis] * d, (counts[axis] - 1) * step + 1
            for place in (1 + axis, 1 + rank + axis):
                shifted = _strided(shifted, place, start, length, step)
        total = shifted if total is None else total + shifted
    assert total is not None
    positions = torch.Size(counts).numel()
    return total.reshape(-1, positions, positions)


def patch_lengths(values: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    """The length of the patch at each output position, ``[rows, positions]`` in float64; one group."""
    squares = values.square().sum(1, keepdim=True)
    total = _windows(squares, shape, geometry).sum(tuple(range(-len(geometry.stride), 0)))
    # Positive terms, so that every sum is off by far less than one part in 500; squares may have come out as zero.
    lost = torch.Size(shape[1:]).numel() * torch.finfo(squares.dtype).tiny
    return (total.flatten(1).double() * (1 + 2.0**-9) + lost).sqrt()


def _strided(values: Tensor, dim: int, start: int, length: int, step: int) -> Tensor:
    return values.narrow(dim, start, length)[(slice(None),) * dim + (slice(None, None, step),)]


def _windows(values: Tensor, shape: Sequence[int], geometry: Geometry) -> Tensor:
    """A view of the padded input: ``[rows, channels, *positions, *kernel]``."""
    kernel = shape[2:]
    values = F.pad(values, _pads(geometry))
    for axis, size in enumerate(kernel):
        span = geometry.dilation[axis] * (size - 1) + 1
        values = values.unfold(2 + axis, span, geometry.stride[axis])[..., :: geometry.dilation[axis]]
    return values


def _pads(geometry: Geometry) -> list[int]:
    """Amounts for ``F.pad``: last dimension first, before and behind."""
    return [amount for amount in reversed(geometry.padding) for _ in range(2)]
