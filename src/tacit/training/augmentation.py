"""Random changes to batches of images, each image changed by itself, all on the images' device.

Every function takes images (N, C, H, W) and a `torch.Generator` on their device, which fixes the result, and draws
independently for each image: what one image becomes depends on no other image. So a private step may use them, with
several views of one example averaged before clipping (augmentation multiplicity), as long as nobody knows what the
generator draws: `tacit.training.secret_draws` says why.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative

_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, as in Rec. 601
_BLUR_REACH = 2  # pixels to either side

Range = tuple[float, float]


def random_crop(images: Tensor, generator: Generator, *, padding: int = 4) -> Tensor:
    """Each image continued by reflection on all sides by ``padding`` pixels, then cut to its size at a random place.

    All (2 padding + 1)^2 places are equally likely. Padding 0 returns the images.
    """
    _check_images(images)
    if check_count("padding", padding, minimum=0) >= min(images.shape[2:]):
        raise InputError(f"padding={padding}: must be less than height and width, {tuple(images.shape[2:])}.")
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4, mode="reflect")
    shifts = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=images.device)
    rows = shifts[0] + torch.arange(height, device=images.device)
    columns = shifts[1] + torch.arange(width, device=images.device)
    each = torch.arange(count, device=images.device)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def random_flip(images: Tensor, generator: Generator, *, probability: float = 0.5) -> Tensor:
    """Each image mirrored left to right with this probability."""
    _check_images(images)
    return torch.where(_chosen(images, generator, probability), images.flip(3), images)


def views(images: Tensor, count: int, generator: Generator, *, padding: int = 4) -> Tensor:
    """(N, count, C, H, W): ``count`` random crops of each image, each flipped or not.

    The augmentation of De et al. (2022); their gradients are averaged over the views before clipping.
    """
    repeated = images.repeat_interleave(check_count("count", count), dim=0)
    changed = random_flip(random_crop(repeated, generator, padding=padding), generator)
    return changed.reshape(len(images), count, *images.shape[1:])


def self_mixup(views: Tensor, count: int, generator: Generator) -> Tensor:
    r"""(N, count, ...): mixtures :math:`\lambda v_i + (1 - \lambda) v_j` of two views of the same example.

    From views (N, K, ...) with K of at least 2: i and j are two different views, drawn uniformly, and
    :math:`\lambda` is uniform on [0, 1]. Both have the example's label, so the mixture has it too; and since no other
    example enters, the sensitivity stays that of one example.

    Reference: Bao et al., DP-Mix: Mixup-based Data Augmentation for Differentially Private Learning, 2023.
    """
    if views.dim() < 3 or views.shape[1] < 2:
        raise InputError(f"views={tuple(views.shape)}: must be (examples, views, ...) with two views or more.")
    examples, kinds = views.shape[:2]
    shape, device = (examples, check_count("count", count)), views.device
    first = torch.randint(kinds, shape, generator=generator, device=device)
    other = (first + torch.randint(1, kinds, shape, generator=generator, device=device)) % kinds
    each = torch.arange(examples, device=device)[:, None]
    share = torch.rand(shape, generator=generator, device=device, dtype=views.dtype)
    return torch.lerp(views[each, other], views[each, first], share.view(*shape, *(1,) * (views.dim() - 2)))


def random_resized_crop(
    images: Tensor,
    generator: Generator,
    *,
    size: int,
    area: Range = (0.08, 1.0),
    ratio: Range = (3 / 4, 4 / 3),
) -> Tensor:
    """A random rectangle of each image, brought to ``size`` x ``size`` by bilinear interpolation.

    Its share of the image's area is uniform on ``area``, the logarithm of its width over its height uniform on that of
    ``ratio``; a side that would be longer than the image's is cut to that. With ``area`` and ``ratio`` (1, 1) it is
    the whole image. Images larger than ``size`` are sampled without a filter: let them be at most twice as large.
    """
    _check_images(images)
    check_count("size", size)
    _check_range("area", area, 0.0, 1.0)
    _check_range("ratio", ratio, 0.0, math.inf)
    share = _uniform(images, generator, area)
    shape = _uniform(images, generator, (math.log(ratio[0]), math.log(ratio[1]))).exp()
    pixels = (torch.arange(size, device=images.device, dtype=images.dtype) + 0.5) / size
    lines = []
    for side in ((share * shape).sqrt().clamp(max=1), (share / shape).sqrt().clamp(max=1)):
        start = _uniform(images, generator, (0.0, 1.0)) * (1 - side)
        lines.append(2 * (start[:, None] + side[:, None] * pixels) - 1)
    columns, rows = lines
    grid = torch.stack([columns[:, None, :].expand(-1, size, -1), rows[:, :, None].expand(-1, -1, size)], dim=-1)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def random_affine(
    images: Tensor,
    generator: Generator,
    *,
    degrees: float = 0.0,
    shift: float = 0.0,
    stretch: float = 0.0,
    shear: float = 0.0,
) -> Tensor:
    """Each image turned, moved, stretched and sheared about its middle, with zeros around it.

    Angles are uniform on ± ``degrees``, moves along either side on ± ``shift`` of it, the logarithm of the stretch of
    either side on ± log(1 + ``stretch``), and the shear on ± ``shear`` of the height. All 0 returns the images, up to
    rounding.
    """
    _check_images(images)
    if not len(images):
        return images
    places = _affine_places(images, generator, degrees=degrees, shift=shift, stretch=stretch, shear=shear)
    return F.grid_sample(images, places, padding_mode="zeros", align_corners=False)


def random_elastic(
    images: Tensor,
    generator: Generator,
    *,
    strength: float,
    knots: int = 5,
    degrees: float = 0.0,
    shift: float = 0.0,
    stretch: float = 0.0,
    shear: float = 0.0,
) -> Tensor:
    """Each image as by `random_affine` and bent as well, with pixels interpolated once for both.

    Every place of the result is looked up where it was before, moved by a smooth field: normal numbers at
    ``knots`` x ``knots`` places, whose standard deviation is ``strength`` of half the image's side, and linear between
    them. Strength 0 leaves what `random_affine` makes of the images.

    Reference: Simard, Steinkraus, Platt, Best Practices for Convolutional Neural Networks, 2003.
    """
    check_non_negative("strength", strength)
    check_count("knots", knots, minimum=2)
    _check_images(images)
    if not len(images):
        return images
    places = _affine_places(images, generator, degrees=degrees, shift=shift, stretch=stretch, shear=shear)
    drawn = torch.randn(len(images), 2, knots, knots, generator=generator, device=images.device, dtype=images.dtype)
    field = F.interpolate(drawn, size=images.shape[2:], mode="bilinear", align_corners=True)
    bent = places + strength * field.permute(0, 2, 3, 1)
    return F.grid_sample(images, bent, padding_mode="zeros", align_corners=False)


def random_erasing(
    images: Tensor, generator: Generator, *, probability: float = 0.5, side: Range = (1 / 7, 5 / 14)
) -> Tensor:
    """A rectangle of each image becomes 0, with this probability.

    Its sides are one share of the image's, uniform on ``side``, its middle is uniform on the image, and what lies
    outside is lost.

    Reference: Zhong, Zheng, Kang, Li, Yang, Random Erasing Data Augmentation, 2017.
    """
    _check_images(images)
    _check_range("side", side, 0.0, 1.0)
    reach = _uniform(images, generator, side)[:, None] / 2
    hidden = []
    for length in images.shape[2:]:
        middle = _uniform(images, generator, (0.0, 1.0))[:, None]
        pixels = (torch.arange(length, device=images.device) + 0.5) / length
        hidden.append((pixels - middle).abs() < reach)
    rows, columns = hidden
    rectangle = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(rectangle & _chosen(images, generator, probability), 0.0)


def colour_jitter(images: Tensor, generator: Generator, *, strength: float = 0.4, hue: float = 0.1) -> Tensor:
    r"""Random brightness, contrast, saturation and hue of images with three channels in [0, 1].

    With :math:`b, c, s` uniform on :math:`[\max(0, 1 - \text{strength}), 1 + \text{strength}]` and an angle uniform on
    :math:`\pm 2\pi\,\text{hue}`: colours are turned about the grey axis by the angle, moved away from their grey by the
    factor s, then the image away from its mean grey by c, then multiplied by b and cut to [0, 1]. Strength and hue 0
    return the images.
    """
    _check_images(images, channels=3)
    check_non_negative("strength", strength)
    check_non_negative("hue", hue)
    factors = (max(0.0, 1 - strength), 1 + strength)
    brightness, contrast, saturation = (_uniform(images, generator, factors).view(-1, 1, 1, 1) for _ in range(3))
    turned = _turn_hue(images, 2 * math.pi * _uniform(images, generator, (-hue, hue)))
    coloured = torch.lerp(_grey(turned), turned, saturation)
    mean = _grey(coloured).mean(dim=(2, 3), keepdim=True)
    return (brightness * torch.lerp(mean, coloured, contrast)).clamp(0, 1)


def random_grey(images: Tensor, generator: Generator, *, probability: float = 0.2) -> Tensor:
    """Each image without its colours with this probability."""
    _check_images(images, channels=3)
    return torch.where(_chosen(images, generator, probability), _grey(images), images)


def random_blur(images: Tensor, generator: Generator, *, probability: float = 0.5, width: Range = (0.1, 1.0)) -> Tensor:
    """Each image blurred with this probability, by a Gaussian whose standard deviation in pixels is uniform.

    The Gaussian is cut off after two pixels and scaled to sum 1; the image continues by reflection.
    """
    _check_images(images)
    _check_range("width", width, 0.0, math.inf)
    blur = _uniform(images, generator, width)[:, None]
    offsets = torch.arange(-_BLUR_REACH, _BLUR_REACH + 1, device=images.device, dtype=images.dtype)
    weights = torch.softmax(-(offsets**2) / (2 * blur**2), dim=1).t()[..., None, None, None]
    blurred = images
    for axis, padding in ((2, (0, 0, _BLUR_REACH, _BLUR_REACH)), (3, (_BLUR_REACH, _BLUR_REACH, 0, 0))):
        padded = F.pad(blurred, padding, mode="reflect")
        shifted = (padded.narrow(axis, tap, images.shape[axis]) for tap in range(len(offsets)))
        blurred = torch.stack([weight * part for weight, part in zip(weights, shifted, strict=True)]).sum(0)
    return torch.where(_chosen(images, generator, probability), blurred, images)


@dataclasses.dataclass(frozen=True)
class ContrastiveView:
    """The strong changes under which contrastive learning asks for the same features.

    A random resized crop, then flip, colour jitter, grey and blur, as Wang and Isola (2020) and Chen et al. (2020) take
    them. Each call is one view; call it twice for a pair.

    Attributes:
        size: height and width of the views.
        area: of the crops, as a share of the image.
        jitter, hue: the strengths of `colour_jitter`.
        grey, blur: the probabilities of losing colour and of being blurred.
    """

    size: int = 32
    area: Range = (0.08, 1.0)
    jitter: float = 0.4
    hue: float = 0.1
    grey: float = 0.2
    blur: float = 0.0

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        cut = random_resized_crop(images, generator, size=self.size, area=self.area)
        coloured = colour_jitter(random_flip(cut, generator), generator, strength=self.jitter, hue=self.hue)
        grey = random_grey(coloured, generator, probability=self.grey)
        return random_blur(grey, generator, probability=self.blur) if self.blur else grey


def _affine_places(
    images: Tensor, generator: Generator, *, degrees: float, shift: float, stretch: float, shear: float
) -> Tensor:
    """Where each pixel of `random_affine` comes from, as `grid_sample` takes it."""
    for name, value in (("degrees", degrees), ("shift", shift), ("stretch", stretch), ("shear", shear)):
        check_non_negative(name, value)
    drawn = images.new_empty(6, len(images)).uniform_(-1.0, 1.0, generator=generator)  # few and long calls
    angle, slant = drawn[0] * math.radians(degrees), drawn[1] * shear
    wide, high = (drawn[2:4] * math.log1p(stretch)).exp()
    right, down = drawn[4:6] * (2 * shift)
    cos, sin = angle.cos(), angle.sin()
    entries = [cos * wide, (slant * cos - sin) * high, right, sin * wide, (slant * sin + cos) * high, down]
    matrices = torch.stack(entries, dim=1).view(-1, 2, 3)
    return F.affine_grid(matrices, list(images.shape), align_corners=False)


def _grey(images: Tensor) -> Tensor:
    luma = images.new_tensor(_LUMA).view(1, 3, 1, 1)
    return (images * luma).sum(dim=1, keepdim=True).expand_as(images)


def _turn_hue(images: Tensor, angles: Tensor) -> Tensor:
    """Colours turned about the grey axis e = (1, 1, 1) / sqrt(3): x cos + (e × x) sin + e (e · x) (1 - cos)."""
    cosine, sine = (part.view(-1, 1, 1, 1) for part in (angles.cos(), angles.sin()))
    across = (images.roll(-2, dims=1) - images.roll(-1, dims=1)) / math.sqrt(3)
    return torch.lerp(images.mean(dim=1, keepdim=True), images, cosine) + sine * across


def _uniform(images: Tensor, generator: Generator, bounds: Range) -> Tensor:
    """One number for each image."""
    low, high = bounds
    dtype = images.dtype if images.is_floating_point() else torch.float32
    numbers = torch.empty(len(images), device=images.device, dtype=dtype)
    return numbers.uniform_(low, high, generator=generator)


def _chosen(images: Tensor, generator: Generator, probability: float) -> Tensor:
    if not 0 <= probability <= 1:
        raise InputError(f"probability={probability!r}: must lie between 0 and 1.")
    return (_uniform(images, generator, (0.0, 1.0)) < probability).view(-1, 1, 1, 1)


def _check_images(images: Tensor, *, channels: int | None = None) -> None:
    if images.dim() != 4 or (channels is not None and images.shape[1] != channels):
        wanted = "C" if channels is None else str(channels)
        raise InputError(f"images={tuple(images.shape)}: must have the shape (N, {wanted}, H, W).")


def _check_range(name: str, bounds: Range, above: float, at_most: float) -> None:
    if not above < bounds[0] <= bounds[1] <= at_most:
        raise InputError(f"{name}={bounds!r}: must be a lower and an upper bound, above {above:g} up to {at_most:g}.")
