"""Convolutions in one, two and three dimensions, with stride, padding, dilation and groups.

A convolution is a linear layer on patches: its tokens are the output positions, and the input of a token is the patch
that the kernel saw there. Padding modes other than zeros pad the input before the call, so they need nothing here.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Convolved, Direct, at_least_float32
from tacit.gradients.convolving import Geometry
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule, present, product_dtype
from tacit.gradients.rounding import operand_error

Size = int | Sequence[int]
_MANY_CHANNELS = 1024  # channels in times channels out
_FULL_PRECISION = 1e-6


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


def put_channels_last(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call with its input's channels last in memory where tensor cores take it, which want them so.

    The outputs, and by the recorder their gradients, then have them last too. For few channels it does not pay.
    """
    if input.dim() == 4 and input.is_cuda and weight.shape[:2].numel() >= _MANY_CHANNELS and _in_few_bits(input):
        input = input.contiguous(memory_format=torch.channels_last)
    return (input, weight, bias, stride, padding, dilation, groups), {}


def _in_few_bits(values: Tensor) -> bool:
    half = values.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(values.device.type)
    return half or operand_error(values.dtype, convolution=True) > _FULL_PRECISION


def _contribute(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    def weight() -> Convolved:
        layout.channels(grad)  # refuses examples that are not in front
        values, geometry = _pad_unevenly(call)
        dtype = product_dtype(values, grad)
        return Convolved(values.to(dtype), grad.to(dtype), call.parameters["weight"].shape, geometry, layout.examples)

    return {"weight": weight, "bias": lambda: Direct(at_least_float32(layout.channels(grad)).flatten(2).sum(2))}


def _pad_unevenly(call: Call) -> tuple[Tensor, Geometry]:
    """The input, and the geometry in numbers: what "same" pads on one side alone is padded here."""
    values, kernel = call.inputs["input"], call.parameters["weight"].shape[2:]
    rank = len(kernel)
    dilation, padding = _each(call.options["dilation"], rank), call.options["padding"]
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        values = F.pad(values, [amount for total in reversed(totals) for amount in (0, total % 2)])
        padding = [total // 2 for total in totals]
    amounts = (0,) * rank if padding == "valid" else _each(padding, rank)
    return values, Geometry(_each(call.options["stride"], rank), amounts, dilation, call.options["groups"])


def _each(size: Size, rank: int) -> tuple[int, ...]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * rank if len(sizes) == 1 else sizes


CONVOLUTION = Rule("Conv", (F.conv1d, F.conv2d, F.conv3d), _sort, _contribute)
