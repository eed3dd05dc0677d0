"""Calibration of DP-SGD's noise: tacit beside dp-accounting (and Opacus where it is installed), in one run.

Every contender solves the same problems, in turn, several times over, so that a busy moment of the machine hits all of
them alike. The sampling rate differs in its last digits from round to round, so that no cache helps.

Run it with ``make bench``, or ``python benchmarks/accounting.py --rounds 5``.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import dp_accounting
from dp_accounting import pld, rdp
from rich.console import Console
from rich.table import Table

from tacit.accounting import calibrate_dpsgd_noise, dpsgd_event, epsilon
from tacit.core import Budget

RATE, STEPS, DELTA = 0.01, 10_000, 1e-5
TARGETS = (1.0, 8.0)
RELATIVE_TOLERANCE = 4e-4  # of the noise, as tacit's own search has it
Contender = Callable[[float, float], float]  # sampling rate and epsilon to noise


def dp_accounting_contender(make_accountant: Callable[[], dp_accounting.PrivacyAccountant]) -> Contender:
    """dp-accounting's own calibration with its default bracket and tacit's tolerance."""

    def calibrate(rate: float, target: float) -> float:
        return float(
            dp_accounting.calibrate_dp_mechanism(
                make_accountant,
                lambda noise: dpsgd_event(rate, noise, STEPS),
                target,
                DELTA,
                tol=RELATIVE_TOLERANCE,
            )
        )

    return calibrate


def opacus_contender(accountant: str) -> Contender:
    """Opacus's bisection with one of its accountants."""
    utilities = importlib.import_module("opacus.accountants.utils")

    def calibrate(rate: float, target: float) -> float:
        return float(
            utilities.get_noise_multiplier(
                target_epsilon=target,
                target_delta=DELTA,
                sample_rate=rate,
                steps=STEPS,
                accountant=accountant,
                epsilon_tolerance=RELATIVE_TOLERANCE * target,
            )
        )

    return calibrate


def contenders() -> dict[str, Contender]:
    """Name to calibration; what is compared against comes right after its counterpart in tacit."""

    def tacit(accountant: str) -> Contender:
        return lambda rate, target: calibrate_dpsgd_noise(rate, STEPS, Budget(target, DELTA), accountant=accountant)

    found = {
        "tacit pld": tacit("pld"),
        "dp-accounting pld": dp_accounting_contender(pld.PLDAccountant),
        "tacit rdp": tacit("rdp"),
        "dp-accounting rdp": dp_accounting_contender(rdp.RdpAccountant),
    }
    if importlib.util.find_spec("opacus") is not None:
        found |= {f"opacus {name}": opacus_contender(name) for name in ("prv", "rdp")}
    return found


def processor() -> str:
    """The processor's name where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def header(rounds: int) -> str:
    packages = ("tacit", "dp-accounting", "numpy", "scipy", "opacus")
    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in packages
        if name != "opacus" or importlib.util.find_spec("opacus") is not None
    ]
    return (
        f"{processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, {', '.join(versions)}\n"
        f"DP-SGD at sampling rate {RATE}, {STEPS} steps, delta {DELTA}; median of {rounds} interleaved rounds"
    )


def measure(rounds: int) -> dict[tuple[str, float], tuple[list[float], float]]:
    """Contender and target to the seconds of each round and the noise that was found."""
    results: dict[tuple[str, float], tuple[list[float], float]] = {}
    for turn in range(rounds):
        for name, calibrate in contenders().items():
            for target in TARGETS:
                start = time.perf_counter()
                noise = calibrate(RATE * (1 + 1e-12 * turn), target)
                seconds, _ = results.setdefault((name, target), ([], noise))
                seconds.append(time.perf_counter() - start)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    console = Console()
    console.print(header(rounds))
    results = measure(rounds)
    columns = ("epsilon", "contender", "noise", "epsilon by tacit pld", "median s", "spread s", "times tacit pld")
    table = Table(*columns)
    for target in TARGETS:
        fastest = statistics.median(results["tacit pld", target][0])
        for name in contenders():
            seconds, noise = results[name, target]
            middle = statistics.median(seconds)
            certified = epsilon(dpsgd_event(RATE, noise, STEPS), DELTA)
            table.add_row(
                f"{target:g}",
                name,
                f"{noise:.4f}",
                f"{certified:.4f}",
                f"{middle:.3f}",
                f"{min(seconds):.3f}-{max(seconds):.3f}",
                f"{middle / fastest:.1f}",
            )
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
