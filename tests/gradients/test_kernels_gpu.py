"""The kernels for half precision on a GPU against their twins, those for convolutions in every form of their tables."""

import dataclasses

import pytest
import torch

from tacit.gradients.contributions import Convolved, Outer
from tacit.gradients.convolving import Geometry as Moves
from tacit.gradients.kernels import convolution_sum, cutouts_fit, outer_sum, twins
from tacit.gradients.kernels.geometry import Geometry
from tacit.gradients.ways import is_precise, ways_for

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0), reason="needs a GPU of 2022 or later"
)

# examples, channels, side, outputs, kernel: full tiles, and sizes that fill none.
SHAPES = {
    "many channels, few positions": (33, 256, 8, 256, 3),
    "as many of both": (19, 128, 16, 128, 3),
    "few channels, many positions": (17, 64, 32, 64, 3),
    "fewest channels": (9, 16, 32, 64, 3),
    "sizes that fill no tile": (7, 72, 16, 200, 3),
    "one offset": (9, 64, 16, 128, 1),
    "25 offsets, a margin on the right": (9, 64, 12, 64, 5),
    "a margin on both sides": (9, 64, 7, 64, 3),
}


def operands(name: str) -> tuple[torch.Tensor, torch.Tensor, Geometry]:
    examples, channels, side, outputs, kernel = SHAPES[name]
    generator = torch.Generator("cuda").manual_seed(0)
    sizes = torch.rand(2, examples, 1, 1, 1, generator=generator, device="cuda").exp()
    x, grad = (
        (torch.randn(examples, count, side, side, generator=generator, device="cuda") * size)
        .to(torch.bfloat16)
        .contiguous(memory_format=torch.channels_last)
        for count, size in zip((channels, outputs), sizes, strict=True)
    )
    return x, grad, Geometry((kernel, kernel), (1, 1), (kernel // 2, kernel // 2), (1, 1))


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    difference, expected = (found.double() - expected.double()).flatten(1), expected.double().flatten(1)
    return float((difference.norm(dim=1) / expected.norm(dim=1)).max())


def every_form(table: str, x: torch.Tensor, grad: torch.Tensor, geometry: Geometry, monkeypatch):
    """Each of the table in turn as the only one, with nothing remembered."""
    from tacit.gradients.kernels import half_launch, tuning

    whole = getattr(half_launch, table)
    for form in whole:
        monkeypatch.setattr(half_launch, table, (form,))
        monkeypatch.setattr(tuning, "_chosen", {})
        if half_launch._fitting((form,), x, half_launch._in_whole_steps(grad), geometry):
            yield form


@pytest.mark.parametrize("name", list(SHAPES))
def test_products_in_every_form(name, monkeypatch):
    from tacit.gradients.kernels import half_launch

    x, grad, geometry = operands(name)
    assert cutouts_fit(x, grad, geometry)
    expected = twins.convolution_products(x.double(), grad.double(), geometry, torch.float64, by_offset=True)
    forms = 0
    for form in every_form("_PRODUCTS", x, grad, geometry, monkeypatch):
        forms += 1
        for repeat in range(3):
            written = half_launch.cutout_products(x, grad, geometry, out_dtype=torch.float32, views=1)
            norms = half_launch.cutout_products(x, grad, geometry, out_dtype=None, views=1)
            assert relative(written, expected) < 3e-6, (form, repeat)
            assert relative(norms[:, None], expected.flatten(1).square().sum(1, keepdim=True)) < 1e-5, (form, repeat)
        views = half_launch.cutout_products(x[:6], grad[:6], geometry, out_dtype=torch.float32, views=3)
        # Matrix units cut sums off: with three times as many terms they miss three times as much.
        assert relative(views, expected[:6].unflatten(0, (2, 3)).sum(1)) < 9e-6, form
    assert forms


@pytest.mark.parametrize("name", list(SHAPES))
def test_sums_in_every_form(name, monkeypatch):
    from tacit.gradients.kernels import half_launch

    x, grad, geometry = operands(name)
    weights = torch.rand(len(x), device="cuda")
    weights[1] = 0
    x[1], grad[1, 0] = torch.nan, torch.inf
    expected = twins.convolution_sum(x, grad, weights, geometry)
    assert bool(expected.isfinite().all())
    forms = 0
    for form in every_form("_SUMS", x, grad, geometry, monkeypatch):
        forms += 1
        for repeat in range(3):
            found = half_launch.cutout_sum(x, grad, weights, geometry)
            assert relative(found[None], expected[None]) < 3e-6, (form, repeat)
    assert forms


@pytest.mark.parametrize("name", list(SHAPES))
def test_no_norm_is_below_what_the_example_adds(name):
    """By every way, and little above: the sums are taken from one example at a time, in float64 and in the kernel."""
    x, grad, geometry = operands(name)
    moves = Moves(geometry.stride, geometry.padding, geometry.dilation, 1)
    shape = torch.Size((grad.shape[1], x.shape[1], *geometry.kernel_size))
    use = Convolved(x, grad, shape, moves, len(x))
    alone = [dataclasses.replace(use, input=x[i : i + 1], grad=grad[i : i + 1], examples=1) for i in range(len(x))]
    one = torch.ones(1, dtype=torch.float64, device="cuda")
    added = torch.stack([each.weighted_sum(one).double().norm() for each in alone])
    exact = twins.convolution_norms(x.double(), grad.double(), geometry).sqrt()
    tried = 0
    for way_name, way in ways_for(use).items():
        if is_precise(use, way_name) and way.write is None:
            norms = way.measure(use).squared.sqrt()
            assert bool((norms >= added).all()), way_name
            assert bool((norms >= exact).all()), way_name
            assert float((norms / exact).max()) < 1.02, way_name
            tried += 1
    assert tried


def test_what_does_not_begin_where_the_hardware_can_begin_is_summed_all_the_same():
    x, grad, geometry = operands("as many of both")
    weights = torch.rand(len(x), device="cuda")
    moved = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].as_strided(x.shape, x.stride())
    moved.copy_(x)
    assert cutouts_fit(moved, grad, geometry)
    expected = convolution_sum(x, grad, weights, geometry)
    assert relative(convolution_sum(moved, grad, weights, geometry)[None], expected[None]) < 3e-6


# One part, parts of which the last is shorter, parts of more examples than are taken at a time.
OUTER_SIZES = [(1, 1, 2), (5, 3, 7), (33, 16, 5000), (301, 10, 1000), (4096, 10, 1000), (4096, 10, 10_000)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("examples", "width", "size"), OUTER_SIZES)
def test_an_outer_sum_is_that_of_its_twin(examples, width, size, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    left, right = (
        torch.randn(examples, count, generator=generator, device="cuda").to(dtype) for count in (width, size)
    )
    keep = torch.arange(examples, device="cuda") % 5 != 1
    left[~keep], right[~keep] = torch.inf, torch.nan
    expected = twins.outer_sum(left.double(), right.double(), keep)
    assert relative(outer_sum(left, right, keep)[None], expected[None]) < 3e-6


def test_a_narrow_layer_adds_no_more_than_its_bound():
    """One example at a time, and all but those that are not finite together."""
    generator = torch.Generator("cuda").manual_seed(0)
    left, right = (torch.randn(64, 1, 1, count, generator=generator, device="cuda").bfloat16() for count in (10, 1000))
    use = Outer(left, right, torch.Size((10, 1000)))
    weights = torch.rand(64, dtype=torch.float64, device="cuda", generator=generator)
    norms = left.double().flatten(1).norm(dim=1) * right.double().flatten(1).norm(dim=1)
    alone = [Outer(left[i : i + 1], right[i : i + 1], use.shape).weighted_sum(weights[i : i + 1]) for i in range(64)]
    added = torch.stack([each.double().norm() for each in alone]) / (weights * norms)
    assert float(added.max()) <= 1
    assert float(added.min()) > 1 - 2**-6
    finite = torch.arange(64, device="cuda") != 7
    right[7, 0, 0, 3] = torch.nan
    expected = torch.einsum("itm,itn,i->mn", left[finite, 0].double(), right[finite, 0].double(), weights[finite])
    assert relative(use.weighted_sum(weights, finite)[None], expected[None]) < 2**-6
