"""Convolutions in one, two and three dimensions, with stride, padding, dilation and groups.

A convolution is a linear layer on patches: its tokens are the output positions, and the input of a token is the patch
that the kernel saw there. Padding modes other than zeros pad the input before the call, so they need nothing here.
"""

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Direct, Outer
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule, at_least_float32, present

Size = int | Sequence[int]


def _sort(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Call:
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return Call(parameters=present(weight=weight, bias=bias), inputs={"input": input}, options=options)


def _contribute(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    grads = layout.channels(grad).flatten(2)  # [examples, channels, positions]

    def weight() -> Outer:
        shape, groups = call.parameters["weight"].shape, call.options["groups"]
        right = patches(call, layout).to(grads.dtype)
        left = grads.reshape(len(grads), groups, -1, grads.shape[2]).transpose(2, 3)
        return Outer(left, right, shape)

    return {"weight": weight, "bias": lambda: Direct(grads.sum(2))}


def patches(call: Call, layout: Layout) -> Tensor:
    """What the kernel saw at each output position: ``[examples, groups, positions, channels / groups * kernel]``."""
    values = at_least_float32(call.inputs["input"])
    kernel = call.parameters["weight"].shape[2:]
    rank = len(kernel)
    stride = _each(call.options["stride"], rank)
    dilation = _each(call.options["dilation"], rank)
    values = F.pad(values, _pads(call.options["padding"], kernel, dilation))
    for axis in range(rank):
        span = dilation[axis] * (kernel[axis] - 1) + 1
        values = values.unfold(2 + axis, span, stride[axis])[..., :: dilation[axis]]
    # Now [rows, channels, *positions, *kernel].
    groups = call.options["groups"]
    values = values.reshape(len(values), groups, -1, *values.shape[2:]).movedim(2, 2 + rank)
    values = values.flatten(2 + rank).flatten(2, 1 + rank)
    values = values.reshape(layout.examples, layout.fold, *values.shape[1:])
    return values.transpose(1, 2).flatten(2, 3)


def _each(size: Size, rank: int) -> tuple[int, ...]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * rank if len(sizes) == 1 else sizes


def _pads(padding: Size | str, kernel: torch.Size, dilation: tuple[int, ...]) -> list[int]:
    """Amounts for ``F.pad``: last dimension first, (before, after) each. Uneven "same" padding puts more behind."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pairs = [(total // 2, total - total // 2) for total in totals]
    else:
        pairs = [(amount, amount) for amount in _each(padding, len(kernel))]  # type: ignore[arg-type]
    return functools.reduce(lambda pads, pair: [*pads, *pair], reversed(pairs), [])


CONVOLUTION = Rule("Conv", (F.conv1d, F.conv2d, F.conv3d), _sort, _contribute)
