"""Checks of arguments. Every message has one form: ``name=value: rule. remedy``.

Each check returns the value it checked, so that a constructor reads as a list of assignments.
"""

import math
import numbers
import operator
from collections.abc import Collection

from tacit.core.errors import InputError


def _reject(name: str, value: object, rule: str, remedy: str) -> InputError:
    hint = f" {remedy}" if remedy else ""
    return InputError(f"{name}={value!r}: {rule}.{hint}")


def _check_real(name: str, value: object, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(float(value)):
        raise _reject(name, value, "must be a number", remedy)
    return float(value)


def check_positive(name: str, value: float, *, remedy: str = "") -> float:
    """A finite number above zero."""
    number = _check_real(name, value, remedy)
    if not 0 < number < math.inf:
        raise _reject(name, value, "must be a finite number above 0", remedy)
    return number


def check_non_negative(name: str, value: float, *, remedy: str = "") -> float:
    """A finite number of at least zero."""
    number = _check_real(name, value, remedy)
    if not 0 <= number < math.inf:
        raise _reject(name, value, "must be a finite number of at least 0", remedy)
    return number


def check_open_unit(name: str, value: float, *, remedy: str = "") -> float:
    """A number strictly between 0 and 1, such as delta."""
    number = _check_real(name, value, remedy)
    if not 0 < number < 1:
        raise _reject(name, value, "must lie strictly between 0 and 1", remedy)
    return number


def check_probability(name: str, value: float, *, remedy: str = "") -> float:
    """A number above 0 and up to 1, such as a sampling rate."""
    number = _check_real(name, value, remedy)
    if not 0 < number <= 1:
        raise _reject(name, value, "must be above 0 and at most 1", remedy)
    return number


def check_count(name: str, value: int, *, minimum: int = 1, remedy: str = "") -> int:
    """A whole number of at least ``minimum``."""
    try:
        count = operator.index(value)
    except TypeError:
        raise _reject(name, value, "must be a whole number", remedy) from None
    if isinstance(value, bool):
        raise _reject(name, value, "must be a whole number", remedy)
    if count < minimum:
        raise _reject(name, value, f"must be at least {minimum}", remedy)
    return count


def check_choice(name: str, value: str, choices: Collection[str], *, remedy: str = "") -> str:
    """One of a known set of names."""
    if value not in choices:
        raise _reject(name, value, f"must be one of {', '.join(sorted(choices))}", remedy)
    return value
