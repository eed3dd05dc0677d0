"""What a file says about itself before its first row: the names of its columns, and in Parquet their declared types.

Nothing of a row is read, so that what is made from a header alone says nothing about anybody's data.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tacit.core.errors import InputError

_CSV_ENDINGS = (".csv", ".csv.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")
_WIDE_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_LINE = 1 << 22
_DELIMITERS = (";", "\t", "|", ",")


def is_table(name: str | Path) -> bool:
    """Whether the name ends as a file that can be read as a table."""
    return str(name).lower().endswith(_CSV_ENDINGS + _PARQUET_ENDINGS)


def is_parquet(path: Path) -> bool:
    """Whether the name ends as a Parquet file."""
    return path.name.lower().endswith(_PARQUET_ENDINGS)


def check_file(path: Path) -> None:
    """Refuses a file that is not there, is empty, or cannot be a table."""
    if not is_table(path):
        endings = ", ".join(_CSV_ENDINGS + _PARQUET_ENDINGS)
        raise InputError(f"file={str(path)!r}: must end in one of {endings}.")
    try:
        with path.open("rb") as stream:
            start = stream.read(2)
    except OSError as error:
        raise InputError(f"file={str(path)!r}: cannot be read ({error.strerror or error}).") from error
    if not start:
        raise InputError(f"file={str(path)!r}: is empty. It needs a header and rows.")
    if not is_parquet(path) and start in _WIDE_ENCODINGS:
        raise bad_encoding(path, "it is UTF-16")


def csv_header(path: Path, delimiter: str) -> list[str]:
    """The names in the first line of a CSV file; no byte behind that line is interpreted."""
    zipped = path.name.lower().endswith(".gz")
    try:
        with gzip.open(path) if zipped else path.open("rb") as stream:
            return next(
                (names for names in csv.reader(_lines(stream.readline), delimiter=delimiter, strict=True) if names), []
            )
    except UnicodeDecodeError as error:
        raise bad_encoding(path, "the header is not UTF-8") from error
    except (csv.Error, OSError, EOFError) as error:
        raise unreadable(path, "CSV", error) from error


def other_delimiter(names: Sequence[str], delimiter: str) -> str | None:
    """What seems to separate the names of a header that was read as one name."""
    others = (other for other in _DELIMITERS if other != delimiter and other in names[0]) if len(names) == 1 else ()
    return next(iter(others), None)


def parquet_header(path: Path) -> pa.Schema:
    """Names and declared types of the columns of a Parquet file."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "Parquet", error) from error


def _lines(read_line: Callable[[int], bytes]) -> Iterator[str]:
    """Lines as text, one at a time: a later line that is not UTF-8 is no concern of the header's."""
    encoding = "utf-8-sig"  # the mark that some programs write before the first name
    while line := read_line(_LONGEST_LINE):
        yield line.decode(encoding)
        encoding = "utf-8"


def bad_encoding(path: Path, what: str) -> InputError:
    """The refusal of a file that is not UTF-8."""
    return InputError(f"file={str(path)!r}: {what}. Save it as UTF-8.")


def unreadable(path: Path, kind: str, error: Exception) -> InputError:
    """The refusal of a file that its reader refuses."""
    return InputError(f"file={str(path)!r}: is not a {kind} file that can be read: {' '.join(str(error).split())}.")
