"""Several processes on one ledger, and processes that die in the middle."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dp_accounting
import pytest

from tacit.core import Budget, BudgetExceededError
from tacit.ledger import Account, EntryState, Ledger, Reservation, repeated

STEP = dp_accounting.GaussianDpEvent(10.0)
Reserve = Callable[..., Reservation]

_OPEN = """
import sys, time, pathlib
import dp_accounting
from tacit.core import Budget, BudgetExceededError, Neighbours, PrivacyUnit
from tacit.ledger import Ledger, repeated
path = pathlib.Path(sys.argv[1])
terms = {"neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}
event_for = repeated(dp_accounting.GaussianDpEvent(10.0))
"""

_COMPETE = """
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
account = Ledger.create(path, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")
for attempt in range(4):
    try:
        account.reserve(event_for, 10, run="r", **terms)
        sys.stdout.write("reserved\\n")
    except BudgetExceededError:
        sys.stdout.write("refused\\n")
"""

_SPEND = """
account = Ledger.open(path).account("digits")
reservation = account.reserve(event_for, 40, run="r", **terms)
for step in range(int(sys.argv[2])):
    reservation.before_noise(step)
    sys.stdout.write(f"noise of step {step}\\n")
sys.stdout.write("done\\n"); sys.stdout.flush()
time.sleep(600)
"""


def _start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _OPEN + script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_race_never_overspend(path: Path) -> None:
    """Four processes each make the ledger and try four times; five runs of ten steps fit."""
    processes = [_start(_COMPETE, path) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        answers += output.split()
    assert sorted(answers) == ["refused"] * 11 + ["reserved"] * 5
    account = Ledger.open(path).account("digits")
    assert len(account.entries()) == 5
    assert account.spent() <= 3.0


@pytest.mark.parametrize("steps_drawn", [0, 7])
def test_pitfall_36_a_killed_run_stays_spent(account: Account, reserve: Reserve, steps_drawn: int) -> None:
    """Killed before its commit: the whole reservation counts, and the mark covers every noise drawn."""
    process = _start(_SPEND, account._database.path, steps_drawn)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(steps_drawn + 1)]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert lines[-1] == "done\n"
    (entry,) = Ledger.open(account._database.path).account("digits").entries()
    assert (entry.state, entry.steps_charged, entry.closed) == (EntryState.RESERVED, 40, None)
    assert steps_drawn <= entry.steps_drawn <= 40
    with pytest.raises(BudgetExceededError):
        reserve(20)
    reserve(10)


def test_a_writer_waits_for_the_one_before(account: Account, path: Path) -> None:
    """What a reservation read is still true when it writes: another process cannot write in between."""
    terms = {"neighbours": account.neighbours, "unit": account.unit}
    with account._database.write():
        other = _start(_COMPETE, path)
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=1.5)
        assert account.entries() == []
    output, _ = other.communicate(timeout=120)
    assert output.split() == ["reserved"] * 4
    account.reserve(repeated(STEP), 10, run="r", **terms)
    assert account.budget == Budget(3.0, 1e-5)
