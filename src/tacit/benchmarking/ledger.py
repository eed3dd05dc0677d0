"""Many processes that spend from one budget, and what one process pays for a training step.

``python -m tacit.benchmarking.ledger --processes 32 --seconds 60 --out results/ledger/ledger.json``

Each database is measured in three ways with many processes. ``reserve``: every process reserves one release after the
other, for so many seconds. ``spend``: it also marks each as drawn and commits it, three durable writes. ``wall``: the
processes take what the budget holds until it refuses, and exactly as many get through as one process alone would have.
The total is then computed from the ledger and compared with the budget. Processor time, of the processes and of the
server, says what a machine without other work could do.

Then one process takes training steps (of no work) in two ways. ``run``: the plan is reserved at once and committed in
the end, as `tacit.fit` does. ``step``: each step is reserved, marked and committed by itself, three durable writes. The
time is set against a step of 50 ms, and beside it stands what one synchronisation of the disk takes.

PostgreSQL is started for this from the installed package.
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import dp_accounting

from tacit.benchmarking.environment import circumstances
from tacit.benchmarking.postgres_server import Server, temporary_server
from tacit.benchmarking.results import check_writable, write_result
from tacit.core.errors import BudgetExceededError, TacitError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.ledger import Account, Ledger, Rule, repeated

_BUDGET = Budget(8.0, 1e-5)
_SMALL = dp_accounting.GaussianDpEvent(2_000.0)  # millions of these fit
_LARGE = dp_accounting.GaussianDpEvent(12.0)  # hundreds do
_START_SECONDS, _LONGEST_SECONDS = 120, 600
_TRAINING_STEP_SECONDS = 0.05
_RUN_STEPS, _SINGLE_STEPS, _SYNCHRONISATIONS = 1_000, 100, 50
# Imported once and then forked, so that starting many processes costs little.
_PRELOADED = ["tacit.benchmarking.environment", "tacit.ledger.sqlite", "tacit.ledger.postgres", "psycopg"]
_PRELOADED += ["sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"]


@dataclasses.dataclass(frozen=True)
class Place:
    """A ledger to measure, and the server behind it where there is one."""

    address: str
    server: Server | None = None

    @property
    def database(self) -> str:
        """Which one."""
        return "sqlite" if self.server is None else "postgresql"

    def server_seconds(self) -> float:
        """The processor time of the server up to now."""
        return 0.0 if self.server is None else self.server.processor_seconds()


@dataclasses.dataclass(frozen=True)
class Load:
    """What every process does, and for how long.

    Attributes:
        address: the ledger.
        way: ``reserve``, ``spend`` or ``wall``.
        seconds: how long; a wall ends by itself.
    """

    address: str
    way: str
    seconds: float

    def run(self, start: Barrier) -> tuple[int, float]:
        """Reservations that this process was granted after all have started, and its processor time."""
        account = Ledger.open(self.address).account(self.way)
        event = repeated(_LARGE if self.way == "wall" else _SMALL)
        start.wait(_START_SECONDS)
        end, granted, used = time.monotonic() + self.seconds, 0, time.process_time()
        while self.way == "wall" or time.monotonic() < end:
            try:
                reservation = account.reserve(event, 1, run="", neighbours=account.neighbours, unit=account.unit)
            except BudgetExceededError:
                break
            granted += 1
            if self.way == "spend":
                reservation.before_noise(0)
                reservation.commit()
        return granted, time.process_time() - used


def measure(place: Place, way: str, *, rule: Rule, processes: int, seconds: float) -> dict[str, Any]:
    """One row: so many processes on one account, and what the ledger says afterwards."""
    address = place.address
    account = Ledger.create(address, dataset=way, budget=_BUDGET, rule=rule).account(way)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    start, answers = context.Barrier(processes + 1), context.Queue()
    load = Load(address, way, seconds)
    workers = [context.Process(target=_work, args=(load, start, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    start.wait(_START_SECONDS)
    began, served = time.monotonic(), place.server_seconds()
    found = [answers.get(timeout=_LONGEST_SECONDS) for _ in workers]
    took, served = time.monotonic() - began, place.server_seconds() - served
    granted, used = (sum(column) for column in zip(*found, strict=True))
    for worker in workers:
        worker.join(_START_SECONDS)
    entries = account.entries()
    spent = account.spent()
    return {
        "database": place.database,
        "way": way,
        "rule": rule.value,
        "processes": processes,
        "seconds": took,
        "reservations": granted,
        "per_second": granted / took,
        "processor_ms": {"processes": 1_000 * used / granted, "server": 1_000 * served / granted},
        "in_the_ledger": len(entries),
        "spent": spent,
        "budget": _BUDGET.epsilon,
        "holds": spent <= _BUDGET.epsilon and len(entries) == granted and (way != "wall" or granted == _fits(account)),
    }


def _fits(account: Account) -> int:
    """How many of the large releases one process alone could take, by the account's rule."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Ledger.create(Path(folder) / "a.db", dataset="a", budget=_BUDGET, rule=account.rule).account("a")
        low, high = 0, 100_000
        while high - low > 1:
            middle = (low + high) // 2
            try:
                event = dp_accounting.SelfComposedDpEvent(_LARGE, middle)
                alone.require(event, neighbours=alone.neighbours, unit=alone.unit)
                low = middle
            except BudgetExceededError:
                high = middle
        return low


