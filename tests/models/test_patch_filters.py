"""Random filters: the definition patch by patch, whitening, and what is refused."""

import math

import pytest
import torch

from tacit.core.errors import InputError
from tacit.models import PatchFilters, filters_like, gaussian_filters


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=3, channels=3, side=11, seed=1):
    return torch.rand(count, channels, side, side, generator=generator(seed), dtype=torch.float64)


def slow_features(filters, shift, image, cells, threshold, contrast):
    """The definition, one patch at a time; cells as adaptive pooling has them."""
    size, side = filters.shape[-1], image.shape[-1]
    places = side - size + 1
    answers = torch.zeros(len(filters), places, places, dtype=image.dtype)
    for y in range(places):
        for x in range(places):
            patch = image[:, y : y + size, x : x + size]
            normal = (patch - patch.mean()) / torch.sqrt(patch.var(correction=0) + contrast**2)
            answers[:, y, x] = (filters * normal).sum(dim=(1, 2, 3)) - shift
    kinds = torch.cat([(answers - threshold).clamp_min(0), (-answers - threshold).clamp_min(0)])
    ends = [(cell * places // cells, math.ceil((cell + 1) * places / cells)) for cell in range(cells)]
    rows = [torch.stack([kinds[:, a:b, c:d].mean(dim=(1, 2)) for c, d in ends], dim=1) for a, b in ends]
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize(("cells", "threshold", "channels"), [(1, 0.0, 1), (2, 0.5, 3), (3, 0.25, 2)])
def test_features_are_what_the_definition_says(cells, threshold, channels):
    filters = torch.randn(5, channels, 4, 4, generator=generator(), dtype=torch.float64)
    shift = torch.linspace(-1, 1, 5, dtype=torch.float64)
    given = images(channels=channels)
    found = PatchFilters(filters, shift, cells=cells, threshold=threshold, contrast=0.2)(given)
    due = torch.stack([slow_features(filters, shift, image, cells, threshold, 0.2) for image in given])
    assert found.shape == (3, 10, cells, cells)
    torch.testing.assert_close(found, due)


@pytest.mark.parametrize(
    ("cells", "window", "starts"), [(2, 5, [0, 3]), (3, 4, [0, 2, 4]), (4, 3, [0, 1, 2, 3]), (4, 5, [0, 1, 2, 3])]
)
def test_windows_overlap_and_begin_at_equal_distances(cells, window, starts):
    filters, shift = gaussian_filters(5, generator(), size=4, dtype=torch.float64)
    given = images()
    every = PatchFilters(filters, shift, cells=8)(given)  # one patch a cell: there are eight a side
    found = PatchFilters(filters, shift, cells=cells, window=window)(given)
    means = [[every[:, :, y : y + window, x : x + window].mean(dim=(2, 3)) for x in starts] for y in starts]
    torch.testing.assert_close(found, torch.stack([torch.stack(row, dim=2) for row in means], dim=2))


@pytest.mark.parametrize(("window", "height"), [(8, 11), (3, 12)])
def test_windows_without_room_are_refused(window, height):
    maps = PatchFilters(*gaussian_filters(5, generator(), size=4), cells=2, window=window)
    with pytest.raises(InputError, match=f"window={window}: 2 squares a side do not fit into"):
        maps(torch.rand(1, 3, height, 11))


def test_brightness_and_contrast_hardly_matter():
    filters, shift = gaussian_filters(8, generator(), dtype=torch.float64)
    maps = PatchFilters(filters, shift, contrast=1e-6)
    given = images()
    torch.testing.assert_close(maps(0.25 * given + 0.5), maps(given), rtol=1e-4, atol=1e-5)


def test_a_flat_image_gives_the_answers_to_nothing():
    filters, shift = gaussian_filters(8, generator(), dtype=torch.float64)
    assert not PatchFilters(filters, shift, threshold=0.1)(torch.full((1, 3, 12, 12), 0.7, dtype=torch.float64)).any()


def test_every_image_is_seen_by_itself():
    maps = PatchFilters(*gaussian_filters(8, generator(), dtype=torch.float64))
    given = images(4)
    torch.testing.assert_close(maps(given)[2:3], maps(given[2:3]))
    given[0] = float("nan")
    assert maps(given)[1:].isfinite().all()


def test_filters_of_images_find_their_own_patches_first():
    # A whitened patch points to itself more than others do: the largest answer of each filter is at its own patch.
    public = images(30, side=10)
    filters, shift = filters_like(public, 20, generator(2), size=4, contrast=0.01)
    answers = torch.nn.functional.conv2d(public, filters - filters.mean(dim=(1, 2, 3), keepdim=True))
    scales = PatchFilters(filters, shift, contrast=0.01)._scales(public)
    best = (answers * scales - shift.view(-1, 1, 1)).transpose(0, 1).flatten(1).max(dim=1).values
    assert (best > 0.5 * math.sqrt(3 * 4 * 4)).all()  # the length of a whitened patch, about


def test_answers_to_the_images_that_filters_came_from_are_whitened():
    public = images(400, side=12)
    filters, shift = filters_like(public, 300, generator(2), size=4, contrast=0.05)
    maps = PatchFilters(filters, shift, contrast=0.05)
    answers = torch.nn.functional.conv2d(public, maps.filters) * maps._scales(public) - maps.shift
    flat = answers.transpose(0, 1).flatten(1)
    assert flat.mean(dim=1).abs().max() < 0.1
    # Directions of length 1 of whitened patches have variance near 1 / (1 + a tenth).
    torch.testing.assert_close(flat.var(dim=1).mean(), torch.tensor(1 / 1.1, dtype=torch.float64), atol=0.1, rtol=0)


def test_gaussian_filters_prefer_fine_detail():
    filters, shift = gaussian_filters(200, generator(), size=6, dtype=torch.float64)
    assert not shift.any()
    grey = PatchFilters(filters, shift).filters.sum(dim=1)
    power = torch.fft.fft2(grey).abs().square().mean(dim=0)
    assert power[0, 0] < 1e-6 * power.max()  # nothing of a patch's mean
    assert power[0, 1] < power[0, 2] < power[0, 3]  # the rarer in photographs, the louder


def test_one_seed_gives_one_set_of_filters():
    assert torch.equal(gaussian_filters(5, generator(3))[0], gaussian_filters(5, generator(3))[0])
    assert not torch.equal(gaussian_filters(5, generator(3))[0], gaussian_filters(5, generator(4))[0])
    first = filters_like(images(20), 5, generator(3), size=3)
    assert torch.equal(first[0], filters_like(images(20), 5, generator(3), size=3)[0])


def test_filters_are_no_part_of_the_state():
    assert not PatchFilters(*gaussian_filters(5, generator())).state_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cells": 0}, "cells=0"),
        ({"threshold": -1.0}, "threshold=-1"),
        ({"contrast": 0.0}, "contrast=0"),
        ({"window": 0}, "window=0"),
        ({"window": 3, "cells": 1}, "window=3, cells=1: overlap takes two cells"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        PatchFilters(*gaussian_filters(5, generator()), **arguments)


def test_too_few_patches_and_odd_shapes_are_refused():
    with pytest.raises(InputError, match="Draw more images"):
        filters_like(images(2), 1000, generator())
    with pytest.raises(InputError, match=r"must be \(filters, channels, height, width\)"):
        PatchFilters(torch.zeros(3, 4), torch.zeros(3))
