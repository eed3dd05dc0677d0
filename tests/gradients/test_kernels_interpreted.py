"""The Triton kernels themselves, run by Triton's interpreter on the CPU, against their plain twins in float64.

The interpreter must be chosen before Triton is imported, so all cases run once in a process of their own: this file,
run as a script, prints how far each case is from its twin. Tests here read those numbers.
"""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from tacit.gradients.kernels import fitting, twins
from tacit.gradients.kernels.geometry import Geometry
from tacit.gradients.kernels.tuning import Tile

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
ONE, NONE = (1, 1), (0, 0)

# name: examples, tokens, m, n, type, precision, how left and right lie in memory, tile or None for the table's first.
PRODUCTS = {
    "one tile, sizes that divide nothing": (3, 5, 7, 9, F32, "ieee", "plain", None),
    "rows and columns past the last tile": (2, 19, 37, 21, F32, "ieee", "plain", Tile(16, 16, 16, 1, 2)),
    "tokens a whole number of steps": (2, 32, 20, 20, F32, "ieee", "plain", Tile(16, 32, 16, 1, 2)),
    "one token": (2, 1, 3, 40, F32, "ieee", "plain", None),
    "tf32 copies both operands by token": (2, 18, 140, 150, F32, "tf32", "plain", Tile(64, 128, 16, 4, 3)),
    "left contiguous along tokens": (2, 18, 33, 17, F32, "tf32", "by token", None),
    "no unit stride": (2, 18, 33, 17, F32, "tf32", "strided", None),
    "a slice of a wider tensor": (2, 18, 33, 17, F32, "ieee", "slice", None),
    "left narrower than right": (2, 6, 4, 30, F32, "ieee", "plain", None),
    "bfloat16": (2, 21, 33, 18, BF16, "ieee", "plain", None),
    "float16 by token": (2, 21, 33, 18, F16, "tf32", "by token", None),
}
# name: examples, channels, height, width, outputs, geometry, type, precision, memory format, tile or None.
CONVOLUTIONS = {
    "3x3, padding": (2, 3, 6, 5, 4, Geometry((3, 3), ONE, ONE, ONE), F32, "ieee", "contiguous", None),
    "3x3, tf32": (2, 3, 6, 5, 4, Geometry((3, 3), ONE, ONE, ONE), F32, "tf32", "contiguous", None),
    "one channel, 8x8, stride 2": (
        2,
        1,
        12,
        12,
        16,
        Geometry((8, 8), (2, 2), (3, 3), ONE),
        F32,
        "tf32",
        "contiguous",
        None,
    ),
    "4x4, stride 2, no padding": (2, 5, 9, 9, 18, Geometry((4, 4), (2, 2), NONE, ONE), F32, "ieee", "contiguous", None),
    "dilation": (2, 2, 9, 8, 3, Geometry((3, 2), ONE, (2, 1), (2, 3)), F32, "ieee", "contiguous", None),
    "all of them different by side": (
        *(2, 3, 11, 9, 5, Geometry((3, 2), (2, 3), (2, 1), (2, 1)), F32, "ieee", "contiguous", Tile(16, 16, 16, 1, 2)),
    ),
    "channels last": (2, 4, 6, 5, 20, Geometry((3, 3), ONE, ONE, ONE), F32, "ieee", "channels_last", None),
    "channels last, tf32, many columns": (
        *(2, 16, 5, 5, 17, Geometry((3, 3), ONE, ONE, ONE), F32, "tf32", "channels_last", Tile(16, 64, 16, 2, 2)),
    ),
    "channels last without padding": (
        2,
        4,
        6,
        5,
        3,
        Geometry((1, 1), ONE, NONE, ONE),
        F32,
        "ieee",
        "channels_last",
        None,
    ),
    "bfloat16 gathers channels": (
        *(2, 8, 6, 5, 17, Geometry((3, 3), ONE, ONE, ONE), BF16, "tf32", "contiguous", Tile(16, 32, 16, 1, 2)),
    ),
    "bfloat16 channels last as it is": (
        *(2, 8, 6, 5, 4, Geometry((2, 2), (2, 2), NONE, ONE), BF16, "tf32", "channels_last", None),
    ),
    "bfloat16, three channels": (2, 3, 6, 5, 4, Geometry((3, 3), ONE, ONE, ONE), BF16, "tf32", "contiguous", None),
    "one output position": (2, 3, 3, 3, 4, Geometry((3, 3), ONE, NONE, ONE), F32, "ieee", "contiguous", None),
    "output one wide": (2, 3, 5, 3, 4, Geometry((3, 3), ONE, NONE, ONE), F32, "ieee", "channels_last", None),
    "strided input": (2, 3, 6, 5, 4, Geometry((3, 3), ONE, NONE, ONE), F32, "ieee", "strided", None),
}
# name: examples, channels, height, width, outputs, geometry, type; rows, channels, offsets and positions of a program.
CUTOUTS = {
    "padding, two examples of two views": (4, 16, 8, 8, 16, Geometry((3, 3), ONE, ONE, ONE), F16, (64, 16, 3, 64)),
    "bfloat16, one offset at a time": (2, 16, 8, 8, 24, Geometry((3, 3), ONE, ONE, ONE), BF16, (64, 16, 1, 64)),
    "rows and channels past the last tile": (2, 40, 8, 8, 72, Geometry((3, 3), ONE, ONE, ONE), F16, (64, 32, 3, 64)),
    "several steps, no padding": (2, 16, 10, 18, 16, Geometry((3, 3), ONE, NONE, ONE), F16, (64, 16, 3, 64)),
    "sides that differ": (2, 16, 9, 16, 16, Geometry((2, 3), ONE, (1, 2), (3, 2)), F16, (64, 16, 3, 128)),
    "5x5, a margin on the right": (2, 16, 12, 12, 16, Geometry((5, 5), ONE, (2, 2), ONE), F16, (64, 16, 1, 64)),
    "a margin on both sides": (2, 16, 7, 7, 16, Geometry((3, 3), ONE, ONE, ONE), F16, (64, 16, 3, 64)),
    "a last part that is shorter": (8, 16, 9, 9, 16, Geometry((2, 2), ONE, NONE, ONE), F16, (64, 16, 1, 64)),
    "one offset": (2, 16, 8, 16, 16, Geometry((1, 1), ONE, NONE, ONE), F16, (64, 16, 1, 128)),
}
# name: examples, channels, height, width, outputs, geometry, type.
GRAMS = {
    "padding": (2, 16, 8, 8, 16, Geometry((3, 3), ONE, ONE, ONE), F16),
    "bfloat16, sizes that divide nothing": (2, 70, 5, 7, 130, Geometry((3, 3), ONE, ONE, ONE), BF16),
    "stride": (2, 8, 9, 8, 16, Geometry((3, 3), (2, 2), ONE, ONE), F16),
    "all of them different by side": (2, 8, 11, 9, 8, Geometry((3, 2), (2, 3), (2, 1), (2, 1)), F16),
    "as many positions as it takes": (1, 8, 10, 18, 8, Geometry((3, 3), ONE, NONE, ONE), F16),
    "one position": (2, 8, 3, 3, 8, Geometry((3, 3), ONE, NONE, ONE), F16),
    "output one wide": (2, 8, 6, 3, 8, Geometry((3, 3), ONE, NONE, ONE), F16),
}
# name: shape, type, how it lies in memory, rows kept.
ROWS = {
    "long rows": ((3, 9001), F32, "contiguous", (True, False, True)),
    "all kept": ((3, 40), F32, "contiguous", (True, True, True)),
    "none kept": ((2, 3, 5), BF16, "contiguous", (False, False)),
    "channels last": ((3, 4, 3, 5), F32, "channels_last", (False, True, False)),
    "rows of a wider tensor": ((3, 7), torch.float64, "slice", (False, True, False)),
    "scalars": ((4,), F32, "contiguous", (False, True, False, True)),
}
# name: rows, columns, type, how they lie in memory, rows left out or None for no flags.
SUMS = {
    "one part, columns past the last block": (5, 1500, F32, "contiguous", None),
    "several parts, of which the last is shorter": (37, 30, F32, "contiguous", (0, 3, 36)),
    "several parts, four numbers at a time": (70, 140, F32, "contiguous", (69,)),
    "more parts than are added up at a time": (2100, 3, F32, "contiguous", (5, 2099)),
    "bfloat16": (6, 1030, BF16, "contiguous", (1,)),
    "long rows, in wide pieces": (9, 2**12 + 24, BF16, "contiguous", (3,)),
    "long rows of float32": (5, 2**12 + 2, F32, "contiguous", None),
    "rows of a wider tensor": (20, 9, F32, "slice", ()),
    "all left out": (3, 4, F32, "contiguous", (0, 1, 2)),
}
# name: examples, numbers on the left, on the right, type, how the right lies in memory, examples left out or None.
OUTERS = {
    "one part, columns past the last block": (5, 3, 140, F16, "contiguous", None),
    "parts of which the last is shorter, all examples": (301, 4, 12, BF16, "contiguous", None),
    "several parts, of which the last is shorter": (301, 10, 20, BF16, "contiguous", (0, 3, 299)),
    "more examples in a part than are taken at a time": (300, 2, 264, BF16, "contiguous", (1, 130)),
    "as many on the left as there may be": (130, 16, 24, F16, "contiguous", (129,)),
    "examples of a wider tensor": (20, 2, 9, F16, "slice", ()),
    "all left out": (3, 4, 5, BF16, "contiguous", (0, 1, 2)),
}
# name: boxes, words of each, programs, parcels that are fetched.
BOXES = {
    "a program for a part of each": (8, 9 * 16, 3, 20),
    "more programs than there is to do": (2, 16, 3, 5),
    "one program": (1, 11 * 16, 1, 3),
}
TOLERANCE = 2e-6  # Products are exact in float32 or nearly so; sums are short. TF32 is float32 to the interpreter.


