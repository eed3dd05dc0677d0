"""Models as runs released them, read back from their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tacit import models
from tacit.core.errors import InputError
from tacit.datasets import DataSet


def released_model(path: Path, name: str, shape: Mapping[str, Any]) -> nn.Module:
    """A run's model from its safetensors file.

    Args:
        path: the file.
        name: of the network, as the run's record has it.
        shape: of `Planting`: what the network was built for.

    Raises:
        InputError: there is no such file or network, or they do not fit each other.
    """
    if name not in models.MODELS:
        raise InputError(
            f"model={name!r} in the record of {path.parent}: is no network that has a name, and cannot be built again. "
            "Audit a run of tacit train."
        )
    network = _built(name, shape)
    try:
        network.load_state_dict(_weights(path))
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as a {name} ({reason}). Give the folder that a run wrote.") from error
    return network.eval()


def _built(name: str, shape: Mapping[str, Any]) -> nn.Module:
    columns = [(kind, int(width)) for kind, width in shape["columns"]]
    return models.build(name, shape["input_shape"], shape["classes"], columns=columns)


def network_of(path: Path, shape: Mapping[str, Any]) -> str:
    """The name of the one network that has these weights: a student's record has none."""
    found = {name: value.shape for name, value in _weights(path).items()}
    fitting = [name for name in models.MODELS if _shapes(name, shape) == found]
    if len(fitting) != 1:
        raise InputError(f"{path}: holds the weights of none of {', '.join(models.MODELS)}. Run tacit pate again.")
    return fitting[0]


def _shapes(name: str, shape: Mapping[str, Any]) -> dict[str, torch.Size] | None:
    """Of a network's weights; None where it does not take such inputs."""
    try:
        with torch.device("meta"):
            network = _built(name, shape)
    except InputError:
        return None
    return {key: value.shape for key, value in network.state_dict().items()}


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Give the folder that a run wrote.") from error


def linear_model(path: Path, release: Mapping[str, Any], data: DataSet) -> nn.Module:
    """The release of ``tacit linear`` as a layer on inputs in [0, 1]: the scores of classes, or a number in [-1, 1]."""
    layer = nn.Linear(len(data.feature_names), data.classes)
    try:
        slopes, intercept = (torch.tensor(release[name], dtype=torch.float32) for name in ("slopes", "intercept"))
        weights = {"weight": slopes.reshape(len(slopes), -1).T, "bias": intercept.reshape(-1)}
        layer.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: holds no linear fit of its table ({reason}). Restore it, or fit again.") from error
    return layer.eval()
