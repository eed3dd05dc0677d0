"""Checks that all mechanisms share."""

import math

from tacit.core.errors import InputError
from tacit.core.validation import check_non_negative


def check_noise(name: str, value: float, *, unsafe_no_noise: bool) -> None:
    """A finite number above 0; 0 only by the flag that says what it means."""
    check_non_negative(name, value)
    if value == 0 and not unsafe_no_noise:
        raise InputError(
            f"{name}=0: gives no privacy. Take a positive number, or unsafe_no_noise=True to release as is."
        )


def check_value(value: float) -> float:
    """A finite number, as a float."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"value of type {type(value).__name__}: must be a finite number or a tensor. Clip it before the release."
        )
    return number
