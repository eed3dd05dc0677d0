"""Embeddings: row ids_t of the table gets the gradient of token t, so the left vectors are one-hot.

Tokens with equal ids add up in one row; the equality of ids in the Gram matrix takes care of that. The padding row of
a table is never trained, in any engine.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.contributions import Outer, at_least_float32
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule


def _refuse_batch_dependence(layer: str, max_norm: float | None, scale_grad_by_freq: bool) -> None:
    if max_norm is not None:
        raise UnsupportedError(
            f"{layer}(max_norm={max_norm}): renormalises rows of the table in the forward pass, without noise. "
            "Build the layer with max_norm=None."
        )
    if scale_grad_by_freq:
        raise UnsupportedError(
            f"{layer}(scale_grad_by_freq=True): divides by counts over the whole batch, which mixes examples. "
            "Build the layer with scale_grad_by_freq=False."
        )


def _sort_embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Call:
    del norm_type, sparse  # neither changes the dense gradient
    _refuse_batch_dependence("Embedding", max_norm, scale_grad_by_freq)
    return Call({"weight": weight}, {"input": input}, {"padding_idx": padding_idx})


def _contribute_embedding(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    def weight() -> Outer:
        rows = layout.rows(call.inputs["input"])
        return _one_hot(call, rows.reshape(rows.shape[0], -1), at_least_float32(layout.tokens(grad)))

    return {"weight": weight}


def _one_hot(call: Call, ids: Tensor, right: Tensor) -> Outer:
    """``ids``: ``[examples, tokens]``, ``right``: ``[examples, tokens, n]``; padding tokens contribute nothing."""
    table, padding = call.parameters["weight"], call.options["padding_idx"]
    if padding is not None:
        right = right.masked_fill((ids == padding % table.shape[0])[..., None], 0)
    return Outer(ids[:, None].long(), right[:, None], table.shape)


def _sort_embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Call:
    del norm_type, sparse, include_last_offset
    _refuse_batch_dependence("EmbeddingBag", max_norm, scale_grad_by_freq)
    if offsets is not None:
        raise UnsupportedError(
            "EmbeddingBag(offsets=…): bags of different lengths in one flat tensor have no dimension that counts "
            "examples. Pass a 2-D tensor of ids, [examples, tokens], with padding_idx for the empty places."
        )
    inputs = {"input": input}
    if per_sample_weights is not None:
        inputs["token_weights"] = per_sample_weights
    return Call({"weight": weight}, inputs, {"padding_idx": padding_idx, "mode": mode})


def _contribute_embedding_bag(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    ids, bag_grads = call.inputs["input"], at_least_float32(grad)[:, None, :]
    table, padding = call.parameters["weight"], call.options["padding_idx"]
    present = torch.ones_like(ids, dtype=torch.bool)
    if padding is not None:
        present = ids != padding % table.shape[0]

    def weight() -> Outer:
        if call.options["mode"] == "max":
            right = bag_grads * _first_maximum(table, ids, present)
        elif call.options["mode"] == "mean":
            right = bag_grads / present.sum(1).clamp(min=1)[:, None, None]
        else:
            token_weights = call.inputs.get("token_weights", torch.ones_like(ids, dtype=bag_grads.dtype))
            right = bag_grads * at_least_float32(token_weights)[..., None]
        right = right.expand(*ids.shape, table.shape[1])
        return _one_hot(call, ids.reshape(layout.examples, -1), right.reshape(layout.examples, -1, table.shape[1]))

    return {"weight": weight}


def _first_maximum(table: Tensor, ids: Tensor, present: Tensor) -> Tensor:
    """1 where a token holds the maximum of its bag in a feature (the first one, where several do), else 0."""
    values = at_least_float32(table.detach())[ids].masked_fill(~present[..., None], -torch.inf)
    winners = values.argmax(dim=1, keepdim=True)
    return torch.zeros_like(values).scatter_(1, winners, 1.0)


EMBEDDING = Rule("Embedding", (F.embedding,), _sort_embedding, _contribute_embedding)
EMBEDDING_BAG = Rule("EmbeddingBag", (F.embedding_bag,), _sort_embedding_bag, _contribute_embedding_bag)
