"""A small convolutional network for training without noise, such as a student's."""

import math
from collections.abc import Sequence

from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count

_SMALLEST = 16
_GROUPS = 4


def norm_cnn(input_shape: Sequence[int], classes: int, *, width: int = 16) -> nn.Sequential:
    """Three convolutions to one, two and four widths with group norm and ReLU, each halving the image; an affine map.

    Group norm sees one image at a time, unlike batch norm.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < _SMALLEST:
        raise InputError(
            f"input_shape={tuple(input_shape)}: norm-cnn takes images (channels, height, width) from "
            f"{_SMALLEST}x{_SMALLEST} on. Take mlp for others."
        )
    layers: list[nn.Module] = [
        nn.Conv2d(check_count("channels", input_shape[0]), width, kernel_size=5, stride=2, padding=2),
        nn.GroupNorm(_GROUPS, width),
        nn.ReLU(),
    ]
    for channels in (width, 2 * width):
        layers += [
            nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
            nn.GroupNorm(_GROUPS, 2 * channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    places = math.prod((size + 1) // 2 // 2 // 2 for size in input_shape[1:])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * places, check_count("classes", classes)))
