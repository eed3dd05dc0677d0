"""Many processes that spend from one budget: how many reservations a second, and whether the budget holds.

``python -m tacit.benchmarking.ledger --processes 32 --seconds 60 --out results/ledger.json``

Each database is measured in three ways. ``reserve``: every process reserves one release after the other, for so many
seconds. ``spend``: it also marks each as drawn and commits it, three durable writes. ``wall``: the processes take what
the budget holds until it refuses, and exactly as many get through as one process alone would have. The total is then
computed from the ledger and compared with the budget. PostgreSQL is started for this from the installed package.
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
import torch

from tacit.benchmarking.environment import hardware, now, versions
from tacit.benchmarking.postgres_server import temporary_server
from tacit.benchmarking.results import check_writable, write_result
from tacit.core.errors import BudgetExceededError, TacitError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.ledger import Account, Ledger, Rule, repeated

_BUDGET = Budget(8.0, 1e-5)
_SMALL = dp_accounting.GaussianDpEvent(2_000.0)  # millions of these fit
_LARGE = dp_accounting.GaussianDpEvent(12.0)  # hundreds do
_START_SECONDS, _LONGEST_SECONDS = 120, 600
# Imported once and then forked, so that starting many processes costs little.
_PRELOADED = ["tacit.benchmarking.environment", "tacit.ledger.sqlite", "tacit.ledger.postgres", "psycopg"]
_PRELOADED += ["sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"]


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

    def run(self, start: Barrier) -> int:
        """Reservations that this process was granted after all have started."""
        account = Ledger.open(self.address).account(self.way)
        event = repeated(_LARGE if self.way == "wall" else _SMALL)
        start.wait(_START_SECONDS)
        end, granted = time.monotonic() + self.seconds, 0
        while self.way == "wall" or time.monotonic() < end:
            try:
                reservation = account.reserve(event, 1, run="", neighbours=account.neighbours, unit=account.unit)
            except BudgetExceededError:
                break
            granted += 1
            if self.way == "spend":
                reservation.before_noise(0)
                reservation.commit()
        return granted


def measure(address: str, way: str, *, rule: Rule, processes: int, seconds: float) -> dict[str, Any]:
    """One row: so many processes on one account, and what the ledger says afterwards."""
    account = Ledger.create(address, dataset=way, budget=_BUDGET, rule=rule).account(way)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    start, answers = context.Barrier(processes + 1), context.Queue()
    load = Load(address, way, seconds)
    workers = [context.Process(target=_work, args=(load, start, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    start.wait(_START_SECONDS)
    began = time.monotonic()
    granted = sum(answers.get(timeout=_LONGEST_SECONDS) for _ in workers)
    took = time.monotonic() - began
    for worker in workers:
        worker.join(_START_SECONDS)
    entries = account.entries()
    spent = account.spent()
    return {
        "database": "postgresql" if address.startswith("postgresql") else "sqlite",
        "way": way,
        "rule": rule.value,
        "processes": processes,
        "seconds": took,
        "reservations": granted,
        "per_second": granted / took,
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
    granted = -(10**9)  # a process that fails spoils the row
    try:
        granted = load.run(start)
    finally:
        answers.put(granted)


@contextlib.contextmanager
def _addresses(wanted: list[str]) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        found = [str(Path(folder) / "ledger.db")] if "sqlite" in wanted else []
        if "postgresql" in wanted:
            try:
                found.append(stack.enter_context(temporary_server()))
            except TacitError as error:
                sys.stderr.write(f"PostgreSQL is left out: {error}\n")
        yield found


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
    rows = []
    with _addresses(given.database or ["sqlite", "postgresql"]) as addresses:
        for address in addresses:
            for way in ("reserve", "spend", "wall"):
                rule = Rule(given.rule)
                row = measure(address, way, rule=rule, processes=given.processes, seconds=given.seconds)
                sys.stderr.write(
                    f"{row['database']:10} {way:7} {row['per_second']:7.0f} a second, epsilon {row['spent']:.4f} of "
                    f"{row['budget']:g}, {'holds' if row['holds'] else 'BROKEN'}\n"
                )
                rows.append(row)
    result = {
        "date": now(),
        "hardware": hardware(torch.device("cpu")),
        "versions": versions(),
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }
    if given.out is not None:
        write_result(result, given.out)
    sys.stdout.write(to_json(result) + "\n")
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
