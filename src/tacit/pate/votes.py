"""What the teachers say, counted."""

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count

Votes = npt.NDArray[np.int64]
"""``[queries, classes]``: how many teachers chose each class. Private: they are computed without noise."""


def count_votes(predictions: npt.ArrayLike, classes: int) -> Votes:
    """How many teachers chose each class, for every query.

    Args:
        predictions: ``[teachers, queries]``, class numbers.
        classes: how many classes there are, those included that no teacher ever saw.
    """
    predictions = np.asarray(predictions)
    check_count("classes", classes)
    if predictions.ndim != 2 or not np.issubdtype(predictions.dtype, np.integer):
        raise InputError(
            f"predictions of shape {predictions.shape} and type {predictions.dtype}: must be [teachers, queries] of "
            "class numbers. Take the argmax over the classes."
        )
    if predictions.size and not (predictions.min() >= 0 and predictions.max() < classes):
        raise InputError(
            f"predictions between {predictions.min()} and {predictions.max()}: must be class numbers from 0 to "
            f"{classes - 1}."
        )
    queries = predictions.shape[1]
    places = predictions + classes * np.arange(queries)
    return np.bincount(places.ravel(), minlength=classes * queries).reshape(queries, classes).astype(np.int64)
