"""`load`: a named data set as tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tacit.core.errors import InputError
from tacit.datasets.catalogue import SetInfo, describe
from tacit.datasets.cifar import CLASS_NAMES as CIFAR_CLASSES
from tacit.datasets.cifar import FINE_CLASS_NAMES, read_cifar10, read_cifar100
from tacit.datasets.digits import load_digits
from tacit.datasets.idx import read_idx
from tacit.datasets.jpeg import read_images
from tacit.datasets.locating import cache_folder, locate
from tacit.datasets.split import DataSet, Split, image_split
from tacit.datasets.svhn import read_svhn
from tacit.datasets.verification import verify

_FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_DIGIT_CLASSES = tuple(str(digit) for digit in range(10))
_CLASS_NAMES: Mapping[str, tuple[str, ...]] = {
    "mnist": _DIGIT_CLASSES,
    "fashion-mnist": _FASHION_CLASSES,
    "cifar10": CIFAR_CLASSES,
    "cifar10-jpeg": CIFAR_CLASSES,
    "cifar100": FINE_CLASS_NAMES,
    "svhn": _DIGIT_CLASSES,
    "svhn-extra": _DIGIT_CLASSES,
}


def load(name: str = "digits", *, download: bool = True, progress: bool = True) -> DataSet:
    """The named set with its official split: images as float32 in [0, 1] of shape (N, C, H, W), labels as
    int64.

    Args:
        name: a name of `CATALOGUE`, such as ``digits`` (embedded, the default) or ``mnist``.
        download: whether the set may be fetched where no folder holds it; see `locate_or_fetch`.
        progress: whether a bar on standard error shows a download.
    """
    info = describe(name)
    if name == "digits":
        return load_digits()
    folder = locate(info, download=download, progress=progress)
    return read(info, folder, progress=progress)


def read(info: SetInfo, folder: Path, *, progress: bool = False) -> DataSet:
    """The set ``info`` from a folder that holds its files."""
    train, test = _READERS[info.name](info, folder, progress)
    for split, examples in ((train, info.train_examples), (test, info.test_examples)):
        found, due = tuple(split.inputs.shape), (examples, *info.input_shape)
        if found != due:
            raise InputError(
                f"{folder}: images of shape {found}: must be {due}. Place the official files of {info.name} there."
            )
    return DataSet(
        name=info.name,
        train=train,
        test=test,
        classes=info.classes,
        input_shape=info.input_shape,
        source=str(folder),
        class_names=_CLASS_NAMES[info.name],
    )


def _read_idx_set(info: SetInfo, folder: Path, progress: bool) -> tuple[Split, Split]:
    del progress  # takes a second
    arrays = {file.name: read_idx(verify(folder, file)) for file in info.files}
    train, test = (
        image_split(arrays[f"{part}-images-idx3-ubyte"][:, None], arrays[f"{part}-labels-idx1-ubyte"])
        for part in ("train", "t10k")
    )
    return train, test


def _read_cifar(info: SetInfo, folder: Path, progress: bool) -> tuple[Split, Split]:
    del progress  # takes a few seconds
    read = read_cifar100 if info.name == "cifar100" else read_cifar10
    train, test = read(verify(folder, info.files[0]))
    return image_split(*train), image_split(*test)


def _read_svhn(info: SetInfo, folder: Path, progress: bool) -> tuple[Split, Split]:
    del progress  # takes a few seconds
    read = {file.name: read_svhn(verify(folder, file)) for file in info.files}
    test = read.pop("test_32x32.mat")
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*read.values(), strict=True))
    return image_split(pixels, labels), image_split(*test)


def _read_image_tree(info: SetInfo, folder: Path, progress: bool) -> tuple[Split, Split]:
    if info.tree is None:
        raise InputError(f"dataset={info.name!r}: is no tree of images. Read it from its files.")
    cache = cache_folder() / info.name
    _, height, width = info.input_shape
    arrays = read_images(folder, info.tree, cache, size=(height, width), progress=progress)
    train, test = (image_split(arrays[f"{part}_pixels"], arrays[f"{part}_labels"]) for part in ("train", "test"))
    return train, test


_READERS: Mapping[str, Callable[[SetInfo, Path, bool], tuple[Split, Split]]] = {
    "mnist": _read_idx_set,
    "fashion-mnist": _read_idx_set,
    "cifar10": _read_cifar,
    "cifar10-jpeg": _read_image_tree,
    "cifar100": _read_cifar,
    "svhn": _read_svhn,
    "svhn-extra": _read_svhn,
}
