"""Small maps: colours, roots, sides, kinds of features side by side."""

import math

import pytest
import torch

from tacit.core.errors import InputError
from tacit.models import MeanOfSides, OpponentColours, SideBySide, SignedRoot


def images(count=4, seed=0):
    return torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))


def test_opponent_colours_keep_lengths_and_send_grey_to_brightness():
    given = images()
    found = OpponentColours()(given)
    torch.testing.assert_close(found.square().sum(dim=1), given.square().sum(dim=1))
    grey = torch.full((1, 3, 2, 2), 0.5)
    torch.testing.assert_close(OpponentColours()(grey)[:, 0], torch.full((1, 2, 2), 0.5 * math.sqrt(3)))
    assert OpponentColours()(grey)[:, 1:].abs().max() < 1e-6


def test_opponent_colours_refuse_grey_images():
    with pytest.raises(InputError, match=r"must be \(images, 3, height, width\)"):
        OpponentColours()(torch.zeros(2, 1, 4, 4))


def test_signed_root():
    found = SignedRoot()(torch.tensor([-4.0, 0.0, 9.0]))
    assert torch.equal(found, torch.tensor([-2.0, 0.0, 3.0]))


def test_an_image_and_its_mirror_image_have_the_same_mean_of_sides():
    maps = MeanOfSides(torch.nn.Conv2d(3, 5, 3))
    given = images()
    torch.testing.assert_close(maps(given), maps(given.flip(3)))
    torch.testing.assert_close(maps(given), (maps.features(given) + maps.features(given.flip(3))) / 2)


def test_each_kind_gets_mean_square_one_and_zeros_stay():
    given = images()
    given[1] = 0
    found = SideBySide([torch.nn.Identity(), torch.nn.AvgPool2d(3)])(given)
    assert found.shape == (4, 108 + 12)
    first, second = found.split([108, 12], dim=1)
    for part in (first, second):
        torch.testing.assert_close(part[[0, 2, 3]].square().mean(dim=1), torch.ones(3))
        assert not part[1].any()
