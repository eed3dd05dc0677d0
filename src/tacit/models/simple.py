"""The small networks: linear, multilayer perceptron, and the tanh convolutional networks.

Bounded activations keep gradients short, so that clipping removes less of them: tanh beats ReLU under DP-SGD
(Papernot et al., Tempered Sigmoid Activations for Deep Learning with Differential Privacy, AAAI 2021).
"""

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_GAIN = 1.2
_GABOR_SIZE = 8
LARGE_IMAGE = 24  # from here on the first convolution may stride over the image


def linear(inputs: int, classes: int) -> nn.Sequential:
    """One affine map of the flattened input: logistic regression under a cross-entropy loss."""
    check_count("inputs", inputs)
    check_count("classes", classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


def mlp(inputs: int, hidden: int | Sequence[int], classes: int) -> nn.Sequential:
    """Fully connected layers of the ``hidden`` widths, each followed by tanh, then an affine map to the
    classes.
    """
    widths = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    sizes = (inputs, *widths)
    for name, size in (("inputs", inputs), *(("hidden", width) for width in widths), ("classes", classes)):
        check_count(name, size)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


class Standardise(nn.Module):
    """Subtracts a public mean from each channel and divides by a public standard deviation.

    The constants are no part of the state: they belong to the architecture, not to what was learned.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images - self.mean) / self.std


class NeighbourMaximum(nn.Module):
    """The maximum of every 2x2 square of neighbours: ``nn.MaxPool2d(2, stride=1)`` of finite numbers, up to a rounding.

    On a CPU that looks at one square after the other. Whole maps are compared faster, and most so where the step is
    compiled; as sums of a map and what the other has more, since torch's own maximum is slow on its way back. Of equal
    numbers the first gets the gradient, as it does from the pooling.
    """

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.is_cuda:
            return F.max_pool2d(inputs, kernel_size=2, stride=1)
        beside = _larger(inputs[..., :-1], inputs[..., 1:])
        return _larger(beside[..., :-1, :], beside[..., 1:, :])


def _larger(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first + F.relu(second - first)


def fits_tanh_cnn(input_shape: Sequence[int]) -> bool:
    """Whether inputs of this shape are grey or colour images of at least 8x8 pixels."""
    return len(input_shape) == 3 and input_shape[0] in (1, 3) and min(input_shape[1:]) >= 8


def tanh_cnn(input_shape: Sequence[int], classes: int) -> nn.Sequential:
    """The tanh convolutional network of Tramèr and Boneh (ICLR 2021) that fits the images.

    - Grey images from 24x24: two strided convolutions; 26,010 parameters on 28x28 with ten classes.
    - Colour images: six 3x3 convolutions in three stages; 550,570 parameters on 32x32 with ten classes.
      Images in [0, 1]
      are standardised by ImageNet's channel means and deviations, which are public.
    - Smaller grey images: two 3x3 convolutions; 9,258 parameters on the 8x8 digits.

    Private training learns little in its first layers, so their start matters. Weights start orthogonal with gain 1.2
    and biases at zero; the first layer for grey images from 24x24 starts as Gabor filters, edge detectors in eight
    directions. Both are public.
    """
    check_count("classes", classes)
    if not fits_tanh_cnn(input_shape):
        raise InputError(
            f"input_shape={tuple(input_shape)}: tanh-cnn takes images (1 or 3, height, width) from 8x8. "
            "Take mlp or linear for other inputs."
        )
    channels, height, width = input_shape
    if channels == 3:
        features = _colour_features()
    else:
        features = _large_grey_features() if min(height, width) >= LARGE_IMAGE else _small_grey_features()
    with torch.no_grad():
        flat = features(torch.zeros(1, *input_shape)).numel()
    hidden = 128 if channels == 3 else 32
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(flat, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=_GAIN)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    if isinstance(model[0], nn.Conv2d) and model[0].kernel_size == (_GABOR_SIZE, _GABOR_SIZE):
        with torch.no_grad():
            model[0].weight.copy_(_GAIN * gabor_filters(model[0].out_channels, _GABOR_SIZE))
    return model


def gabor_filters(count: int, size: int) -> torch.Tensor:
    r"""Edge detectors of length 1 and mean 0: ``[count, 1, size, size]``, ``count`` even.

    :math:`e^{-(x^2 + y^2) / 2 s^2} \cos(2\pi (x \cos\theta + y \sin\theta) / w + \phi)` in count / 2 evenly spaced
    directions :math:`\theta`, each with the phases 0 and 90 degrees; wave length w = size / 2, width s = 0.275 size.
    """
    places = torch.arange(size) - (size - 1) / 2
    y, x = torch.meshgrid(places, places, indexing="ij")
    envelope = torch.exp(-(x.square() + y.square()) / (2 * (0.275 * size) ** 2))
    filters = []
    for direction in range(count // 2):
        angle = math.pi * direction / (count // 2)
        wave = 2 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) / (size / 2)
        for phase in (0.0, math.pi / 2):
            values = envelope * torch.cos(wave + phase)
            filters.append(values - values.mean())
    stacked = torch.stack(filters)[:, None]
    lengths: torch.Tensor = torch.linalg.vector_norm(stacked, dim=(2, 3), keepdim=True)
    return stacked / lengths


def _large_grey_features() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=_GABOR_SIZE, stride=2, padding=2),
        nn.Tanh(),
        NeighbourMaximum(),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.Tanh(),
        NeighbourMaximum(),
    )


def _small_grey_features() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2),
    )


def _colour_features() -> nn.Sequential:
    layers: list[nn.Module] = [Standardise(_IMAGENET_MEAN, _IMAGENET_STD)]
    before = 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(before, width, kernel_size=3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(width, width, kernel_size=3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(kernel_size=2))
        before = width
    return nn.Sequential(*layers)
