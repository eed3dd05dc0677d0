"""Wide residual networks with group normalisation and weight-standardised convolutions.

As De et al. (Unlocking High-Accuracy Differentially Private Image Classification through Scale, 2022) train
them: neither normalisation mixes examples, so that every example keeps a gradient of its own.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count

_GROUPS = 16
_STEM_CHANNELS = 16
_MIN_SQUARES = 1e-4

Order = Literal["relu-norm-conv", "norm-relu-conv"]
"""In which order a unit normalises, cuts off and convolves."""


def standardise_weight(weight: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    r"""Each output channel's kernel w, centred and brought to length ``gain``.

    :math:`\hat w = g (w - \bar w) / \sqrt{\max(\sum (w - \bar w)^2, 10^{-4})}`
    (Qiao et al. 2019; scaled as by Brock et al. 2021).
    """
    centred = weight - weight.mean(dim=(1, 2, 3), keepdim=True)
    squares = centred.square().sum(dim=(1, 2, 3), keepdim=True)
    return centred * (gain.view(-1, 1, 1, 1) * squares.clamp_min(_MIN_SQUARES).rsqrt())


class StandardisedConv2d(nn.Module):
    """A square convolution with bias whose kernels are standardised before use; `gain` is learned, one a
    channel.
    """

    def __init__(self, inputs: int, outputs: int, kernel_size: int, *, stride: int = 1) -> None:
        super().__init__()
        shape = (outputs, inputs, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.randn(shape) / (inputs * kernel_size**2) ** 0.5)
        self.gain = nn.Parameter(torch.ones(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.stride = stride
        self.padding = kernel_size // 2

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        kernels = standardise_weight(self.weight, self.gain)
        return F.conv2d(images, kernels, self.bias, stride=self.stride, padding=self.padding)


def _convolution(inputs: int, outputs: int, kernel_size: int, stride: int, *, standardise: bool) -> nn.Module:
    if standardise:
        return StandardisedConv2d(inputs, outputs, kernel_size, stride=stride)
    return nn.Conv2d(inputs, outputs, kernel_size, stride=stride, padding=kernel_size // 2)


class _Unit(nn.Sequential):
    """ReLU and group normalisation, in the one order or the other, then a convolution."""

    def __init__(
        self, inputs: int, outputs: int, kernel_size: int, stride: int, *, standardise: bool, order: Order
    ) -> None:
        before = [nn.ReLU(), nn.GroupNorm(_GROUPS, inputs)]
        super().__init__(
            *(before if order == "relu-norm-conv" else reversed(before)),
            _convolution(inputs, outputs, kernel_size, stride, standardise=standardise),
        )


class _Block(nn.Module):
    """Two units beside a skip connection; where the shape changes it is a unit with a 1x1 convolution."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, project: bool, standardise: bool, shortcut: Order
    ) -> None:
        super().__init__()
        self.first = _Unit(inputs, outputs, 3, stride, standardise=standardise, order="relu-norm-conv")
        self.second = _Unit(outputs, outputs, 3, 1, standardise=standardise, order="relu-norm-conv")
        self.skip: nn.Module = nn.Identity()
        if project:
            self.skip = _Unit(inputs, outputs, 1, stride, standardise=standardise, order=shortcut)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        residual: torch.Tensor = self.second(self.first(images))
        shortcut: torch.Tensor = self.skip(images)
        return shortcut + residual


class WideResNet(nn.Module):
    """WRN-depth-width: a 3x3 convolution to 16 channels, three groups of (depth - 4) / 6 blocks with 16, 32
    and 64 times ``width`` channels and strides 1, 2, 2, then ReLU, group normalisation, the mean over
    positions, and an affine map.

    WRN-16-4 has about 2.75 million parameters on colour images with ten classes.

    Args:
        standardise: False takes ordinary convolutions.
        shortcut: the order in the units of skip connections. De et al. keep ``relu-norm-conv`` everywhere;
            ``norm-relu-conv`` there alone is "order 3" of Sander et al. (TAN without a Burn, 2023), which Bao and
            Bindschaedler (ACSAC 2024) found best: seen from convolution to convolution, conv-norm-relu on the
            shortcut and conv-relu-norm on the main branch.
        centre: maps pixels from [0, 1] to [-2, 2] first, so that middle grey is what the padding holds.
    """

    def __init__(
        self,
        depth: int,
        width: int,
        channels: int,
        classes: int,
        *,
        standardise: bool = True,
        shortcut: Order = "relu-norm-conv",
        centre: bool = False,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        check_count("classes", classes)
        check_architecture(depth, width, shortcut)
        self.centre = centre
        self.stem = _convolution(channels, _STEM_CHANNELS, 3, 1, standardise=standardise)
        blocks: list[_Block] = []
        before = _STEM_CHANNELS
        for outputs, stride in zip((16 * width, 32 * width, 64 * width), (1, 2, 2), strict=True):
            for index in range((depth - 4) // 6):
                block = _Block(
                    before,
                    outputs,
                    1 if index else stride,
                    project=index == 0,
                    standardise=standardise,
                    shortcut=shortcut,
                )
                blocks.append(block)
                before = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.GroupNorm(_GROUPS, before)
        self.head = nn.Linear(before, classes)

    def trunk(self, images: torch.Tensor) -> torch.Tensor:
        """What the last block leaves, (N, 64 width, H/4, W/4): the input of `readout`."""
        centred = 4 * images - 2 if self.centre else images
        maps: torch.Tensor = self.blocks(self.stem(centred))
        return maps

    def maps(self, images: torch.Tensor) -> torch.Tensor:
        """`trunk` after ReLU and normalisation."""
        maps: torch.Tensor = self.norm(F.relu(self.trunk(images)))
        return maps

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """The head's input, (N, 64 width): the mean of `maps` over positions."""
        return self.maps(images).mean(dim=(2, 3))

    def readout(self) -> nn.Sequential:
        """Everything after `trunk`, as a network on its outputs that shares normalisation and head with this one.

        To train these two alone, compute `trunk` of every example once and train ``readout()`` on the results.
        """
        return nn.Sequential(nn.ReLU(), self.norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), self.head)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(images))
        return logits


def check_architecture(depth: int, width: int, shortcut: str) -> None:
    """Raises an `InputError` where there is no such `WideResNet`, before one is built."""
    check_count("width", width)
    if check_count("depth", depth, minimum=10) % 6 != 4:
        raise InputError(f"depth={depth}: must be 4 above a multiple of 6. Take 10, 16, 22, 28 or 40.")
    check_choice("shortcut", shortcut, get_args(Order))


def wide_resnet(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 16,
    width: int = 4,
    standardise: bool = True,
    shortcut: Order = "relu-norm-conv",
    centre: bool = False,
) -> WideResNet:
    """A `WideResNet` for images of ``input_shape`` (channels, height, width), with at least 8x8 pixels."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 8:
        raise InputError(
            f"input_shape={tuple(input_shape)}: a WRN takes images (channels, height, width) from 8x8. "
            "Take mlp or linear for other inputs."
        )
    return WideResNet(depth, width, input_shape[0], classes, standardise=standardise, shortcut=shortcut, centre=centre)
