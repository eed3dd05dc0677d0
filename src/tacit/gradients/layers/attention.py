"""Multi-head attention, written with operations that have rules.

``torch.nn.MultiheadAttention`` runs one fused function that hides its four projections from any observer. The function
here computes the same from plain linear layers, and takes its place while a forward pass is recorded.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.core.errors import UnsupportedError


def multi_head_attention(  # noqa: PLR0913 - the signature is torch's
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``F.multi_head_attention_forward`` for batched inputs, ``[tokens, examples, embedding]``.

    ``is_causal`` is only a hint there about the mask that is passed as well, so it changes nothing.
    """
    del is_causal
    if query.dim() != 3 or static_k is not None or static_v is not None:
        raise UnsupportedError(
            "MultiheadAttention without a batch dimension, or with static keys: has no rule. Use engine='functional'."
        )
    if use_separate_proj_weight:
        weights: list[Tensor | None] = [q_proj_weight, k_proj_weight, v_proj_weight]
    else:
        weights = [in_proj_weight] * 3
    q, k, v = _project(query, key, value, weights, in_proj_bias, packed=not use_separate_proj_weight)
    if bias_k is not None and bias_v is not None:
        examples = q.shape[1]
        k = torch.cat([k, bias_k.expand(1, examples, embed_dim_to_check)])
        v = torch.cat([v, bias_v.expand(1, examples, embed_dim_to_check)])
    if add_zero_attn:
        zero = k.new_zeros(1, *k.shape[1:])
        k, v = torch.cat([k, zero]), torch.cat([v, zero])
    q, k, v = (_heads(t, num_heads) for t in (q, k, v))
    mask = _mask(attn_mask, key_padding_mask, q, k)
    dropout = dropout_p if training else 0.0
    scores = None
    if need_weights:
        logits = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        scores = torch.softmax(logits if mask is None else logits + mask, dim=-1)
        scores = F.dropout(scores, dropout) if dropout else scores
        mixed = scores @ v
        scores = scores.mean(1) if average_attn_weights else scores
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout)
    mixed = mixed.permute(2, 0, 1, 3).flatten(2)
    return F.linear(mixed, out_proj_weight, out_proj_bias), scores


def share_attention_bias(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``F.scaled_dot_product_attention`` with a learned bias repeated for each example.

    A bias that is one for all examples would be added inside the fused kernel, where no rule sees it; repeating it has
    a rule, and each example then has a copy of its own.
    """
    if attn_mask is not None and attn_mask.requires_grad and attn_mask.shape[: query.dim() - 3] != query.shape[:-3]:
        attn_mask = attn_mask.expand(*query.shape[:-3], *attn_mask.shape[-3:])
    return (query, key, value, attn_mask, dropout_p, is_causal), {"scale": scale, "enable_gqa": enable_gqa}


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: list[Tensor | None],
    bias: Tensor | None,
    *,
    packed: bool,
) -> tuple[Tensor, ...]:
    """The three input projections; in one product where they share input and weight."""
    inputs = (query, key, value)
    if packed and query is key and key is value:
        return F.linear(query, _given(weights[0]), bias).chunk(3, dim=-1)
    size = query.shape[-1]
    parts = [slice(i * size, (i + 1) * size) for i in range(3)]
    return tuple(
        F.linear(x, _given(w)[part] if packed else _given(w), None if bias is None else bias[part])
        for x, w, part in zip(inputs, weights, parts, strict=True)
    )


def _given(weight: Tensor | None) -> Tensor:
    if weight is None:
        raise UnsupportedError("MultiheadAttention: a projection weight is missing. Use engine='functional'.")
    return weight


def _heads(values: Tensor, num_heads: int) -> Tensor:
    """``[tokens, examples, heads * size]`` to ``[examples, heads, tokens, size]``."""
    return values.reshape(*values.shape[:2], num_heads, -1).permute(1, 2, 0, 3)


def _mask(attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Both masks as one summand for the logits, ``[examples or 1, heads or 1, tokens, keys]``; extra keys are seen."""
    examples, heads, _, _ = query.shape
    total = None
    if attn_mask is not None:
        total = _additive(attn_mask, query)
        total = total.reshape(examples, heads, *total.shape[1:]) if total.dim() == 3 else total[None, None]
    if key_padding_mask is not None:
        padding = _additive(key_padding_mask, query)[:, None, None, :]
        total = padding if total is None else total + padding
    return None if total is None else F.pad(total, (0, key.shape[2] - total.shape[-1]))


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -torch.inf)
