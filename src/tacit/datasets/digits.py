"""The 1,797 handwritten digits that scikit-learn carries: the default set, which needs no download."""

from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from tacit.datasets.partition import stratified_test_mask
from tacit.datasets.split import DataSet, Split

_TEST_FRACTION = 0.2
_LARGEST_PIXEL = 16.0


def _sklearn_datasets() -> ModuleType:
    """scikit-learn takes most of a second to import, so it is imported where the digits are asked for."""
    import sklearn.datasets

    module: ModuleType = sklearn.datasets
    return module


def digits_folder() -> Path:
    """The folder of the installed scikit-learn in which the file lies."""
    return Path(_sklearn_datasets().__file__ or "").parent / "data"


def load_digits() -> DataSet:
    """8x8 grey images scaled to [0, 1], 1,438 to train on and 359 to test on.

    scikit-learn publishes no split, so tacit fixes one: of each class the fifth with the smallest public
    numbers u(i) of `tacit.datasets.partition` is the test split.
    """
    digits = _sklearn_datasets().load_digits()
    images = (np.asarray(digits.images, dtype=np.float32) / _LARGEST_PIXEL)[:, None]
    labels = np.asarray(digits.target, dtype=np.int64)
    test = stratified_test_mask(labels, _TEST_FRACTION)
    train_split, test_split = (
        Split(torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen])) for chosen in (~test, test)
    )
    return DataSet(
        name="digits",
        train=train_split,
        test=test_split,
        classes=10,
        input_shape=(1, 8, 8),
        source="scikit-learn",
        class_names=tuple(str(digit) for digit in range(10)),
    )
