"""``python -m tacit.benchmarking.white_box_audit``: how near an audit in one run comes to the epsilon that is claimed.

    python -m tacit.benchmarking.white_box_audit --repetitions 100 --out results/audit/white-box.json

The Gaussian mechanism (one step on all records) and DP-SGD (sampled steps), at several epsilons, are run with Dirac
canaries again and again, each time with fresh coins, lots and noise. Printed: the share of the claimed epsilon that one
run shows, and how often it shows more than was claimed, which the confidence allows now and then. Beside it stands the
share by the bound that holds for any mechanism, and the one that no bound for every mechanism of that epsilon and delta
exceeds in more than half of all runs, however many canaries there are (see
`tacit.auditing.lower_bounds.one_run_tradeoff`).
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tacit.accounting import epsilon as epsilon_of
from tacit.auditing.white_box import run_on_dirac_canaries
from tacit.benchmarking import environment
from tacit.benchmarking.commands import measured, print_line
from tacit.clipping import Flat
from tacit.core.validation import check_count
from tacit.plan import DPSGD

EPSILONS = (1.0, 2.0, 4.0, 8.0)
_SCHEDULES = {"gaussian": (1.0, 1), "dp-sgd": (0.25, 20)}  # sampling rate, steps
_DELTA, _CONFIDENCE, _EXAMPLES = 1e-5, 0.95, 40_000
_FOR_ANY = 3  # repetitions in which the slower bound for any mechanism is taken too
_SURE = 0.999


def plan_of(mechanism: str, epsilon: float) -> DPSGD:
    """The plan that is audited."""
    rate, steps = _SCHEDULES[mechanism]
    return DPSGD(
        expected_batch_size=round(rate * _EXAMPLES),
        examples=_EXAMPLES,
        steps=steps,
        clipping=Flat(1.0),
        delta=_DELTA,
        epsilon=epsilon,
    )


def audit_again(mechanism: str, epsilon: float, canaries: int, repetitions: int) -> dict[str, Any]:
    """One row: shares of the claimed epsilon over repetitions, and how many lie above it."""
    plan = plan_of(mechanism, epsilon)
    claimed = plan.epsilon()
    shares, shares_for_any = [], []
    for repetition in range(repetitions):
        run = run_on_dirac_canaries(plan, canaries)
        shares.append(run.bound(_CONFIDENCE).epsilon / claimed)
        if repetition < _FOR_ANY:
            shares_for_any.append(run.bound_for_any_mechanism(_CONFIDENCE).epsilon / claimed)
    return {
        "mechanism": mechanism,
        "sampling_rate": plan.sampling_rate,
        "steps": plan.steps,
        "noise_multiplier": plan.noise_multiplier,
        "epsilon_claimed": claimed,
        "ratio": float(np.mean(shares)),
        "ratio_std": float(np.std(shares)),
        "ratio_lowest": min(shares),
        "ratio_highest": max(shares),
        "above": sum(share > 1 for share in shares),
        "above_allowed": int(stats.binom.ppf(_SURE, repetitions, 1 - _CONFIDENCE)),
        "ratio_for_any_mechanism": float(np.mean(shares_for_any)),
        "ratio_limit_for_any_mechanism": epsilon_of(plan.event(), _DELTA * 0.5 / (1 - _CONFIDENCE)) / claimed,
    }


def measure(repetitions: int, canaries: int) -> dict[str, Any]:
    """All rows, with what they were measured on and with."""
    check_count("repetitions", repetitions)
    rows = []
    for mechanism, epsilon in itertools.product(_SCHEDULES, EPSILONS):
        row = audit_again(mechanism, epsilon, canaries, repetitions)
        rows.append(row)
        print_line(
            f"{mechanism}, epsilon {epsilon:g}: one run shows {row['ratio']:.3f} of it (lowest "
            f"{row['ratio_lowest']:.3f}), more than claimed in {row['above']} of {repetitions} (up to "
            f"{row['above_allowed']} allowed); for any mechanism {row['ratio_for_any_mechanism']:.3f} (of at most "
            f"{row['ratio_limit_for_any_mechanism']:.3f})"
        )
    settings = {"canaries": canaries, "repetitions": repetitions, "delta": _DELTA, "confidence": _CONFIDENCE}
    return {
        "rows": rows,
        "above": sum(row["above"] for row in rows),
        "settings": settings | {"above_allowed_with": _SURE, "repetitions_for_any_mechanism": _FOR_ANY},
        **environment.circumstances(),
    }


def main() -> int:
    """Audits again and again; the result in ``--out`` or on standard output. 1 where a row is above what is allowed."""
    given = _parser().parse_args()
    result = measured(lambda: measure(given.repetitions, given.canaries), given.out)
    if result is None:
        return 2
    return int(any(row["above"] > row["above_allowed"] for row in result["rows"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.white_box_audit", description=main.__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--canaries", type=int, default=200_000)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
