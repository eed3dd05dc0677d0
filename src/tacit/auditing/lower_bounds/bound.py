"""What every lower bound returns: a number with its confidence, beside the largest that the test could have shown."""

import dataclasses
import math
from typing import Any

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit


@dataclasses.dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon at delta, from an experiment.

    Whatever a mechanism's true epsilon at ``delta`` is, a bound above it comes out with a chance of at most
    1 - ``confidence``. A bound of 0 shows nothing; it does not show that the mechanism is private. Nor does a small
    bound beside a small ``largest``: then the experiment was too small to show more.

    Attributes:
        epsilon: the bound, at least 0.
        delta: the delta that it stands beside.
        confidence: of the bound, strictly between 0 and 1.
        largest: the bound that the same experiment would have given if every guess had been right.
        method: what the bound rests on, in words.
    """

    epsilon: float
    delta: float
    confidence: float
    largest: float
    method: str

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= self.largest or math.isnan(self.largest):
            raise InputError(f"epsilon={self.epsilon!r}: must lie between 0 and the largest, {self.largest!r}.")
        check_confidence(self.confidence)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def check_confidence(confidence: float) -> float:
    """A confidence strictly between 0 and 1."""
    return check_open_unit("confidence", confidence, remedy="Usual is 0.95.")


def check_delta(delta: float) -> float:
    """A delta of at least 0 and below 1: beside 0 it is pure epsilon that is bounded."""
    if delta == 0 and not isinstance(delta, bool):
        return 0.0
    return check_open_unit("delta", delta, remedy="Give the delta of the claim, such as 1e-5, or 0.")
