"""Handcrafted features: what Tramèr and Boneh train in private on top of the scattering transform.

Reference: Tramèr and Boneh, Differentially Private Learning Needs Better Features (or Much More Data), ICLR 2021.
"""

from collections.abc import Sequence

import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.models.feature_maps import OpponentColours, SignedRoot
from tacit.models.scattering import Scattering
from tacit.models.simple import Standardise
from tacit.models.upright import Upright

_COLOUR = 128  # from so many channels on, features are those of colour images
_SMALLEST = 4
_FACTOR = 3.0  # by which the features of each order are about smaller than those of the order before


def scatter_features(input_shape: Sequence[int], groups: int = 27) -> nn.Sequential:
    """From images to what the heads below take: scattering features, normalised within each image.

    The normalisation is `torch.nn.GroupNorm` without parameters: every group of channels gets mean 0 and variance 1 in
    every image. It sees one image at a time and costs no privacy, so that its result may be kept on disk as well.

    Args:
        input_shape: of one image, (channels, height, width).
        groups: a divisor of the number of features, 81 for every channel of an image: 9, 27, 81, and so on.
    """
    if len(input_shape) != 3:
        raise InputError(f"input_shape={tuple(input_shape)}: scattering takes images (channels, height, width).")
    scattering = Scattering(input_shape[1:])
    features = scattering.output_shape(check_count("channels", input_shape[0]))[0]
    if features % check_count("groups", groups):
        raise InputError(f"groups={groups}: must divide the {features} features. Take 9, 27 or 81.")
    return nn.Sequential(scattering, nn.GroupNorm(groups, features, affine=False))


def balanced_scattering(input_shape: Sequence[int]) -> nn.Sequential:
    """From images to scattering features, those of order 1 times 3 and those of order 2 times 9.

    Wavelets leave little of an image, and wavelets of wavelets less. With public factors all orders have a share in
    the length of a feature vector, which private statistics of such vectors are about: have `Centring` and
    `ChannelWhitening` of `tacit.training.preparation` after it.
    """
    if len(input_shape) != 3:
        raise InputError(f"input_shape={tuple(input_shape)}: scattering takes images (channels, height, width).")
    scattering = Scattering(input_shape[1:])
    first = scattering.scales * scattering.angles
    sizes = [1.0, *[1 / _FACTOR] * first, *[1 / _FACTOR**2] * (scattering.channels - 1 - first)]
    sizes *= check_count("channels", input_shape[0])
    return nn.Sequential(scattering, Standardise([0.0] * len(sizes), sizes))


def upright_scattering(input_shape: Sequence[int]) -> nn.Sequential:
    """Balanced scattering features of digits without their slant."""
    return nn.Sequential(Upright(), balanced_scattering(input_shape))


def opponent_scattering(input_shape: Sequence[int]) -> nn.Sequential:
    """From colour images to the roots of balanced scattering features, taken of brightness and of two colour contrasts.

    The modulus of a wavelet coefficient is not linear: on red, green and blue it measures the light three times over,
    on opponent colours light and colour each once. The root, with the sign kept, lessens what strong edges count.
    """
    return nn.Sequential(OpponentColours(), balanced_scattering(input_shape), SignedRoot())


def linear_from_zero(input_shape: Sequence[int], classes: int) -> nn.Sequential:
    """Logistic regression on inputs of any shape, from zero, where noise has added nothing yet.

    One example's gradient is the outer product of the residual and (x, 1): its norm is a product of norms, and clipping
    costs next to nothing.
    """
    layer = nn.Linear(torch.Size(input_shape).numel(), check_count("classes", classes))
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def scatter_linear(input_shape: Sequence[int], classes: int) -> nn.Sequential:
    """Logistic regression on features of ``input_shape`` (channels, height, width): `linear_from_zero`."""
    _check_features(input_shape)
    return linear_from_zero(input_shape, classes)


def scatter_cnn(input_shape: Sequence[int], classes: int) -> nn.Sequential:
    """The tanh convolutional network on features of ``input_shape`` (channels, height, width).

    - Grey images: two 3x3 convolutions to 16 and 32 channels, the first with stride 2, then 32 hidden units; 33,066
      parameters on 81 x 7 x 7 with ten classes.
    - Colour images (from 128 features on): two 3x3 convolutions to 64 channels, a maximum over 2x2 between them;
      187,210 parameters on 243 x 8 x 8.
    """
    _check_features(input_shape)
    check_count("classes", classes)
    channels, height, width = input_shape
    if channels < _COLOUR:
        flat = 32 * ((height + 1) // 2) * ((width + 1) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(flat, 32),
            nn.Tanh(),
            nn.Linear(32, classes),
        )
    return nn.Sequential(
        nn.Conv2d(channels, 64, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2),
        nn.Conv2d(64, 64, kernel_size=3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64 * (height // 2) * (width // 2), classes),
    )


def _check_features(input_shape: Sequence[int]) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < _SMALLEST:
        raise InputError(
            f"input_shape={tuple(input_shape)}: must be that of features (channels, height, width) from "
            f"{_SMALLEST}x{_SMALLEST}. Make them with scatter_features."
        )
