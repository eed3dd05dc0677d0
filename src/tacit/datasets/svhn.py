"""Street View House Numbers, cropped digits: the official MATLAB files.

A file holds two arrays: ``X`` of bytes, [row, column, colour, image], and ``y`` with a digit for each image, where 10
stands for the digit 0.

Reference: Netzer, Wang, Coates, Bissacco, Wu and Ng, Reading Digits in Natural Images with Unsupervised Feature
Learning, NIPS workshop 2011.
"""

import zlib
from pathlib import Path

import numpy as np

from tacit.core.errors import InputError

_IMAGE = (32, 32, 3)
_ZERO = 10  # the label of the digit 0


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of shape (N, 3, 32, 32) and the digits 0 to 9, from one file whose digest was found right.

    SciPy trusts what it reads: a file that was damaged on purpose may crash it, so that the digest comes first.

    Raises:
        InputError: the file is no MATLAB file of version 5, lacks an array, or an array is not as it should be.
    """
    arrays = _arrays(path)
    pixels, labels = arrays["X"], arrays["y"].ravel()
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != _IMAGE:
        raise _broken(path, f"X is {pixels.dtype} of shape {pixels.shape}, must be uint8 of shape (32, 32, 3, images)")
    if labels.dtype.kind not in "uif":
        raise _broken(path, f"y is {labels.dtype}, must be of numbers")
    if pixels.shape[3] != len(labels):
        raise _broken(path, f"it holds {pixels.shape[3]} images and {len(labels)} labels")
    wrong = labels[~np.isin(labels, np.arange(1, _ZERO + 1))]
    if len(wrong):
        raise _broken(path, f"it holds the label {wrong[0]}, must be 1 to 9, or 10 for the digit 0")
    return pixels.transpose(3, 2, 0, 1), labels.astype(np.uint8) % _ZERO


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """``X`` and ``y``."""
    from scipy.io import loadmat  # takes half a second that other sets need not wait for
    from scipy.io.matlab import MatReadError

    try:
        found: dict[str, np.ndarray] = loadmat(path, variable_names=("X", "y"))
    except (MatReadError, ValueError, TypeError, LookupError, OSError, zlib.error, NotImplementedError) as error:
        raise _broken(path, f"it cannot be read as a MATLAB file of version 5 ({error})") from error
    for name in ("X", "y"):
        if not isinstance(found.get(name), np.ndarray):
            raise _broken(path, f"it holds no array {name}")
    return found


def _broken(path: Path, reason: str) -> InputError:
    reason = " ".join(reason.split())
    return InputError(f"{path}: not a file of SVHN's cropped digits: {reason}. Place the official file there again.")
