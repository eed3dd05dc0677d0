"""The official binary versions of CIFAR-10 and CIFAR-100, read out of their archives without unpacking them to disk.

Each batch is a row of records: the labels, a byte each, then the red, green and blue planes of 32x32 bytes. CIFAR-10
has one label, CIFAR-100 two: one of 20 coarse ones, which is left out, and one of 100 fine ones.
"""

import dataclasses
import tarfile
import zlib
from pathlib import Path

import numpy as np

from tacit.core.errors import InputError

_IMAGE = (3, 32, 32)
_PIXELS = 3 * 32 * 32

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FINE_CLASS_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
"""Of CIFAR-100, in the order of its fine labels."""

Images = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Version:
    """What an archive holds; the last of a record's ``labels`` bytes is the class."""

    title: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: int
    classes: int


_CIFAR10 = _Version(
    "CIFAR-10",
    "cifar-10-batches-bin",
    tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    ("test_batch.bin",),
    labels=1,
    classes=len(CLASS_NAMES),
)
_CIFAR100 = _Version(
    "CIFAR-100", "cifar-100-binary", ("train.bin",), ("test.bin",), labels=2, classes=len(FINE_CLASS_NAMES)
)


def read_cifar10(archive: Path) -> tuple[Images, Images]:
    """Pixels of shape (N, 3, 32, 32) and labels, for training and for testing."""
    return _read(archive, _CIFAR10)


def read_cifar100(archive: Path) -> tuple[Images, Images]:
    """Pixels of shape (N, 3, 32, 32) and fine labels, for training and for testing."""
    return _read(archive, _CIFAR100)


def _read(archive: Path, version: _Version) -> tuple[Images, Images]:
    try:
        with tarfile.open(archive, "r:gz") as packed:
            batches = {name: _read_member(packed, archive, name, version) for name in (*version.train, *version.test)}
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise _broken(archive, version, f"it cannot be unpacked ({error})") from error
    return _join([batches[name] for name in version.train]), _join([batches[name] for name in version.test])


def _read_member(packed: tarfile.TarFile, archive: Path, name: str, version: _Version) -> Images:
    try:
        member = packed.extractfile(f"{version.folder}/{name}")
    except KeyError as error:
        raise _broken(archive, version, f"it holds no {version.folder}/{name}") from error
    if member is None:
        raise _broken(archive, version, f"{name} is not a plain file")
    content = np.frombuffer(member.read(), dtype=np.uint8)
    record = version.labels + _PIXELS
    if content.size == 0 or content.size % record:
        raise _broken(archive, version, f"{name} has {content.size} bytes, which is no multiple of {record}")
    records = content.reshape(-1, record)
    labels = records[:, version.labels - 1]
    if labels.max() >= version.classes:
        raise _broken(archive, version, f"{name} holds the label {labels.max()}")
    return records[:, version.labels :].reshape(-1, *_IMAGE), labels


def _join(batches: list[Images]) -> Images:
    return np.concatenate([pixels for pixels, _ in batches]), np.concatenate([labels for _, labels in batches])


def _broken(archive: Path, version: _Version, reason: str) -> InputError:
    return InputError(f"{archive}: not {version.title}'s binary version: {reason}. Delete it and fetch it again.")
