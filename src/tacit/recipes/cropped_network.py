"""The network of 2016 for colour images, and the crops that it sees."""

import torch
from torch import Generator, Tensor, nn

from tacit.training.augmentation import random_flip
from tacit.training.views import Augment

_SIDE = 24
_TINY = 1e-3  # of a standard deviation: flat images stay what they are
_FIRST_DENSE = 8  # of the network's parts: those before it have no weights but the convolutions'


class CentreCrop(nn.Module):
    """The middle 24 x 24 pixels of each image, brought to mean 0 and variance 1."""

    def forward(self, images: Tensor) -> Tensor:
        top, left = ((side - _SIDE) // 2 for side in images.shape[2:])
        cut = images[:, :, top : top + _SIDE, left : left + _SIDE]
        centred = cut - cut.mean(dim=(1, 2, 3), keepdim=True)
        return centred / (centred.square().mean(dim=(1, 2, 3), keepdim=True).sqrt() + _TINY)


def network(inputs: int, channels: int, hidden: int, classes: int) -> nn.Sequential:
    """The paper's network behind a `CentreCrop`."""
    flat = channels * (_SIDE // 4) ** 2
    return nn.Sequential(
        CentreCrop(),
        nn.Conv2d(inputs, channels, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, hidden), nn.ReLU(),
        nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, classes),
    )  # fmt: skip


def convolutions(model: nn.Sequential) -> nn.Module:
    """What stands before the dense layers, with the model's own parameters under the model's own names."""
    return model[:_FIRST_DENSE]


def crop_and_flip(generator: Generator) -> Augment:
    """Cuts each image to 24 x 24 pixels at a random place, and mirrors half of them."""

    def augment(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        device, count = images.device, len(images)
        room = images.shape[2] - _SIDE + 1
        shifts = torch.randint(room, (2, count, 1), generator=generator, device=device)
        rows, columns = shifts + torch.arange(_SIDE, device=device)
        each = torch.arange(count, device=device)[:, None, None]
        cut = images[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        return random_flip(cut, generator), targets

    return augment
