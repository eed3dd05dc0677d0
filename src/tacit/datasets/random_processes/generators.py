"""Images of generators that nobody trained."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.datasets.random_processes.process import check_size, colour_mixing, exposed, normal, standardised, uniform
from tacit.datasets.random_processes.spectra import PowerLawSpectra

_START = 4  # height and width of the first layer
_LATENT = 32
_MAPPED = 64
_DIRECTIONS = 8
_BIAS = 0.2  # largest size of a bias
_NOISE = 0.35  # strength of the noise map against maps of variance 1
_SLOPE = 0.2  # of the leaky ReLU
_GAIN = math.sqrt(2 / (1 + _SLOPE**2))  # keeps the variance of Gaussian inputs through the leaky ReLU
_TINY = 1e-8


@dataclasses.dataclass(frozen=True)
class UntrainedGenerators:
    r"""Images of style-based generators with random weights and oriented filters, new networks in every call.

    A network begins with a random 4x4 map and doubles its size until it is that of the images. At each size it has two
    layers

    .. math::
        x \leftarrow a\big(d \odot (k * (s \odot x)) + g\, n + b\big),
        \qquad d_o = \Big(\sum_{i, u} (k_{oiu} s_i)^2\Big)^{-1/2},

    with a leaky ReLU a; the styles s come from the image's latent by a random affine map of a random layer's output;
    n is the image's noise map, g and b are random for each channel. A random 1x1 convolution of every size's result,
    with styles of its own, is added to the colours so far, enlarged by bilinear interpolation. All weights are Gaussian
    but for the kernels k below the full size: each output channel has one of a set of 3x3 filters, edges and lines in
    eight directions, a point and a blob, with a Gaussian factor for each input channel. The noise map is a field with a
    power-law spectrum under an envelope of Laplacian values on a 4x4 grid, averaged to each layer's size.

    The three channels are brought to mean 0 and variance 1 each, mixed to colours (`colour_mixing`) and exposed.

    This is our own small relative of the "oriented" StyleGANs of Baradad et al.; theirs draws at 256x256 pixels with up
    to 512 channels.

    Args:
        size: height and width of the images: 4 times a power of two.
        channels: of every layer.
        images_per_network: how many images a network draws before its weights are drawn anew.

    References: Karras et al., Analyzing and Improving the Image Quality of StyleGAN, 2020; Baradad et al., Learning to
    See by Looking at Noise, 2021; Tang et al., Differentially Private Image Classification by Learning Priors from
    Random Processes (DP-RandP), 2023.
    """

    size: int = 32
    channels: int = 32
    images_per_network: int = 16

    def __post_init__(self) -> None:
        check_size(self.size, minimum=2 * _START)
        if self.size & (self.size - 1):
            raise InputError(f"size={self.size}: must be a power of two. Take 32 or 64.")
        check_count("channels", self.channels)
        check_count("images_per_network", self.images_per_network)

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Images (count, 3, size, size)."""
        if check_count("count", count, minimum=0) == 0:
            return torch.empty(0, 3, self.size, self.size, device=generator.device)
        each = min(count, self.images_per_network)
        batch = _Batch(each, math.ceil(count / each), self.channels, generator)
        colours = self._colours(batch)
        images = colours.view(each, batch.networks, 3, self.size, self.size).transpose(0, 1).flatten(0, 1)[:count]
        mixed = colour_mixing(count, generator) @ standardised(images).flatten(2)
        return exposed(mixed.view_as(images), generator)

    def _colours(self, batch: "_Batch") -> Tensor:
        """(images of a network, networks x 3, size, size)."""
        noise = batch.noise_maps(self.size)
        start = normal(batch.generator, 1, batch.networks * self.channels, _START, _START)
        maps = start.expand(batch.each, -1, -1, -1)
        side, colours = _START, None
        while True:
            here = F.interpolate(noise, size=(side, side), mode="area")
            for _ in range(2):
                maps = batch.layer(maps, here, oriented=side < self.size)
            colours = batch.to_colours(maps) if colours is None else _doubled(colours) + batch.to_colours(maps)
            if side == self.size:
                return colours
            side, maps = 2 * side, _doubled(maps)


