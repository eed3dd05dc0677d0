"""Weights that are moved for a while, and all that may remember them."""

import torch
from torch import nn

from tacit.gradients.model_state import stirred


def test_autocast_forgets_the_weights_on_the_way_in_and_out():
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        before = layer(x)
        with stirred(dict(layer.named_parameters())):
            assert not torch.equal(layer(x), before)
        assert torch.equal(layer(x), before)