def _random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _placed(values, how):
    """The same numbers in another layout."""
    if how == "by token":
        return values.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "channels_last":
        return values.contiguous(memory_format=torch.channels_last)
    if how in ("strided", "slice"):
        step = 2 if how == "strided" else 1
        wide = torch.full((*values.shape[:-1], 2 * values.shape[-1] + 3), torch.nan, dtype=values.dtype)
        part = wide[..., 1 : 1 + step * values.shape[-1] : step]
        return part.copy_(values)
    return values


def _error(found, expected):
    """The largest error, relative to the largest value of its example."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    scale = expected.double().flatten(1).abs().amax(1, keepdim=True)
    errors = (found.double() - expected.double()).flatten(1).abs() / scale
    return float(errors.nan_to_num(nan=torch.inf).max())  # Python's max() would leave out a NaN


def _product_error(examples, tokens, m, n, dtype, precision, how, tile):
    from tacit.gradients.kernels import launch

    left = _placed(_random(examples, tokens, m, seed=0).to(dtype), how)
    right = _random(examples, tokens, n, seed=1).to(dtype)
    with _tile(launch, tile):
        found = launch.product_norms(left, right, precision)
    assert found.dtype == torch.float64
    return _error(found[:, None], twins.product_norms(left.double(), right.double())[:, None])


def _convolution_errors(examples, channels, height, width, outputs, geometry, dtype, precision, how, tile):
    from tacit.gradients.kernels import launch

    x = _placed(_random(examples, channels, height, width, seed=0).to(dtype), how)
    size = geometry.output_size(height, width)
    grad = _placed(_random(examples, outputs, *size, seed=1).to(dtype), how)
    expected = twins.convolution_products(x.double(), grad.double(), geometry, torch.float64)
    with _tile(launch, tile):
        products = launch.convolution(x, grad, geometry, precision, out_dtype=F32)
        by_offset = launch.convolution(x, grad, geometry, precision, out_dtype=F32, by_offset=True)
        norms = launch.convolution(x, grad, geometry, precision, out_dtype=None)
        together = launch.convolution(x, grad, geometry, precision, out_dtype=F32, views=examples)
        norm = launch.convolution(x, grad, geometry, precision, out_dtype=None, views=examples)
    assert products.is_contiguous()
    in_order = products.unflatten(2, (channels, geometry.offsets)).transpose(2, 3).flatten(2)
    assert torch.equal(by_offset, in_order)
    return max(
        _error(products, expected),
        _error(norms[:, None], twins.convolution_norms(x.double(), grad.double(), geometry)[:, None]),
        _error(together, expected.sum(0, keepdim=True)),
        _error(norm[:, None], expected.sum(0).square().sum()[None, None]),
    )


def _half_precision_case(examples, channels, height, width, outputs, geometry, dtype):
    x = _placed(_random(examples, channels, height, width, seed=0).to(dtype), "channels_last")
    grad = _random(examples, outputs, *geometry.output_size(height, width), seed=1).to(dtype)
    return x, _placed(grad, "channels_last")


def _cutouts_error(*case):
    from tacit.gradients.kernels import half_launch

    *sizes, (rows, columns, taps, positions) = case
    (x, grad), geometry = _half_precision_case(*sizes), sizes[5]
    assert fitting.cutouts_fit(x, grad, geometry)
    assert fitting.are_aligned(x, grad)
    tables = half_launch._PRODUCTS, half_launch._SUMS
    cutout = half_launch.Cutout(rows, columns, positions, 4, 3, taps=taps, programs=3)
    half_launch._PRODUCTS, half_launch._SUMS = (cutout,), (dataclasses.replace(cutout, taps=1),)
    norms, pairs = (half_launch.cutout_products(x, grad, geometry, out_dtype=None, views=v) for v in (1, 2))
    written, together = (half_launch.cutout_products(x, grad, geometry, out_dtype=F32, views=v) for v in (1, 2))
    weights = torch.full((2 * len(x),), torch.nan)[: len(x)]  # who reads on finds no number
    weights.copy_(_random(len(x), seed=2))
    total = half_launch.cutout_sum(x, grad, weights, geometry)
    half_launch._PRODUCTS, half_launch._SUMS = tables
    expected = twins.convolution_products(x.double(), grad.double(), geometry, torch.float64, by_offset=True)
    by_channel = twins.convolution_products(x.double(), grad.double(), geometry, torch.float64)
    weighted = (by_channel * weights.double()[:, None, None]).sum(0).view(total.shape)
    assert total.is_contiguous()
    summed = expected.unflatten(0, (-1, 2)).sum(1)
    return max(
        _error(norms[:, None], twins.convolution_norms(x.double(), grad.double(), geometry)[:, None]),
        _error(pairs[:, None], summed.square().sum((1, 2))[:, None]),
        _error(written, expected),
        _error(together, summed),
        _error(total[None], weighted[None]),
        _error(twins.convolution_sum(x, grad, weights, geometry)[None], weighted[None]),
    )


def _grams_error(*case):
    from tacit.gradients.kernels import half_launch

    (x, grad), geometry = _half_precision_case(*case), case[5]
    assert fitting.grams_fit(x, grad)
    found = half_launch.patch_grams(x, grad, geometry)
    expected = twins.patch_grams(x, grad, geometry)
    norms = twins.convolution_norms(x.double(), grad.double(), geometry)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    pairs = [(found[0][:, None], norms[:, None]), *zip(found[1:], expected[1:], strict=True)]
    return max(*(_error(*pair) for pair in pairs), _error(expected[0][:, None], norms[:, None]))


def _rows_error(shape, dtype, how, kept):
    from tacit.gradients.kernels import launch

    values, keep = _placed(_random(*shape, seed=0).to(dtype), how), torch.tensor(kept)
    values[~keep] = torch.nan
    expected = values.clone()
    twins.zero_rows_(expected, keep)
    assert launch.rows_are_dense(values)
    launch.zero_rows_(values, keep)
    return 0.0 if torch.equal(values, expected) else 1.0


def _sums_error(count, size, dtype, how, left_out):
    from tacit.gradients.kernels import launch

    rows, weights = _random(count, size, seed=0).to(dtype), _random(count, seed=1).float()
    keep = None if left_out is None else torch.tensor([row not in left_out for row in range(count)])
    if keep is not None:
        rows[~keep] = torch.nan
    expected = twins.weighted_rows(rows.double(), weights.double(), keep)
    few, launch._FEW_PROGRAMS = launch._FEW_PROGRAMS, 4  # so that rows are long from 4096 numbers on
    found = launch.weighted_rows(_placed(rows, how), weights, keep)
    launch._FEW_PROGRAMS = few
    return 0.0 if torch.equal(found.double(), expected) else _error(found[None], expected[None])


def _outer_error(count, width, size, dtype, how, left_out):
    from tacit.gradients.kernels import launch

    left, right = (_before_others(_placed(_random(count, n, seed=n).to(dtype), how)) for n in (width, size))
    keep = None if left_out is None else torch.tensor([row not in left_out for row in range(count)])
    if keep is not None:
        left[~keep], right[~keep] = torch.inf, torch.nan
    assert launch.outer_sum_fits(left, right)
    expected = twins.outer_sum(left.double(), right.double(), keep)
    few, launch._FEWEST_PROGRAMS = launch._FEWEST_PROGRAMS, 3  # so that many columns are of one part
    found = launch.outer_sum(left, right, keep)
    launch._FEWEST_PROGRAMS = few
    assert found.dtype == torch.float32
    return 0.0 if torch.equal(found.double(), expected) else _error(found[None], expected[None])


def _before_others(rows):
    """The same rows in memory where others follow that are not to be read."""
    whole = torch.full((len(rows) + 128, rows.stride(0)), torch.nan, dtype=rows.dtype)
    whole[: len(rows), : rows.shape[1]] = rows
    return whole[: len(rows), : rows.shape[1]]


def _what_does_not_fit_goes_to_the_twin():
    """The kernel would leave columns unwritten, read other numbers, or round."""
    from tacit.gradients.kernels import launch

    left, right = torch.ones(4, 16, dtype=BF16), torch.ones(4, 20, dtype=BF16)
    wide, across = torch.ones(4, 17, dtype=BF16), torch.ones(20, 4, dtype=BF16).t()
    assert launch.outer_sum_fits(left, right)
    unfit = [(wide, right), (left.float(), right.float()), (left, across), (across[:, :3], right), (left, right.half())]
    return float(sum(launch.outer_sum_fits(*pair) for pair in unfit))


def _boxes_error(boxes, words, readers, parcels):
    """Boxes filled in turn, several ahead of those who fetch them."""
    from tacit.gradients.kernels import launch

    generator = torch.Generator().manual_seed(0)
    sent = torch.randint(-(2**63), 2**63 - 1, (parcels, words), generator=generator)
    sent[:, 0] = torch.arange(1, parcels + 1)
    ring, counts = torch.zeros(boxes, words, dtype=torch.int64), torch.ones(readers, dtype=torch.int64)
    there, guard = torch.full((2, words), 5)
    wrong = 0.0
    for ahead in range(parcels + boxes - 1):
        if ahead < parcels:
            ring[(ahead + 1) % boxes] = sent[ahead]
        if ahead >= boxes - 1:
            launch.fetch_box_(there, ring, counts)
            wrong += not torch.equal(there, sent[ahead - boxes + 1])
    assert torch.equal(counts, torch.full_like(counts, parcels + 1))
    assert (guard == 5).all()
    return wrong


def _a_wrong_number_is_not_taken():
    """Neither one that was there before, nor one that comes later. The interpreter asserts only where it is told to."""
    from triton.runtime.interpreter import interpreter_builder

    from tacit.gradients.kernels import launch

    interpreter_builder.options = dataclasses.replace(interpreter_builder.options, debug=True)
    there, boxes, counts = torch.zeros(16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64), torch.tensor([3])
    for number in (1, 5):
        boxes[1, 0] = number
        try:
            launch.fetch_box_(there, boxes, counts)
        except Exception as error:  # the interpreter's own, around what was raised in the kernel
            assert "out of turn" in f"{error} {error.__cause__}", repr(error)  # noqa: PT017
        else:
            return 1.0
    return 0.0


class _tile:  # noqa: N801
    """Makes the launcher use one tile of the test's choosing."""

    def __init__(self, launch, tile):
        self.launch, self.tile, self.table = launch, tile, launch.candidates

    def __enter__(self):
        if self.tile:
            self.launch.candidates = lambda *_: [self.tile]

    def __exit__(self, *_):
        self.launch.candidates = self.table


