"""The columns of a CSV or Parquet file or of a frame in memory, a batch of rows at a time.

Cells of a CSV file come as their bytes and are interpreted by the schema alone, never by a guess from the data.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tacit.core.errors import InputError
from tacit.datasets.tables.header import check_file, csv_header, is_parquet, other_delimiter, parquet_header, unreadable

_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows: the number of rows before them in the source, and one Arrow array a column."""

    offset: int
    columns: dict[str, pa.Array]


class Source(Protocol):
    """Where rows come from. ``where`` opens every message about them; ``name`` is for reports.

    ``batches`` reads the named columns from the first row on, each time anew. A column that is not there is an error,
    others are left out. Errors speak of rows by their number, counted from 1 after the header.
    """

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str: ...

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]: ...


def open_source(source: object, delimiter: str) -> Source:
    """A path, or anything that hands out its columns as Arrow does: pandas, polars, pyarrow."""
    if isinstance(source, (str, Path)):
        return File(Path(source), delimiter)
    if hasattr(source, "__arrow_c_stream__") and hasattr(source, "columns"):
        return Frame(source)
    raise InputError(
        f"table={type(source).__name__}: must be the path of a CSV or Parquet file, a pandas or polars DataFrame "
        "or a pyarrow Table."
    )


@dataclasses.dataclass(frozen=True)
class File:
    """A CSV or Parquet file. Of a million rows no more than a batch is in memory."""

    path: Path
    delimiter: str

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def where(self) -> str:
        return f"file={str(self.path)!r}"

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        check_file(self.path)
        if is_parquet(self.path):
            _check_columns(self.where, parquet_header(self.path).names, columns, None)
            return _number(_read_parquet(self.path, columns), columns)
        _check_columns(self.where, csv_header(self.path, self.delimiter), columns, self.delimiter)
        return _number(_read_csv(self.path, columns, self.delimiter), columns)


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A pandas or polars DataFrame or a pyarrow Table, read through Arrow's C stream: neither library is imported.

    Types are what the frame declares. NaN in a pandas frame reaches Arrow as a missing cell, and is refused as such.
    """

    frame: Any

    @property
    def name(self) -> str:
        return "table"

    @property
    def where(self) -> str:
        return f"table={type(self.frame).__name__}"

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        arrow = isinstance(self.frame, pa.Table)
        found = [str(name) for name in (self.frame.column_names if arrow else self.frame.columns)]
        _check_columns(self.where, found, columns, None)
        wanted = list(columns)
        chosen = self.frame.select(wanted) if arrow else self.frame[wanted]  # first: other columns may be anything
        try:
            stream = pa.RecordBatchReader.from_stream(chosen)
        except pa.ArrowException as error:
            raise InputError(f"{self.where}: is not a table that Arrow can hold: {_one_line(error)}.") from error
        return _number(_pieces(stream), columns)


def _pieces(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The stream's batches, cut where they are long."""
    for batch in stream:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


def _number(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[Batch]:
    offset = 0
    for batch in batches:
        if batch.num_rows:
            yield Batch(offset, {name: batch.column(name) for name in columns})
            offset += batch.num_rows


def _read_csv(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[pa.RecordBatch]:
    """One thread, since only then the parser knows the number of a row that it refuses."""
    refused: list[pyarrow.csv.InvalidRow] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        refused.append(row)
        return "error"

    try:
        with pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(columns), column_types={name: pa.binary() for name in columns}
            ),
        ) as reader:
            yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        raise _csv_error(path, error, refused) from error


def _csv_error(path: Path, error: Exception, refused: Sequence[pyarrow.csv.InvalidRow]) -> InputError:
    if "Empty CSV" in str(error):  # the header was read before: it is the last line, and nothing ends it
        return no_rows(f"file={str(path)!r}")
    if not refused:
        return unreadable(path, "CSV", error)
    row = refused[0]
    where = "a row" if row.number is None else f"row {row.number - 1}"
    return InputError(
        f"file={str(path)!r}: {where}: has {row.actual_columns} cells where the header has {row.expected_columns}. "
        "Mend the row, or state the right delimiter in the schema."
    )


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        # By default a whole column is read ahead: memory would grow with the file.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BLOCK_BYTES) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "Parquet", error) from error


def _check_columns(where: str, found: Sequence[str], wanted: Sequence[str], delimiter: str | None) -> None:
    """Each wanted column must be there exactly once."""
    for name in wanted:
        if found.count(name) > 1:
            raise InputError(f"{where}: has {found.count(name)} columns called {name!r}. Rename all but one.")
        if name not in found:
            raise InputError(f"{where}: has no column {name!r}. {_missing_hint(name, found, delimiter)}")


def _missing_hint(name: str, found: Sequence[str], delimiter: str | None) -> str:
    other = None if delimiter is None else other_delimiter(found, delimiter)
    if other is not None:
        written = json.dumps(other)  # as TOML has it
        return f"The cells seem to be separated by another character: state delimiter = {written} in the schema."
    return near_matches(name, found)


def no_rows(where: str) -> InputError:
    """The refusal of a table without rows."""
    return InputError(f"{where}: has a header but no rows.")


def near_matches(name: str, known: Sequence[str]) -> str:
    """A sentence with the known names that resemble ``name``, or with the first few where none does."""
    by_lower = {other.lower(): other for other in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3)]
    shown = ", ".join(near or list(known)[:10])
    return f"The nearest are {shown}." if near else f"It has {shown}{', ...' if len(known) > 10 else ''}."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
