"""Images are turned, moved, stretched and sheared by themselves, within what was asked for."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from tacit.core import InputError
from tacit.training.augmentation import _affine_places, random_affine

STRONG = {"degrees": 40.0, "shift": 0.2, "stretch": 0.5, "shear": 0.3}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(count: int = 40) -> torch.Tensor:
    """A bright spot to the right of the middle."""
    images = torch.zeros(count, 1, 33, 33)
    images[:, :, 14:19, 24:29] = 1
    return images


def middles(images: torch.Tensor) -> torch.Tensor:
    """The centre of mass, right and down from the middle, in halves of a side."""
    line = torch.linspace(-1, 1, images.shape[-1]) * (1 - 1 / images.shape[-1])
    mass = images.sum((1, 2, 3))
    return torch.stack([(images * line).sum((1, 2, 3)), (images * line[:, None]).sum((1, 2, 3))], 1) / mass[:, None]


def test_nothing_asked_for_changes_nothing():
    images = torch.rand(5, 3, 9, 7)
    torch.testing.assert_close(random_affine(images, generator()), images, atol=1e-5, rtol=1e-5)


def test_turns_keep_the_distance_and_stay_within_the_angle():
    found = middles(random_affine(blobs(), generator(), degrees=30))
    start = middles(blobs())[0]
    torch.testing.assert_close(found.norm(dim=1), start.norm().expand(40), atol=0.02, rtol=0)
    angles = torch.atan2(found[:, 1], found[:, 0])
    assert 0.3 < angles.abs().max() <= math.radians(30) + 0.03
    assert angles.min() < 0 < angles.max()


def test_moves_stay_within_their_share():
    found = middles(random_affine(blobs(), generator(), shift=0.1)) - middles(blobs())
    assert found.abs().max() <= 0.2 + 0.01  # halves of a side
    assert found.abs().amax(0).min() > 0.12


def test_stretches_change_the_size():
    mass = random_affine(blobs(), generator(), stretch=0.3).sum((1, 2, 3)) / blobs().sum((1, 2, 3))
    assert 1 / 1.3**2 - 0.05 < mass.min() < 0.9
    assert 1.1 < mass.max() < 1.3**2 + 0.1


def slow_places(numbers, size, *, degrees, shift, stretch, shear):
    """Where pixels come from: turned after being sheared after being stretched, each by its own number in [-1, 1]."""
    matrices = []
    for row in numbers.T.tolist():
        angle = row[0] * math.radians(degrees)
        slant = row[1] * shear
        wide = (1 + stretch) ** row[2]
        high = (1 + stretch) ** row[3]
        right = row[4] * 2 * shift
        down = row[5] * 2 * shift
        matrices.append(
            [
                [math.cos(angle) * wide, (slant * math.cos(angle) - math.sin(angle)) * high, right],
                [math.sin(angle) * wide, (slant * math.sin(angle) + math.cos(angle)) * high, down],
            ]
        )
    return F.affine_grid(torch.tensor(matrices), size, align_corners=False)


def test_places_are_those_of_the_six_numbers_of_each_image():
    images = torch.zeros(7, 1, 5, 8)
    numbers = torch.empty(6, len(images)).uniform_(-1, 1, generator=generator(3))
    expected = slow_places(numbers, [7, 1, 5, 8], **STRONG)
    torch.testing.assert_close(_affine_places(images, generator(3), **STRONG), expected, rtol=0, atol=1e-5)


def drawn_numbers(places):
    """The six numbers of each image again, in [-1, 1], from where the pixels of images of 2 x 2 come from."""
    places = places.double().numpy()
    across, along = places[:, :, 1] - places[:, :, 0], places[:, 1] - places[:, 0]
    (x, y), (u, v) = across.mean(1).T, along.mean(1).T  # the matrix's columns, as the pixels lie 1 apart
    angle, wide = np.arctan2(y, x), np.hypot(x, y)
    high = v * np.cos(angle) - u * np.sin(angle)
    slant = (u * np.cos(angle) + v * np.sin(angle)) / high
    right, down = places.mean((1, 2)).T
    reach = math.log1p(STRONG["stretch"])
    turns = angle / math.radians(STRONG["degrees"]), slant / STRONG["shear"]
    return np.stack(
        [*turns, np.log(wide) / reach, np.log(high) / reach, *(np.array([right, down]) / 2 / STRONG["shift"])]
    )


def test_the_six_numbers_are_uniform_and_have_nothing_to_do_with_each_other():
    images = torch.zeros(5000, 1, 2, 2)
    numbers = drawn_numbers(_affine_places(images, generator(), **STRONG))
    uniform = stats.uniform(-1, 2).cdf
    for number in numbers:
        assert stats.kstest(number, uniform).pvalue > 1e-3
        for scale in (0.9, 1.1):
            assert stats.kstest(scale * number, uniform).pvalue < 1e-4
    correlations = np.corrcoef(numbers) - np.eye(6)
    assert np.abs(correlations).max() < 4 / math.sqrt(5000)


def test_every_image_by_itself_and_by_the_generator():
    images = torch.rand(6, 1, 8, 8)
    first = random_affine(images, generator(), degrees=20, shift=0.1, stretch=0.2, shear=0.2)
    assert torch.equal(first, random_affine(images, generator(), degrees=20, shift=0.1, stretch=0.2, shear=0.2))
    images[3] = 0
    changed = random_affine(images, generator(), degrees=20, shift=0.1, stretch=0.2, shear=0.2)
    assert torch.equal(changed[[0, 1, 2, 4, 5]], first[[0, 1, 2, 4, 5]])


def test_bad_input_is_named():
    with pytest.raises(InputError, match="degrees=-1"):
        random_affine(torch.rand(1, 1, 4, 4), generator(), degrees=-1)
