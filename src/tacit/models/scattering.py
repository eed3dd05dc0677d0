"""The scattering transform: features of images from fixed wavelets, with nothing learned about them."""

import functools
import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count

_WIDTH = 0.8  # of the finest wavelet's envelope, in pixels
_FREQUENCY = 0.75 * math.pi  # of the finest wavelet
_ALIASES = range(-2, 3)  # periods of the grid beyond which filters have next to nothing
_CHUNK_VALUES = {"cuda": 2**27}  # pixels times pairs of directions at once
_SMALL_CHUNK_VALUES = 2**21  # on all other devices: what the caches of a processor hold


class Scattering(nn.Module):
    r"""Wavelet scattering of order 2: averages of moduli of wavelet coefficients, stable under small deformations.

    With Morlet wavelets :math:`\psi_{j,\theta}` at the scales :math:`2^j, 0 \le j < J`, in L directions
    :math:`\theta = \pi l / L`, and a Gaussian :math:`\phi` of width :math:`0.8 \cdot 2^{J-1}`, an image x becomes

    .. math::
        S_0 = x * \phi, \quad
        S_1(j_1, \theta_1) = |x * \psi_{j_1, \theta_1}| * \phi, \quad
        S_2(j_1, \theta_1, j_2, \theta_2) = \big||x * \psi_{j_1, \theta_1}| * \psi_{j_2, \theta_2}\big| * \phi,
        \quad j_1 < j_2,

    each at every :math:`2^J`-th pixel of either axis, beginning with the first. The channels come in this order:
    :math:`S_0`, then every :math:`(j_1, \theta_1)` in :math:`S_1`, then every :math:`(j_1, \theta_1, j_2, \theta_2)` in
    :math:`S_2`, the last index running fastest: :math:`1 + JL + L^2 J(J-1)/2` for each channel of the image, 81 by
    default, and all of one image channel before the next.

    The wavelets are defined by their Fourier transforms, which are real: with the direction
    :math:`e = (\cos\theta, \sin\theta)` and its normal n,

    .. math::
        \hat\psi_{j,\theta}(\omega) = c\,\big(\hat g(2^j\omega - \tfrac{3\pi}{4} e) - \kappa\, \hat g(2^j\omega)\big),
        \quad \hat g(\omega) = \exp\!\big(-\tfrac{0.8^2}{2} ((\omega \cdot e)^2 + (a\, \omega \cdot n)^2)\big),

    :math:`a = \max(1, L/4)`, summed over all aliases :math:`\omega + 2\pi\mathbb{Z}^2`. :math:`\kappa` makes the mean
    of every wavelet zero. One factor :math:`c \le 1` for all sees to it that :math:`|\hat\phi|^2 + \frac12 \sum
    (|\hat\psi(\omega)|^2 + |\hat\psi(-\omega)|^2) \le 1`: without subsampling no two images are brought further apart.

    The image is continued by reflection, by :math:`2^J` pixels and up to the next multiple of :math:`2^J`, and then
    periodically. Products are taken in the Fourier domain, and :math:`x * \psi_j` is kept at every :math:`2^j`-th
    pixel, which sums the aliases of its transform: there is next to nothing beyond the wavelet's band. The Gaussian is
    separable and applied as a small matrix to either axis.

    Every image is transformed by itself, with public filters: features have no privacy cost of their own.

    Args:
        size: height and width of the images.
        scales: J, at least 1. The features have :math:`2^{-J}` of the resolution, rounded up.
        angles: L, at least 1.

    Edge cases: an empty batch gives an empty result; images are float32 or float64, and so is the result; a side of
    less than :math:`2^{J+1}` pixels is refused, since it cannot be reflected far enough; values that are not finite
    spoil their own image alone. No gradient flows through. The filters are no part of the state.

    References: Mallat, Group Invariant Scattering, 2012; Bruna and Mallat, Invariant Scattering Convolution Networks,
    2013; Oyallon and Mallat, Deep Roto-Translation Scattering for Object Classification, 2015.
    """

    def __init__(self, size: Sequence[int], *, scales: int = 2, angles: int = 8) -> None:
        super().__init__()
        self.scales = check_count("scales", scales)
        self.angles = check_count("angles", angles)
        if len(size) != 2:
            raise InputError(f"size={tuple(size)}: must be height and width of the images, such as (28, 28).")
        smallest = 2 ** (scales + 1)
        for side in size:
            remedy = f"With scales={scales} an image needs {smallest} pixels a side; take fewer scales."
            check_count("size", side, minimum=smallest, remedy=remedy)
        self.size = (int(size[0]), int(size[1]))
        height, width = (_padded(side, scales) for side in self.size)
        self.gain = _contracting_gain((height, width), scales, angles)
        for fine in range(scales):
            for axis, side in enumerate(self.size):
                self.register_buffer(f"average{axis}_{fine}", averages(side, fine, scales), persistent=False)
            # A wavelet of the first order acts on the image, one of the second on moduli of a finer scale.
            for coarse in range(fine + (fine > 0), scales):
                fold = 2 ** (coarse - fine)
                spectra = wavelets((height >> fine, width >> fine), coarse - fine, angles)
                self.register_buffer(f"wavelets{fine}_{coarse}", self.gain / fold**2 * spectra, persistent=False)

    @property
    def channels(self) -> int:
        """How many features there are for each channel of an image and each place."""
        return 1 + self.scales * self.angles + self.angles**2 * self.scales * (self.scales - 1) // 2

    def extra_repr(self) -> str:
        """The parameters, for those who print the module."""
        return f"size={self.size}, scales={self.scales}, angles={self.angles}"

    def output_shape(self, image_channels: int = 1) -> tuple[int, int, int]:
        """The shape of one image's features."""
        height, width = (math.ceil(side / 2**self.scales) for side in self.size)
        return image_channels * self.channels, height, width

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Features (N, C K, H', W') of images (N, C, H, W)."""
        self._check(images)
        flat = images.reshape(-1, 1, *self.size)
        features = flat.new_empty(len(flat), *self.output_shape())
        values = self.angles**2 * math.prod(_padded(side, self.scales) for side in self.size)
        at_once = max(1, _CHUNK_VALUES.get(images.device.type, _SMALL_CHUNK_VALUES) // values)
        for start in range(0, len(flat), at_once):
            features[start : start + at_once] = self._transform(flat[start : start + at_once])
        return features.view(len(images), *self.output_shape(images.shape[1]))

    def _transform(self, images: Tensor) -> Tensor:
        """Features (n, K, H', W') of grey images (n, 1, H, W)."""
        step = 2**self.scales
        bottom, right = (_padded(side, self.scales) - side - step for side in self.size)
        padded = F.pad(images, (step, right, step, bottom), mode="reflect")
        image_spectrum = torch.fft.fft2(padded)
        first_order, second_order = [], []
        for first in range(self.scales):
            once = self._modulus(image_spectrum, 0, first)[:, 0]
            first_order.append(self._average(once, first))
            coarser = range(first + 1, self.scales)
            if coarser:
                spectrum = torch.fft.fft2(once)
                twice = [self._average(self._modulus(spectrum, first, second), second) for second in coarser]
                second_order.append(torch.stack(twice, dim=2).flatten(1, 3))
        return torch.cat([self._average(padded, 0), *first_order, *second_order], dim=1)

    def _modulus(self, spectra: Tensor, fine: int, coarse: int) -> Tensor:
        """|u * psi| (n, m, L, h, w) at every 2^coarse-th pixel, from spectra (n, m, ...) at every 2^fine-th."""
        filters = self.get_buffer(f"wavelets{fine}_{coarse}").to(spectra.dtype)
        fold = 2 ** (coarse - fine)
        height, width = spectra.shape[-2] // fold, spectra.shape[-1] // fold
        parts = spectra.view(*spectra.shape[:2], 1, fold, height, fold, width)
        filters = filters.view(-1, fold, height, fold, width)
        folded = parts[:, :, :, 0, :, 0] * filters[:, 0, :, 0]
        for row, column in list(itertools.product(range(fold), repeat=2))[1:]:
            folded.addcmul_(parts[:, :, :, row, :, column], filters[:, row, :, column])
        squares = torch.view_as_real(torch.fft.ifft2(folded)).square_()
        return (squares[..., 0] + squares[..., 1]).sqrt_()

    def _average(self, maps: Tensor, fine: int) -> Tensor:
        rows, columns = (self.get_buffer(f"average{axis}_{fine}").to(maps.dtype) for axis in (0, 1))
        return rows @ (maps @ columns.T)

    def _check(self, images: Tensor) -> None:
        if images.dim() != 4 or tuple(images.shape[2:]) != self.size:
            due = f"(N, C, {self.size[0]}, {self.size[1]})"
            raise InputError(f"images of shape {tuple(images.shape)}: must be {due}. Make a Scattering of their size.")
        if images.dtype not in (torch.float32, torch.float64):
            raise InputError(f"images of dtype {images.dtype}: must be float32 or float64. Convert them first.")


def wavelets(grid: Sequence[int], scale: int, angles: int) -> Tensor:
    """The Fourier transforms (L, height, width) of the Morlet wavelets of one scale in all directions, without c."""
    omega_y, omega_x = (2**scale * _aliased_frequencies(side) for side in grid)
    transforms = []
    for index in range(angles):
        theta = math.pi * index / angles
        bump = functools.partial(_aliased_bump, omega_y, omega_x, theta, max(1.0, angles / 4))
        carried, envelope = bump(_FREQUENCY), bump(0.0)
        transforms.append(carried - carried[0, 0] / envelope[0, 0] * envelope)
    return torch.stack(transforms)


def averages(side: int, fine: int, scales: int) -> Tensor:
    """The Gaussian along one axis, as a matrix from every 2^fine-th pixel of the padded side to the places of features.

    Each row sums to one.
    """
    padded, step = _padded(side, scales), 2**scales
    places = step * torch.arange(1, 1 + math.ceil(side / step), dtype=torch.float64)
    pixels = torch.arange(0, padded, 2**fine, dtype=torch.float64)
    periods = padded * torch.tensor(_ALIASES, dtype=torch.float64)
    distances = places[:, None, None] - pixels[:, None] - periods
    weights = torch.exp(-distances.square() / (2 * (_WIDTH * 2 ** (scales - 1)) ** 2)).sum(dim=-1)
    return weights / weights.sum(dim=-1, keepdim=True)


def _padded(side: int, scales: int) -> int:
    """A side with 2^J pixels before it and at least as many behind, up to a multiple of 2^J."""
    step = 1 << scales
    return step * (math.ceil(side / step) + 2)


def _aliased_frequencies(side: int) -> Tensor:
    """(aliases, side): the frequencies of the grid and what looks like them on it."""
    periods = torch.tensor(_ALIASES, dtype=torch.float64)[:, None]
    return 2 * math.pi * (torch.arange(side, dtype=torch.float64) / side + periods)


def _aliased_bump(omega_y: Tensor, omega_x: Tensor, theta: float, slenderness: float, frequency: float) -> Tensor:
    """The Gaussian around one frequency in direction theta, summed over all aliases: (height, width)."""
    y, x = omega_y[:, None, :, None], omega_x[None, :, None, :]
    along = x * math.cos(theta) + y * math.sin(theta) - frequency
    across = slenderness * (y * math.cos(theta) - x * math.sin(theta))
    return torch.exp(-(_WIDTH**2) / 2 * (along.square() + across.square())).sum(dim=(0, 1))


def _contracting_gain(grid: tuple[int, int], scales: int, angles: int) -> float:
    """c: one, or as much less as keeps the transform from expanding."""
    bands = torch.cat([wavelets(grid, scale, angles) for scale in range(scales)])
    mirrored = bands.flip(1, 2).roll((1, 1), (1, 2))
    energy = (bands.square() + mirrored.square()).sum(0) / 2
    squares = [torch.fft.fftfreq(side, dtype=torch.float64).square() for side in grid]
    kept = torch.exp(-((2 * math.pi * _WIDTH * 2 ** (scales - 1)) ** 2) * (squares[0][:, None] + squares[1]))
    room = (1 - kept).flatten()[1:] / energy.flatten()[1:]  # at zero both are zero
    return math.sqrt(min(1.0, float(room.min())))
