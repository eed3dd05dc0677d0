"""``python -m tacit.benchmarking.step``: the benchmark where the command line's packages are not installed."""

import argparse
import sys
from pathlib import Path
from typing import Any

from tacit.benchmarking.commands import measured, print_line
from tacit.benchmarking.stepping import StepSettings, benchmark_step
from tacit.core.errors import InputError


def main() -> int:
    """Measures as ``tacit bench step`` does; progress on standard error, the result in ``--out`` or on standard
    output.
    """
    given = _parser().parse_args()
    return 0 if measured(lambda: _measure(given), given.out) is not None else 2


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    settings = StepSettings(
        models=names("models", given.models),
        engines=names("engines", given.engines),
        precisions=names("precision", given.precision),
        device=given.device,
        rounds=given.rounds,
        batch=given.batch,
        seconds=given.seconds,
        memory_limit=given.memory_limit,
        growth=given.growth,
        memory=given.memory,
    )
    return benchmark_step(settings, lambda text, share: print_line(f"{share:4.0%} {text}"))


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas; None where the option was not given."""
    if text is None:
        return None
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise InputError(
            f"{option}={text!r}: holds no name. Leave it out, or give names such as mlp,cnn or plain,tacit."
        )
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.step", description=main.__doc__)
    for name in ("models", "engines", "precision"):
        parser.add_argument(f"--{name}", help="separated by commas")
    parser.add_argument("--device", default="auto")
    for name in ("rounds", "batch", "memory-limit"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--seconds", type=float)
    for name in ("growth", "memory"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
