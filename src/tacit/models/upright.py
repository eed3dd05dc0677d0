"""Straightening: handwriting without its slant, each image by itself."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.core.errors import InputError


class Upright(nn.Module):
    r"""Shears each image until its rows and columns are uncorrelated, and moves its mass to the middle.

    With the values of an image x as mass, :math:`(c_y, c_x)` its centre, and :math:`V` the second moments about it,
    the result is

    .. math:: z(y, u) = x\big(c_y + y,\; c_x + u + \tfrac{V_{xy}}{V_{yy}}\, y\big),

    y and u counted from the middle of the image, interpolated linearly between pixels, and 0 outside. Digits that
    differ in slant alone come out about the same, so that a classifier need not learn it.

    Every image is transformed by itself, with nothing learned: it has no privacy cost.

    Edge cases: values are expected not to be negative; the mass of a colour image is summed over its channels. An
    image without mass stays as it is, and one whose mass lies in a single row is not sheared. Values that are not
    finite spoil their own image alone. An empty batch gives an empty result.
    """

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W), each made upright."""
        if images.dim() != 4:
            raise InputError(f"images: of shape {tuple(images.shape)}, must be (images, channels, height, width).")
        if not len(images):
            return images
        height, width = images.shape[2:]
        mass = images.sum(1)
        total = mass.sum((1, 2))
        mass = mass / total.where(total > 0, 1.0)[:, None, None]
        y, down = _centred(mass.sum(2))
        x, across = _centred(mass.sum(1))
        spread = (mass.sum(2) * down.square()).sum(1)
        skew = torch.einsum("nij,ni,nj->n", mass, down, across) / spread.where(spread > 0, 1.0)
        # Positions are in units of half an image, as grid_sample has them.
        maps = images.new_zeros(len(images), 2, 3)
        maps[:, 0, 0] = maps[:, 1, 1] = 1.0
        maps[:, 0, 1] = skew * height / width
        maps[:, 0, 2], maps[:, 1, 2] = 2 * x / width, 2 * y / height
        places = F.affine_grid(maps, list(images.shape), align_corners=False)
        return F.grid_sample(images, places, align_corners=False)


def _centred(mass: Tensor) -> tuple[Tensor, Tensor]:
    """For mass (N, K) along an axis: its centre, and every pixel's distance from it; pixels count from the middle."""
    count = mass.shape[1]
    places = torch.arange(count, dtype=mass.dtype, device=mass.device) - (count - 1) / 2
    centre = (mass * places).sum(1)
    return centre, places - centre[:, None]
