"""Whole models: what one example really adds keeps the bound, in the precision the model runs in."""

import contextlib

import pytest
import torch
from rounding_checks import FLOAT64_ROUNDING, matmul_precision
from torch import Tensor, nn

from tacit.clipping import Flat, PerLayer
from tacit.gradients import clipped_grad
from tacit.gradients.strategies import STRATEGIES


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
    """The settings of these tests do not leak into other tests."""
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
