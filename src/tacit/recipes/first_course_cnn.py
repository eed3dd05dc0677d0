"""The network of first courses on private learning: the small ReLU network of TensorFlow Privacy's MNIST tutorial."""

import torch
from torch import nn

from tacit.core.errors import InputError

_INPUT_SHAPE = (1, 28, 28)


def tutorial_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Two strided convolutions, one hidden layer of 32 units, ReLU: 26,010 parameters with ten classes."""
    if tuple(input_shape) != _INPUT_SHAPE:
        raise InputError(f"input_shape={tuple(input_shape)}: must be {_INPUT_SHAPE}, grey images of 28x28 pixels.")
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )
    for parameter in network.parameters():
        if parameter.dim() == 4:  # so that outputs have their channels last, which CPU pooling is written for
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return network


def count_parameters(classes: int = 10) -> int:
    """How many numbers of it train."""
    return sum(parameter.numel() for parameter in tutorial_cnn(_INPUT_SHAPE, classes).parameters())
