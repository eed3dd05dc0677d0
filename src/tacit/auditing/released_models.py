"""Models as runs released them, read back from their files."""

from collections.abc import Mapping, Sequence
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
    return _loaded(_built(name, shape), path, _weights(path), f"a {name}")


def released_student(path: Path, shape: Mapping[str, Any], features: object) -> tuple[str, nn.Module]:
    """The student of a run of PATE, one network or an ensemble, and the name of its network or networks.

    What it is made of is known by its weights. What an ensemble's perceptrons look through before them has none.

    Args:
        path: its safetensors file.
        shape: of `Planting`: what networks were built for.
        features: a name of `tacit.models.FIXED_FEATURES`, as the run's record has it; for perceptrons alone.

    Raises:
        InputError: there is no such file, or the weights or the features are none that can be built again.
    """
    weights = _weights(path)
    member = models.first_network(weights)
    name = _network_of(path, weights if member is None else member, shape)
    if member is None:
        return name, _loaded(_built(name, shape), path, weights, f"a {name}")
    inputs = shape["input_shape"]
    fixed = _fixed_features(path, features, inputs) if models.has_perceptrons(weights) else nn.Identity()
    ensemble = models.ensemble_of_weights(weights, lambda: _built(name, shape), fixed, inputs, shape["classes"])
    return name, _loaded(ensemble, path, weights, f"an ensemble of {name} networks")


def _fixed_features(path: Path, name: object, input_shape: Sequence[int]) -> nn.Module:
    if name is None:
        raise InputError(
            f"features=None in the record of {path.parent}: it does not say what the ensemble's perceptrons look "
            "through, as records of an earlier tacit do not. Run tacit pate again."
        )
    if not isinstance(name, str) or name not in models.FIXED_FEATURES:
        raise InputError(
            f"features={name!r} in the record of {path.parent}: must be one of {', '.join(models.FIXED_FEATURES)}. "
            "Restore run.json, or run tacit pate again."
        )
    return models.FixedFeatures(name, input_shape)


def _loaded(network: nn.Module, path: Path, weights: Mapping[str, Tensor], what: str) -> nn.Module:
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as {what} ({reason}). Give the folder that a run wrote.") from error
    return network.eval()


def _built(name: str, shape: Mapping[str, Any]) -> nn.Module:
    columns = [(kind, int(width)) for kind, width in shape["columns"]]
    return models.build(name, shape["input_shape"], shape["classes"], columns=columns)


def _network_of(path: Path, weights: Mapping[str, Tensor], shape: Mapping[str, Any]) -> str:
    """The name of the one network that has these weights: a student's record has none."""
    found = {name: value.shape for name, value in weights.items()}
    fitting = [name for name in models.MODELS if _shapes(name, shape) == found]
    if len(fitting) != 1:
        raise InputError(
            f"{path}: holds the weights of none of {', '.join(models.MODELS)}. Restore it, or run tacit pate again."
        )
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
