"""One process owns a reservation: another that lives on draws nothing more, and what it drew until then is counted."""

import collections
import contextlib
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core import BudgetExceededError, LedgerError, Neighbours, PrivacyUnit
from tacit.ledger import Account, EntryState, Ledger, repeated, reservation, unlimited
from tacit.ledger.reservation import LedgerReservation

STEP = dp_accounting.GaussianDpEvent(1000.0)
STEPS, BLOCK = 640, 10
TAKEN = r"reservation 1 was taken up by another process\. Let one process go on"


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "_LOOKING_SHARE", float("inf"))


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all steps came within the time of trust."""
    monkeypatch.setattr(LedgerReservation, "_look", lambda self: None)


@pytest.fixture
def first(account: Account) -> LedgerReservation:
    """A process that has drawn four steps of a block of ten, and lives."""
    found = account.reserve(repeated(STEP), STEPS, run="run", neighbours=Neighbours.ADD_REMOVE, unit=PrivacyUnit())
    assert isinstance(found, LedgerReservation)
    for step in range(4):
        found.before_noise(step)
    return found


@pytest.fixture
def other(address: str, first: LedgerReservation) -> Account:
    """The account as another process sees it."""
    return Ledger.open(address).account("digits")


def drawn(found: LedgerReservation, start: int) -> int:
    """How far a process comes until it is refused."""

    def draw() -> None:
        for step in range(start, STEPS):
            found.before_noise(step)

    with pytest.raises(LedgerError, match=r"reservation 1 (was taken up by another process|is closed in the ledger)\."):
        draw()
    return found.steps_begun


@pytest.mark.usefixtures("looks_always")
def test_the_first_process_is_refused_at_its_next_draw(first: LedgerReservation, other: Account) -> None:
    second = other.resume(first.id, repeated(STEP), steps_done=2)
    first.before_noise(4)  # nobody has drawn yet
    second.before_noise(2)
    for act in (lambda: first.before_noise(5), first.commit):
        with pytest.raises(LedgerError, match=TAKEN):
            act()
    assert first.steps_begun == 5
    for step in range(3, STEPS):
        second.before_noise(step)
    second.commit(STEPS)
    assert [(entry.state, entry.steps_charged) for entry in other.entries()] == [(EntryState.COMMITTED, STEPS)]


@pytest.mark.usefixtures("looks_always")
@pytest.mark.parametrize("end", [lambda found: found.commit(), lambda found: found.release()])
def test_the_first_process_is_refused_once_another_has_closed_it(
    first: LedgerReservation, other: Account, end: Callable[[LedgerReservation], None]
) -> None:
    second = other.resume(first.id, repeated(STEP), steps_done=0)
    assert isinstance(second, LedgerReservation)
    end(second)
    assert drawn(first, 4) == 4
    assert other.entries()[0].steps_charged == BLOCK


@pytest.mark.usefixtures("looks_always")
def test_a_settled_run_that_lives_is_refused_at_its_next_draw(first: LedgerReservation, other: Account) -> None:
    other.settle(first.id)
    assert drawn(first, 4) == 4


@pytest.mark.usefixtures("never_looks")
def test_without_a_look_nothing_is_drawn_beyond_the_mark(first: LedgerReservation, other: Account) -> None:
    """And no lower mark is written after a higher one, which nobody could read any more."""
    second = other.resume(first.id, repeated(STEP), steps_done=8)
    for step in range(8, 3 * BLOCK):
        second.before_noise(step)
    assert drawn(first, 4) == BLOCK
    assert other.entries()[0].steps_drawn >= 3 * BLOCK
    second.commit()
    assert other.entries()[0].steps_charged == 3 * BLOCK


@pytest.mark.usefixtures("never_looks")
def test_what_the_first_draws_after_the_second_has_charged_it_is_charged(
    first: LedgerReservation, other: Account
) -> None:
    other.resume(first.id, repeated(STEP), steps_done=4).commit()
    assert drawn(first, 4) == other.entries()[0].steps_charged == BLOCK


@pytest.mark.usefixtures("looks_always")
def test_the_second_process_is_refused_where_the_first_has_raised_the_mark(
    first: LedgerReservation, other: Account
) -> None:
    second = other.resume(first.id, repeated(STEP), steps_done=4)
    for step in range(4, BLOCK + 1):
        first.before_noise(step)
    for act in (lambda: second.before_noise(4), second.commit):
        with pytest.raises(LedgerError, match=TAKEN):
            act()
    first.commit(BLOCK + 1)
    assert other.entries()[0].steps_charged == BLOCK + 1


def test_what_was_found_before_the_mark_was_raised_is_not_charged_for_more(
    first: LedgerReservation, other: Account
) -> None:
    """The first process draws up to its new mark, of which the second does not know."""
    (known,) = other.entries()
    for step in range(4, 2 * BLOCK):
        first.before_noise(step)
    with pytest.raises(LedgerError, match=r"reservation 1: another process has drawn from it meanwhile \(record 3\)"):
        other.resume(first.id, repeated(STEP), steps_done=4, steps_begun=BLOCK, last_record=known.last_record)
    assert other.entries()[0].state is EntryState.RESERVED


def test_marks_of_an_older_tacit_have_no_owner(first: LedgerReservation, other: Account) -> None:
    first._journal.append(lambda _: {"kind": "drawn", "steps": 2 * BLOCK, "reservation": first.id})
    second = other.resume(first.id, repeated(STEP), steps_done=4)
    second.before_noise(4)
    assert drawn(first, 4) <= BLOCK
    assert other.entries()[0].steps_drawn == 2 * BLOCK


def test_looking_takes_a_bounded_share_of_the_time(
    first: LedgerReservation, other: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look of a second is followed by a second of trust, and one of a millisecond by a tenth of a second."""
    clock, seconds, looks = [100.0], [0.001], []
    follow = first._journal.follow

    def slowly(**options: float):
        looks.append(clock[0])
        clock[0] += seconds[0]
        return follow(**options)

    monkeypatch.setattr(first._journal, "follow", slowly)
    monkeypatch.setattr(reservation.time, "monotonic", lambda: clock[0])
    first._trusted_until = 0.0
    for wait, took in ((0.0, 0.001), (0.09, 0.001), (0.02, 1.0), (0.99, 1.0), (0.02, 0.001)):
        clock[0], seconds[0] = clock[0] + wait, took
        first._look()
    assert looks == pytest.approx([100.0, 100.111, 102.121])


