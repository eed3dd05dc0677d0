"""The remedy for batch normalisation, which mixes examples and leaves none a gradient of its own."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.core.validation import check_count
from tacit.models.surgery import with_replacements

_MIN_CHANNELS = 2
_MIN_CHANNELS_1D = 8


def replace_batchnorm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of ``model`` with group normalisation in the place of every BatchNorm1d/2d/3d and SyncBatchNorm.

    Group normalisation (Wu and He, ECCV 2018) takes mean and variance over the channels of a group within
    one example, so that an example's output and gradient depend on no other example. Weight and bias keep
    their values and their names; the running statistics are gone, so a trained model must be trained
    further.

    The number of groups is the largest divisor of the channels that is at most ``groups`` and leaves each
    group two channels, or eight in the place of BatchNorm1d: that one is mostly applied to (batch,
    channels), where a group of one value would be normalised to nothing. Where no divisor does, there is one
    group.

    The given model is left as it is.

    Raises:
        UnsupportedError: for a lazy module whose channels are not known yet.
    """
    check_count("groups", groups)

    def replace(module: nn.Module, name: str) -> nn.Module | None:
        del name
        return _group_norm(module, groups) if isinstance(module, _BatchNorm) else None

    return with_replacements(model, replace)


def _group_norm(norm: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = norm.num_features
    at_least = _MIN_CHANNELS_1D if isinstance(norm, nn.BatchNorm1d) else _MIN_CHANNELS
    count = max((n for n in range(1, groups + 1) if channels % n == 0 and channels // n >= at_least), default=1)
    replacement = nn.GroupNorm(count, channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        # The very parameters, so that ties to other modules, device, dtype and requires_grad are kept.
        replacement.weight, replacement.bias = norm.weight, norm.bias
    return replacement.train(norm.training)
