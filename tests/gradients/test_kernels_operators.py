"""The operators of gradients/kernels on the CPU: twins against loops in float64, tracing, refusals, odd shapes."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.core.errors import InputError, UnsupportedError
from tacit.gradients import kernels
from tacit.gradients.kernels import operators, tuning, twins
from tacit.gradients.kernels.geometry import Geometry

PLAIN, PADDED = (Geometry((3, 3), (1, 1), padding, (1, 1)) for padding in ((0, 0), (1, 1)))


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loop_product(left, right):
    """One example's product, one token at a time."""
    return sum(
        (torch.outer(a, b) for a, b in zip(left, right, strict=True)), torch.zeros(left.shape[1], right.shape[1])
    )


def loop_convolution(x, grad, geometry):
    """One example's weight gradient, straight from the definition: one weight and one output position at a time."""
    (kernel_h, kernel_w), (channels, height, width) = geometry.kernel_size, x.shape
    out = torch.zeros(grad.shape[0], channels, kernel_h, kernel_w, dtype=torch.float64)
    for oh in range(grad.shape[1]):
        for ow in range(grad.shape[2]):
            for kh in range(kernel_h):
                for kw in range(kernel_w):
                    h = oh * geometry.stride[0] - geometry.padding[0] + kh * geometry.dilation[0]
                    w = ow * geometry.stride[1] - geometry.padding[1] + kw * geometry.dilation[1]
                    if 0 <= h < height and 0 <= w < width:
                        out[:, :, kh, kw] += torch.outer(grad[:, oh, ow], x[:, h, w])
    return out.flatten(1)


def of(geometry):
    return geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation


