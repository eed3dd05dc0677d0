"""The norm is never below the length of what an example really adds, in any precision, on data made to break it."""

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.clipping import Flat, PerLayer
from tacit.gradients import clipped_grad, ways
from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer
from tacit.gradients.convolving import Geometry, weight_gradient
from tacit.gradients.rounding import operand_bits, operand_error, subnormal_error, sum_error
from tacit.gradients.strategies import STRATEGIES
from tacit.gradients.ways import ways_for

FLOAT64_ROUNDING = 1 + 1e-11  # of the lengths that are compared here
SHARES = (1.0, 0.6, 0.5, 1 / 3, 1e-3)
IMAGE = Geometry((1, 1), (0, 0), (1, 1), 1)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def cut(values: Tensor, bits: int) -> Tensor:
    """Float32 with so many significant bits, the rest cut off, as matrix units do."""
    return (values.contiguous().view(torch.int32) & -(1 << (24 - bits))).view(torch.float32)


def outer(left: Tensor, right: Tensor) -> Outer:
    """One group; ``[examples, tokens, …]`` on both sides."""
    return Outer(left[:, None], right[:, None], torch.Size((left.shape[-1], right.shape[-1])))


def image(values: Tensor, grad: Tensor, kernel: int) -> Convolved:
    shape = torch.Size((grad.shape[1], values.shape[1], kernel, kernel))
    return Convolved(values, grad, shape, IMAGE, len(values))


def check_bound(use: Contribution, names: tuple[str, ...] | None = None, shares: tuple[float, ...] = SHARES) -> None:
    """Clipped to a share of its norm, what one example adds has at most the length of the bound."""
    for name, way in ways_for(use).items():
        if names is not None and name not in names:
            continue
        measured = way.measure(use)
        norm = measured.squared.sqrt()
        for share in shares if bool(torch.isfinite(norm).all()) else ():
            bound = norm * share
            weight = torch.where(norm > 0, bound / norm, torch.ones_like(norm))
            added = float(measured.source.weighted_sum(weight).double().norm())
            assert added <= float(bound) * FLOAT64_ROUNDING, (name, share, added, float(bound))


