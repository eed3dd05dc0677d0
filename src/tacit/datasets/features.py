"""Features of a data set from a fixed map, computed once and kept on disk."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tacit.core.errors import InputError
from tacit.datasets.blocks import in_blocks
from tacit.datasets.locating import cache_folder
from tacit.datasets.split import DataSet, Split

_AT_ONCE = 64  # inputs: maps on the way to features may be a hundred times as large as these
_PROBES = 3
_NAME = "features"

FeatureMap = Callable[[Tensor], Tensor]
"""From a batch of inputs to a batch of features, one row for each."""
Report = Callable[[int, int], None]
"""Called now and then with the rows done and how many there are, of one split."""


def with_features(
    dataset: DataSet,
    transform: FeatureMap,
    *,
    half: bool = False,
    folder: Path | None = None,
    report: Report | None = None,
) -> DataSet:
    """The data set with the features of its inputs in the place of the inputs.

    The map must be public and see every example by itself, such as `tacit.models.Scattering`: then features cost no
    privacy. Maps that were learned from the data in private belong into a plan's preparations instead.

    Features are kept as ``features/DIGEST.safetensors`` in the cache folder, one file for each split. The digest is
    that of all inputs and of what the map makes of a few of them, so that other data, another map, other parameters and
    other code of a map all have files of their own. A file that cannot be read is computed again, and where none can
    be written features are computed each time. The files are as private as the data are. Features are on the device of
    the inputs, whether they were kept or not.

    Args:
        dataset: any set of tensors.
        transform: the map; float32 comes back from it.
        half: keeps float16 on disk, half the size; features come back as float32 with 11 significant bits.
        folder: where the files go, instead of the cache folder.
        report: told of the progress, where features are computed.
    """
    place = cache_folder() / _NAME if folder is None else folder
    train, test = (
        Split(_features(split.inputs, transform, half, place, report), split.targets)
        for split in (dataset.train, dataset.test)
    )
    return dataclasses.replace(dataset, train=train, test=test, input_shape=tuple(train.inputs.shape[1:]))


def _features(inputs: Tensor, transform: FeatureMap, half: bool, folder: Path, report: Report | None) -> Tensor:
    probes = _checked(transform(inputs[:_PROBES]), inputs[:_PROBES])
    path = folder / f"{_digest(inputs, probes, half)}.safetensors"
    kept = _read(path, (len(inputs), *probes.shape[1:]))
    if kept is not None:
        return kept.to(inputs.device).float()

    def checked(rows: Tensor) -> Tensor:
        return _checked(transform(rows), rows)

    features = probes.new_empty(len(inputs), *probes.shape[1:])
    for start in range(0, len(inputs), _AT_ONCE):
        batch = inputs[start : start + _AT_ONCE]
        features[start : start + _AT_ONCE] = in_blocks(checked, batch, _AT_ONCE)
        if report is not None:
            report(start + len(batch), len(inputs))
    kept = features.half() if half else features
    if half and not torch.equal(kept.isfinite(), features.isfinite()):
        raise InputError("half=True: some feature is too large for float16. Leave it out, or scale the features.")
    _write(path, kept)
    return kept.float()


def _checked(features: Tensor, inputs: Tensor) -> Tensor:
    if features.dtype != torch.float32 or len(features) != len(inputs):
        raise InputError(
            f"transform: made {features.dtype} of shape {tuple(features.shape)} from {len(inputs)} inputs. It must "
            "return float32 with one row for each input."
        )
    return features.detach()


def _digest(inputs: Tensor, probes: Tensor, half: bool) -> str:
    total = hashlib.sha256(f"{inputs.dtype} {tuple(inputs.shape)} {tuple(probes.shape)} {half}".encode())
    for tensor in (inputs, probes):
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()[:40]


def _read(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    try:
        features = load_file(path)[_NAME]
    except (OSError, KeyError, SafetensorError):
        return None
    return features if tuple(features.shape) == shape else None


def _write(path: Path, features: Tensor) -> None:
    """In one move, so that no reader sees half a file."""
    scratch = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({_NAME: features.contiguous()}, scratch)
        scratch.replace(path)
    with contextlib.suppress(OSError):
        scratch.unlink(missing_ok=True)
