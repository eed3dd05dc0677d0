"""The benchmark of calibration: DP-SGD's noise for a budget, by tacit, dp-accounting and, where installed, Opacus.

Every contender solves the same problems, in turn, several times over, so that a busy moment of the machine hits all of
them alike. The sampling rate differs in its last digits from round to round, so that no cache helps.
"""

import importlib
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import dp_accounting
import torch
from dp_accounting import pld, rdp

from tacit.accounting import calibrate_dpsgd_noise, dpsgd_event, epsilon
from tacit.benchmarking import environment
from tacit.benchmarking.measuring import Progress, quiet, silent
from tacit.core import Budget
from tacit.core.validation import check_count

RATE, STEPS, DELTA = 0.01, 10_000, 1e-5
TARGETS = (1.0, 8.0)
_RELATIVE_TOLERANCE = 4e-4  # of the noise, as tacit's own search has it
_REFERENCE = "tacit pld"

Calibration = Callable[[float, float], float]
"""From a sampling rate and epsilon to the noise multiplier."""


def calibrations() -> dict[str, Calibration]:
    """Calibrations by name; what is compared against comes right after its counterpart in tacit."""
    found = {
        _REFERENCE: _tacit("pld"),
        "dp-accounting pld": _dp_accounting(pld.PLDAccountant),
        "tacit rdp": _tacit("rdp"),
        "dp-accounting rdp": _dp_accounting(rdp.RdpAccountant),
    }
    if importlib.util.find_spec("opacus") is not None:
        found |= {f"opacus {name}": _opacus(name) for name in ("prv", "rdp")}
    return found


def benchmark_accounting(
    rounds: int = 3,
    progress: Progress = silent,
    *,
    contenders: dict[str, Calibration] | None = None,
) -> dict[str, Any]:
    """Measures, and returns rows with what they were measured on and with.

    Every row holds ``contender``, ``epsilon`` (asked for), ``noise_multiplier``, ``epsilon_by_pld`` (of that noise, by
    tacit's PLD accountant), ``seconds`` (median), ``spread_seconds`` and ``ratio`` (to tacit's PLD calibration).
    """
    check_count("rounds", rounds, remedy="Use 3 or more for a median.")
    chosen = calibrations() if contenders is None else contenders
    seconds: dict[tuple[str, float], list[float]] = {}
    noises: dict[tuple[str, float], float] = {}
    turns = list(itertools.product(range(rounds), chosen, TARGETS))
    for number, (turn, name, target) in enumerate(turns):
        progress(f"round {turn + 1}: {name}, epsilon {target:g}", number / len(turns))
        started = time.perf_counter()
        noises[name, target] = chosen[name](RATE * (1 + 1e-12 * turn), target)
        seconds.setdefault((name, target), []).append(time.perf_counter() - started)
    reference = next(iter(chosen))
    rows = []
    for target in TARGETS:
        for name in chosen:
            median = statistics.median(seconds[name, target])
            rows.append(
                {
                    "contender": name,
                    "epsilon": target,
                    "noise_multiplier": noises[name, target],
                    "epsilon_by_pld": epsilon(dpsgd_event(RATE, noises[name, target], STEPS), DELTA),
                    "seconds": median,
                    "spread_seconds": [min(seconds[name, target]), max(seconds[name, target])],
                    "ratio": median / statistics.median(seconds[reference, target]),
                }
            )
    return {
        "rows": rows,
        "problem": {"sampling_rate": RATE, "steps": STEPS, "delta": DELTA, "rounds": rounds},
        "hardware": environment.hardware(torch.device("cpu")),
        "versions": environment.versions(),
        "command": environment.command(),
        "date": environment.now(),
    }


def _tacit(accountant: str) -> Calibration:
    return lambda rate, target: calibrate_dpsgd_noise(rate, STEPS, Budget(target, DELTA), accountant=accountant)


def _dp_accounting(make_accountant: Callable[[], dp_accounting.PrivacyAccountant]) -> Calibration:
    """dp-accounting's own calibration with its default bracket and tacit's tolerance."""

    def calibrate(rate: float, target: float) -> float:
        return float(
            dp_accounting.calibrate_dp_mechanism(
                make_accountant,
                lambda noise: dpsgd_event(rate, noise, STEPS),
                target,
                DELTA,
                tol=_RELATIVE_TOLERANCE,
            )
        )

    return calibrate


def _opacus(accountant: str) -> Calibration:
    """Opacus's bisection with one of its accountants."""
    utilities: Any = importlib.import_module("opacus.accountants.utils")

    def calibrate(rate: float, target: float) -> float:
        with quiet():
            noise: float = utilities.get_noise_multiplier(
                target_epsilon=target,
                target_delta=DELTA,
                sample_rate=rate,
                steps=STEPS,
                accountant=accountant,
                epsilon_tolerance=_RELATIVE_TOLERANCE * target,
            )
        return noise

    return calibrate