def random_tokens(seed: int, tokens: int = 6, rows: int = 9, columns: int = 7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(1, tokens, rows), torch.randn(1, tokens, columns)


def cancelling(difference: float) -> Contribution:
    """Two tokens that cancel but for a little: the sum is small under a large rounding error."""
    left, right = random_tokens(0, tokens=2, rows=64, columns=64)
    left[:, 1] = left[:, 0]
    right[:, 1] = -right[:, 0] * (1 + difference)
    return outer(1000 * left, right)


def huge_beside_tiny() -> Contribution:
    left, right = random_tokens(1)
    scales = 10.0 ** torch.linspace(-9, 9, 6)[:, None]
    return outer(left * scales, right / scales.flip(0))


def subnormal(tokens: int) -> Contribution:
    """Scaling rounds subnormals to a grid, and the other side makes them large again."""
    return outer(torch.full((1, tokens, 100), 3 * 2.0**-149), torch.full((1, tokens, 100), 1e38))


def always_rounded_up(tokens: int, size: int) -> Contribution:
    """A sum at 1 to which a little more than half a unit in its last place is added again and again."""
    left = torch.full((1, tokens, size), 2.0**-12 * (1 + 2.0**-6))
    left[:, ::256] = 1
    return outer(left, left.clone())


def equal_tokens(tokens: int) -> Contribution:
    left, right = random_tokens(2, tokens=1, rows=16, columns=16)
    return outer(left.expand(-1, tokens, -1).contiguous(), right.expand(-1, tokens, -1).contiguous())


def cancelling_image() -> Contribution:
    torch.manual_seed(3)
    grad = torch.randn(1, 4, 6, 6)
    grad[..., 3:] = -grad[..., :3] * (1 + 1e-5)
    return image(1000 * torch.randn(1, 3, 1, 1).expand(1, 3, 8, 8).contiguous(), grad, 3)


def uneven_image() -> Contribution:
    torch.manual_seed(4)
    scales = 10.0 ** torch.linspace(-8, 8, 8)
    return image(torch.randn(1, 3, 8, 8) * scales, torch.randn(1, 4, 6, 6) / scales[:6], 3)


def tiny_image() -> Contribution:
    """Squares of the inputs are zero in float32; products with the gradient are not."""
    torch.manual_seed(5)
    return image(1e-24 * torch.rand(1, 3, 8, 8), 1e24 * torch.rand(1, 4, 6, 6), 3)


def subnormal_image() -> Contribution:
    return image(torch.full((1, 8, 6, 6), 1e18), torch.full((1, 8, 4, 4), 3 * 2.0**-149), 3)


def cancelling_words() -> Contribution:
    torch.manual_seed(6)
    right = torch.randn(1, 1, 64, 16) * 1000
    right[:, :, 32:] = -right[:, :, :32] * (1 + 1e-6)
    return Outer(torch.zeros(1, 1, 64, dtype=torch.int64), right, torch.Size((3, 16)))


def long_row() -> Contribution:
    """A million equal numbers: a float32 sum of their squares stops growing."""
    return Direct(torch.full((1, 1_000_000), 0.1))


HARD = {
    "cancelling": lambda: cancelling(1e-7),
    "cancelling-less": lambda: cancelling(1e-3),
    "cancelling-exactly": lambda: cancelling(0.0),
    "huge-beside-tiny": huge_beside_tiny,
    "subnormal-one-token": lambda: subnormal(1),
    "subnormal-tokens": lambda: subnormal(3),
    "rounded-up": lambda: always_rounded_up(384, 2),
    "rounded-up-wide": lambda: always_rounded_up(1024, 8),
    "equal-tokens": lambda: equal_tokens(300),
    "cancelling-image": cancelling_image,
    "uneven-image": uneven_image,
    "tiny-image": tiny_image,
    "subnormal-image": subnormal_image,
    "cancelling-words": cancelling_words,
    "long-row": long_row,
    "long-row-one-token": lambda: outer(torch.full((1, 1, 1000), 0.1), torch.full((1, 1, 1000), 0.3)),
}


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("name", list(HARD))
def test_pitfall_23_what_is_added_is_never_longer_than_the_norm(name, precision):
    use = HARD[name]()
    with matmul_precision(precision):
        check_bound(use)
        if isinstance(use, Outer) and not use.one_hot:
            check_bound(_with_a_tiny_second_token(use))


def _with_a_tiny_second_token(use: Outer) -> Outer:
    """The same in one more token, so that single tokens meet the ways for several."""
    sides = [torch.cat([side, 1e-30 * side[:, :, :1]], dim=2) for side in (use.left, use.right)]
    return Outer(*sides, use.shape)


@pytest.mark.parametrize("tokens", [2048, 4096])
def test_a_long_sum_whose_every_rounding_goes_up(tokens):
    left = torch.full((1, tokens, 1), 2.0**-12 * (1 + 2.0**-6))
    left[:, 0] = 1
    check_bound(outer(left, left.clone()), ("gram", "tile"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_keep_the_bound(dtype):
    for seed in range(3):
        left, right = random_tokens(seed, tokens=5, rows=33, columns=20)
        for tokens in (1, 5):
            check_bound(outer(left[:, :tokens].to(dtype), right[:, :tokens].to(dtype)))
        torch.manual_seed(seed)
        check_bound(image(torch.randn(1, 3, 8, 8, dtype=dtype), torch.randn(1, 4, 6, 6, dtype=dtype), 3))
        ids = torch.randint(0, 3, (1, 1, 5))
        check_bound(Outer(ids, right[:, None].to(dtype), torch.Size((3, 20))))


exponents = st.integers(-60, 60)


@hypothesis_settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 20),
    exponents,
    exponents,
    st.floats(0, 8),
    st.integers(0, 2**20),
)
def test_random_tokens_of_any_shape_and_scale_keep_the_bound(tokens, rows, columns, left, right, spread, seed):
    torch.manual_seed(seed)
    sides = [
        torch.randn(1, tokens, size) * 2.0**exponent * torch.exp(spread * torch.randn(1, tokens, 1))
        for size, exponent in ((rows, left), (columns, right))
    ]
    check_bound(outer(*sides), shares=(1.0, 0.3))


# Operands that matrix units cut: emulated, since a CPU may keep all of their bits.


@contextlib.contextmanager
def products_of_cut_operands(monkeypatch: pytest.MonkeyPatch, bits: int) -> Iterator[None]:
    """Every product that a way takes a norm from has its operands cut."""
    dot, tiles, image_tiles = ways._dot, ways.product_norms, ways.convolution_norms
    with monkeypatch.context() as patch:
        patch.setattr(ways, "_dot", lambda a, b: dot(cut(a, bits), cut(b, bits)))
        patch.setattr(ways, "product_norms", lambda a, b: tiles(cut(a, bits), cut(b, bits)))
        patch.setattr(ways, "convolution_norms", lambda a, b, *more: image_tiles(cut(a, bits), cut(b, bits), *more))
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
            patch.setattr(ways, "operand_error", lambda dtype, convolution=False: 2.0**-22)
            with pytest.raises(AssertionError):
                check_cut(use, "high", 11, monkeypatch)


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


# Planted: without its raise, each way is caught by the same check.


@pytest.mark.parametrize(
    ("name", "way", "forgotten"),
    [
        ("rounded-up", "gram", ("operand_error", "sum_error")),
        ("subnormal-one-token", "product", ("subnormal_error",)),
        ("subnormal-tokens", "tile", ("subnormal_error",)),
        ("cancelling", "gram", ("operand_error", "sum_error", "smallest_normal")),
    ],
)
def test_planted_a_norm_without_its_raise_is_rejected(name, way, forgotten, monkeypatch):
    use = HARD[name]()
    check_bound(use, (way,))
    for error in forgotten:
        monkeypatch.setattr(ways, error, lambda *arguments, **options: 0.0)
    with pytest.raises(AssertionError):
        check_bound(use, (way,))


def test_planted_a_float32_norm_of_a_long_row_is_rejected(monkeypatch):
    """Float32 squares that are added one after another stop growing, so the norm comes out small."""

    def measure(use: Direct) -> ways.Measured:
        total = np.cumsum(use.grads.square().numpy(), axis=1, dtype=np.float32)[:, -1]
        return ways.Measured(torch.from_numpy(total).double(), use)

    row = Direct(torch.cat([torch.ones(1, 1), torch.full((1, 200_000), 2.0**-13)], dim=1))
    check_bound(row)
    with monkeypatch.context() as patch:
        patch.setattr(ways, "measure_written", measure)
        with pytest.raises(AssertionError):
            check_bound(row)


def test_planted_weights_that_round_up_are_rejected(monkeypatch):
    from tacit.gradients import contributions

    use = Direct(torch.rand(1, 1000) + 0.5)
    check_bound(use, shares=tuple(0.1 + 0.01 * i for i in range(50)))
    monkeypatch.setattr(contributions, "_round_down", lambda weights, dtype: (weights * (1 + 2.0**-23)).to(dtype))
    with pytest.raises(AssertionError):
        check_bound(use, shares=tuple(0.1 + 0.01 * i for i in range(50)))


# Tightness: a norm that is raised much would be safe, and useless.


@pytest.mark.parametrize(
    ("name", "tokens"), [("product", 1), *((name, tokens) for name in ("keep", "gram", "tile") for tokens in (16, 128))]
)
def test_ordinary_norms_are_raised_by_less_than_a_hundredth(name, tokens):
    torch.manual_seed(0)
    use = outer(torch.randn(4, tokens, 64), torch.randn(4, tokens, 48))
    with matmul_precision("highest"):
        norm = ways_for(use)[name].measure(use).squared.sqrt()
    true = torch.einsum("egtm,egtn->emn", use.left.double(), use.right.double()).flatten(1).norm(dim=1)
    raised = norm / true - 1
    assert float(raised.min()) > -1e-6
    assert float(raised.max()) < 0.01


def test_ordinary_images_are_raised_by_less_than_a_hundredth():
    torch.manual_seed(0)
    use = image(torch.randn(2, 8, 10, 10), torch.randn(2, 16, 8, 8), 3)
    true = use.write_out().double().flatten(1).norm(dim=1)
    for way in ways_for(use).values():
        raised = way.measure(use).squared.sqrt() / true - 1
        assert -1e-6 < float(raised.min()) <= float(raised.max()) < 0.01


# Whole models: what one example really adds, in the precision the model runs in.


def loss(model: nn.Module, x: Tensor) -> Tensor:
    rows = model(x).flatten(1).float()
    return 10 * (rows.square().sum(1) + rows.sum(1))


def networks() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.LayerNorm(48), nn.Linear(48, 16))
    images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1, groups=2))
    words = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
    return {
        "linear": (linear, torch.randn(3, 32)),
        "tokens": (linear, torch.randn(3, 6, 32)),
        "images": (images, torch.randn(3, 3, 9, 9)),
        "words": (words, torch.randint(0, 20, (3, 12))),
    }


