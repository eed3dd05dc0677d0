"""The norm is never below the length of what an example really adds, in any precision, on data made to break it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rounding_cases import HARD, cancelling
from rounding_checks import check_bound, image, matmul_precision, outer, random_tokens

from tacit.gradients import contributions, gram_norms, rounding, ways
from tacit.gradients.contributions import Direct, Outer
from tacit.gradients.ways import ways_for


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
            check_bound(outer(right[:, :tokens].to(dtype), left[:, :tokens].to(dtype)))
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


def single_numbers(tokens: int) -> list[Outer]:
    """Numbers of bfloat16 miss a part of the scaled one; with a single entry nothing evens that out.

    All tokens but the first are zero.
    """
    torch.manual_seed(11)
    numbers = torch.zeros(50, 1, tokens, 1)
    numbers[:, :, 0] = torch.randn(50, 1, 1)
    return [outer(torch.ones(1, tokens, 1).bfloat16(), number.bfloat16()) for number in numbers]


def test_scaled_operands_in_two_halves_keep_the_bound():
    for use in single_numbers(tokens=2):
        check_bound(use)


def test_scaled_operands_in_one_number_keep_the_bound():
    for use in single_numbers(tokens=1):
        check_bound(use)


def test_planted_one_number_rounded_to_the_nearest_is_rejected(monkeypatch):
    monkeypatch.setattr(contributions, "_rounded_below", lambda values: (values.bfloat16(),))
    with pytest.raises(AssertionError):
        test_scaled_operands_in_one_number_keep_the_bound()


def test_planted_halves_without_their_raise_are_rejected(monkeypatch):
    monkeypatch.setattr(rounding, "_TWO_HALVES", 0.0)
    with pytest.raises(AssertionError):
        test_scaled_operands_in_two_halves_keep_the_bound()


def test_kept_gradients_are_measured_as_they_are_added():
    """Written out in half precision, they have the norm of what was written and no other."""
    left, right = random_tokens(9)
    use = outer(left.bfloat16(), right.bfloat16())
    measured = ways_for(use)["keep"].measure(use)
    assert isinstance(measured.source, Direct)
    assert measured.source.grads.dtype == torch.bfloat16
    torch.testing.assert_close(measured.squared.sqrt(), measured.source.grads.double().flatten(1).norm(dim=1))
    assert dataclasses.is_dataclass(measured)


# Planted: without its raise, each way is caught by the same check.


@pytest.mark.parametrize(
    ("name", "way", "forgotten"),
    [
        ("rounded-up", "gram", ("operand_error", "sum_error")),
        ("subnormal-one-token", "product", ("subnormal_error", "lost_squares", "square_sum_error")),
        ("subnormal-one-token-right", "product", ("subnormal_error", "lost_squares", "square_sum_error")),
        ("subnormal-tokens", "tile", ("subnormal_error", "lost_squares")),
    ],
)
def test_planted_a_norm_without_its_raise_is_rejected(name, way, forgotten, monkeypatch):
    use = HARD[name]()
    check_bound(use, (way,))
    forget(forgotten, monkeypatch)
    with pytest.raises(AssertionError):
        check_bound(use, (way,))


def test_planted_gram_norms_of_cancelling_tokens_without_their_raise_are_rejected(monkeypatch):
    """In one of several at least: in which one a Gram matrix is rounded down is up to the processor."""

    def check() -> None:
        for seed in range(20):
            check_bound(cancelling(1e-7, seed), ("gram",))

    check()
    forget(("operand_error", "sum_error", "smallest_normal"), monkeypatch)
    with pytest.raises(AssertionError):
        check()


def forget(errors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for error in errors if "operand_error" not in errors else (*errors, "unscaled_error"):
        users = [module for module in (ways, gram_norms) if hasattr(module, error)]
        assert users, error
        for module in users:
            monkeypatch.setattr(module, error, lambda *arguments, **options: 0.0)


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


def vectors(size: int) -> torch.Tensor:
    """Random ones, ones that a sum in float32 rounds down, and ones whose squares are too small."""
    generator = torch.Generator().manual_seed(0)
    even = torch.randn(200, size, generator=generator)
    falling = torch.full((1, size), 2.0**-12 * (1 - 2.0**-20))
    falling[0, 0] = 1.0
    return torch.cat([even, falling, torch.full((1, size), 3e-23), torch.zeros(1, size)])


@pytest.mark.parametrize("size", [1, 10, 1000, 8192, 8193, 20_000])
def test_lengths_are_never_below_the_true_ones(size, monkeypatch):
    rows = vectors(size)
    exact = torch.linalg.vector_norm(rows.double(), dim=1)
    found = ways._length_at_least(rows)
    assert (found >= exact).all()
    assert (found[:-2] <= exact[:-2] * (1 + 2.0**-10)).all()
    if size > 1:
        monkeypatch.setattr(ways, "square_sum_error", lambda terms: 0.0)
        monkeypatch.setattr(ways, "lost_squares", lambda entries: 0.0)
        assert (ways._length_at_least(rows) < exact).any()
