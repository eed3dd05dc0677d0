"""The order that survives a crash, for reservations in a ledger and for runs without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.core import Budget, BudgetExceededError, InputError, LedgerError
from tacit.ledger import Account, EntryState, Ledger, Reservation, repeated, unlimited

STEP = dp_accounting.GaussianDpEvent(10.0)
Reserve = Callable[[int], Reservation]


@pytest.fixture(params=["path", "postgres", "unlimited"])
def any_reserve(request: pytest.FixtureRequest) -> Reserve:
    """All kinds of reservation pass the same conformance suite."""
    if request.param == "unlimited":
        return unlimited
    address = request.getfixturevalue(request.param)
    account = Ledger.create(address, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")
    terms = {"run": "r", "neighbours": account.neighbours, "unit": account.unit}
    return lambda steps: account.reserve(repeated(STEP), steps, **terms)


def test_steps_draw_once_and_in_order(any_reserve: Reserve) -> None:
    reservation = any_reserve(5)
    for step in range(5):
        assert reservation.steps_begun == step
        reservation.before_noise(step)
    reservation.commit(5)
    assert reservation.steps_begun == 5


@pytest.mark.parametrize("step", [0, 1, 3, -1])
def test_pitfall_36_no_step_draws_twice_or_out_of_order(any_reserve: Reserve, step: int) -> None:
    reservation = any_reserve(5)
    reservation.before_noise(0)
    reservation.before_noise(1)
    with pytest.raises(LedgerError, match=rf"step={step}: the next step to draw noise for is 2"):
        reservation.before_noise(step)
    assert reservation.steps_begun == 2


def test_more_steps_than_reserved_are_refused(any_reserve: Reserve) -> None:
    reservation = any_reserve(2)
    reservation.before_noise(0)
    reservation.before_noise(1)
    with pytest.raises(BudgetExceededError, match=r"step=2: the reservation holds 2 steps \(0 to 1\)"):
        reservation.before_noise(2)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_a_reservation_holds_at_least_one_step(any_reserve: Reserve, steps: Any) -> None:
    with pytest.raises(InputError, match="steps="):
        any_reserve(steps)


def test_release_is_refused_once_noise_may_exist(any_reserve: Reserve) -> None:
    reservation = any_reserve(5)
    reservation.before_noise(0)
    with pytest.raises(LedgerError, match=r"1 steps have drawn noise"):
        reservation.release()
    reservation.commit()


@pytest.mark.parametrize("close", [Reservation.commit, Reservation.release])
def test_a_closed_reservation_allows_nothing(any_reserve: Reserve, close: Callable[..., None]) -> None:
    reservation = any_reserve(5)
    close(reservation)
    for action in (lambda: reservation.before_noise(0), reservation.commit, reservation.release):
        with pytest.raises(LedgerError, match="closed"):
            action()


def test_noise_that_was_never_announced_keeps_everything_spent(reserve: Reserve, account: Account) -> None:
    reservation = reserve(5)
    reservation.before_noise(0)
    with pytest.raises(LedgerError, match=r"steps_done=2: only 1 steps began"):
        reservation.commit(2)
    assert account.entries()[0].steps_charged == 5


def test_commit_charges_every_step_that_began(reserve: Reserve, account: Account) -> None:
    reservation = reserve(10)
    for step in range(4):
        reservation.before_noise(step)
    reservation.commit(3)  # the fourth step stopped between its noise and its update
    (entry,) = account.entries()
    assert (entry.state, entry.steps_reserved, entry.steps_charged) == (EntryState.COMMITTED, 10, 4)
    assert entry.event == dp_accounting.SelfComposedDpEvent(STEP, 4)
    assert entry.closed is not None


def test_commit_before_any_step_is_a_release(reserve: Reserve, account: Account) -> None:
    reserve(10).commit()
    (entry,) = account.entries()
    assert (entry.state, entry.steps_charged) == (EntryState.RELEASED, 0)
    assert entry.event == dp_accounting.NoOpDpEvent()
    assert account.spent() == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_leaving_by_an_error_commits_what_began(reserve: Reserve, account: Account, error: type[BaseException]) -> None:
    reservation = reserve(10)

    def train() -> None:
        with reservation:
            for step in range(3):
                reservation.before_noise(step)
            raise error

    with pytest.raises(error):
        train()
    (entry,) = account.entries()
    assert (entry.state, entry.steps_charged) == (EntryState.COMMITTED, 3)


def test_leaving_the_block_after_a_commit_is_fine(reserve: Reserve, account: Account) -> None:
    with reserve(10) as reservation:
        reservation.before_noise(0)
        reservation.commit(1)
    assert account.entries()[0].steps_charged == 1


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.integers(1, 200), fraction=st.floats(0, 1))
def test_the_mark_is_never_behind_the_noise(
    account: Account, monkeypatch: pytest.MonkeyPatch, steps: int, fraction: float
) -> None:
    monkeypatch.setattr(type(account), "_check_budget", lambda *_: None)  # epsilon is not what is tested here
    terms = {"neighbours": account.neighbours, "unit": account.unit}
    with account.reserve(repeated(STEP), steps, run="r", **terms) as reservation:
        for step in range(int(fraction * steps)):
            reservation.before_noise(step)
    entry = account.entries()[-1]
    assert reservation.steps_begun == entry.steps_charged <= entry.steps_drawn <= steps
    block = -(-steps // 64)
    assert entry.steps_drawn - entry.steps_charged < block


def test_most_steps_write_nothing(account: Account) -> None:
    quiet = repeated(dp_accounting.GaussianDpEvent(1000.0))
    reservation = account.reserve(quiet, 640, run="r", neighbours=account.neighbours, unit=account.unit)
    before = account.to_dict()["records"]
    for step in range(640):
        reservation.before_noise(step)
    assert account.to_dict()["records"] - before == 64


def test_no_noise_is_allowed_where_the_mark_cannot_be_written(path: Path) -> None:
    account = Ledger.create(path, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")
    reservation = account.reserve(repeated(STEP), 10, run="r", neighbours=account.neighbours, unit=account.unit)
    moved = path.rename(path.with_suffix(".away"))
    with pytest.raises(LedgerError, match="ledger="):
        reservation.before_noise(0)
    assert reservation.steps_begun == 0
    moved.rename(path)
    reservation.before_noise(0)
    assert account.entries()[0].steps_drawn == 1


def test_a_second_closing_record_cannot_be_stored(reserve: Reserve, account: Account) -> None:
    reservation: Any = reserve(10)
    reservation.before_noise(0)
    reservation.commit()
    with pytest.raises(LedgerError, match="closed in the ledger"):
        reservation._append({"kind": "released"})
    assert account.entries()[0].state is EntryState.COMMITTED
