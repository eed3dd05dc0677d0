"""The bound covers operands that matrix units cut, and the error terms cover the roundings that they stand for.

The cut is emulated, since a CPU may keep all bits.
"""

import contextlib
import itertools
from collections.abc import Iterator

import pytest
import torch
from rounding_cases import cancelling, cancelling_image, uneven_image
from rounding_checks import (
    FLOAT64_ROUNDING,
    SHARES,
    convolution_precision,
    image,
    matmul_precision,
    outer,
    random_tokens,
)
from torch import Tensor

from tacit.gradients import gram_norms, rounding, ways
from tacit.gradients.contributions import Contribution, Convolved, Outer
from tacit.gradients.convolving import weight_gradient
from tacit.gradients.rounding import (
    blocked_sum_error,
    convolution_bits,
    operand_bits,
    operand_error,
    product_settings,
    subnormal_error,
    sum_error,
    unscaled_error,
)
from tacit.gradients.ways import ways_for


def cut(values: Tensor, bits: int) -> Tensor:
    """Float32 with so many significant bits, the rest cut off, as matrix units do."""
    return (values.contiguous().view(torch.int32) & -(1 << (24 - bits))).view(torch.float32)


@contextlib.contextmanager
def products_of_cut_operands(monkeypatch: pytest.MonkeyPatch, bits: int) -> Iterator[None]:
    """Every product that a way takes a norm from has its operands cut."""
    dot, tiles, image_tiles = gram_norms._dot, ways.product_norms, ways.convolution_norms
    with monkeypatch.context() as patch:
        patch.setattr(gram_norms, "_dot", lambda a, b: dot(cut(a, bits), cut(b, bits)))
        patch.setattr(ways, "product_norms", lambda a, b: tiles(cut(a, bits), cut(b, bits)))
        patch.setattr(
            ways,
            "convolution_norms",
            lambda a, b, *more, views: image_tiles(cut(a, bits), cut(b, bits), *more, views=views),
        )
        yield


def added_from_cut_operands(use: Contribution, weight: Tensor, bits: int) -> Tensor:
    """The weighted sum of one example with its operands cut, without any other rounding."""
    weight = (weight if float(weight) == 1 else weight * (1 - 2.0**-21)).float()
    if isinstance(use, Outer):
        left, right = (cut(side[0, 0], bits).double() for side in (use.left * weight, use.right))
        return left.t() @ right
    assert isinstance(use, Convolved)
    grad, values = (cut(side, bits).double() for side in (use.grad * weight, use.input))
    return weight_gradient(values, grad, use.shape, use.geometry)


def tails_that_do_not_cancel(bits: int) -> Contribution:
    """Tokens whose true sum nearly vanishes; cut, they stand a whole unit of the cut apart."""
    unit = 2.0 ** (1 - bits)
    left = torch.full((1, 2, 8), 1 + unit)
    left[:, 1] = -(1 + unit - 2.0**-22)
    return outer(left, torch.ones(1, 2, 8))


def tails_against_the_sum(bits: int) -> Contribution:
    """Only what is subtracted loses its tail."""
    unit = 2.0 ** (1 - bits)
    left = torch.full((1, 2, 8), 1.0)
    left[:, 1] = -0.5 * (1 + unit - 2.0**-22)
    right = torch.full((1, 2, 8), 1.0)
    right[:, 1] = 1 + unit - 2.0**-22
    return outer(left, right)


CUT_CASES = {
    "random": lambda bits: outer(*random_tokens(7)),
    "one-token": lambda bits: outer(*random_tokens(8, tokens=1)),
    "cancelling": lambda bits: cancelling(1e-3),
    "tails": tails_that_do_not_cancel,
    "subtracted-tails": tails_against_the_sum,
    "image": lambda bits: uneven_image(),
    "cancelling-image": lambda bits: cancelling_image(),
}


@pytest.mark.parametrize(("precision", "bits"), [("high", 11), ("medium", 8)])
@pytest.mark.parametrize("name", list(CUT_CASES))
def test_the_bound_covers_operands_that_are_cut(name, precision, bits, monkeypatch):
    check_cut(CUT_CASES[name](bits), precision, bits, monkeypatch)


