"""Sums of narrow layers in bfloat16, which a GPU takes by a kernel of its own: on tensors that say they lie there."""

import pytest
import torch
from compiled_checks import said_on_device
from torch import Tensor

from tacit.gradients import contributions
from tacit.gradients.contributions import Outer
from tacit.gradients.kernels import NARROW

FINITE = torch.tensor([True, True, False, True, True])
WEIGHTS = torch.tensor([1.0, 0.3, 0.7, 0.0, 0.9], dtype=torch.float64)


def layer(width: int, size: int, tokens: int = 1) -> Outer:
    generator = torch.Generator().manual_seed(width)
    left, right = (torch.randn(5, 1, tokens, n, generator=generator).bfloat16() for n in (width, size))
    right[2] = torch.nan
    return Outer(left, right, torch.Size((width, size)))


def on_device(use: Outer) -> Outer:
    return Outer(said_on_device(use.left), use.right, use.shape)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The narrow sides that the kernel was given."""
    found = []
    take = contributions.outer_sum

    def noted(left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
        found.append(left.shape)
        return take(left, right, keep)

    monkeypatch.setattr(contributions, "outer_sum", noted)
    return found


@pytest.mark.parametrize("width", [1, 10, NARROW])
def test_a_narrow_sum_is_that_of_the_ordinary_way(width: int, taken: list[torch.Size]) -> None:
    use = layer(width, 40)
    expected = use.weighted_sum(WEIGHTS, FINITE)
    assert not taken
    found = on_device(use).weighted_sum(WEIGHTS, FINITE)
    assert taken == [(5, width)]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert expected.isfinite().all()


def test_no_example_adds_more_than_its_weight(taken: list[torch.Size]) -> None:
    for seed in range(3):
        use = layer(3 + seed, 40)
        for row in (0, 1, 4):
            one = Outer(use.left[row : row + 1], use.right[row : row + 1], use.shape)
            norm = one.left.double().norm() * one.right.double().norm()
            added = on_device(one).weighted_sum(WEIGHTS[row : row + 1]).double().norm()
            assert (1 - 2**-6) * WEIGHTS[row] * norm < added <= WEIGHTS[row] * norm
    assert len(taken) == 9


@pytest.mark.parametrize("use", [layer(NARROW + 1, 40), layer(8, 8), layer(10, 4), layer(4, 40, tokens=2)])
def test_other_layers_are_left_to_the_library(
    use: Outer, taken: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contributions, "_product", lambda left, right: left.t().float() @ right.float())
    monkeypatch.setattr(contributions, "_cleared", contributions._chosen)  # which needs no kernel
    on_device(use).weighted_sum(WEIGHTS, FINITE)
    assert not taken
    monkeypatch.setattr(contributions, "triton_is_installed", lambda: False)
    on_device(layer(10, 40)).weighted_sum(WEIGHTS, FINITE)
    assert not taken
