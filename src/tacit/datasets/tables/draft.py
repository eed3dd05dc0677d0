"""A schema to fill in, from the header of a file alone.

Bounds and categories are public facts, and only people know which are: a minimum that was looked up in the data would
be somebody's value. So no row is read, and two files with the same header have the same draft.
"""

import dataclasses
import json
import re
from pathlib import Path

import pyarrow as pa

from tacit.core.errors import InputError
from tacit.datasets.tables.header import (
    check_file,
    csv_header,
    is_parquet,
    other_delimiter,
    parquet_header,
)
from tacit.datasets.tables.schema import BLANK

_OPENING = f"""\
# A draft, made from the header alone: no row was read. Replace each "{BLANK}" by what is publicly known, such as the
# range that a question allows. Never look it up in the data: then it would be somebody's value.
# Remove the columns that are not to be read.

test_fraction = 0.2
"""
_BOUND = f"""\
lower = "{BLANK}"
upper = "{BLANK}"
# clip = true # moves values outside to the bounds; without it they are refused
"""
_VALUES = f'categories = ["{BLANK}"] # every value that there may be\n'
_ANY = f"""\
type = "{BLANK}" # "number", "category" or "boolean"
# lower = 0 # of a number, with upper
# upper = 1
# categories = ["a", "b"] # of a category
"""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class Draft:
    """The text of a TOML file with blanks, which `read_schema` refuses until they are filled in, and its columns."""

    text: str
    columns: tuple[str, ...]


def draft_schema(path: str | Path, *, delimiter: str = ",") -> Draft:
    """A draft from the names of the columns, in Parquet also from their declared types.

    Args:
        path: a file that ends in .csv, .csv.gz, .parquet or .pq.
        delimiter: between the cells of a CSV file.

    Raises:
        InputError: for a file without a header, or whose first line holds numbers: then it is no header but somebody's
            row, and a draft would publish it.
    """
    path = Path(path)
    if len(delimiter) != 1:
        raise InputError(f"delimiter={delimiter!r}: must be one character, such as ',' or ';'.")
    check_file(path)
    types: dict[str, str]
    if is_parquet(path):
        declared = parquet_header(path)
        names, types = declared.names, {field.name: _by_type(field.type) for field in declared}
    else:
        names, types = _csv_names(path, delimiter), {}
    _check_names(path, names)
    top = "" if delimiter == "," else f"delimiter = {_quoted(delimiter)}\n"
    parts = [f"\n[columns.{_key(name)}]\n{types.get(name, _ANY)}" for name in names]
    return Draft(_OPENING + top + "".join(parts), tuple(names))


def _csv_names(path: Path, delimiter: str) -> list[str]:
    names = csv_header(path, delimiter)
    other = other_delimiter(names, delimiter)
    if other is not None:
        raise InputError(
            f"file={str(path)!r}: its header is one column. The cells seem to be separated by {other!r}: give it as "
            "the delimiter."
        )
    for place, name in enumerate(names, start=1):
        if _is_number(name):
            raise InputError(
                f"file={str(path)!r}: column {place}: the first line has a number where a name should stand, and may "
                "be a person's row. Put a line with the names of the columns before it."
            )
    return names


def _check_names(path: Path, names: list[str]) -> None:
    if not names:
        raise InputError(f"file={str(path)!r}: has no header. Its first line must name the columns.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"file={str(path)!r}: has {names.count(name)} columns called {name!r}. Rename all but one."
            )


def _by_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return 'type = "boolean"\n'
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return f'type = "number" # or "category" with categories, or "boolean"\n{_BOUND}'
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f'type = "category"\n{_VALUES}'
    return _ANY


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's, which also wants the delete character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