@pytest.mark.parametrize(("setting", "bits"), [("tf32", 11), ("bf16", 8), ("ieee", 24)])
def test_convolutions_have_a_setting_of_their_own(setting, bits):
    with convolution_precision(setting):
        assert convolution_bits() == bits
        assert operand_error(torch.float32, convolution=True) >= 2.0 ** (1 - bits)
        assert operand_error(torch.float32) < 2.0**-20
        unit = 2.0**-23 if bits < 24 else 2.0**-24  # of sums that are cut, or rounded to the nearest
        use = uneven_image()
        later = operand_error(torch.float32, convolution=True) + (use.tokens + 4) * unit
        assert ways._later(use) == pytest.approx(later, rel=1e-12)
        assert sum_error(100, torch.float32) == 100 * 2.0**-24


def test_programs_are_told_apart_by_the_settings_of_their_own_device(monkeypatch):
    before = product_settings("cpu"), product_settings("cuda")
    monkeypatch.setattr(rounding, "_setting_of_cpu_convolutions", lambda: "another")
    assert (product_settings("cpu") == before[0], product_settings("cuda") == before[1]) == (False, True)
    monkeypatch.undo()
    for allowed in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        assert product_settings("cpu") == before[0]
        assert product_settings("cuda") == (before[1][0], allowed)
    monkeypatch.undo()
    with matmul_precision("medium"):
        assert product_settings("cpu") != before[0]
        assert product_settings("cuda") != before[1]


