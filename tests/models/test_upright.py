"""Straightening: slant and position go, everything else stays."""

import pytest
import torch

from tacit.core.errors import InputError
from tacit.models.upright import Upright


def stroke(slant, centre=(13.5, 13.5), size=28, rows=10):
    """A blurred line through ``centre`` that moves ``slant`` pixels to the right a row."""
    y, x = torch.meshgrid(torch.arange(size) - centre[0], torch.arange(size) - centre[1], indexing="ij")
    line = torch.exp(-(x - slant * y).square() / 4) * (y.abs() <= rows)
    return line[None, None]


def moments(image):
    mass = image[0, 0] / image.sum()
    size = mass.shape[0]
    places = torch.arange(size) - (size - 1) / 2
    y, x = mass.sum(1) @ places, mass.sum(0) @ places
    return y, x, ((places - y)[:, None] * (places - x) * mass).sum()


@pytest.mark.parametrize("slant", [-0.6, 0.0, 0.4])
@pytest.mark.parametrize("centre", [(13.5, 13.5), (11.5, 15.5)])
def test_every_slant_and_place_gives_the_same_image(slant, centre):
    straight = Upright()(stroke(slant, centre))
    assert torch.stack(moments(straight)).abs().max() < 0.1
    assert (straight - stroke(0.0)).abs().mean() < 0.01
    assert (stroke(0.6) - stroke(0.0)).abs().mean() > 0.05


def test_what_is_upright_stays():
    image = stroke(0.0)
    torch.testing.assert_close(Upright()(image), image, atol=1e-5, rtol=0)


def test_images_are_seen_one_at_a_time():
    images = torch.cat([stroke(0.5), stroke(-0.3), stroke(0.1, (10.0, 11.0))])
    spoilt = torch.cat([images, torch.full((1, 1, 28, 28), torch.nan)])
    alone = torch.cat([Upright()(image[None]) for image in images])
    torch.testing.assert_close(Upright()(images), alone)
    torch.testing.assert_close(Upright()(spoilt)[:3], alone)


def test_channels_move_together():
    images = torch.rand(2, 3, 12, 16)
    found = Upright()(images)
    assert found.shape == images.shape
    torch.testing.assert_close(Upright()(images.mean(1, keepdim=True)), found.mean(1, keepdim=True))


def test_edge_cases():
    blank = torch.zeros(1, 1, 8, 8)
    assert torch.equal(Upright()(blank), blank)
    row = torch.zeros(1, 1, 9, 9)
    row[..., 4, 2:7] = 1
    torch.testing.assert_close(Upright()(row), row, atol=1e-5, rtol=0)
    assert Upright()(torch.zeros(0, 1, 8, 8)).shape == (0, 1, 8, 8)
    with pytest.raises(InputError, match="images"):
        Upright()(torch.zeros(8, 8))
