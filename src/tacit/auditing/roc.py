"""How well scores tell members from non-members: the ROC curve, its area, its points at low false positive rates."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.auditing.intervals import Interval, clopper_pearson, wilson
from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit

FALSE_POSITIVE_RATES = (0.01, 0.001, 0.0001)
"""Where attacks are compared: an attack that is sure about a few people is worse than one that guesses about all
(Carlini et al., Membership Inference Attacks From First Principles, 2022)."""
_ROUNDING = 1e-9  # of a count of non-members: 0.07 of 100 are 7


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """The true positive rate at a false positive rate.

    Attributes:
        asked_fpr: the largest share of non-members that may be called members.
        threshold: records with a score above it are called members; the least score that keeps to ``asked_fpr``.
        tpr: the share of members above the threshold. The threshold comes from the non-members alone, so that the
            interval is the exact one of Clopper and Pearson for independent members.
        fpr: the share of non-members above the threshold, at most ``asked_fpr``, with its interval.
        enough: whether there are non-members enough for a single one to be above the threshold. Where there are not,
            ``fpr`` is 0 of them and its interval shows how much more it may be in truth.
    """

    asked_fpr: float
    threshold: float
    tpr: Interval
    fpr: Interval
    enough: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, but the threshold, which means nothing without the scores."""
        return {
            "asked_fpr": self.asked_fpr,
            "tpr": self.tpr.to_dict(),
            "fpr": self.fpr.to_dict(),
            "enough_non_members": self.enough,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Roc:
    """Scores of members and of non-members; a higher score says "member".

    Intervals take the scores as independent. Those of one model are not quite, since all of them hang on the same
    noise; the scores of several models are nearer to it. A statement about epsilon that needs no such assumption is
    what `tacit.auditing.lower_bounds` gives.

    Attributes:
        members, non_members: the scores, sorted, at least one of each. Infinite ones are allowed, NaN is not.
    """

    members: FloatArray
    non_members: FloatArray

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            object.__setattr__(self, name, np.sort(_checked(name, getattr(self, name))))

    @classmethod
    def of(cls, scores: npt.ArrayLike, member: npt.ArrayLike) -> "Roc":
        """From scores of any shape and, in the same shape, whether each belongs to a member."""
        values, inside = np.asarray(scores, dtype=np.float64), np.asarray(member)
        if inside.dtype != np.bool_ or inside.shape != values.shape:
            raise InputError(
                f"member of shape {inside.shape} and type {inside.dtype}: must be booleans of the scores' shape "
                f"{values.shape}."
            )
        return cls(values[inside], values[~inside])

    def auc(self, *, confidence: float = 0.95) -> Interval:
        r"""The chance that a member's score is above a non-member's; equal scores count half.

        The estimate is the mean over all ways of matching members with non-members, of which each gives
        :math:`n = \min(n_1, n_0)` independent pairs. So its variance is at most :math:`A (1 - A) / n`, whatever the
        distributions are (van Dantzig, 1951), and the interval is Wilson's with that n.
        """
        below = np.searchsorted(self.non_members, self.members, side="left")
        up_to = np.searchsorted(self.non_members, self.members, side="right")
        wins = (below.sum(dtype=np.int64) + up_to.sum(dtype=np.int64)) / 2
        share = float(wins / (len(self.members) * len(self.non_members)))
        return wilson(share, min(len(self.members), len(self.non_members)), confidence=confidence)

    def tpr_at(self, fpr: float, *, confidence: float = 0.95) -> OperatingPoint:
        """The true positive rate where at most the share ``fpr`` of the non-members is called a member."""
        check_open_unit("fpr", fpr, remedy="Usual are 0.01, 0.001 and 0.0001.")
        allowed = int(self._allowed(np.asarray([fpr]))[0])
        threshold = float(self.non_members[-1 - allowed])
        return OperatingPoint(
            asked_fpr=fpr,
            threshold=threshold,
            tpr=clopper_pearson(_above(self.members, threshold), len(self.members), confidence=confidence),
            fpr=clopper_pearson(_above(self.non_members, threshold), len(self.non_members), confidence=confidence),
            enough=allowed >= 1,
        )

    def tprs(self, fprs: npt.ArrayLike) -> FloatArray:
        """The true positive rates at false positive rates in [0, 1], without intervals: the curve to draw.

        At 1 everyone may be called a member.
        """
        rates = np.asarray(fprs, dtype=np.float64)
        allowed = self._allowed(rates)
        thresholds = self.non_members[np.maximum(len(self.non_members) - 1 - allowed, 0)]
        shares = 1 - np.searchsorted(self.members, thresholds, side="right") / len(self.members)
        return np.where(allowed == len(self.non_members), 1.0, shares)

    def _allowed(self, fprs: FloatArray) -> npt.NDArray[np.int64]:
        """How many non-members may lie above the threshold."""
        return np.floor(fprs * len(self.non_members) + _ROUNDING).astype(np.int64)


def _above(ascending: FloatArray, threshold: float) -> int:
    return len(ascending) - int(np.searchsorted(ascending, threshold, side="right"))


def _checked(name: str, scores: npt.ArrayLike) -> FloatArray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise InputError(f"{name} of shape {values.shape}: must be a list of at least one score.")
    if np.isnan(values).any():
        raise InputError(f"{name}: {int(np.isnan(values).sum())} scores are not numbers. Leave such records out.")
    return values
