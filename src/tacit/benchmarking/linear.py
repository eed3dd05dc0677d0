"""``python -m tacit.benchmarking.linear``: what ``tacit linear`` is worth, on real and on generated tables.

    python -m tacit.benchmarking.linear file --file fulton.csv --schema docs/examples/fulton.toml --target income \\
        --split-seed 0 --out results/linear/fulton.json
    python -m tacit.benchmarking.linear slopes --out results/linear/slopes.json
    python -m tacit.benchmarking.linear rows --out results/linear/rows.json
    python -m tacit.benchmarking.linear newton --out results/linear/newton.json

``file``: test errors of every method at every epsilon. ``slopes``: how errors fall with epsilon and with rows on
generated tables. ``rows``: time and memory for files of many rows. ``newton``: the settings of Newton's method.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from tacit.benchmarking import environment
from tacit.benchmarking.commands import measured, print_line
from tacit.benchmarking.linear_generated import choose_newton, measure_slopes
from tacit.benchmarking.linear_tables import measure_file, measure_many_rows
from tacit.core.errors import InputError

_SIZES, _WIDTHS = (190_000, 370_000), (5, 8, 11, 14)
_MANY = (250_000, 1_000_000, 2_000_000)


def main() -> int:
    """Measures one part; progress on standard error, the result in ``--out`` or on standard output."""
    given = _parser().parse_args()
    return 0 if measured(lambda: {**_measure(given), **environment.circumstances()}, given.out) is not None else 2


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    if given.part == "file":
        if given.file is None or given.schema is None or given.target is None:
            raise InputError("file: needs --file, --schema and --target.")
        repeats = given.repeats or 50
        rows = measure_file(given.file, given.schema, given.target, repeats, given.split_seed, print_line)
        return {"table": given.file.name, "target": given.target, "rows": rows}
    if given.part == "slopes":
        return measure_slopes(_SIZES, _WIDTHS, given.repeats or 7, print_line)
    if given.part == "newton":
        return {"rows": choose_newton(given.repeats or 5, print_line)}
    with tempfile.TemporaryDirectory() as folder:
        return {"rows": measure_many_rows(Path(folder), _MANY, print_line)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.linear", description=main.__doc__)
    parser.add_argument("part", choices=("file", "slopes", "rows", "newton"))
    parser.add_argument("--file", type=Path)
    parser.add_argument("--schema", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--split-seed", type=int)
    parser.add_argument("--repeats", type=int, help="draws of the noise")
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