def _work(load: Load, start: Barrier, answers: Any) -> None:
    answer = (-(10**9), 0.0)  # a process that fails spoils the row
    try:
        answer = load.run(start)
    finally:
        answers.put(answer)


def measure_steps(place: Place, way: str, *, rule: Rule, pause: float = _TRAINING_STEP_SECONDS) -> dict[str, Any]:
    """One row: what reserving and committing adds to a training step of one process.

    Args:
        place: the ledger.
        way: ``run`` or ``step``.
        rule: of the account.
        pause: seconds in the place of each step's own work: how often a run looks at its ledger depends on them.
    """
    account = Ledger.create(place.address, dataset=way, budget=_BUDGET, rule=rule).account(way)
    runs, length = (1, _RUN_STEPS) if way == "run" else (_SINGLE_STEPS, 1)
    terms: dict[str, Any] = {"run": "", "neighbours": account.neighbours, "unit": account.unit}
    began, paused = time.perf_counter(), 0.0
    for _ in range(runs):
        with account.reserve(repeated(_SMALL), length, **terms) as reservation:
            for step in range(length):
                paused += _slept(pause)
                reservation.before_noise(step)
    seconds = (time.perf_counter() - began - paused) / (runs * length)
    return {
        "database": place.database,
        "way": way,
        "rule": rule.value,
        "steps": runs * length,
        "ms_a_step": 1_000 * seconds,
        "share": seconds / _TRAINING_STEP_SECONDS,
    }


def _slept(seconds: float) -> float:
    began = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - began


def synchronisation_ms(folder: Path) -> float:
    """How long this disk takes to keep one small write."""
    with (folder / "probe").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(_SYNCHRONISATIONS):
            file.write(bytes(4_096))
            os.fsync(file.fileno())
        return 1_000 * (time.perf_counter() - began) / _SYNCHRONISATIONS


@contextlib.contextmanager
def _places(wanted: list[str], folder: Path) -> Iterator[list[Place]]:
    with contextlib.ExitStack() as stack:
        found = [Place(str(folder / "ledger.db"))] if "sqlite" in wanted else []
        if "postgresql" in wanted:
            try:
                server = stack.enter_context(temporary_server())
                found.append(Place(server.address, server))
            except TacitError as error:
                sys.stderr.write(f"PostgreSQL is left out: {error}\n")
        yield found


def _measure_all(place: Place, rule: Rule, processes: int, seconds: float) -> tuple[list[Any], list[Any]]:
    rows, steps = [], []
    for way in ("run", "step"):
        row = measure_steps(place, way, rule=rule)
        sys.stderr.write(
            f"{row['database']:10} {way:7} {row['ms_a_step']:7.2f} ms a step, {row['share']:.1%} of 50 ms\n"
        )
        steps.append(row)
    for way in ("reserve", "spend", "wall"):
        row = measure(place, way, rule=rule, processes=processes, seconds=seconds)
        used = sum(row["processor_ms"].values())
        sys.stderr.write(
            f"{row['database']:10} {way:7} {row['per_second']:7.0f} a second, {used:.2f} ms of processor each, "
            f"epsilon {row['spent']:.4f} of {row['budget']:g}, {'holds' if row['holds'] else 'BROKEN'}\n"
        )
        rows.append(row)
    return rows, steps


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--rule", choices=[rule.value for rule in Rule], default=Rule.FIXED_PLAN.value)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    check_writable("out", given.out)
    rows, steps, load = [], [], os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as name,
        _places(given.database or ["sqlite", "postgresql"], Path(name)) as places,
    ):
        synchronisation = synchronisation_ms(Path(name))
        for place in places:
            of_many, of_one = _measure_all(place, Rule(given.rule), given.processes, given.seconds)
            rows += of_many
            steps += of_one
    result = {
        **circumstances(),
        "load_average_before": load,
        "synchronisation_ms": synchronisation,
        "rows": rows,
        "steps": steps,
    }
    if given.out is not None:
        write_result(result, given.out)
    sys.stdout.write(to_json(result) + "\n")
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