def check_cut(use: Contribution, precision: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with matmul_precision(precision):
        assert operand_bits() <= bits
        for name in ("gram", "tile", "product"):
            if name not in ways_for(use):
                continue
            whole = ways_for(use)[name].measure(use).squared.sqrt()
            with products_of_cut_operands(monkeypatch, bits):
                shortened = ways_for(use)[name].measure(use).squared.sqrt()
            for share in SHARES:
                added = added_from_cut_operands(use, torch.tensor(share, dtype=torch.float64), bits).norm()
                for norm in (whole, shortened):
                    assert float(added) <= float(norm) * share * FLOAT64_ROUNDING, (name, share)


def test_planted_a_bound_for_fewer_cut_bits_is_rejected(monkeypatch):
    """Bounds for full float32 operands do not cover operands of eleven bits."""
    for name in ("tails", "subtracted-tails"):
        use = CUT_CASES[name](11)
        check_cut(use, "high", 11, monkeypatch)
        with monkeypatch.context() as patch:
            for module, name in ((ways, "operand_error"), (ways, "unscaled_error"), (gram_norms, "operand_error")):
                patch.setattr(module, name, lambda dtype, convolution=False: 2.0**-22)
            with pytest.raises(AssertionError):
                check_cut(use, "high", 11, monkeypatch)


def test_tiles_of_tokens_are_raised_by_all_that_can_happen_to_them():
    """By numbers: products and their sum in the tiles, and again in the sum taken later."""
    torch.manual_seed(0)
    use = outer(torch.randn(3, 20, 8), torch.randn(3, 20, 6))
    exact = torch.einsum("egtm,egtn->emn", use.left.double(), use.right.double()).flatten(1).norm(dim=1)
    size = (use.left.double().norm(dim=3) * use.right.double().norm(dim=3)).sum((1, 2))
    with matmul_precision("high"):
        raised = (ways_for(use)["tile"].measure(use).squared.sqrt() - exact) / size
        assert unscaled_error(torch.float32) == operand_error(torch.float32)
    cut = 2.0**-9 + 2.0**-20
    expected = 2 * cut + 2 * (20 + 64) * 2.0**-23
    torch.testing.assert_close(raised, torch.full_like(raised, expected), rtol=1e-3, atol=0)


def two_positions_that_nearly_cancel(dtype: torch.dtype, seed: int) -> Convolved:
    """One number against another of nearly its size; scaled, they lose different parts of themselves."""
    torch.manual_seed(seed)
    first = 1 + torch.rand(1)
    pair = torch.stack([first, -first * (1 + 2.0**-7)]).to(dtype).view(1, 1, 1, 2)
    return image(torch.ones(1, 1, 1, 2, dtype=dtype), pair, 1)


def check_scaled_operands_alone(dtype: torch.dtype, bits: int) -> None:
    """In half precision the operand that is not scaled has few bits already, and products for the norm are exact."""
    uses = [two_positions_that_nearly_cancel(dtype, seed) for seed in range(20)]
    for use, name in itertools.product(uses, ("gram", "gram-kernel", "tile")):
        values, grads = use.input.double(), use.grad.float()
        norm = float(ways_for(use)[name].measure(use).squared.sqrt())
        for share in torch.linspace(0.3, 0.99, 40).tolist():
            scaled = cut(grads * torch.tensor(share * (1 - 2.0**-21)), bits).double()
            added = weight_gradient(values, scaled, use.shape, use.geometry).norm()
            assert float(added) <= norm * share * FLOAT64_ROUNDING, (name, share)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_the_bound_covers_the_scaled_operand(dtype, monkeypatch):
    with matmul_precision("high"):
        assert operand_error(dtype) == operand_error(dtype, convolution=True) == 2.0**-10
        assert unscaled_error(dtype) == 0
        check_scaled_operands_alone(dtype, 11)
        monkeypatch.setattr(ways, "operand_error", lambda dtype, convolution=False: 2.0**-12)  # planted
        with pytest.raises(AssertionError):
            check_scaled_operands_alone(dtype, 11)


def test_float16_is_cut_where_units_keep_fewer_bits_than_it_has():
    with matmul_precision("medium"):
        assert operand_error(torch.float16) == unscaled_error(torch.float16) > 2.0**-7
        assert operand_error(torch.bfloat16) == 2.0**-7
        assert unscaled_error(torch.bfloat16) == 0


def test_blocked_sum_error_covers_blocks_whose_sums_are_cut():
    torch.manual_seed(0)
    for terms, block in ((1, 64), (64, 64), (65, 64), (300, 16), (2304, 64)):
        values = torch.rand(50, terms)
        total = torch.zeros(50)
        for start in range(0, terms, block):
            part = torch.zeros(50)
            for i in range(start, min(start + block, terms)):
                part = toward_zero(part.double() + values[:, i].double())
            total += part
        error = (total.double() / values.double().sum(1) - 1).abs().max()
        assert float(error) <= blocked_sum_error(terms, block) < 200 * max(float(error), 2.0**-24)
    assert blocked_sum_error(2304, 64) < sum_error(2304, torch.bfloat16) / 20


def toward_zero(values: Tensor) -> Tensor:
    """Float32 numbers no larger in size than these."""
    near = values.float()
    return torch.where(near.double().abs() > values.abs(), torch.nextafter(near, torch.zeros(())), near)


def test_operand_error_covers_cutting_and_rounding_of_both_operands():
    torch.manual_seed(0)
    a, b = torch.randn(2, 100_000).abs().unbind()
    for precision, bits in (("high", 11), ("medium", 8)):
        with matmul_precision(precision):
            worst = (cut(a, bits).double() * cut(b, bits).double() / (a.double() * b.double()) - 1).abs().max()
            assert 0.25 * operand_error(torch.float32) < float(worst) <= operand_error(torch.float32)
    with matmul_precision("highest"):
        assert operand_error(torch.float32) < 1e-6
        assert operand_error(torch.float64) < 1e-15


def test_sum_error_covers_a_plain_sum_in_order():
    """One after another in float32, as the simplest program would add them."""
    torch.manual_seed(0)
    for terms in (2, 17, 300):
        values = torch.rand(200, terms)
        total = values[:, 0].clone()
        for i in range(1, terms):
            total += values[:, i]
        error = (total.double() - values.double().sum(1)).abs() / values.double().sum(1)
        assert float(error.max()) <= sum_error(terms, torch.float32)


def test_subnormal_error_covers_subnormal_grids():
    grid = torch.arange(1, 50) * 2.0**-149
    for factor in (0.3, 0.5, 0.6, 0.9):
        excess = (grid * torch.tensor(factor)).double() - grid.double() * factor
        assert float(excess.max()) <= subnormal_error(1, torch.float32)
