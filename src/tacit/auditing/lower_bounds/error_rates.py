"""Upper limits on the two error rates of a test, from independent runs with and without a record."""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.auditing.intervals import clopper_pearson
from tacit.core.errors import InputError

_CHOOSING_SHARE = 4  # one run in four chooses the threshold, the others are counted
_MOST_THRESHOLDS = 200


@dataclasses.dataclass(frozen=True)
class ErrorLimits:
    """What both error rates of one test lie below, with a confidence for the pair."""

    false_positive: float
    false_negative: float


@dataclasses.dataclass(frozen=True)
class Trials:
    """Scores of independent runs with the record and without it, higher where it was rather there."""

    inside: FloatArray
    outside: FloatArray

    @classmethod
    def of(cls, scores_in: npt.ArrayLike, scores_out: npt.ArrayLike) -> "Trials":
        """Two lists of numbers, at least one each."""
        return cls(_checked("scores_in", scores_in), _checked("scores_out", scores_out))

    def limits(self, threshold: float, confidence: float) -> ErrorLimits:
        """Of the test that says in above ``threshold``; each limit takes half of what the confidence leaves."""
        return ErrorLimits(
            _upper(int(np.count_nonzero(self.outside > threshold)), self.outside.size, confidence),
            _upper(int(np.count_nonzero(self.inside <= threshold)), self.inside.size, confidence),
        )

    def best_limits(self, confidence: float) -> ErrorLimits:
        """Of a test that made no error in as many runs."""
        return ErrorLimits(_upper(0, self.outside.size, confidence), _upper(0, self.inside.size, confidence))

    def split(self) -> "tuple[Trials, Trials]":
        """A first part to choose a threshold on, and the rest to count on."""
        if min(self.inside.size, self.outside.size) < 2:
            raise InputError(
                f"scores_in={self.inside.size} runs, scores_out={self.outside.size} runs: must be two each at least. "
                "Give more runs, or a threshold that was fixed before."
            )
        first, second = (max(1, scores.size // _CHOOSING_SHARE) for scores in (self.inside, self.outside))
        return Trials(self.inside[:first], self.outside[:second]), Trials(self.inside[first:], self.outside[second:])

    def best_threshold(self, value: Callable[[ErrorLimits], float], confidence: float) -> float:
        """Where ``value`` of the limits is largest, among quantiles of these scores."""
        candidates = np.unique(np.concatenate([self.inside, self.outside]))
        if candidates.size > _MOST_THRESHOLDS:
            candidates = candidates[np.linspace(0, candidates.size - 1, _MOST_THRESHOLDS).astype(np.int64)]
        return max(map(float, candidates), key=lambda threshold: value(self.limits(threshold, confidence)))


def counted(
    trials: Trials, threshold: float | None, value: Callable[[ErrorLimits], float], confidence: float
) -> tuple[float, float]:
    """``value`` at the limits of a test on runs that did not choose its threshold, and of one without errors."""
    if threshold is None:
        choosing, trials = trials.split()
        threshold = choosing.best_threshold(value, confidence)
    return value(trials.limits(threshold, confidence)), value(trials.best_limits(confidence))


def _upper(errors: int, runs: int, confidence: float) -> float:
    """Each end of a two-sided interval fails with half of what the confidence leaves."""
    return clopper_pearson(errors, runs, confidence=confidence).high


def _checked(name: str, scores: npt.ArrayLike) -> FloatArray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise InputError(
            f"{name} of shape {values.shape}: must be a list of numbers, one for each run. Where a loss overflowed, "
            "give an infinite one."
        )
    return values
