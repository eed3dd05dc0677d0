"""Reservations that nobody will commit: closed by hand, counted whole, and of no use to whoever still holds them."""

from collections.abc import Callable

import dp_accounting
import pytest

from tacit.core import LedgerError
from tacit.ledger import Account, EntryState, Ledger, Reservation, repeated

Reserve = Callable[..., Reservation]
STEP = dp_accounting.GaussianDpEvent(10.0)


def test_what_may_have_been_drawn_counts_whole_for_ever(account: Account, reserve: Reserve, address: str) -> None:
    reservation = reserve(10)
    reservation.before_noise(0)
    before = account.spent()
    entry = Ledger.open(address).account("digits").settle(1)
    assert (entry.state, entry.steps_charged, entry.steps_drawn) == (EntryState.SETTLED, 10, 1)
    assert entry.closed is not None
    assert account.entries() == [entry]
    assert account.spent() == before


def test_what_was_never_marked_is_released(account: Account, reserve: Reserve) -> None:
    reserve(10)
    entry = account.settle(1)
    assert (entry.state, entry.steps_charged) == (EntryState.RELEASED, 0)
    assert account.spent() == 0


@pytest.mark.parametrize("begun", [0, 1])
def test_a_process_that_lives_after_all_draws_nothing_beyond_the_mark(
    account: Account, reserve: Reserve, begun: int
) -> None:
    reservation = reserve(10)
    for step in range(begun):
        reservation.before_noise(step)
    account.settle(1)
    with pytest.raises(LedgerError, match="closed in the ledger"):
        reservation.before_noise(begun)
    with pytest.raises(LedgerError, match="closed in the ledger"):
        reservation.commit()
    with pytest.raises(LedgerError, match=r"reservation 1 is (released|settled)"):
        account.resume(1, repeated(STEP), steps_done=0)


def test_only_an_open_reservation_is_settled(account: Account, reserve: Reserve) -> None:
    reserve(10).release()
    for _ in range(2):
        with pytest.raises(LedgerError, match="reservation 1 is released, not open"):
            account.settle(1)
    with pytest.raises(LedgerError, match="reservation 7: the account of 'digits' has none of this number"):
        account.settle(7)
    assert account.to_dict()["records"] == 3
