"""``tacit schema``: the public facts about a table."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, err, out, print_json
from tacit.core.errors import InputError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def schema() -> None:
    """The public facts about a table."""


@app.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file with a header.")],
    out_file: Annotated[Path | None, typer.Option("--out", help="Where the TOML file goes; else it is shown.")] = None,
    delimiter: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    json: Json = False,
) -> None:
    """A schema with blanks to fill in, from the names of the columns alone: no row is read."""
    from tacit.datasets.tables import draft_schema

    drafted = draft_schema(file, delimiter=delimiter)
    if out_file is not None:
        _write(out_file, drafted.text)
    if json:
        print_json({"schema": drafted.text if out_file is None else str(out_file), "columns": list(drafted.columns)})
        return
    out.print(drafted.text if out_file is None else str(out_file), markup=False, end="" if out_file is None else "\n")
    err.print("Fill in what is publicly known, then: tacit train FILE --target COLUMN --schema FILE.toml", markup=False)


def _write(path: Path, text: str) -> None:
    """Never over a file that is there: it may be filled in."""
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputError(
            f"out={str(path)!r}: cannot be written ({error.strerror or error}). Choose another name."
        ) from error