@pytest.mark.parametrize("make", [lambda first: first, lambda first: unlimited(3)])
def test_a_fork_draws_nothing_and_closes_nothing(
    first: LedgerReservation, other: Account, make: Callable[[LedgerReservation], reservation.Reservation]
) -> None:
    found = make(first)
    process = os.fork()
    if process == 0:
        status = 1
        try:
            with found:
                for act in (lambda: found.before_noise(found.steps_begun), found.commit):
                    with pytest.raises(LedgerError, match="this is a fork of it: both would draw the same noise"):
                        act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert other.entries()[0].state is EntryState.RESERVED
    found.before_noise(found.steps_begun)


_LIVES_ON = """
import sys, time
import dp_accounting
from tacit.core import LedgerError, Neighbours, PrivacyUnit
from tacit.ledger import Ledger, repeated
account = Ledger.open(sys.argv[1]).account("digits")
event_for = repeated(dp_accounting.GaussianDpEvent(1000.0))
reservation = account.reserve(event_for, 6400, run="r", neighbours=Neighbours.ADD_REMOVE, unit=PrivacyUnit())
for step in range(4):
    reservation.before_noise(step)
print("drawn", flush=True)
sys.stdin.readline()
try:
    for step in range(4, 200):
        reservation.before_noise(step)
        time.sleep(0.03)
except LedgerError as error:
    print(step, error, flush=True)
"""


def test_a_process_that_lives_is_refused_well_before_its_mark(account: Account, address: str) -> None:
    """The rest of its block takes at least 2.9 seconds, and it looks at least once a second."""
    command = [sys.executable, "-c", _LIVES_ON, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "drawn\n"
        (entry,) = account.entries()
        assert entry.steps_drawn == 100
        second = account.resume(entry.id, repeated(STEP), steps_done=2)
        second.before_noise(2)
        output, _ = process.communicate("go\n", timeout=120)
    step, refusal = output.split(" ", 1)
    assert 4 <= int(step) < 100
    assert refusal.startswith("reservation 1 was taken up by another process.")
    second.before_noise(3)
    second.commit()
    assert account.entries()[0].steps_charged == 100


ACTS = st.tuples(st.sampled_from(["draw"] * 12 + ["take up"] * 3 + ["settle", "commit"]), st.integers(0, 10**6))


@settings(max_examples=25, deadline=None)
@given(acts=st.lists(ACTS, min_size=5, max_size=40), steps=st.sampled_from([5, 64, 200, 640]), looks=st.booleans())
def test_whatever_processes_do_in_turn_no_draw_is_lost_and_none_is_made_twice_unknown(
    acts: list[tuple[str, int]], steps: int, looks: bool
) -> None:
    """A step that two processes draw was below the mark that the later one found: it knows that it draws it again."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reservation, "_LOOKING_SHARE", math.inf if looks else 1e-9)
        address = f"{folder}/ledger.db"
        account = Ledger.create(address, dataset="d", budget=None).account("d")
        terms = {"neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}
        processes = [account.reserve(repeated(STEP), steps, run="r", **terms)]  # type: ignore[arg-type]
        marks, drawers = [0], collections.defaultdict[int, set[int]](set)
        for act, choice in acts:
            (entry,) = account.entries()
            which = choice % len(processes)
            with contextlib.suppress(LedgerError, BudgetExceededError):
                if act == "draw":
                    step = processes[which]._begun
                    processes[which].before_noise(step)
                    drawers[step].add(which)
                elif act == "take up":
                    done = choice % (entry.steps_drawn + 1)
                    other = Ledger.open(address).account("d")
                    processes.append(other.resume(entry.id, repeated(STEP), steps_done=done))
                    marks.append(entry.steps_drawn)
                elif act == "settle":
                    account.settle(entry.id)
                else:
                    processes[which].commit()
            (entry,) = account.entries()
            assert len(drawers) <= entry.steps_charged
            assert all(step < min(entry.steps_drawn, entry.steps_charged) for step in drawers)
            assert all(step < marks[later] for step, found in drawers.items() for later in sorted(found)[1:])
