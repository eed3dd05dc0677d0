"""Convolutions in half precision as a GPU takes them, from boxes of the input: here by the kernels' twins.

What a bound is made of, which operands boxes are for, and that sums and gradients are those of any other way.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients import contributions, ways
from tacit.gradients.contributions import Convolved
from tacit.gradients.convolving import Geometry
from tacit.gradients.kernels import Geometry as ImageGeometry
from tacit.gradients.kernels import fitting, twins
from tacit.gradients.ways import ways_for


def channels_last(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape).to(dtype).contiguous(memory_format=torch.channels_last)


def half_precision_images(fold: int) -> Convolved:
    torch.manual_seed(0)
    x, grad = (channels_last(3 * fold, 16, 8, 8) for _ in range(2))
    return Convolved(x, grad, torch.Size((16, 16, 3, 3)), Geometry((1, 1), (1, 1), (1, 1), 1), 3)


REFUSED_BY_BOXES = {
    "stride": (channels_last(2, 16, 16, 16), channels_last(2, 16, 8, 8), ((3, 3), (2, 2), (1, 1), (1, 1))),
    "a wide output": (channels_last(2, 16, 1, 100), channels_last(2, 16, 1, 100), ((1, 1), (1, 1), (0, 0), (1, 1))),
    "few positions": (channels_last(2, 16, 4, 4), channels_last(2, 16, 4, 4), ((3, 3), (1, 1), (1, 1), (1, 1))),
    "few channels": (channels_last(2, 8, 8, 8), channels_last(2, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
    "inputs that no output meets": (
        *(channels_last(2, 16, 8, 25), channels_last(2, 16, 8, 8), ((1, 2), (1, 1), (0, 0), (1, 17))),
    ),
    "channels first": (
        *(torch.randn(2, 16, 8, 8).bfloat16(), channels_last(2, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
    ),
    "two types": (
        channels_last(2, 16, 8, 8, dtype=torch.float16),
        *(channels_last(2, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
    ),
    "float32": (
        channels_last(2, 16, 8, 8, dtype=torch.float32),
        channels_last(2, 16, 8, 8, dtype=torch.float32),
        ((3, 3), (1, 1), (1, 1), (1, 1)),
    ),
    "one example for all": (
        channels_last(1, 16, 8, 8).expand(2, -1, -1, -1),
        *(channels_last(2, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
    ),
    "strides that the hardware does not take": (
        *(channels_last(2, 20, 8, 8), channels_last(2, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
    ),
    "no examples": (channels_last(0, 16, 8, 8), channels_last(0, 16, 8, 8), ((3, 3), (1, 1), (1, 1), (1, 1))),
}


@pytest.mark.parametrize("name", list(REFUSED_BY_BOXES))
def test_boxes_are_not_for_everything(name, monkeypatch):
    x, grad, pairs = REFUSED_BY_BOXES[name]
    assert not fitting.cutouts_fit(x, grad, ImageGeometry(*pairs))  # this is no GPU
    monkeypatch.setattr(fitting, "_cuts_out", lambda device: True)
    ImageGeometry(*pairs).check(x, grad)
    assert not fitting.cutouts_fit(x, grad, ImageGeometry(*pairs))
    good = channels_last(2, 16, 8, 8)
    assert fitting.cutouts_fit(good, good, ImageGeometry((3, 3), (1, 1), (1, 1), (1, 1)))


def test_what_float32_cannot_hold_on_its_way_is_left_out(monkeypatch):
    """A sum is taken before it is scaled down: an example that is too long for that may not spoil it for all."""
    monkeypatch.setattr(fitting, "_cuts_out", lambda device: True)
    use = half_precision_images(1)
    use.input[1, 0], use.grad[1, 0] = 5e18, 1.5e19
    true = use.input.double().square().sum((1, 2, 3)) * use.grad.double().square().sum((1, 2, 3))
    assert bool(true.isfinite().all())
    for name in ("gram", "gram-kernel", "tile"):
        norms = ways_for(use)[name].measure(use).squared
        assert norms.isfinite().tolist() == [True, False, True], name


@pytest.mark.parametrize("way", ["gram-kernel", "tile"])
def test_bounds_of_cut_out_sums_have_all_their_parts(way, monkeypatch):
    """By numbers: norms of the kernels' exact twins show what was added to them, in the lengths' own units."""
    monkeypatch.setattr(fitting, "_cuts_out", lambda device: True)
    use = half_precision_images(1)
    exact = twins.convolution_norms(use.input.double(), use.grad.double(), use.as_image).sqrt()
    patches = F.unfold(use.input.double(), 3, padding=1)
    size = (patches.norm(dim=1) * use.grad.double().flatten(2).norm(dim=1)).sum(1)
    raised = (ways_for(use)[way].measure(use).squared.sqrt() - exact) / size
    unit, positions, channels, offsets = 2.0**-23, 64, 16, 9
    later = (positions + 4) + (1 + 2)  # the sum: a unit for each term, and what two halves would add to that
    if way == "tile":
        expected = later + (positions + 64) + (2 + 2) + torch.zeros_like(exact)
    else:
        grams = (channels + 1) + (channels + offsets) + 4  # of the squared size: both sides, and their product
        expected = later + ((exact**2 + grams * unit * size**2).sqrt() - exact) / (size * unit)
    torch.testing.assert_close(raised, expected * unit, rtol=0.01, atol=0)


def test_weights_of_cut_out_sums_are_rounded_down(monkeypatch):
    monkeypatch.setattr(fitting, "_cuts_out", lambda device: True)
    use = half_precision_images(1)
    given: list[Tensor] = []
    monkeypatch.setattr(contributions, "convolution_sum", lambda x, grad, weights, geometry: given.append(weights))
    weights = torch.linspace(0.1, 0.9, 3, dtype=torch.float64)
    use.weighted_sum(weights)
    assert given[0].dtype == torch.float32
    assert bool((given[0].double() * (1 + 2.0**-23) <= weights).all())
    assert bool((given[0].double() * (1 + 2.0**-19) >= weights).all())


def test_gram_matrices_of_many_terms_are_not_precise():
    """Their blocks are as many as offsets, and all of them add up."""
    x, grad = channels_last(1, 3, 72, 72), channels_last(1, 16, 8, 8)
    use = Convolved(x, grad, torch.Size((16, 3, 65, 65)), Geometry((1, 1), (0, 0), (1, 1), 1), 1)
    assert "gram-kernel" in ways_for(use)
    assert not ways.is_precise(use, "gram-kernel")
    assert ways.is_precise(half_precision_images(1), "gram-kernel")


@pytest.mark.parametrize("fold", [1, 2])
def test_sums_and_gradients_by_boxes_are_those_of_any_other_way(fold, monkeypatch):
    """Their kernels' twins, since this is no GPU: with an example that is not finite left out, and views added up."""
    use, weights = half_precision_images(fold), torch.tensor([0.5, 0.7, 1.0], dtype=torch.float64)
    finite = torch.tensor([True, False, True])
    use.input[fold] = torch.nan
    expected = use.weighted_sum(weights, finite)
    written, gradients = ways_for(use)["keep-kernel"].measure(use), use.write_out()
    norms = ways_for(use)["tile"].measure(use).squared.sqrt()
    assert not use.is_cut_out
    monkeypatch.setattr(fitting, "_cuts_out", lambda device: True)
    assert use.is_cut_out
    torch.testing.assert_close(use.weighted_sum(weights, finite), expected, rtol=1e-5, atol=1e-4)
    by_boxes = ways_for(use)["keep-kernel"].measure(use)
    assert by_boxes.source.order is not None
    torch.testing.assert_close(by_boxes.squared, written.squared, equal_nan=True)
    torch.testing.assert_close(by_boxes.source.write_out(), written.source.write_out(), equal_nan=True)
    torch.testing.assert_close(use.write_out(), gradients, equal_nan=True)
    # Nothing is scaled before it is multiplied, so there is less to raise.
    exact = ways_for(use)["tile"].measure(use).squared.sqrt()
    assert bool((exact[finite] < norms[finite]).all())
    true = twins.convolution_norms(use.input.double(), use.grad.double(), use.as_image, views=fold).sqrt()
    assert bool((exact[finite] >= true[finite]).all())