def _non_finite_examples_stay_apart():
    from tacit.gradients.kernels import launch

    left, right = _random(3, 5, 7, seed=0).float(), _random(3, 5, 9, seed=1).float()
    expected = twins.product_norms(left.double(), right.double())
    left[1, 2, 3] = torch.inf
    found = launch.product_norms(left, right, "ieee")
    assert not torch.isfinite(found[1])
    return max(_error(found[[0, 2], None], expected[[0, 2], None]), *_non_finite_images())


def _non_finite_images():
    """Every position of an example has its neighbours in it alone, those at its edges too."""
    for side in (8, 16):  # one step an example, and several
        yield from _errors_beside_a_non_finite_image(side)


def _errors_beside_a_non_finite_image(side):
    from tacit.gradients.kernels import half_launch

    geometry = Geometry((3, 3), ONE, ONE, ONE)
    x, grad = _half_precision_case(3, 16, side, side, 16, geometry, F16)
    expected = twins.convolution_norms(x.double(), grad.double(), geometry)
    for spoilt in (x, grad):
        kept = spoilt[1].clone()
        spoilt[1] = torch.nan
        norms = [half_launch.cutout_products(x, grad, geometry, out_dtype=None, views=1)]
        norms += [half_launch.patch_grams(x, grad, geometry)[0]] if fitting.grams_fit(x, grad) else []
        for found in norms:
            assert not torch.isfinite(found[1])
            yield _error(found[[0, 2], None], expected[[0, 2], None])
        weights = torch.tensor([0.5, 0.0, 2.0])
        left_out = twins.convolution_sum(x[[0, 2]], grad[[0, 2]], weights[[0, 2]], geometry)
        for total in (
            half_launch.cutout_sum(x, grad, weights, geometry),
            twins.convolution_sum(x, grad, weights, geometry),
        ):
            yield _error(total[None], left_out[None])
        spoilt[1] = kept


