"""Augmentations against their definitions: every image changed by itself, and not at all at zero strength."""

import colorsys
import math

import pytest
import torch
import torch.nn.functional as F

from tacit.core.errors import InputError
from tacit.training import augmentation
from tacit.training.augmentation import (
    ContrastiveView,
    colour_jitter,
    random_affine,
    random_blur,
    random_crop,
    random_elastic,
    random_erasing,
    random_flip,
    random_grey,
    random_resized_crop,
    self_mixup,
    views,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def some_images(count=6, side=12, channels=3):
    return torch.rand(count, channels, side, side, generator=generator(99))


CHANGES = {
    "crop": random_crop,
    "flip": random_flip,
    "resized crop": lambda images, g: random_resized_crop(images, g, size=12),
    "jitter": colour_jitter,
    "grey": random_grey,
    "blur": random_blur,
    "affine": lambda images, g: random_affine(images, g, degrees=20, shift=0.1, stretch=0.2, shear=0.2),
    "elastic": lambda images, g: random_elastic(images, g, strength=0.1),
    "erasing": lambda images, g: random_erasing(images, g, probability=0.8),
    "contrastive view": ContrastiveView(size=12, blur=0.5),
}
UNCHANGED = {
    "crop": lambda images, g: random_crop(images, g, padding=0),
    "flip": lambda images, g: random_flip(images, g, probability=0),
    "resized crop": lambda images, g: random_resized_crop(images, g, size=12, area=(1, 1), ratio=(1, 1)),
    "jitter": lambda images, g: colour_jitter(images, g, strength=0, hue=0),
    "grey": lambda images, g: random_grey(images, g, probability=0),
    "blur": lambda images, g: random_blur(images, g, probability=1, width=(1e-3, 1e-3)),
    "affine": random_affine,
    "elastic": lambda images, g: random_elastic(images, g, strength=0),
    "erasing": lambda images, g: random_erasing(images, g, probability=0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_shape_range_seed_and_change(name):
    images, change = some_images(), CHANGES[name]
    changed = change(images, generator(1))
    assert changed.shape == images.shape
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert torch.equal(changed, change(images, generator(1)))
    assert not torch.equal(changed, change(images, generator(2)))
    assert change(images[:0], generator()).shape == (0, 3, 12, 12)


@pytest.mark.parametrize("name", CHANGES)
def test_no_image_depends_on_another(name):
    images, change = some_images(), CHANGES[name]
    others = images.clone()
    others[1:] = 1 - others[1:]
    torch.testing.assert_close(change(images, generator())[0], change(others, generator())[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CHANGES)
def test_images_of_a_batch_are_changed_independently(name):
    same = some_images(1).expand(64, -1, -1, -1)
    changed = CHANGES[name](same, generator())
    distinct = torch.unique(changed.flatten(1), dim=0)
    assert len(distinct) == 2 if name in ("flip", "grey") else len(distinct) > 20


@pytest.mark.parametrize("name", UNCHANGED)
def test_zero_strength_is_the_identity(name):
    images = some_images()
    torch.testing.assert_close(UNCHANGED[name](images, generator()), images, rtol=0, atol=2e-6)


def test_crops_are_windows_of_the_reflected_image_each_as_likely():
    image = some_images(1, side=5)
    padded = F.pad(image, (1, 1, 1, 1), mode="reflect")[0]
    windows = [padded[:, row : row + 5, column : column + 5] for row in range(3) for column in range(3)]
    crops = random_crop(image.expand(900, -1, -1, -1), generator(), padding=1)
    found = torch.stack([(crops == window).flatten(1).all(1) for window in windows])
    assert torch.equal(found.sum(0), torch.ones(900, dtype=torch.int64))
    chi_squared = ((found.sum(1) - 100.0) ** 2 / 100).sum()
    assert chi_squared < 26.1  # 99.9 % of eight degrees of freedom


def test_flips_mirror_left_to_right_with_their_probability():
    image = some_images(1)
    flipped = random_flip(image.expand(2000, -1, -1, -1), generator(), probability=0.25)
    mirrored = (flipped == image.flip(3)).flatten(1).all(1)
    assert ((flipped == image).flatten(1).all(1) | mirrored).all()
    assert abs(mirrored.double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 2000)
    assert torch.equal(random_flip(image, generator(), probability=1), image.flip(3))


def test_elastic_looks_every_pixel_up_where_the_field_says():
    side, strength = 9, 0.15
    image = some_images(1, side=side, channels=1)
    bent = random_elastic(image, generator(3), strength=strength, knots=3)[0, 0]
    drawn = generator(3)
    torch.rand(6, generator=drawn)  # the affine map's
    knots = torch.randn(1, 2, 3, 3, generator=drawn)[0]
    for row in range(side):
        for column in range(side):
            move = [strength * side / 2 * linear(knots[axis], row * 2 / (side - 1), column * 2 / (side - 1))
                    for axis in (0, 1)]  # fmt: skip
            wanted = linear(image[0, 0], row + move[1], column + move[0])
            assert bent[row, column].item() == pytest.approx(wanted, abs=1e-5)


def linear(values, row, column):
    """Between four values by hand, 0 outside."""
    total = 0.0
    for y in (math.floor(row), math.floor(row) + 1):
        for x in (math.floor(column), math.floor(column) + 1):
            if 0 <= y < len(values) and 0 <= x < len(values):
                total += (1 - abs(row - y)) * (1 - abs(column - x)) * values[y, x].item()
    return total


def test_elastic_is_an_affine_change_and_keeps_the_mass():
    blot = torch.zeros(300, 1, 28, 28)
    blot[:, :, 8:20, 8:20] = 1
    turned = random_elastic(blot, generator(), strength=0, degrees=30, shear=0.2)
    assert torch.equal(turned, random_affine(blot, generator(), degrees=30, shear=0.2))
    bent = random_elastic(blot, generator(), strength=0.06)
    masses = bent.sum((1, 2, 3)) / blot[0].sum()
    assert abs(masses.mean() - 1) < 0.02
    assert (masses - 1).abs().max() < 0.4


def test_erasing_hides_one_rectangle_of_its_share_of_the_images():
    images = 1 + some_images(2000, side=20, channels=2)
    changed = random_erasing(images, generator(), probability=0.3, side=(0.2, 0.5))
    hidden = changed == 0
    assert torch.equal(changed[~hidden], images[~hidden])
    assert torch.equal(hidden[:, 0], hidden[:, 1])
    rows, columns = hidden[:, 0].any(2), hidden[:, 0].any(1)
    assert torch.equal(hidden[:, 0], rows[:, :, None] & columns[:, None, :])
    hit = hidden.flatten(1).any(1)
    assert abs(hit.double().mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 2000)
    inside = hit & ~(rows[:, 0] | rows[:, -1] | columns[:, 0] | columns[:, -1])
    tall, wide = rows[inside].sum(1), columns[inside].sum(1)
    assert (tall - wide).abs().max() <= 1  # a square, up to where its edges fall between pixels
    assert 4 <= tall.min() < 5 < 9 < tall.max() <= 10


def test_whole_numbers_can_be_cropped_and_flipped():
    images = (255 * some_images()).to(torch.uint8)
    assert views(images, 2, generator()).dtype == torch.uint8


def test_views_are_crops_and_flips_of_their_own_image():
    images = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 2, 8, 8)
    several = views(images, 5, generator())
    assert several.shape == (3, 5, 2, 8, 8)
    assert torch.equal(several, images[:, None].expand(3, 5, 2, 8, 8))


def test_mixtures_lie_between_two_different_views_of_their_own_example():
    corners = torch.eye(4).expand(500, 4, 4) * torch.arange(1.0, 501).view(-1, 1, 1)
    mixed = self_mixup(corners, 3, generator()) / torch.arange(1.0, 501).view(-1, 1, 1)
    assert mixed.shape == (500, 3, 4)
    torch.testing.assert_close(mixed.sum(2), torch.ones(500, 3))
    assert ((mixed > 0).sum(2) == 2).all()
    counts = (mixed > 0).double().mean(dim=(0, 1))
    assert ((counts - 0.5).abs() < 4 * math.sqrt(0.25 / 1500)).all()
    shares = mixed.flatten()[mixed.flatten() > 0]  # lambda or 1 - lambda: uniform, of variance 1/12
    assert abs(shares.var() - 1 / 12) < 0.005


def test_a_resized_crop_follows_the_definition(monkeypatch):
    drawn = iter([0.25, 0.0, 0.5, 1.0])  # a quarter of the area, square, in the middle from left, at the bottom
    monkeypatch.setattr(augmentation, "_uniform", lambda images, g, bounds: torch.full((len(images),), next(drawn)))
    images = some_images(2, side=12)
    cut = random_resized_crop(images, generator(), size=6)
    torch.testing.assert_close(cut, images[:, :, 6:, 3:9], rtol=0, atol=1e-6)


def test_areas_and_ratios_of_resized_crops():
    ramp = torch.linspace(1 / 64, 63 / 64, 32)
    across, down = ramp.view(1, 1, 1, 32).expand(2000, 1, 32, 32), ramp.view(1, 1, 32, 1).expand(2000, 1, 32, 32)
    cut = random_resized_crop(torch.cat([across, down], dim=1), generator(), size=8, area=(0.2, 0.4))
    widths = 8 * (cut[:, 0, 0, 4] - cut[:, 0, 0, 3])
    heights = 8 * (cut[:, 1, 4, 0] - cut[:, 1, 3, 0])
    area, ratio = widths * heights, widths / heights
    assert area.min() > 0.199
    assert area.max() < 0.401
    assert abs(area.mean() - 0.3) < 0.006
    assert ratio.min() > 0.745
    assert ratio.max() < 1.34
    assert abs(ratio.log().mean()) < 0.02


def test_hue_turns_colours_and_keeps_grey_and_brightness():
    red = torch.tensor([0.6, 0.3, 0.3]).view(1, 3, 1, 1)
    turned = augmentation._turn_hue(red, torch.tensor([2 * math.pi / 3]))
    torch.testing.assert_close(turned.flatten(), torch.tensor([0.3, 0.6, 0.3]))
    images = some_images()
    angles = torch.rand(len(images), generator=generator())
    torch.testing.assert_close(augmentation._turn_hue(images, angles).mean(1), images.mean(1))
    hues = [
        colorsys.rgb_to_hsv(*augmentation._turn_hue(red, torch.tensor([a])).flatten().tolist())[0] for a in (0.2, 0.4)
    ]
    assert 0 < hues[0] < hues[1] < 1 / 3


def test_jitter_follows_the_definition(monkeypatch):
    drawn = iter([0.9, 1.2, 0.7, 0.0])
    monkeypatch.setattr(augmentation, "_uniform", lambda images, g, bounds: torch.full((len(images),), next(drawn)))
    images = 0.3 + 0.3 * some_images()
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    grey = (images * luma).sum(1, keepdim=True)
    saturated = grey + 0.7 * (images - grey)
    middle = (saturated * luma).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    expected = 0.9 * (middle + 1.2 * (saturated - middle))
    torch.testing.assert_close(colour_jitter(images, generator()), expected)


def test_blur_is_a_normalised_gaussian_with_reflection():
    images = some_images(3)
    blurred = random_blur(images, generator(), probability=1, width=(0.8, 0.8))
    taps = torch.exp(-(torch.arange(-2.0, 3) ** 2) / (2 * 0.8**2))
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    expected = F.conv2d(padded, kernel.expand(3, 1, 5, 5), groups=3)
    torch.testing.assert_close(blurred, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: random_crop(some_images()[0], g), r"images=\(3, 12, 12\): must have the shape \(N, C, H, W\)"),
        (lambda g: random_crop(some_images(), g, padding=12), r"padding=12: must be less than height and width"),
        (lambda g: random_crop(some_images(), g, padding=-1), "padding=-1: must be at least 0"),
        (lambda g: random_flip(some_images(), g, probability=1.5), "probability=1.5: must lie between 0 and 1"),
        (lambda g: random_grey(some_images(channels=1), g), r"must have the shape \(N, 3, H, W\)"),
        (lambda g: random_resized_crop(some_images(), g, size=0), "size=0"),
        (lambda g: random_resized_crop(some_images(), g, size=8, area=(0, 1)), r"area=\(0, 1\): must be a lower"),
        (lambda g: random_resized_crop(some_images(), g, size=8, ratio=(2, 1)), r"ratio=\(2, 1\)"),
        (lambda g: colour_jitter(some_images(), g, strength=-1), "strength=-1"),
        (lambda g: random_blur(some_images(), g, width=(0, 1)), r"width=\(0, 1\)"),
        (lambda g: self_mixup(torch.zeros(2, 1, 3), 1, g), r"views=\(2, 1, 3\): .* two views or more"),
        (lambda g: views(some_images(), 0, g), "count=0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call(generator())
