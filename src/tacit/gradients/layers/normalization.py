"""Normalisation within an example: LayerNorm, RMSNorm, GroupNorm, InstanceNorm, and BatchNorm with frozen statistics.

All compute y = w * x̂ + b with x̂ normalised, so example i adds the sum of g * x̂ to w and the sum of g to b, over all
positions that share a weight. x̂ is computed again here instead of being kept.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.contributions import Direct, at_least_float32
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule, present


def _contribute_channels(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    """The weight belongs to a channel: dimension 1 of ``[examples, channels, *positions]``."""
    normalise: Callable[[Tensor], Tensor] = call.options["normalise"]
    grads = at_least_float32(layout.channels(grad))

    def over_positions(values: Tensor) -> Direct:
        return Direct(values.reshape(*values.shape[:2], -1).sum(2))

    return {
        "weight": lambda: over_positions(grads * at_least_float32(layout.channels(normalise(call.inputs["input"])))),
        "bias": lambda: over_positions(grads),
    }


def _contribute_groups(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    r"""GroupNorm by the two sums that its own backward pass takes: :math:`\sum g \hat x = (\sum g x - m \sum g) / s`.

    A compiler then takes them once for both. As there, digits cancel where a mean is far larger than the spread.
    """
    if layout.fold > 1:
        return _contribute_channels(call, grad, layout)
    values, grads = (at_least_float32(layout.channels(each)) for each in (call.inputs["input"], grad))
    examples, channels, positions = *values.shape[:2], values.shape[2:].numel()
    groups, eps = call.options["groups"], call.options["eps"]

    def sums(values: Tensor) -> Tensor:
        return values.reshape(examples, channels, positions).sum(2)

    def weight() -> Direct:
        by_group = (examples, groups, channels // groups)
        spread, mean = torch.var_mean(values.reshape(*by_group, -1), dim=(2, 3), correction=0)
        centred = sums(grads * values).view(by_group) - mean[:, :, None] * sums(grads).view(by_group)
        return Direct((centred * torch.rsqrt(spread + eps)[:, :, None]).view(examples, channels))

    return {"weight": weight, "bias": lambda: Direct(sums(grads))}


def _contribute_trailing(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    """The weight covers the last dimensions, and every position before them is a token."""
    normalise: Callable[[Tensor], Tensor] = call.options["normalise"]
    features = call.options["features"]

    def tokens(values: Tensor) -> Tensor:
        return layout.tokens(at_least_float32(values), features=features)

    return {
        "weight": lambda: Direct((tokens(grad) * tokens(normalise(call.inputs["input"]))).sum(1)),
        "bias": lambda: Direct(tokens(grad).sum(1)),
    }


def _sort_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Call:
    call_options = {
        "features": len(normalized_shape),
        "normalise": lambda values: F.layer_norm(values, normalized_shape, eps=eps),
    }
    return Call(present(weight=weight, bias=bias), {"input": input}, call_options)


def _sort_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Call:
    call_options = {
        "features": len(normalized_shape),
        "normalise": lambda values: F.rms_norm(values, list(normalized_shape), eps=eps),
    }
    return Call(present(weight=weight), {"input": input}, call_options)


def _sort_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Call:
    options = {"normalise": lambda values: F.group_norm(values, num_groups, eps=eps), "groups": num_groups, "eps": eps}
    return Call(present(weight=weight, bias=bias), {"input": input}, options)


def _sort_instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Call:
    if use_input_stats and running_mean is not None:
        raise UnsupportedError(
            "InstanceNorm(track_running_stats=True): copies statistics of raw data into buffers, without noise. "
            "Build the layer with track_running_stats=False, or put it in eval mode."
        )
    options = {
        "normalise": lambda values: F.instance_norm(
            values, running_mean, running_var, None, None, use_input_stats, momentum, eps
        )
    }
    return Call(present(weight=weight, bias=bias), {"input": input}, options)


def _sort_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Call:
    if training or running_mean is None:
        raise UnsupportedError(
            "BatchNorm in training mode: normalises an example by the others of its batch, so no example's influence "
            "can be bounded. Call tacit.models.replace_batchnorm(model), or put the layer in eval mode."
        )
    options = {
        "normalise": lambda values: F.batch_norm(values, running_mean, running_var, None, None, False, momentum, eps)
    }
    return Call(present(weight=weight, bias=bias), {"input": input}, options)


LAYER_NORM = Rule("LayerNorm", (F.layer_norm,), _sort_layer_norm, _contribute_trailing)
RMS_NORM = Rule("RMSNorm", (F.rms_norm,), _sort_rms_norm, _contribute_trailing)
GROUP_NORM = Rule("GroupNorm", (F.group_norm,), _sort_group_norm, _contribute_groups)
INSTANCE_NORM = Rule("InstanceNorm", (F.instance_norm,), _sort_instance_norm, _contribute_channels)
BATCH_NORM = Rule("BatchNorm", (F.batch_norm,), _sort_batch_norm, _contribute_channels)
