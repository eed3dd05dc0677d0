"""Nothing is written that could not be read back: one such record would make an account useless for ever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest

from tacit.core import Budget, LedgerError, Neighbours, PrivacyUnit
from tacit.ledger import Account, Ledger, Reservation, repeated
from tacit.ledger.history import History
from tacit.ledger.journal import Record

STEP = dp_accounting.GaussianDpEvent(10.0)
TERMS: dict[str, Any] = {"neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}
REFUSED = r"ledger: a record that cannot be read back \(.*\) was not written\. Give"


def records(account: Account) -> int:
    count = account.to_dict()["records"]
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize(
    "names", [{"run": 5}, {"run": None}, {"run": Path("r")}, {"run": "r", "note": 5}, {"run": "r", "note": ["n"]}]
)
def test_names_that_are_no_texts_are_refused(account: Account, names: dict[str, Any]) -> None:
    account.reserve(repeated(STEP), 3, run="first", **TERMS)  # so that there may be allowances
    with pytest.raises(LedgerError, match=REFUSED):
        account.reserve(repeated(STEP), 3, **names, **TERMS)
    assert records(account) == 2
    account.reserve(repeated(STEP), 3, run="next", **TERMS)


def test_whole_numbers_of_numpy_are_whole_numbers(account: Account) -> None:
    reservation = account.reserve(repeated(STEP), np.int64(3), run="r", **TERMS)  # type: ignore[arg-type]
    for step in np.arange(2):
        reservation.before_noise(step)
    reservation.commit()
    assert [(entry.steps_reserved, entry.steps_charged) for entry in account.entries()] == [(3, 2)]


@pytest.mark.parametrize("kind", [float, np.float64, bool])
def test_a_step_is_counted_as_a_whole_number_whatever_it_is_given_as(
    account: Account, reserve: Callable[..., Reservation], kind: Callable[[int], Any]
) -> None:
    reservation = reserve(3)
    for step in range(2):
        reservation.before_noise(kind(step))
    reservation.commit(2)
    assert account.entries()[0].steps_charged == 2


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "drawn", "reservation": 1, "steps": 1},  # below the mark
        {"kind": "drawn", "reservation": 1, "steps": 4},  # above what was reserved
        {"kind": "drawn", "reservation": 1, "steps": 3, "owner": 7},
        {"kind": "drawn", "reservation": 2, "steps": 1},
        {"kind": "committed", "reservation": 1, "steps": 4, "event": "e"},
        {"kind": "committed", "reservation": 1, "steps": 2.0, "event": "e"},
        {"kind": "committed", "reservation": 1, "steps": 2},
        {"kind": "opened", "reservation": 1},
        {"kind": "unknown", "reservation": 1},
        {"reservation": 1},
    ],
)
def test_whatever_is_wrong_with_a_record_it_is_not_written(
    account: Account, reserve: Callable[..., Reservation], record: Record
) -> None:
    reservation = reserve(3)
    for step in range(2):
        reservation.before_noise(step)
    before = records(account)

    def faulty(history: History) -> Record:
        return record

    with pytest.raises(LedgerError, match=REFUSED):
        account._journal.append(faulty)
    assert records(account) == before
    reservation.commit(2)


@pytest.mark.parametrize("unit", [PrivacyUnit(5), PrivacyUnit(None), PrivacyUnit("user", np.int64(2))])  # type: ignore[arg-type]
def test_an_account_that_could_not_be_read_spoils_no_ledger(account: Account, address: str, unit: PrivacyUnit) -> None:
    with pytest.raises(LedgerError, match=REFUSED):
        Ledger.create(address, dataset="other", budget=Budget(1.0, 1e-5), unit=unit)
    assert [found.dataset for found in Ledger.open(address).accounts()] == ["digits"]
    Ledger.create(address, dataset="other", budget=Budget(1.0, 1e-5))
