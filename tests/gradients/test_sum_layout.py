"""Sums lie in memory as their parameters do, however they were computed: noise is drawn in that order."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.clipping import Flat
from tacit.gradients import clipped_grad
from tacit.gradients.strategies import STRATEGIES


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 5))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
def test_sums_have_the_strides_of_their_parameters(strategy, layout):
    model = network().to(memory_format=layout)
    grad = clipped_grad(
        model, lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"), clipping=Flat(1.0), strategy=strategy
    )
    images = torch.randn(6, 3, 8, 8).to(memory_format=torch.channels_last)
    sums = grad(images, torch.arange(6) % 5).grads
    for name, parameter in model.named_parameters():
        assert sums[name].stride() == parameter.stride(), name
