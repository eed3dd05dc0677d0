"""The network of first courses on private learning: the small ReLU network of TensorFlow Privacy's MNIST tutorial."""

import torch
from torch import nn

from tacit.core.errors import InputError

_SMALLEST = 24  # pixels, which leave a map of some size to the dense layer


def tutorial_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Two strided convolutions, one hidden layer of 32 units, ReLU.

    26,010 parameters on grey images of 28x28 pixels with ten classes, 37,274 on colour images of 32x32.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < _SMALLEST:
        raise InputError(
            f"input_shape={tuple(input_shape)}: must be that of images (channels, height, width) from "
            f"{_SMALLEST}x{_SMALLEST} pixels."
        )
    channels, *sides = input_shape
    height, width = (_side_after(side) for side in sides)
    network = nn.Sequential(
        nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * height * width, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )
    for parameter in network.parameters():
        if parameter.dim() == 4:  # so that outputs have their channels last, which CPU pooling is written for
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return network


def _side_after(side: int) -> int:
    """A side of the last maps: each convolution halves, each maximum takes one away."""
    return ((side - 2) // 2 - 4) // 2


def count_parameters(input_shape: tuple[int, ...], classes: int = 10) -> int:
    """How many numbers of it train."""
    return sum(parameter.numel() for parameter in tutorial_cnn(input_shape, classes).parameters())
