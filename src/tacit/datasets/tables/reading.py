"""The columns of a CSV or Parquet file, a batch of rows at a time.

Cells of a CSV file come as their bytes and are interpreted by the schema alone, never by a guess from the data.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tacit.core.errors import InputError

_CSV_ENDINGS = (".csv", ".csv.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")
_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 16
_OTHER_DELIMITERS = {";": ";", "\t": "\\t", "|": "|", ",": ","}
_WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows: the number of rows before them in the file, and one Arrow array a column."""

    offset: int
    columns: dict[str, pa.Array]


def is_table(name: str | Path) -> bool:
    """Whether the name ends as a file that `read_batches` reads."""
    return str(name).lower().endswith(_CSV_ENDINGS + _PARQUET_ENDINGS)


def read_batches(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[Batch]:
    """The named columns of the file; columns that it does not have are an error, others are left out.

    Errors speak of rows by their number, counted from 1 after the header.
    """
    if not is_table(path):
        endings = ", ".join(_CSV_ENDINGS + _PARQUET_ENDINGS)
        raise InputError(f"file={str(path)!r}: must end in one of {endings}.")
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise InputError(f"file={str(path)!r}: cannot be read ({error.strerror or error}).") from error
    if not start:
        raise InputError(f"file={str(path)!r}: is empty. It needs a header and rows.")
    if path.name.lower().endswith(_PARQUET_ENDINGS):
        yield from _read_parquet(path, columns)
    else:
        if start.startswith(_WIDE_ENCODINGS):
            raise _bad_encoding(path, "it is UTF-16")
        yield from _read_csv(path, columns, delimiter)


def _read_csv(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[Batch]:
    _check_columns(path, _csv_header(path, delimiter), columns, delimiter)
    refused: list[pyarrow.csv.InvalidRow] = []
    offset = 0
    try:
        with _open_csv(path, columns, delimiter, refused) as reader:
            for batch in reader:
                yield Batch(offset, {name: batch.column(name) for name in columns})
                offset += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise _csv_error(path, error, refused) from error


def _csv_header(path: Path, delimiter: str) -> list[str]:
    refused: list[pyarrow.csv.InvalidRow] = []
    try:
        with _open_csv(path, [], delimiter, refused) as reader:
            return list(reader.schema.names)
    except UnicodeDecodeError as error:
        raise _bad_encoding(path, "the header is not UTF-8") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise _csv_error(path, error, refused) from error


def _open_csv(
    path: Path, columns: Sequence[str], delimiter: str, refused: list[pyarrow.csv.InvalidRow]
) -> pyarrow.csv.CSVStreamingReader:
    """One thread, since only then the parser knows the number of a row that it refuses; ``refused`` gets that row."""

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        refused.append(row)
        return "error"

    return pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(columns), column_types={name: pa.binary() for name in columns}
        ),
    )


def _csv_error(path: Path, error: Exception, refused: Sequence[pyarrow.csv.InvalidRow]) -> InputError:
    if not refused:
        return InputError(f"file={str(path)!r}: is not a CSV file that can be read: {' '.join(str(error).split())}.")
    row = refused[0]
    where = "a row" if row.number is None else f"row {row.number - 1}"
    return InputError(
        f"file={str(path)!r}: {where}: has {row.actual_columns} cells where the header has {row.expected_columns}. "
        "Mend the row, or state the right delimiter in the schema."
    )


def _bad_encoding(path: Path, what: str) -> InputError:
    return InputError(f"file={str(path)!r}: {what}. Save it as UTF-8.")


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Batch]:
    offset = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names, columns, None)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns), use_threads=False):
                yield Batch(offset, {name: batch.column(name) for name in columns})
                offset += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"file={str(path)!r}: is not a Parquet file that can be read: {' '.join(str(error).split())}."
        ) from error


def _check_columns(path: Path, found: Sequence[str], wanted: Sequence[str], delimiter: str | None) -> None:
    """Each wanted column must be there exactly once."""
    for name in wanted:
        if found.count(name) > 1:
            raise InputError(
                f"file={str(path)!r}: has {found.count(name)} columns called {name!r}. Rename all but one."
            )
        if name not in found:
            raise InputError(f"file={str(path)!r}: has no column {name!r}. {_missing_hint(name, found, delimiter)}")


def _missing_hint(name: str, found: Sequence[str], delimiter: str | None) -> str:
    if delimiter is not None and len(found) == 1:
        for other, written in _OTHER_DELIMITERS.items():
            if other != delimiter and other in found[0]:
                return (
                    f'The cells seem to be separated by another character: state delimiter = "{written}" in the schema.'
                )
    return near_matches(name, found)


def near_matches(name: str, known: Sequence[str]) -> str:
    """A sentence with the known names that resemble ``name``, or with the first few where none does."""
    by_lower = {other.lower(): other for other in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3)]
    shown = ", ".join(near or list(known)[:10])
    return f"The nearest are {shown}." if near else f"It has {shown}{', ...' if len(known) > 10 else ''}."
