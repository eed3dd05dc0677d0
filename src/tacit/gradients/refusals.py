"""Layers that mix examples or write raw data into buffers, refused by name before anything runs."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from tacit.core.errors import UnsupportedError


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raises `UnsupportedError` with the layer's name, the reason and the remedy."""
    for name, module in model.named_modules():
        reason = _reason(module)
        if reason:
            raise UnsupportedError(f"{name or 'model'} ({type(module).__name__}): {reason}")


def _reason(module: nn.Module) -> str | None:
    if isinstance(module, _InstanceNorm):
        if module.track_running_stats and module.training:
            return (
                "copies statistics of raw data into its buffers, without noise. Build it with "
                "track_running_stats=False, or put it in eval mode."
            )
    elif isinstance(module, _BatchNorm):
        if module.training or not module.track_running_stats:
            return (
                "normalises an example by the others of its batch, so no example's influence can be bounded. Call "
                "model = tacit.models.replace_batchnorm(model), or put the layer in eval mode to freeze its statistics."
            )
    elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
        if module.max_norm is not None:
            return (
                "max_norm rewrites rows of the table in the forward pass, without noise. Build it with max_norm=None."
            )
        if module.scale_grad_by_freq:
            return "scale_grad_by_freq divides by counts over the whole batch. Build it with scale_grad_by_freq=False."
    return None