class _Batch:
    """Networks side by side, each with its own weights and images: maps are (images, networks x channels, H, W)."""

    def __init__(self, each: int, networks: int, channels: int, generator: Generator) -> None:
        self.each, self.networks, self.channels, self.generator = each, networks, channels, generator
        self.filters = oriented_filters(_DIRECTIONS).to(generator.device)
        latent = normal(generator, each, networks, _LATENT)
        self.mapped = F.leaky_relu(self._linear(latent, _MAPPED), _SLOPE) * _GAIN

    def noise_maps(self, size: int) -> Tensor:
        """(images, networks, size, size)."""
        count = self.each * self.networks
        field = PowerLawSpectra(size).fields(count, 1, self.generator)
        ends = uniform(self.generator, -1.0, 1.0, count, 1, 4, 4)
        laplacian = -ends.sign() * torch.log1p(-ends.abs().clamp(max=1 - 1e-6))
        envelope = F.interpolate(laplacian, size=(size, size), mode="bilinear")
        return standardised(field * envelope).view(self.each, self.networks, size, size)

    def layer(self, maps: Tensor, noise: Tensor, *, oriented: bool) -> Tensor:
        """Modulated convolution, noise, bias, leaky ReLU."""
        draw, width = self.generator, self.networks * self.channels
        kernels = (
            self._oriented_kernels() if oriented else normal(draw, self.networks, self.channels, self.channels, 3, 3)
        )
        mixed = self._modulated(maps, kernels)
        strength = _NOISE * normal(draw, self.networks, self.channels, 1, 1)
        noisy = (strength * noise[:, :, None]).flatten(1, 2)
        bias = uniform(draw, -_BIAS, _BIAS, width, 1, 1)
        return F.leaky_relu(mixed + noisy + bias, _SLOPE) * _GAIN

    def to_colours(self, maps: Tensor) -> Tensor:
        """A modulated 1x1 convolution to three channels a network."""
        return self._modulated(maps, normal(self.generator, self.networks, 3, self.channels, 1, 1))

    def _oriented_kernels(self) -> Tensor:
        shape = (self.networks, self.channels)
        choice = torch.randint(len(self.filters), shape, generator=self.generator, device=self.generator.device)
        factors = normal(self.generator, *shape, self.channels, 1, 1)
        return factors * self.filters[choice][:, :, None]

    def _modulated(self, maps: Tensor, kernels: Tensor) -> Tensor:
        """The convolution with kernels (networks, outputs, inputs, K, K), its inputs scaled by the styles, its outputs
        to variance 1 for inputs that are white noise of variance 1.
        """
        styles = 1 + self._linear(self.mapped, self.channels)
        energy = kernels.square().sum(dim=(3, 4))
        scale = torch.einsum("goi,ngi->ngo", energy, styles.square()).add(_TINY).rsqrt()
        reach = kernels.shape[-1] // 2
        scaled = maps * styles.flatten(1)[..., None, None]
        padded = F.pad(scaled, (reach,) * 4, mode="reflect") if reach else scaled
        mixed = F.conv2d(padded, kernels.flatten(0, 1), groups=self.networks)
        return mixed * scale.flatten(1)[..., None, None]

    def _linear(self, inputs: Tensor, outputs: int) -> Tensor:
        """A random linear map of its own for each network, (images, networks, outputs)."""
        weights = normal(self.generator, self.networks, inputs.shape[-1], outputs)
        return torch.einsum("ngi,gio->ngo", inputs, weights) / math.sqrt(inputs.shape[-1])


def oriented_filters(directions: int) -> Tensor:
    """3x3 filters of length 1: edges and lines in each direction, of mean 0, then a point and a blob."""
    line = torch.arange(-1.0, 2.0)
    angles = (torch.arange(directions) * math.pi / directions).view(-1, 1, 1)
    along = line * angles.cos() + line[:, None] * angles.sin()
    envelope = torch.exp(-(line**2 + line[:, None] ** 2) / 2)
    edges, lines = along * envelope, (1 - 2 * along**2) * envelope
    oriented = torch.cat([edges, lines])
    oriented = oriented - oriented.mean(dim=(1, 2), keepdim=True)
    point = (envelope == 1).float()
    filters = torch.cat([oriented, point[None], envelope[None]])
    return filters / filters.square().sum(dim=(1, 2), keepdim=True).sqrt()


def _doubled(maps: Tensor) -> Tensor:
    return F.interpolate(maps, scale_factor=2, mode="bilinear")
