"""Features of small patches under many random filters, with nothing learned about the images they are applied to."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative, check_positive

_SEEN_FLOOR = 0.1  # added to the eigenvalues of a covariance of patches, as a share of their mean
_ASSUMED_FLOOR = 0.3  # and where the covariance is assumed
_COLOUR_CORRELATION = 0.9  # of two colours at one place
_REACH = 4.0  # pixels, over which the correlation of light falls to 1/e
_PATCHES_AN_IMAGE = 40


class PatchFilters(nn.Module):
    r"""How strongly patches answer to filters, on average over the cells of a grid.

    A patch p of n numbers, all channels of a square, is brought to mean 0 and about one contrast,

    .. math:: \tilde p = (p - \bar p) / \sqrt{\mathrm{var}(p) + c^2},

    and the k-th filter answers with :math:`z_k = w_k \cdot \tilde p - b_k`. A feature is the mean over all patches of a
    cell of :math:`\max(0, z_k - t)`, and another that of :math:`\max(0, -z_k - t)`: an edge and its negative are two
    things. From images (N, C, H, W) come features (N, 2 K, cells, cells), none of them negative.

    Every image is transformed by itself, with public filters: features have no privacy cost of their own. The filters
    are no part of the state. No gradient flows through.

    Args:
        filters: (K, C, size, size), the :math:`w_k`; their means play no role.
        shift: the :math:`b_k`.
        cells: of the grid along either axis; they overlap by a patch or so where they do not divide the image.
        threshold: t, from 0.
        contrast: c, above 0: the standard deviation of patches that are hardly more than noise.
        window: the side, in patches, of the squares that means are taken over where these shall overlap, at least two
            in either direction: the first begins in the corner, the others as far apart as there is room for. By
            default they are the cells of the grid, which hardly overlap.

    References: Coates and Ng, The Importance of Encoding Versus Training with Sparse Coding and Vector Quantization,
    2011; Thiry et al., The Unreasonable Effectiveness of Patches in Deep Convolutional Kernels Methods, 2021.
    """

    filters: Tensor
    shift: Tensor

    def __init__(
        self,
        filters: Tensor,
        shift: Tensor,
        *,
        cells: int = 4,
        threshold: float = 0.5,
        contrast: float = 0.1,
        window: int | None = None,
    ) -> None:
        super().__init__()
        if filters.dim() != 4 or shift.shape != filters.shape[:1]:
            raise InputError(
                f"filters of shape {tuple(filters.shape)}, shift of shape {tuple(shift.shape)}: must be (filters, "
                "channels, height, width) and (filters,)."
            )
        self.cells = check_count("cells", cells)
        self.threshold = check_non_negative("threshold", threshold)
        self.contrast = check_positive("contrast", contrast)
        self.window = None if window is None else check_count("window", window)
        if window is not None and cells < 2:
            raise InputError(f"window={window}, cells={cells}: overlap takes two cells or more. Leave out the window.")
        without_mean = filters - filters.mean(dim=(1, 2, 3), keepdim=True)
        self.register_buffer("filters", without_mean, persistent=False)
        self.register_buffer("shift", shift.view(-1, 1, 1), persistent=False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Features of images (N, C, H, W)."""
        answers = F.conv2d(images, self.filters) * self._scales(images) - self.shift
        kinds = (F.relu(answers - self.threshold), F.relu(-answers - self.threshold))
        return torch.cat([self._means(kind) for kind in kinds], dim=1)

    def _means(self, maps: Tensor) -> Tensor:
        """(N, K, cells, cells)."""
        if self.window is None:
            return F.adaptive_avg_pool2d(maps, self.cells)
        room = min(maps.shape[2:]) - self.window
        if maps.shape[2] != maps.shape[3] or room < self.cells - 1:
            raise InputError(
                f"window={self.window}: {self.cells} squares a side do not fit into {tuple(maps.shape[2:])} patches, "
                "which must be as many in both directions. Take a smaller window, or none."
            )
        means = F.avg_pool2d(maps, self.window, stride=room // (self.cells - 1))
        return means[:, :, : self.cells, : self.cells]

    def _scales(self, images: Tensor) -> Tensor:
        """(N, 1, H', W'): one over each patch's contrast."""
        box = torch.ones_like(self.filters[:1]) / self.filters[0].numel()
        variances = F.conv2d(images.square(), box) - F.conv2d(images, box).square()
        return (variances.clamp_min(0) + self.contrast**2).rsqrt()


def filters_like(
    images: Tensor, count: int, generator: Generator, *, size: int = 6, contrast: float = 0.1
) -> tuple[Tensor, Tensor]:
    r"""Filters that look for patches of **public** images, and their shifts.

    With :math:`\mu` and C the mean and the covariance of the images' patches (normalised as in `PatchFilters`) and
    :math:`Z = (C + r I)^{-1/2}`, r a tenth of the mean eigenvalue, filters are :math:`w_k = Z d_k` and
    :math:`b_k = w_k \cdot \mu`, where :math:`d_k` is a whitened patch :math:`Z (\tilde p_k - \mu)`, drawn at random,
    scaled to length 1: the answer is how much of a patch, whitened, points to another one.

    Args:
        images: public ones, such as those of a random process; never those of a private set.
        count: K.
        generator: of the choice, on the images' device.
        size: of a patch.
        contrast: as in `PatchFilters`.
    """
    check_count("count", count, minimum=1)
    patches = _some_patches(images, size, generator)
    if len(patches) < count:
        raise InputError(f"images={len(images)}: have {len(patches)} patches for {count} filters. Draw more images.")
    patches = patches - patches.mean(dim=1, keepdim=True)
    patches = patches * (patches.square().mean(dim=1, keepdim=True) + contrast**2).rsqrt()
    mean = patches.mean(dim=0)
    patches = patches - mean
    whitening = _whitening(patches.T.double() @ patches.double() / len(patches), _SEEN_FLOOR).to(patches.dtype)
    chosen = torch.randperm(len(patches), generator=generator, device=generator.device)[:count]
    filters = _unit(patches[chosen] @ whitening) @ whitening
    return filters.view(count, images.shape[1], size, size), filters @ mean


def gaussian_filters(
    count: int, generator: Generator, *, channels: int = 3, size: int = 6, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    r"""Random filters for images whose light is correlated over a few pixels, as photographs' is; shifts are 0.

    Filters are :math:`Z d_k` with a Gaussian direction :math:`d_k` of length 1 and :math:`Z = (C + r I)^{-1/2}`, where
    C is the covariance of mean-free patches in which two pixels at distance s have the correlation
    :math:`e^{-s/4}`, times 0.9 where their colours differ, and r is 0.3 of its mean eigenvalue. Nothing is drawn but
    the directions, and no image is seen, not even a made-up one.
    """
    check_count("count", count)
    check_count("channels", channels)
    axis = torch.arange(check_count("size", size), dtype=torch.float64)
    places = torch.cartesian_prod(axis, axis)
    distances = (places[:, None] - places).square().sum(dim=2)
    colours = torch.full((channels, channels), _COLOUR_CORRELATION, dtype=torch.float64).fill_diagonal_(1.0)
    covariance = torch.kron(colours, torch.exp(-distances.sqrt() / _REACH))
    centred = covariance - covariance.mean(dim=0) - covariance.mean(dim=1, keepdim=True) + covariance.mean()
    whitening = _whitening(centred * (len(centred) / centred.trace()), _ASSUMED_FLOOR).to(generator.device)
    directions = torch.randn(count, len(whitening), generator=generator, device=generator.device, dtype=torch.float64)
    filters = (_unit(directions) @ whitening).view(count, channels, size, size)
    return filters.to(dtype), torch.zeros(count, dtype=dtype, device=generator.device)


def _some_patches(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Patches (m, n), a few of each image at random places."""
    every = F.unfold(images, check_count("size", size))
    at = torch.randint(every.shape[2], (len(images), _PATCHES_AN_IMAGE), generator=generator, device=generator.device)
    return every.gather(2, at[:, None].expand(-1, every.shape[1], -1)).transpose(1, 2).flatten(0, 1)


def _whitening(covariance: Tensor, floor: float) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    lifted = values.clamp_min(0) + floor * values.mean()
    whitening: Tensor = (vectors * lifted.rsqrt()) @ vectors.T
    return whitening


def _unit(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp_min(math.ulp(1.0))
