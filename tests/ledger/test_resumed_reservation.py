"""Reservations that another process takes up: nothing is forgotten, nothing contradicts the ledger's mark."""

from collections.abc import Callable
from pathlib import Path

import dp_accounting
import pytest

from tacit.core import LedgerError, Neighbours, PrivacyUnit
from tacit.ledger import Account, EntryState, Ledger, Reservation, repeated
from tacit.ledger.spending import encode_event

STEP = dp_accounting.GaussianDpEvent(10.0)
STEPS = 10


@pytest.fixture
def left_open(account: Account, reserve: Callable[..., Reservation]) -> int:
    """The number of a reservation whose process died after the noise of four steps."""
    reservation = reserve(STEPS)
    for step in range(4):
        reservation.before_noise(step)
    return account.entries()[0].id


def entry(account: Account):
    return account.entries()[0]


@pytest.mark.parametrize("done", [0, 2, 4])
def test_the_rest_is_drawn_and_all_is_charged_once(account: Account, left_open: int, done: int) -> None:
    resumed = account.resume(left_open, repeated(STEP), steps_done=done)
    assert resumed.steps_begun == 4
    for step in range(done, STEPS):
        resumed.before_noise(step)
        assert entry(account).steps_drawn == max(4, step + 1)
    resumed.commit(STEPS)
    assert (entry(account).state, entry(account).steps_charged) == (EntryState.COMMITTED, STEPS)


@pytest.mark.parametrize("done", [0, 2])
def test_an_early_end_charges_what_the_process_before_may_have_drawn(
    account: Account, left_open: int, done: int
) -> None:
    with account.resume(left_open, repeated(STEP), steps_done=done) as resumed:
        resumed.before_noise(done)
    assert (entry(account).state, entry(account).steps_charged) == (EntryState.COMMITTED, 4)
    assert entry(account).encoded_event == encode_event(repeated(STEP)(4))


def test_a_release_forgets_nothing_that_was_drawn(account: Account, left_open: int) -> None:
    account.resume(left_open, repeated(STEP), steps_done=0).release()
    assert (entry(account).state, entry(account).steps_charged) == (EntryState.COMMITTED, 4)


def test_less_than_the_mark_is_charged_only_where_the_caller_says_so(account: Account, left_open: int) -> None:
    account.resume(left_open, repeated(STEP), steps_done=2, steps_begun=3).commit(2)
    assert entry(account).steps_charged == 3


def test_steps_are_drawn_in_order_and_within_the_reservation(account: Account, left_open: int) -> None:
    resumed = account.resume(left_open, repeated(STEP), steps_done=2)
    for step in (1, 3):
        with pytest.raises(LedgerError, match=rf"step={step}: the next step to draw noise for is 2"):
            resumed.before_noise(step)


@pytest.mark.parametrize(
    ("done", "begun", "message"),
    [
        (5, None, "steps_done=5, steps_begun=4: reservation 1 allowed the noise of 4 steps so far"),
        (0, 5, "steps_done=0, steps_begun=5"),
        (3, 2, "steps_done=3, steps_begun=2"),
        (-1, None, "steps_done=-1, steps_begun=4"),
    ],
)
def test_what_contradicts_the_mark_is_refused(
    account: Account, left_open: int, done: int, begun: int | None, message: str
) -> None:
    before = account.entries()
    with pytest.raises(LedgerError, match=message):
        account.resume(left_open, repeated(STEP), steps_done=done, steps_begun=begun)
    assert account.entries() == before


def test_another_event_is_refused(account: Account, left_open: int) -> None:
    """Half of the noise would cost more than was reserved."""
    with pytest.raises(LedgerError, match=r"reservation 1 was made for another event than the run's\. Resume with"):
        account.resume(left_open, repeated(dp_accounting.GaussianDpEvent(5.0)), steps_done=4)


def test_what_is_closed_or_missing_is_refused(account: Account, left_open: int) -> None:
    with pytest.raises(LedgerError, match=r"reservation 7: the account of 'digits' has none of this number"):
        account.resume(7, repeated(STEP), steps_done=0)
    account.resume(left_open, repeated(STEP), steps_done=4).commit()
    with pytest.raises(LedgerError, match=r"reservation 1 is committed in the ledger\. Reserve again"):
        account.resume(left_open, repeated(STEP), steps_done=4)


def test_two_that_resume_cannot_both_close_it(account: Account, left_open: int) -> None:
    one, two = (account.resume(left_open, repeated(STEP), steps_done=4) for _ in range(2))
    one.commit()
    with pytest.raises(LedgerError, match="reservation 1 is closed in the ledger"):
        two.before_noise(4)


MANY = 640  # so that a mark is ten steps ahead


@pytest.mark.parametrize(
    ("drawn", "done", "mark", "next_mark"),
    [(4, 4, 14, 24), (10, 4, 14, 24), (20, 4, 20, 30), (10, 10, 20, 30), (634, 631, 640, None), (638, 638, 640, None)],
)
def test_the_first_noise_is_recorded_also_where_the_mark_covers_it(
    path: Path, drawn: int, done: int, mark: int, next_mark: int | None
) -> None:
    account = Ledger.create(path, dataset="digits", budget=None).account("digits")
    terms = {"run": "run", "neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}
    reservation = account.reserve(repeated(STEP), MANY, **terms)
    for step in range(drawn):
        reservation.before_noise(step)
    before = entry(account)
    resumed = account.resume(before.id, repeated(STEP), steps_done=done, steps_begun=max(done, drawn))
    assert entry(account) == before
    resumed.before_noise(done)
    first = entry(account)
    assert (first.last_record, first.steps_drawn) == (before.last_record + 1, mark)
    for step in range(done + 1, mark):
        resumed.before_noise(step)
    assert entry(account) == first
    if next_mark is not None:
        resumed.before_noise(mark)
        assert (entry(account).last_record, entry(account).steps_drawn) == (first.last_record + 1, next_mark)


def test_the_last_record_is_that_of_the_reservation_itself(
    account: Account, left_open: int, reserve: Callable[..., Reservation]
) -> None:
    """What others write says nothing of it; whatever is written of it does."""
    assert (left_open, entry(account).last_record) == (1, 5)
    other = reserve(STEPS)
    other.before_noise(0)
    other.commit()
    assert [each.last_record for each in account.entries()] == [5, 8]
    account.settle(left_open)
    assert [each.last_record for each in account.entries()] == [9, 8]
    reserve(STEPS)
    assert account.entries()[2].last_record == account.entries()[2].id == 10


def test_of_two_that_resume_only_the_first_draws(account: Account, left_open: int) -> None:
    one, two = (account.resume(left_open, repeated(STEP), steps_done=2) for _ in range(2))
    one.before_noise(2)
    for act in (lambda: two.before_noise(2), two.commit):
        with pytest.raises(LedgerError, match=r"reservation 1 was taken up by another process\. Let one process go on"):
            act()
    for step in range(3, STEPS):
        one.before_noise(step)
    one.commit(STEPS)
    assert (entry(account).state, entry(account).steps_charged) == (EntryState.COMMITTED, STEPS)