def _bounds_by_the_kernels():
    """Zero where the norm that a way finds with the kernel is no less than what the sum's kernel, or the twin, adds.

    One position has a gradient. Its patch begins with 1, and all other squares are lost beside that one by one.
    """
    from tacit.gradients import ways
    from tacit.gradients.contributions import Convolved
    from tacit.gradients.convolving import Geometry as Moves
    from tacit.gradients.kernels import half_launch

    exactly, ways.patch_grams = ways.patch_grams, half_launch.patch_grams
    short = 0.0
    for channels, kernel, stride in ((3, 16, 16), (16, 7, 1)):
        side = (8 - 1) * stride + kernel if stride == 1 else stride + kernel
        geometry = Geometry((kernel, kernel), (stride, stride), NONE, ONE)
        x, grad = _half_precision_case(1, channels, side, side, 16, geometry, F16)
        x.zero_()[0, 0, :kernel, :kernel] = 2.0**-12 * (1 - 2.0**-6)
        grad.zero_()[0, 0, 0, 0] = x[0, 0, 0, 0] = 1
        moves = Moves(geometry.stride, geometry.padding, geometry.dilation, 1)
        use = Convolved(x, grad, torch.Size((16, channels, kernel, kernel)), moves, 1)
        norm = ways.ways_for(use)["gram-kernel"].measure(use).squared.sqrt()
        sums = [twins.convolution_sum(x, grad, torch.ones(1), geometry)]
        sums += [half_launch.cutout_sum(x, grad, torch.ones(1), geometry)] if use.is_cut_out else []
        short = max(short, *(float(total.double().norm() / norm) - 1 for total in sums))
    ways.patch_grams = exactly
    return max(short, 0.0)


