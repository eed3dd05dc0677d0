"""What shadow models say about the records of a pool, and which of these each was trained on."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.core.errors import InputError

BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """Confidences of models in records.

    Attributes:
        confidence: ``[models, queries, records]``, see `signals`; the queries of a record are views of it, such as its
            mirror image. ``[models, records]`` is taken as one query.
        member: ``[models, records]``: whether the model was trained on the record.
    """

    confidence: FloatArray
    member: BoolArray

    def __post_init__(self) -> None:
        values, member = np.asarray(self.confidence, dtype=np.float64), np.asarray(self.member)
        if values.ndim == 2:
            values = values[:, None]
        if values.ndim != 3 or member.dtype != np.bool_ or member.shape != (values.shape[0], values.shape[2]):
            raise InputError(
                f"confidence of shape {values.shape}, member of shape {member.shape} and type {member.dtype}: must be "
                "[models, queries, records], and booleans [models, records]."
            )
        if not np.isfinite(values).all():
            raise InputError("confidence: holds numbers that are not finite. Take them from signals.confidences.")
        object.__setattr__(self, "confidence", values)
        object.__setattr__(self, "member", member)

    @property
    def models(self) -> int:
        """How many models there are."""
        return len(self.member)

    def without(self, model: int) -> "Observations":
        """All models but one."""
        others = np.arange(self.models) != model
        return Observations(self.confidence[others], self.member[others])

    def spread(self, *, inside: bool) -> "Spread":
        """Of the models that were trained on a record, or of those that were not."""
        chosen = self.member if inside else ~self.member
        count = chosen.sum(axis=0)
        weights = chosen[:, None].astype(np.float64)
        mean = (weights * self.confidence).sum(axis=0) / np.maximum(count, 1)
        squares = (weights * (self.confidence - mean) ** 2).sum(axis=0)
        return Spread(count, mean, squares)


@dataclasses.dataclass(frozen=True, eq=False)
class Spread:
    """Confidences in each record over models of one kind.

    Attributes:
        count: how many models, ``[records]``.
        mean: ``[queries, records]``; 0 where there is no model.
        squares: the sum of squared distances from the mean.
    """

    count: npt.NDArray[np.int64]
    mean: FloatArray
    squares: FloatArray

    def fixed_variance(self) -> FloatArray:
        """One variance for all records, around each one's own mean: ``[queries, 1]``."""
        freedom = np.maximum(self.count - 1, 0).sum()
        if freedom == 0:
            raise InputError(
                f"shadows={int(self.count.max(initial=0))} at most with, or without, the same record: a variance needs "
                "two. Train more shadow models."
            )
        return np.asarray(self.squares.sum(axis=1, keepdims=True) / freedom)

    def own_variance(self) -> FloatArray:
        """A variance for each record, ``[queries, records]``; the fixed one where fewer than two models tell."""
        own = self.squares / np.maximum(self.count - 1, 1)
        return np.where(self.count < 2, self.fixed_variance(), own)