def realised(model: nn.Module, x: Tensor, clipping: Flat | PerLayer, strategy: str | None) -> float:
    """The longest sum that one example of the batch gives, alone in the mask."""
    grad = clipped_grad(model, loss, clipping=clipping, engine="bookkeeping", strategy=strategy)
    lengths = []
    for i in range(len(x)):
        sums = grad(x, mask=torch.arange(len(x)) == i).grads
        assert all(value.dtype == torch.float32 for value in sums.values())
        lengths.append(sum(float(value.double().square().sum()) for value in sums.values()) ** 0.5)
    return max(lengths)


@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
@pytest.mark.parametrize("name", ["linear", "tokens", "images", "words"])
def test_pitfall_23_one_example_keeps_the_bound_under_autocast(name, strategy):
    model, x = networks()[name]
    for bound in (0.5, 0.0371):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert 0 < realised(model, x, Flat(bound), strategy) <= bound * FLOAT64_ROUNDING
            assert realised(model, x, PerLayer(bound), strategy) <= bound * FLOAT64_ROUNDING


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("name", ["linear", "tokens", "images", "words"])
def test_pitfall_23_one_example_keeps_the_bound_whatever_the_products_precision(name, precision):
    model, x = networks()[name]
    with matmul_precision(precision):
        for strategy in (None, "gram", "tile"):
            assert 0 < realised(model, x, Flat(0.1), strategy) <= 0.1 * FLOAT64_ROUNDING
        low, rows = model.to(torch.bfloat16), x.to(torch.bfloat16) if x.is_floating_point() else x
        assert 0 < realised(low, rows, Flat(0.1), None) <= 0.1 * FLOAT64_ROUNDING


