"""Dead leaves: shapes that fall on each other."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tacit.core.validation import check_count
from tacit.datasets.random_processes.process import (
    Range,
    check_range,
    check_size,
    colour_mixing,
    normal,
    uniform,
)
from tacit.datasets.random_processes.spectra import PowerLawSpectra

_CHUNK_VALUES = {"cuda": 2**26}  # points times leaves at once
_SMALL_CHUNK_VALUES = 2**20  # on all other devices: what the caches of a processor hold
_LOBES = 6  # the most corners or petals of a leaf
_PLAIN = 0.3  # share of leaves without a texture of any one kind


@dataclasses.dataclass(frozen=True)
class DeadLeaves:
    r"""Opaque leaves of random shape, colour and texture, each in front of the next.

    The leaf in front that covers a pixel gives it its colour; behind all of them lies a leaf without end. The radii r
    of an image's leaves have a density proportional to :math:`r^{-3}` between the image's smallest radius, whose
    logarithm is uniform, and half the size: the law under which the process looks the same at every scale. Centres are
    uniform on the image and a margin around it.

    A leaf is the set of points within :math:`r \rho(\varphi)` of its centre, in coordinates turned by a random angle
    and with axes stretched by up to two against each other:

    .. math::
        \rho(\varphi) = \big(|\cos(m \varphi / 4)|^p + |\sin(m \varphi / 4)|^p\big)^{-1/p},

    Gielis's formula with m uniform on 0, ..., 6 and a random p: circles and ellipses (m = 0 or p = 2), rounded and
    pointed polygons, stars.

    Its colour is the image's own plus a deviation in the image's own directions (`colour_mixing`); its texture is a
    gradient of light across it, stripes, and a cut of a field with a power-law spectrum that all leaves of the image
    share, each of random strength, each missing on some leaves. Everything is drawn at ``oversampling`` points a pixel
    and axis and then averaged, so that edges are smooth.

    Args:
        size: height and width of the images.
        leaves: how many there are in each image.
        radii: bounds of the smallest radius, as a share of the size.
        oversampling: points for each pixel along either axis.

    References: Lee, Mumford and Huang, Occlusion Models for Natural Images, 2001; Baradad et al., Learning to See by
    Looking at Noise, 2021; Gielis, A Generic Geometric Transformation that Unifies a Wide Range of Natural and
    Abstract Shapes, 2003.
    """

    size: int = 32
    leaves: int = 64
    radii: Range = (0.05, 0.2)
    oversampling: int = 2

    def __post_init__(self) -> None:
        check_size(self.size)
        check_count("leaves", self.leaves)
        check_count("oversampling", self.oversampling)
        check_range("radii", self.radii, above=0.0, at_most=0.5)

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Images (count, 3, size, size)."""
        check_count("count", count, minimum=0)
        shapes = self._draw_shapes(count, generator)
        looks = self._draw_looks(count, generator)
        field = PowerLawSpectra(self.size).fields(count, 3, generator)
        points = self.leaves * (self.size * self.oversampling) ** 2
        images = torch.empty(count, 3, self.size, self.size, device=generator.device)
        at_once = max(1, _CHUNK_VALUES.get(generator.device.type, _SMALL_CHUNK_VALUES) // points)
        for start in range(0, count, at_once):
            chunk = slice(start, start + at_once)
            front = self._front(shapes[chunk])
            images[chunk] = self._paint(front, looks[chunk], field[chunk])
        return images

    def _draw_shapes(self, count: int, generator: Generator) -> Tensor:
        """(count, leaves, 8): centre, the four entries of the matrix to the leaf's own coordinates, m, p."""
        shape = (count, self.leaves)
        largest = self.size / 2
        low, high = (math.log(radius * self.size) for radius in self.radii)
        smallest = uniform(generator, low, high, count, 1).exp()
        # The inverse of the distribution function of a density proportional to r^-3.
        ends = smallest**-2, largest**-2
        radii = torch.lerp(ends[0], torch.full_like(smallest, ends[1]), uniform(generator, 0.0, 1.0, *shape)) ** -0.5
        margin = self.size / 8
        centres = uniform(generator, -margin, self.size + margin, *shape, 2)
        angles = uniform(generator, 0.0, 2 * math.pi, *shape)
        stretch = uniform(generator, -math.log(2) / 2, math.log(2) / 2, *shape).exp()
        first, second = 1 / (radii * stretch), stretch / radii
        matrix = (angles.cos() * first, angles.sin() * first, -angles.sin() * second, angles.cos() * second)
        lobes = torch.randint(_LOBES + 1, shape, generator=generator, device=generator.device)
        powers = uniform(generator, math.log(0.7), math.log(8.0), *shape).exp()
        return torch.stack([*centres.unbind(-1), *matrix, lobes, powers], dim=-1)

    def _front(self, shapes: Tensor) -> Tensor:
        """(n, S, S): which leaf is in front at each point; the number of leaves where there is none."""
        side = self.size * self.oversampling
        line = (torch.arange(side, device=shapes.device) + 0.5) / self.oversampling
        left, top, xx, xy, yx, yy, _, power = (part[..., None, None] for part in shapes.unbind(-1))
        across, down = line - left, line[:, None] - top
        x, y = xx * across + xy * down, yx * across + yy * down
        # No leaf reaches beyond 1, or 2^(1/2 - 1/p) for p above 2: the formula is needed only within that.
        inside = x.square().add_(y.square()) <= 2 ** (1 - 2 / power).clamp_min(0)
        image, leaf, row, column = inside.nonzero(as_tuple=True)
        lobes, power = shapes[image, leaf, 6], shapes[image, leaf, 7]
        near_x, near_y = x[image, leaf, row, column], y[image, leaf, row, column]
        quarter = torch.atan2(near_y, near_x) * lobes / 4
        inverse = (quarter.cos().abs() ** power + quarter.sin().abs() ** power) ** (1 / power)
        inside[image, leaf, row, column] = torch.hypot(near_x, near_y) * inverse <= 1
        last = torch.ones_like(inside[:, :1])
        return torch.cat([inside, last], dim=1).to(torch.uint8).argmax(dim=1)

    def _draw_looks(self, count: int, generator: Generator) -> Tensor:
        """(count, leaves + 1, 18): colour, strength of the field, then for light and for stripes the wave vector with
        its phase, and the strength; colours and strengths in red, green and blue.
        """
        shape = (count, self.leaves + 1)
        mixing = colour_mixing(count, generator)
        tint = 0.5 + 0.12 * normal(generator, count, 1, 1) + 0.06 * normal(generator, count, 1, 3)
        spread = uniform(generator, 0.1, 0.3, count, 1, 1)
        colour = tint + spread * (normal(generator, *shape, 3) @ mixing.transpose(1, 2))
        parts = [colour]
        rough = uniform(generator, 0.0, 0.2, *shape, 3) * self._present(generator, shape)
        parts.append(rough)
        for shortest, longest in ((2.0 * self.size, 4.0 * self.size), (3.0, self.size / 2)):
            length = uniform(generator, math.log(shortest), math.log(longest), *shape).exp()
            angle = uniform(generator, 0.0, 2 * math.pi, *shape)
            phase = uniform(generator, 0.0, 2 * math.pi, *shape)
            wave = 2 * math.pi / length
            strength = (0.15 * normal(generator, *shape, 3) @ mixing.transpose(1, 2)) * self._present(generator, shape)
            parts.append(torch.stack([wave * angle.cos(), wave * angle.sin(), phase], dim=-1))
            parts.append(strength)
        return torch.cat(parts, dim=-1)

    def _present(self, generator: Generator, shape: tuple[int, int]) -> Tensor:
        return (uniform(generator, 0.0, 1.0, *shape, 1) > _PLAIN).float()

    def _paint(self, front: Tensor, looks: Tensor, field: Tensor) -> Tensor:
        """Images (n, 3, size, size) from the leaf at each point."""
        count, side, _ = front.shape
        line = (torch.arange(side, device=front.device) + 0.5) / self.oversampling
        chosen = front.view(count, -1, 1).expand(-1, -1, looks.shape[-1])
        seen = looks.gather(1, chosen).view(count, side, side, -1).permute(0, 3, 1, 2)
        colour, rough, light, light_strength, stripes, stripe_strength = seen.chunk(6, dim=1)
        texture = F.interpolate(field, scale_factor=self.oversampling, mode="bilinear") * rough
        for wave, strength in ((light, light_strength), (stripes, stripe_strength)):
            phase = wave[:, 0] * line + wave[:, 1] * line[:, None] + wave[:, 2]
            texture = texture + strength * phase.sin()[:, None]
        return F.avg_pool2d((colour + texture).clamp(0, 1), self.oversampling)
