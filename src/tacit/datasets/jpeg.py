"""Images in folders, ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``, decoded once and kept as plain bytes.

Decoding tens of thousands of small files takes long, so the pixels are kept as ``decoded.safetensors`` beside the
folders, or in the cache where that is not writable. The copy is used only while every file's name, size and time of
change are those of the files it was decoded from.
"""

import hashlib
import io
import os
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from tacit.core.errors import InputError
from tacit.datasets.catalogue import ImageTree, digest_of_digests
from tacit.datasets.verification import is_noted, note

_DECODED = "decoded.safetensors"
_PARTS = ("train", "test")

Arrays = dict[str, np.ndarray]


def read_images(folder: Path, tree: ImageTree, cache: Path, *, size: tuple[int, int], progress: bool) -> Arrays:
    """The pixels (N, 3, H, W) and labels of both parts, as ``train_pixels``, ``train_labels`` and so on.

    The images of a part come class by class in the order of their names, and a class's number is its folder's rank.

    Args:
        folder: what holds ``train`` and ``test``.
        tree: how many images there are and their digest; anything else is refused.
        cache: where the decoded copy goes if ``folder`` is not writable.
        size: height and width of every image.
        progress: whether a bar on standard error shows the decoding.
    """
    images = list_images(folder)
    if len(images) != tree.images:
        raise InputError(
            f"{folder}: holds {len(images)} JPEG files below train and test, must be {tree.images}. "
            "Place the whole set there."
        )
    voucher = _fingerprint(images, tree)
    for place in (folder, cache):
        kept = _read_kept(place / _DECODED, voucher)
        if kept is not None:
            return kept
    arrays, digest = _decode(folder, list(images), size, progress)
    if digest != tree.sha256:
        raise InputError(
            f"{folder}: some image is corrupt or not the published one: expected SHA-256 {tree.sha256} over all files, "
            f"found {digest}. Place the original files there."
        )
    _keep(arrays, (folder, cache), voucher)
    return arrays


def list_images(folder: Path) -> dict[str, os.stat_result]:
    """All JPEG files below ``train`` and ``test``: their paths relative to ``folder``, in order, and their status."""
    found: dict[str, os.stat_result] = {}
    for part in _PARTS:
        for name in os.listdir(folder / part):
            if (folder / part / name).is_dir():
                with os.scandir(folder / part / name) as entries:
                    images = (entry for entry in entries if entry.name.endswith(".jpg"))
                    found.update({f"{part}/{name}/{image.name}": image.stat() for image in images})
    return dict(sorted(found.items()))


def _fingerprint(images: dict[str, os.stat_result], tree: ImageTree) -> str:
    """Changes with the name, size or time of change of any file: much cheaper than reading them all."""
    total = hashlib.sha256(tree.sha256.encode())
    for path, status in images.items():
        total.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return total.hexdigest()


def _decode(folder: Path, paths: list[str], size: tuple[int, int], progress: bool) -> tuple[Arrays, str]:
    """The arrays, and the digest of the very bytes that they were decoded from."""
    classes = {name: rank for rank, name in enumerate(sorted({path.split("/")[1] for path in paths}))}
    pixels: dict[str, list[np.ndarray]] = {part: [] for part in _PARTS}
    labels: dict[str, list[int]] = {part: [] for part in _PARTS}
    digests: list[tuple[str, str]] = []
    bar = track(paths, "decoding images", console=Console(stderr=True), disable=not progress, transient=True)
    for path in bar:
        content = (folder / path).read_bytes()
        digests.append((path, hashlib.sha256(content).hexdigest()))
        part, name, _ = path.split("/")
        pixels[part].append(_decode_one(folder / path, content, size))
        labels[part].append(classes[name])
    arrays: Arrays = {}
    for part in _PARTS:
        images = np.stack(pixels[part]) if pixels[part] else np.zeros((0, *size, 3), dtype=np.uint8)
        arrays[f"{part}_pixels"] = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        arrays[f"{part}_labels"] = np.array(labels[part], dtype=np.int64)
    return arrays, digest_of_digests(digests)


def _decode_one(path: Path, content: bytes, size: tuple[int, int]) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            decoded = np.asarray(image.convert("RGB"))
    except OSError as error:  # pillow's way to say that the bytes are no image, or end too soon
        raise InputError(f"{path}: the image is corrupt or truncated. Place the original file there.") from error
    if decoded.shape[:2] != size:
        raise InputError(f"{path}: an image of {decoded.shape[:2]} pixels, must be {size}. Place the original there.")
    return decoded


def _read_kept(path: Path, voucher: str) -> Arrays | None:
    if not path.is_file() or not is_noted(path, voucher):
        return None
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError):
        return None


def _keep(arrays: Arrays, places: tuple[Path, ...], voucher: str) -> None:
    """Writes the decoded copy to the first place that takes it; where none does, the next load decodes again."""
    for place in places:
        written = place / f"{_DECODED}.{os.getpid()}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            save_file(arrays, written)
            written.replace(place / _DECODED)
        except (OSError, SafetensorError):
            written.unlink(missing_ok=True)
            continue
        note(place / _DECODED, voucher)
        return
