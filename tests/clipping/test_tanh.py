"""The tanh filter states the sensitivity that it has: c sqrt(n), or the norm that comes after it."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.clipping import Clipping, Tanh
from tacit.core import InputError, Neighbours

SIZES = {"fc.weight": 12, "fc.bias": 4}


def test_the_filter_is_c_tanh_of_g_over_k() -> None:
    found = Tanh(c=2.0, k=4.0).filter(torch.tensor([0.0, 1.0, -4.0, 1e9], dtype=torch.float64))
    assert found.tolist() == pytest.approx([0.0, 2 * math.tanh(0.25), -2 * math.tanh(1.0), 2.0], rel=1e-12)


def test_equation_4_of_the_paper_is_the_filter_with_k_2() -> None:
    x = torch.linspace(-6, 6, 25, dtype=torch.float64)
    torch.testing.assert_close(Tanh(k=2.0).filter(x), (1 - torch.exp(-x)) / (1 + torch.exp(-x)))


@pytest.mark.parametrize(("c", "k"), [(1.0, 1.0), (0.1, 5.0), (3.0, 0.01)])
def test_without_a_bound_the_sensitivity_is_c_root_n_whatever_k(c: float, k: float) -> None:
    bound = Tanh(c, k).bind(SIZES)
    assert bound.total == c * 4
    assert bound.sensitivity(Neighbours.ADD_REMOVE) == c * 4
    assert bound.sensitivity(Neighbours.ZERO_OUT) == c * 4
    assert bound.sensitivity(Neighbours.REPLACE_ONE) == c * 8


def test_with_a_bound_the_sensitivity_is_the_bound() -> None:
    bound = Tanh(1.0, 0.1, bound=0.5).bind(list(SIZES))
    assert bound.groups == (tuple(SIZES),)
    assert bound.sensitivity(Neighbours.ADD_REMOVE) == 0.5
    assert bound.sensitivity(Neighbours.REPLACE_ONE) == 1.0


def test_without_a_bound_names_alone_are_refused() -> None:
    with pytest.raises(InputError, match=r"numel\(\)"):
        Tanh().bind(list(SIZES))


@given(bound=st.floats(1e-300, 1e300), norm=st.floats(0, 1e308))
def test_factors_never_let_more_than_the_bound_through(bound: float, norm: float) -> None:
    norms = torch.tensor([[norm]], dtype=torch.float64)
    factor = Tanh(bound=bound).bind(["w"]).factors(norms).item()
    assert 0 <= factor <= 1
    assert Fraction(factor) * Fraction(norm) <= Fraction(bound)
    assert factor >= min(1.0, bound / norm if norm else 1.0) * (1 - 2e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", True])
def test_what_is_no_positive_number_is_refused(bad: float) -> None:
    for name in ("c", "k", "bound"):
        with pytest.raises(InputError, match=f"{name}="):
            Tanh(**{name: bad})


def test_no_names_and_repeated_names_are_refused() -> None:
    with pytest.raises(InputError, match="at least one trainable parameter"):
        Tanh().bind({})
    with pytest.raises(InputError, match="unique"):
        Tanh(bound=1.0).bind(["w", "w"])


def test_it_is_a_clipping_rule_and_describes_itself() -> None:
    assert isinstance(Tanh(), Clipping)
    assert Tanh(1, 10, bound=0.5).describe() == "gradients filtered by 1 tanh(g / 10), then clipped at norm 0.5"
    assert "clipped at norm 2 sqrt(n)" in Tanh(2.0).describe()
