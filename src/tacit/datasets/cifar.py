"""CIFAR-10's official binary version, read out of its archive without unpacking it to disk.

Each of the six batches holds 10,000 records of 3,073 bytes: the label, then the red, green and blue planes of 32x32
bytes.
"""

import tarfile
import zlib
from pathlib import Path

import numpy as np

from tacit.core.errors import InputError

_FOLDER = "cifar-10-batches-bin"
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)
_IMAGE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_CLASSES = 10

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Images = tuple[np.ndarray, np.ndarray]


def read_cifar10(archive: Path) -> tuple[Images, Images]:
    """Pixels of shape (N, 3, 32, 32) and labels, for training and for testing."""
    try:
        with tarfile.open(archive, "r:gz") as packed:
            batches = {name: _read_member(packed, archive, name) for name in (*_TRAIN, *_TEST)}
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise _broken(archive, f"it cannot be unpacked ({error})") from error
    return _join([batches[name] for name in _TRAIN]), _join([batches[name] for name in _TEST])


def _read_member(packed: tarfile.TarFile, archive: Path, name: str) -> Images:
    try:
        member = packed.extractfile(f"{_FOLDER}/{name}")
    except KeyError as error:
        raise _broken(archive, f"it holds no {_FOLDER}/{name}") from error
    if member is None:
        raise _broken(archive, f"{name} is not a plain file")
    content = np.frombuffer(member.read(), dtype=np.uint8)
    if content.size == 0 or content.size % _RECORD:
        raise _broken(archive, f"{name} has {content.size} bytes, which is no multiple of {_RECORD}")
    records = content.reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() >= _CLASSES:
        raise _broken(archive, f"{name} holds the label {labels.max()}")
    return records[:, 1:].reshape(-1, *_IMAGE), labels


def _join(batches: list[Images]) -> Images:
    return np.concatenate([pixels for pixels, _ in batches]), np.concatenate([labels for _, labels in batches])


def _broken(archive: Path, reason: str) -> InputError:
    return InputError(f"{archive}: not CIFAR-10's binary version: {reason}. Delete it and fetch it again.")