def _teach_the_interpreter_bfloat16():
    """It stores bfloat16 as integers, and its dot product would multiply those."""
    from triton import language
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot = InterpreterBuilder.create_dot

    def float32(handle):
        return TensorHandle((handle.data.astype("uint32") << 16).view("float32"), language.float32)

    def widened(builder, a, b, *rest):
        if a.dtype.scalar == language.bfloat16:
            a, b = float32(a), float32(b)
        return dot(builder, a, b, *rest)

    InterpreterBuilder.create_dot = widened


def _run_all():
    _teach_the_interpreter_bfloat16()
    errors = {f"product: {name}": _product_error(*case) for name, case in PRODUCTS.items()}
    errors |= {f"convolution: {name}": _convolution_errors(*case) for name, case in CONVOLUTIONS.items()}
    errors |= {f"cutouts: {name}": _cutouts_error(*case) for name, case in CUTOUTS.items()}
    errors |= {f"grams: {name}": _grams_error(*case) for name, case in GRAMS.items()}
    errors |= {f"rows: {name}": _rows_error(*case) for name, case in ROWS.items()}
    errors |= {f"sums: {name}": _sums_error(*case) for name, case in SUMS.items()}
    errors |= {f"outer: {name}": _outer_error(*case) for name, case in OUTERS.items()}
    errors |= {f"boxes: {name}": _boxes_error(*case) for name, case in BOXES.items()}
    errors["what does not fit is left to the twin"] = _what_does_not_fit_goes_to_the_twin()
    errors["a box of another number is not taken"] = _a_wrong_number_is_not_taken()
    errors["an infinite example spoils its own norm alone"] = _non_finite_examples_stay_apart()
    errors["no norm by Gram matrices is below the sum"] = 1e6 * _bounds_by_the_kernels()
    return errors


NAMES = [
    *(f"product: {name}" for name in PRODUCTS),
    *(f"convolution: {name}" for name in CONVOLUTIONS),
    *(f"cutouts: {name}" for name in CUTOUTS),
    *(f"grams: {name}" for name in GRAMS),
    *(f"rows: {name}" for name in ROWS),
    *(f"sums: {name}" for name in SUMS),
    *(f"outer: {name}" for name in OUTERS),
    *(f"boxes: {name}" for name in BOXES),
    "what does not fit is left to the twin",
    "a box of another number is not taken",
    "an infinite example spoils its own norm alone",
    "no norm by Gram matrices is below the sum",
]


@pytest.fixture(scope="module")
def errors():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    source = pathlib.Path(__file__).parents[2] / "src"
    ran = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_equals_its_twin(errors, name):
    assert errors[name] < TOLERANCE


if __name__ == "__main__":
    print(json.dumps(_run_all()))  # noqa: T201