def test_matmul_precision_is_as_it_was():
    """The settings of this file do not leak into other tests."""
    before = torch.get_float32_matmul_precision()
    with contextlib.suppress(ValueError), matmul_precision("medium"):
        raise ValueError
    assert torch.get_float32_matmul_precision() == before


def test_saturated_losses_with_huge_inputs_keep_the_bound():
    """Subnormal gradients of the output and inputs near the largest float32, through the public interface."""
    model = nn.Linear(200, 200, bias=False)
    nn.init.zeros_(model.weight)

    def saturated(network: nn.Module, x: Tensor) -> Tensor:
        return network(x).flatten(1).mul(3 * 2.0**-149).sum(1)

    for x in (torch.full((1, 200), 3e38), torch.full((1, 2, 200), 1.5e38)):
        for strategy in (None, "tile", "gram"):
            for bound in (1.5e-4, 1.23e-4, 1e-5):
                grad = clipped_grad(model, saturated, clipping=Flat(bound), engine="bookkeeping", strategy=strategy)
                assert float(grad(x).grads["weight"].double().norm()) <= bound * FLOAT64_ROUNDING


def test_kept_gradients_are_measured_as_they_are_added():
    """Written out in half precision, they have the norm of what was written and no other."""
    left, right = random_tokens(9)
    use = outer(left.bfloat16(), right.bfloat16())
    measured = ways_for(use)["keep"].measure(use)
    assert isinstance(measured.source, Direct)
    assert measured.source.grads.dtype == torch.bfloat16
    torch.testing.assert_close(measured.squared.sqrt(), measured.source.grads.double().flatten(1).norm(dim=1))
    assert dataclasses.is_dataclass(measured)
