"""``python -m tacit.benchmarking.audit_times``: how long the audits take that everybody waits for.

    python -m tacit.benchmarking.audit_times --out results/audit/times.json

It runs ``tacit audit digits --epsilon 2`` and the tests of planted bugs, each in a process of its own, as a user would.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.benchmarking import environment
from tacit.benchmarking.commands import measured, print_line
from tacit.core.errors import InputError

_TESTS = Path("tests/mutants")


def main(arguments: Sequence[str] | None = None) -> int:
    """Time both, and write the result."""
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.audit_times", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the result goes")
    out = parser.parse_args(arguments).out
    result = measured(lambda: {"rows": [_audit(), _mutants()], **environment.circumstances()}, out)
    return 2 if result is None else 0


def _audit() -> dict[str, Any]:
    arguments = ["audit", "digits", "--epsilon", "2", "--json"]
    program = Path(sys.executable).with_name("tacit")
    with tempfile.TemporaryDirectory() as folder:
        seconds, printed = _timed([str(program), *arguments], cwd=Path(folder))
    found = json.loads(printed)
    kept = {name: found[name] for name in ("epsilon_claimed", "epsilon_lower", "confidence", "auc")}
    return {"command": " ".join(["tacit", *arguments]), "seconds": seconds, **kept}


def _mutants() -> dict[str, Any]:
    if not _TESTS.is_dir():
        raise InputError(f"{_TESTS}: is not here. Run this in the folder of the repository.")
    arguments = ["-m", "pytest", str(_TESTS), "-p", "no:cacheprovider"]
    seconds, printed = _timed([sys.executable, *arguments], cwd=Path())
    return {"command": " ".join(["python", *arguments]), "seconds": seconds, "passed": printed.count(".")}


def _timed(command: Sequence[str], *, cwd: Path) -> tuple[float, str]:
    print_line(" ".join(command[1:]))
    started = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise InputError(f"{' '.join(command[1:])}: ended with status {done.returncode}. See what it printed above.")
    return time.perf_counter() - started, done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