@given(st.integers(1, 4), st.integers(0, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=40)
def test_product_norms_are_those_of_the_loop(examples, tokens, m, n, seed):
    left, right = random(examples, tokens, m, seed=seed), random(examples, tokens, n, seed=seed + 1)
    expected = torch.stack([loop_product(a, b).square().sum() for a, b in zip(left, right, strict=True)])
    torch.testing.assert_close(kernels.product_norms(left, right), expected.double(), rtol=1e-12, atol=0)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(pairs, pairs, st.tuples(st.integers(0, 2), st.integers(0, 2)), pairs, st.booleans(), st.integers(0, 99))
@settings(max_examples=40)
def test_convolution_is_the_loop_and_autograd(kernel_size, stride, padding, dilation, channels_last, seed):
    geometry = Geometry(kernel_size, stride, padding, dilation)
    x, weight = random(2, 3, 8, 7, seed=seed), random(2, 3, *kernel_size, seed=seed + 1).requires_grad_()
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    out = F.conv2d(x, weight, None, stride, padding, dilation)
    grad = random(*out.shape, seed=seed + 2)
    expected = torch.stack([loop_convolution(a, b, geometry) for a, b in zip(x, grad, strict=True)])
    found = kernels.convolution_products(x, grad, *of(geometry))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    by_offset = kernels.convolution_products(x, grad, *of(geometry), by_offset=True)
    assert by_offset.is_contiguous()
    in_order = by_offset.unflatten(2, (geometry.offsets, 3)).transpose(2, 3).flatten(2)
    torch.testing.assert_close(in_order, found, rtol=1e-12, atol=1e-12)
    (summed,) = torch.autograd.grad(out, weight, grad)
    torch.testing.assert_close(found.sum(0).view_as(weight), summed, rtol=1e-12, atol=1e-12)
    together = kernels.convolution_products(x, grad, *of(geometry), views=len(x))
    torch.testing.assert_close(together, found.sum(0, keepdim=True))
    norm = kernels.convolution_norms(x, grad, *of(geometry), views=len(x))
    torch.testing.assert_close(norm, found.sum(0).square().sum()[None].double())
    norms = kernels.convolution_norms(x, grad, *of(geometry))
    torch.testing.assert_close(norms, expected.square().sum((1, 2)), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "wrong",
    [((3, 2), (1, 2), (1, 0), (2, 1)), ((3, 2), (2, 1), (0, 1), (2, 1)), ((2, 3), (2, 1), (1, 0), (2, 1))],
    ids=["stride swapped", "padding swapped", "kernel swapped"],
)
def test_a_geometry_with_its_sides_swapped_is_refused_or_far_off(wrong):
    right = Geometry((3, 2), (2, 1), (1, 0), (2, 1))
    x = random(2, 3, 7, 7)
    grad = random(2, 4, *right.output_size(7, 7), seed=1)
    expected = kernels.convolution_norms(x, grad, *of(right))
    try:
        found = kernels.convolution_norms(x, grad, *wrong)
    except InputError:
        return
    assert ((found - expected).abs() / expected).max() > 1e-3


def test_norms_in_blocks_are_norms_at_once(monkeypatch):
    left, right = random(7, 4, 3), random(7, 4, 5, seed=1)
    x, grad, geometry = random(7, 2, 5, 5), random(7, 3, 4, 4, seed=1), Geometry((2, 2), (1, 1), (0, 0), (1, 1))
    products, convolutions = twins.product_norms(left, right), twins.convolution_norms(x, grad, geometry)
    monkeypatch.setattr(twins, "_BLOCK", 35)
    torch.testing.assert_close(twins.product_norms(left, right), products, rtol=1e-14, atol=0)
    torch.testing.assert_close(twins.convolution_norms(x, grad, geometry), convolutions, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_multiplied_exactly(dtype):
    """Rounding the products to half precision would be off by a thousandth."""
    left, right = random(2, 9, 5).to(dtype), random(2, 9, 6, seed=1).to(dtype)
    expected = twins.product_norms(left.double(), right.double())
    torch.testing.assert_close(kernels.product_norms(left, right), expected, rtol=1e-6, atol=0)
    x, grad = random(2, 3, 5, 5).to(dtype), random(2, 4, 3, 3, seed=1).to(dtype)
    exact = kernels.convolution_products(x.double(), grad.double(), (3, 3))
    wide = kernels.convolution_products(x, grad, (3, 3), out_dtype=torch.float32)
    torch.testing.assert_close(wide.double(), exact, rtol=1e-5, atol=1e-5)
    assert kernels.convolution_products(x, grad, (3, 3)).dtype == dtype


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_rows_are_zeroed_in_place_whatever_stood_there(value):
    values, keep = random(4, 3, 2), torch.tensor([True, False, True, False])
    before = values.clone()
    values[1, 0, 0] = value
    assert kernels.zero_rows_(values, keep) is values
    assert torch.equal(values, before * keep[:, None, None])
    across = values.transpose(1, 2).contiguous().transpose(1, 2)
    across[2] = value
    kernels.zero_rows_(across, torch.tensor([True, True, False, True]))
    assert torch.equal(across, before * torch.tensor([1.0, 0.0, 0.0, 0.0])[:, None, None])


@given(pairs, pairs, pairs, pairs, st.integers(0, 99))
@settings(max_examples=25)
def test_sums_and_gram_matrices_are_those_of_the_loop(kernel_size, stride, padding, dilation, seed):
    geometry = Geometry(kernel_size, stride, padding, dilation)
    x = random(3, 2, 8, 9, seed=seed).half()
    grad = random(3, 4, *geometry.output_size(8, 9), seed=seed + 1).half()
    sides = zip(x.double(), grad.double(), strict=True)
    products = torch.stack([loop_convolution(*side, geometry) for side in sides])
    weights = torch.tensor([0.5, 0.0, 2.0])
    expected = (products * weights.double()[:, None, None]).sum(0).view(4, 2, *kernel_size)
    torch.testing.assert_close(kernels.convolution_sum(x, grad, weights, geometry), expected.float())
    squared, lefts, rights = kernels.patch_grams(x, grad, geometry)
    torch.testing.assert_close(squared, products.flatten(1).square().sum(1))
    torch.testing.assert_close(lefts.double(), grad.double().flatten(2).square().sum(1), rtol=1e-6, atol=0)
    patches = F.unfold(x.double(), kernel_size, dilation, padding, stride)
    torch.testing.assert_close(rights.double(), patches.square().sum(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weighted_rows_leave_out_what_is_not_kept(value):
    rows, weights, keep = random(4, 3).float(), random(4, seed=1).float(), torch.tensor([True, False, True, False])
    expected = (rows * weights[:, None])[keep].sum(0)
    rows[1, 0] = rows[3, 2] = value
    torch.testing.assert_close(kernels.weighted_rows(rows, weights, keep), expected)
    assert not torch.isfinite(kernels.weighted_rows(rows, weights)).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_an_outer_sum_leaves_out_what_is_not_kept(value):
    left, right, keep = random(4, 2).half(), random(4, 3, seed=1).half(), torch.tensor([True, False, True, False])
    expected = torch.einsum("im,in->mn", left.double()[keep], right.double()[keep])
    left[1, 0] = right[3, 2] = value
    found = kernels.outer_sum(left, right, keep)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    assert not torch.isfinite(kernels.outer_sum(left, right)).all()


def test_an_empty_batch_and_no_tokens_are_ordinary():
    assert torch.equal(kernels.outer_sum(random(0, 2), random(0, 3)), torch.zeros(2, 3, dtype=torch.float64))
    assert torch.equal(kernels.weighted_rows(random(0, 3), random(0)), torch.zeros(3, dtype=torch.float64))
    assert kernels.product_norms(random(0, 3, 2), random(0, 3, 4)).shape == (0,)
    assert torch.equal(kernels.product_norms(random(2, 0, 2), random(2, 0, 4)), torch.zeros(2, dtype=torch.float64))
    x, grad = random(0, 3, 5, 5), random(0, 4, 3, 3)
    for by_offset in (False, True):
        assert kernels.convolution_products(x, grad, (3, 3), by_offset=by_offset).shape == (0, 4, 27)
    assert kernels.convolution_norms(x, grad, (3, 3)).shape == (0,)
    assert [found.shape for found in kernels.patch_grams(x, grad, PLAIN)] == [(0,), (0, 9), (0, 9)]
    total = kernels.convolution_sum(x, grad, torch.zeros(0), PLAIN)
    assert torch.equal(total, torch.zeros(4, 3, 3, 3))
    assert kernels.zero_rows_(random(0, 3), torch.ones(0, dtype=torch.bool)).shape == (0, 3)


def everything(left, right, x, grad, values, keep):
    values = values.clone()
    kernels.zero_rows_(values, keep)
    return (
        kernels.product_norms(left, right),
        kernels.convolution_products(x, grad, (3, 3), padding=(1, 1)),
        kernels.convolution_norms(x, grad, (3, 3), padding=(1, 1)),
        *kernels.patch_grams(x, grad, PADDED),
        kernels.convolution_sum(x, grad, left[:, 0, 0], PADDED),
        kernels.weighted_rows(values, left[:, 0, 0], keep),
        kernels.outer_sum(left[:, 0], values, keep),
        values,
    )


def inputs():
    shapes = ((2, 3, 4), (2, 3, 5), (2, 3, 4, 4), (2, 6, 4, 4), (2, 7))
    return [random(*shape, seed=i).float() for i, shape in enumerate(shapes)] + [torch.tensor([True, False])]


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_tracing_gives_one_node_for_each_operator(mode):
    graph = make_fx(everything, tracing_mode=mode)(*inputs())
    names = [str(node.target) for node in graph.graph.nodes if str(node.target).startswith("tacit.")]
    assert sorted(names) == [
        "tacit.convolution_norms.default",
        "tacit.convolution_products.default",
        "tacit.convolution_sum.default",
        "tacit.outer_sum.default",
        "tacit.patch_grams.default",
        "tacit.product_norms.default",
        "tacit.weighted_rows.default",
        "tacit.zero_rows_.default",
    ]
    others = [node for node in graph.graph.nodes if node.op == "call_function" and str(node.target) not in names]
    assert len(others) == 1 + 5 + 3  # the clone, selections for weights and a left side, and what one operator returns
    for found, expected in zip(graph(*inputs()), everything(*inputs()), strict=True):
        assert torch.equal(found, expected)


def test_operators_keep_what_they_declare():
    """Schema, fake shapes and strides, and no aliasing, as PyTorch checks them."""
    left, right, x, grad, values, keep = inputs()
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1)).numbers
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.tacit.product_norms.default, (left, right, "ieee"), test_utils=utils)
    torch.library.opcheck(
        torch.ops.tacit.convolution_products.default,
        (x, grad, geometry, "ieee", torch.float32, True, 1),
        test_utils=utils,
    )
    torch.library.opcheck(torch.ops.tacit.convolution_norms.default, (x, grad, geometry, "ieee", 2), test_utils=utils)
    torch.library.opcheck(torch.ops.tacit.patch_grams.default, (x, grad, geometry), test_utils=utils)
    weighted = (x, grad, torch.ones(2), geometry)
    torch.library.opcheck(torch.ops.tacit.convolution_sum.default, weighted, test_utils=utils)
    torch.library.opcheck(torch.ops.tacit.zero_rows_.default, (values, keep), test_utils=utils)
    for flags in (keep, None):
        arguments = (values, torch.ones(2), flags)
        torch.library.opcheck(torch.ops.tacit.weighted_rows.default, arguments, test_utils=utils)
        torch.library.opcheck(torch.ops.tacit.outer_sum.default, (left[:, 0], values, flags), test_utils=utils)


def test_bad_input_is_named():
    a, x, grad = torch.ones(2, 3, 4), torch.ones(2, 3, 5, 5), torch.ones(2, 4, 3, 3)
    with pytest.raises(InputError, match=r"left=\[2, 3, 4\], right=\[2, 4, 4\].*Flatten the tokens"):
        kernels.product_norms(a, torch.ones(2, 4, 4))
    with pytest.raises(InputError, match=r"right=torch.float64.*one floating type.*Convert"):
        kernels.product_norms(a, a.double())
    with pytest.raises(InputError, match=r"input_precision='bf16': must be one of ieee, tf32"):
        kernels.product_norms(a, a, input_precision="bf16")
    with pytest.raises(UnsupportedError, match=r"groups=3: must be 1. Split the channels"):
        kernels.convolution_norms(x, grad, (3, 3), groups=3)
    with pytest.raises(InputError, match=r"grad=\[2, 4, 3, 3\]: must have spatial size \(5, 5\)"):
        kernels.convolution_products(x, grad, (3, 3), padding=(1, 1))
    with pytest.raises(InputError, match=r"stride=\(0, 1\): must be two whole numbers of at least 1"):
        kernels.convolution_products(x, grad, (3, 3), stride=(0, 1))
    with pytest.raises(InputError, match=r"views=3: must be a divisor of the 2 rows"):
        kernels.convolution_products(x, grad, (3, 3), views=3)
    with pytest.raises(InputError, match=r"x=\[3, 5, 5\].*Add the missing dimension"):
        kernels.convolution_norms(x[0], grad, (3, 3))
    for weights in (torch.ones(3), torch.ones(2, dtype=torch.float64)):
        with pytest.raises(
            InputError, match=r"weights=\[.\] of torch.float.*: must be \[2\] of float32 on cpu. Pass one"
        ):
            kernels.convolution_sum(x, grad, weights, PLAIN)
    with pytest.raises(InputError, match=r"grad=\[2, 4, 3, 3\]: must have spatial size \(5, 5\)"):
        kernels.patch_grams(x, grad, PADDED)
    with pytest.raises(InputError, match=r"keep=\[3\] of torch.bool.*one flag an example"):
        kernels.zero_rows_(a, torch.ones(3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"weights=\[3\] of torch.float32: must be .* Flatten the rows"):
        kernels.weighted_rows(a[:, :, 0], torch.ones(3))
    with pytest.raises(InputError, match=r"left=\[2, 3\] of torch.float32, right=\[2, 4\] of torch.float64.*Flatten"):
        kernels.outer_sum(a[:, :, 0], a[:, 0].double())
    rows = a[:, 0]
    for keep in (torch.ones(2), torch.ones(3, dtype=torch.bool)):
        for take in (
            lambda keep: kernels.weighted_rows(rows, torch.ones(2), keep),
            lambda keep: kernels.outer_sum(rows, rows, keep),
        ):
            with pytest.raises(
                InputError, match=r"keep=\[.\] of torch.*must be \[B\] of bool.*Pass one flag an example"
            ):
                take(keep)
    with pytest.raises(InputError, match=r"keep=\[2\] of torch.float32"):
        kernels.zero_rows_(a, torch.ones(2))


@pytest.mark.parametrize(("setting", "expected"), [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")])
def test_precision_follows_torch(setting, expected):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        assert operators._precision(None) == expected
        assert operators._precision("ieee") == "ieee"
    finally:
        torch.set_float32_matmul_precision(before)


@given(st.integers(1, 40000), st.integers(1, 40000), st.integers(1, 4096), st.sampled_from([2, 4]))
def test_every_shape_has_tiles_and_few(rows, columns, tokens, itemsize):
    for precision in ("ieee", "tf32"):
        tiles = tuning.candidates(rows, columns, tokens, itemsize, precision)
        assert 1 <= len(tiles) <= 4
        for tile in tiles:
            assert tile.rows < max(32, 2 * rows)
            assert tile.columns < max(32, 2 * columns)
            shared = tile.stages * tile.tokens * (tile.rows + tile.columns) * itemsize
            assert shared <= 160 * 1024


def test_a_tile_is_timed_once_and_remembered():
    tiles = [tuning.Tile(16, 16, 16, 1, 2), tuning.Tile(32, 32, 16, 1, 2)]
    key = ("a test's own", 1)
    assert tuning.choose(key, tiles, lambda tile: None, can_time=False) is tiles[0]
    assert key not in tuning._chosen
    assert tuning.choose(key, tiles[1:], lambda tile: None, can_time=False) is tiles[1]
    assert tuning.choose(key, tiles, lambda tile: None, can_time=False) is tiles[1]


def test_importing_the_operators_needs_torch_alone():
    code = (
        "import sys, numpy, torch; before = {m.split('.')[0] for m in sys.modules}; import tacit.gradients.kernels;"
        "added = {m.split('.')[0] for m in sys.modules} - before - {'tacit'} - set(sys.stdlib_module_names);"
        "assert not added and 'triton' not in sys.modules, added"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
