"""Messages of refusal have one form, and values that pass come back as plain numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import BudgetExceededError, InputError, LedgerError, TacitError, UnsupportedError
from tacit.core.validation import (
    check_choice,
    check_count,
    check_non_negative,
    check_open_unit,
    check_positive,
    check_probability,
)

Check = Callable[..., float]
NO_NUMBERS = [None, "1", [1], True, False, math.nan, 1j, object]


@pytest.mark.parametrize(
    ("check", "good", "bad", "rule"),
    [
        (check_positive, [5e-324, 1, 1e308], [0, -0.0, -1, math.inf, -math.inf], "must be a finite number above 0"),
        (check_non_negative, [0, -0.0, 1e308], [-5e-324, math.inf], "must be a finite number of at least 0"),
        (check_open_unit, [1e-300, 0.5, 1 - 2**-53], [0, 1, -0.5, 1.5, math.inf], "must lie strictly between 0 and 1"),
        (check_probability, [1e-300, 0.5, 1, 1.0], [0, -0.1, 1.0000001, math.inf], "must be above 0 and at most 1"),
    ],
)
def test_real_numbers_are_checked_against_their_range(
    check: Check, good: list[float], bad: list[float], rule: str
) -> None:
    for value in [*good, *(np.float64(value) for value in good)]:
        assert check("rate", value) == value
        assert type(check("rate", value)) is float
    for value in bad:
        with pytest.raises(InputError) as refusal:
            check("rate", value, remedy="Take 0.5.")
        assert str(refusal.value) == f"rate={value!r}: {rule}. Take 0.5."
    for value in NO_NUMBERS:
        with pytest.raises(InputError, match=r"rate=.*: must be a number\.$"):
            check("rate", value)


@given(st.integers(-(10**6), 10**6), st.integers(-5, 5))
def test_counts_are_checked_against_their_minimum(value: int, minimum: int) -> None:
    if value >= minimum:
        assert check_count("steps", np.int64(value), minimum=minimum) == value
        assert type(check_count("steps", np.int64(value), minimum=minimum)) is int
    else:
        with pytest.raises(InputError) as refusal:
            check_count("steps", value, minimum=minimum, remedy="Take more.")
        assert str(refusal.value) == f"steps={value}: must be at least {minimum}. Take more."


@pytest.mark.parametrize("value", [1.0, "1", None, True, math.nan, [1]])
def test_counts_are_whole_numbers(value: int) -> None:
    with pytest.raises(InputError, match=r"steps=.*: must be a whole number\.$"):
        check_count("steps", value)


def test_choices_are_listed_in_order() -> None:
    assert check_choice("engine", "auto", {"reference", "auto"}) == "auto"
    with pytest.raises(InputError, match=r"^engine='fast': must be one of auto, reference\. See the table\.$"):
        check_choice("engine", "fast", {"reference", "auto"}, remedy="See the table.")


def test_messages_are_one_line() -> None:
    with pytest.raises(InputError) as refusal:
        check_choice("engine", "two\nlines", ["auto"])
    assert "\n" not in str(refusal.value)


def test_errors_can_be_caught_together_and_apart() -> None:
    assert all(
        issubclass(kind, TacitError) for kind in (InputError, UnsupportedError, BudgetExceededError, LedgerError)
    )
    assert issubclass(InputError, ValueError)
    assert not issubclass(BudgetExceededError, InputError)
