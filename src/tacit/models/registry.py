"""Networks by name."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.models.norm_cnn import norm_cnn
from tacit.models.simple import LARGE_IMAGE, fits_tanh_cnn, linear, mlp, tanh_cnn
from tacit.models.tabular import TableColumn, table_mlp
from tacit.models.wide_resnet import wide_resnet

_MLP_HIDDEN = 128
_WIDE = 32


def _linear(input_shape: Sequence[int], classes: int) -> nn.Module:
    return linear(math.prod(input_shape), classes)


def _mlp(input_shape: Sequence[int], classes: int) -> nn.Module:
    return mlp(math.prod(input_shape), _MLP_HIDDEN, classes)


def _table_mlp(input_shape: Sequence[int], classes: int) -> nn.Module:
    return table_mlp([("number", 1)] * math.prod(input_shape), classes)


MODELS: Mapping[str, Callable[[Sequence[int], int], nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "norm-cnn": norm_cnn,
    "norm-cnn-wide": functools.partial(norm_cnn, width=_WIDE),
    "table-mlp": _table_mlp,
    "tanh-cnn": tanh_cnn,
    "wrn-16-4": wide_resnet,
}
"""Builders by name; each takes the shape of one input and the number of classes."""


def build(name: str, input_shape: Sequence[int], classes: int, *, columns: Sequence[TableColumn] = ()) -> nn.Module:
    """A new network with torch's initialisation: seed torch before for weights that can be had again.

    Args:
        name: a name of `MODELS`.
        input_shape: the shape of one example's input, such as (1, 28, 28).
        classes: the width of the output: the number of classes, or 1 for a regression.
        columns: what the columns of a table are, for ``table-mlp``; without them each input is a number in [0, 1].
    """
    check_choice("model", name, MODELS)
    if not input_shape:
        raise InputError(f"input_shape={tuple(input_shape)}: must have at least one dimension.")
    for size in input_shape:
        check_count("input_shape", size)
    check_count("classes", classes)
    if name == "table-mlp" and columns:
        return table_mlp(columns, classes)
    return MODELS[name](tuple(input_shape), classes)


def default_model(input_shape: Sequence[int]) -> str:
    """The name of a network that trains well in private on such inputs.

    ``tanh-cnn`` for images from 24x24, else ``linear``: smaller images come with few examples, which do not carry a
    convolutional network through the noise.
    """
    large = fits_tanh_cnn(input_shape) and min(input_shape[1:]) >= LARGE_IMAGE
    return "tanh-cnn" if large else "linear"
