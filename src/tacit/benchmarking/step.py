"""``python -m tacit.benchmarking.step``: the benchmark where the command line's packages are not installed."""

import argparse
import sys
from pathlib import Path

from tacit.benchmarking.results import check_writable, write_result
from tacit.benchmarking.stepping import StepSettings, benchmark_step
from tacit.core.errors import InputError, TacitError
from tacit.core.plain import to_json


def main() -> int:
    """Measures as ``tacit bench step`` does; progress on standard error, the result in ``--out`` or on standard
    output.
    """
    given = _parser().parse_args()
    try:
        check_writable("out", given.out)
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
        result = benchmark_step(settings, lambda text, share: print_line(f"{share:4.0%} {text}"))
    except TacitError as error:
        print_line(f"tacit: {' '.join(str(error).split())}")
        return 2
    if given.out is None:
        sys.stdout.write(to_json(result) + "\n")
    else:
        write_result(result, given.out)
    return 0


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


def print_line(text: str) -> None:
    """A line on standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


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
