"""One rule a layer kind: how an operation's inputs and output gradients give the gradients of its parameters."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tacit.gradients.layers.attention import multi_head_attention, share_attention_bias
from tacit.gradients.layers.base import Call as Call
from tacit.gradients.layers.base import Layout as Layout
from tacit.gradients.layers.base import Rule as Rule
from tacit.gradients.layers.convolution import CONVOLUTION, put_channels_last
from tacit.gradients.layers.elementwise import ADD, EXPAND, MUL, SUB, WHERE
from tacit.gradients.layers.embedding import EMBEDDING, EMBEDDING_BAG
from tacit.gradients.layers.linear import ADDMM, LINEAR, MATMUL
from tacit.gradients.layers.normalization import BATCH_NORM, GROUP_NORM, INSTANCE_NORM, LAYER_NORM, RMS_NORM
from tacit.gradients.layers.weights import weight_norm

_ALL = (
    *(LINEAR, ADDMM, MATMUL, CONVOLUTION, EMBEDDING, EMBEDDING_BAG),
    *(LAYER_NORM, RMS_NORM, GROUP_NORM, INSTANCE_NORM, BATCH_NORM),
    *(ADD, SUB, MUL, WHERE, EXPAND),
)

RULES: dict[Callable[..., Any], Rule] = {function: rule for rule in _ALL for function in rule.functions}

# Composite operations, and what runs in their place while a forward pass is recorded.
REWRITES: dict[Callable[..., Any], Callable[..., Any]] = {
    F.multi_head_attention_forward: multi_head_attention,
    torch._weight_norm: weight_norm,
}

# Operations that run as they are, with arguments prepared by an observed function.
ADAPTERS: dict[Callable[..., Any], Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]] = {
    F.scaled_dot_product_attention: share_attention_bias,
    F.conv2d: put_channels_last,
}
