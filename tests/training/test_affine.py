"""Images are turned, moved, stretched and sheared by themselves, within what was asked for."""

import math

import pytest
import torch

from tacit.core import InputError
from tacit.training.augmentation import random_affine


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
