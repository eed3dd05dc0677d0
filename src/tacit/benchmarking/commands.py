"""What the commands ``python -m tacit.benchmarking.…`` have in common."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.benchmarking.results import check_writable, write_result
from tacit.core.errors import TacitError
from tacit.core.plain import to_json

Result = dict[str, Any]


def measured(measure: Callable[[], Result], out: Path | None) -> Result | None:
    """Measures, and leaves the result in ``out`` or on standard output.

    None where it was refused, which a line on standard error says; a file that cannot be written is refused before.
    """
    try:
        check_writable("out", out)
        result = measure()
    except TacitError as error:
        print_line(f"tacit: {' '.join(str(error).split())}")
        return None
    if out is None:
        sys.stdout.write(to_json(result) + "\n")
    else:
        write_result(result, out)
    return result


def print_line(text: str) -> None:
    """A line on standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
