"""Several processes on one ledger, and processes that die in the middle."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tacit.benchmarking.ledger import Place, measure, measure_steps
from tacit.core import BudgetExceededError
from tacit.ledger import Account, EntryState, Ledger, Reservation, Rule
from tacit.ledger.history import History
from tacit.ledger.journal import Record

Reserve = Callable[..., Reservation]

_OPEN = """
import sys, time
import dp_accounting
from tacit.core import Budget, BudgetExceededError, Neighbours, PrivacyUnit
from tacit.ledger import Ledger, repeated
address = sys.argv[1]
terms = {"neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}
event_for = repeated(dp_accounting.GaussianDpEvent(10.0))
"""

_COMPETE = """
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
account = Ledger.create(address, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")
for attempt in range(3):
    try:
        account.reserve(event_for, 15, run="r", **terms)
        sys.stdout.write("reserved\\n")
    except BudgetExceededError:
        sys.stdout.write("refused\\n")
"""

_SPEND = """
account = Ledger.open(address).account("digits")
account.reserve(event_for, 15, run="quiet", **terms)
reservation = account.reserve(event_for, 25, run="busy", **terms)
for step in range(7):
    reservation.before_noise(step)
sys.stdout.write("done\\n"); sys.stdout.flush()
time.sleep(600)
"""


def _start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _OPEN + script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_race_never_overspend(address: str) -> None:
    """Three processes each make the ledger and try three times; three runs of fifteen steps fit."""
    processes = [_start(_COMPETE, address) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        answers += output.split()
    assert sorted(answers) == ["refused"] * 6 + ["reserved"] * 3
    account = Ledger.open(address).account("digits")
    assert len(account.entries()) == 3
    assert account.spent() <= 3.0


def test_pitfall_36_a_killed_run_stays_spent(account: Account, reserve: Reserve, address: str) -> None:
    """Killed before its commits: both reservations count whole, and the mark covers every noise drawn."""
    process = _start(_SPEND, address)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    quiet, busy = Ledger.open(address).account("digits").entries()
    assert (quiet.state, quiet.steps_charged, quiet.steps_drawn) == (EntryState.RESERVED, 15, 0)
    assert (busy.state, busy.steps_charged, busy.closed) == (EntryState.RESERVED, 25, None)
    assert 7 <= busy.steps_drawn <= 25
    with pytest.raises(BudgetExceededError):
        reserve(20)
    reserve(10)


def test_a_writer_waits_for_the_one_before(account: Account, reserve: Reserve) -> None:
    """What a reservation read is still true when it writes: nobody can write in between."""
    other = threading.Thread(target=reserve, args=(10,))

    def wait_and_fail(history: History) -> Record:
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
        assert account.entries() == []
        raise RuntimeError

    with pytest.raises(RuntimeError):
        account._journal.append(wait_and_fail)
    other.join(timeout=60)
    assert len(account.entries()) == 1


def test_many_processes_take_exactly_what_the_budget_holds(address: str) -> None:
    """32 processes on one account until it refuses: no more, no less, no deadlock."""
    row = measure(Place(address), "wall", rule=Rule.ADAPTIVE, processes=32, seconds=0)
    assert row["holds"], row
    assert row["reservations"] == row["in_the_ledger"] > 100


def test_many_processes_spend_side_by_side(address: str) -> None:
    row = measure(Place(address), "spend", rule=Rule.FIXED_PLAN, processes=8, seconds=1)
    assert row["holds"], row
    entries = Ledger.open(address).account("spend").entries()
    assert {entry.state for entry in entries} == {EntryState.COMMITTED}


def test_a_run_pays_for_marks_and_a_step_by_itself_for_three_writes(address: str) -> None:
    for way, steps, records in (("run", 1_000, 2 + 64), ("step", 100, 300)):
        row = measure_steps(Place(address), way, rule=Rule.FIXED_PLAN, pause=0.0)
        account = Ledger.open(address).account(way)
        assert (row["steps"], sum(entry.steps_charged for entry in account.entries())) == (steps, steps)
        assert account.to_dict()["records"] - 1 <= records
        assert row["share"] == pytest.approx(row["ms_a_step"] / 50)
