"""Cells to numbers, by the schema's bounds and lists alone. A cell that does not fit is refused with row and column."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.errors import InputError
from tacit.datasets.tables.schema import BooleanColumn, CategoryColumn, Column, NumberColumn

_BOOLEANS = ("0", "1", "false", "true")


class Cells:
    """The cells of one column in some rows, and where they stand in the file."""

    def __init__(self, path: Path, column: Column, offset: int, values: pa.Array) -> None:
        self.path = path
        self.column = column
        self.offset = offset
        self.values = _plain(values)

    def codes(self) -> np.ndarray:
        """Booleans as 0 and 1, categories as their place in the schema's list."""
        if isinstance(self.column, BooleanColumn):
            found = self._places(pc.utf8_lower(self._text()), _BOOLEANS, "must be 0, 1, false or true")
            return found % 2
        if isinstance(self.column, CategoryColumn):
            return self._places(self._text(), self.column.categories, "is not in the schema's categories")
        raise InputError(f"column={self.column.name!r}: is a number and has no codes.")

    def unit_interval(self) -> np.ndarray:
        """Numbers, scaled so that the schema's bounds become 0 and 1."""
        if not isinstance(self.column, NumberColumn):
            raise InputError(f"column={self.column.name!r}: is not a number.")
        lower, upper = self.column.lower, self.column.upper
        numbers = self._numbers()
        self._refuse_first(~np.isfinite(numbers), "is not a finite number")
        if self.column.clip:
            numbers = np.clip(numbers, lower, upper)
        outside = (numbers < lower) | (numbers > upper)
        self._refuse_first(
            outside, f"lies outside [{lower:g}, {upper:g}]; widen the schema's bounds or set clip = true there"
        )
        return (numbers - lower) / (upper - lower)

    def _text(self) -> pa.Array:
        """The cells as text without surrounding blanks; whole numbers are written as such, even where stored as
        floats.
        """
        self._refuse_empty(self.values)
        kind = self.values.type
        if pa.types.is_floating(kind):
            values = self._cast(self.values, pa.int64(), "is not a whole number").cast(pa.string())
        elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_textual(kind):
            values = self._cast(self.values, pa.string(), "is not UTF-8; save the file as UTF-8")
        else:
            raise InputError(f"{self._column()}: values of type {kind} cannot be categories or booleans.")
        text = pc.utf8_trim_whitespace(values)
        self._refuse_empty(text)
        return text

    def _numbers(self) -> np.ndarray:
        kind = self.values.type
        if _is_textual(kind):
            values = self._cast(self._text(), pa.float64(), "is not a number")
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            self._refuse_empty(self.values)
            values = self.values.cast(pa.float64(), safe=False)
        else:
            raise InputError(f"{self._column()}: values of type {kind} are not numbers.")
        return np.asarray(values.to_numpy(zero_copy_only=False))

    def _places(self, text: pa.Array, allowed: tuple[str, ...], rule: str) -> np.ndarray:
        places = pc.index_in(text, value_set=pa.array(allowed, pa.string()))
        self._refuse_first(places.is_null().to_numpy(zero_copy_only=False), rule)
        return np.asarray(places.to_numpy(zero_copy_only=False)).astype(np.int64)

    def _cast(self, values: pa.Array, kind: pa.DataType, rule: str) -> pa.Array:
        """Arrow's cast; where it fails the first cell that fails alone is the one to name."""
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            fails = [_fails(values.slice(index, 1), kind) for index in range(len(values))]
            self._refuse_first(np.array(fails), rule)
            raise

    def _refuse_empty(self, values: pa.Array) -> None:
        empty = values.is_null()
        if _is_textual(values.type):
            empty = pc.or_(empty, pc.fill_null(pc.equal(pc.binary_length(values), 0), True))
        self._refuse_first(empty.to_numpy(zero_copy_only=False), "is empty; every cell needs a value")

    def _refuse_first(self, bad: np.ndarray, rule: str) -> None:
        if bad.any():
            self._refuse(int(np.argmax(bad)), rule)

    def _refuse(self, index: int, rule: str) -> NoReturn:
        cell = self.values[index].as_py()
        shown = cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else cell
        raise InputError(f"{self._column()}: row {self.offset + index + 1}: {shown!r} {rule}.")

    def _column(self) -> str:
        return f"file={str(self.path)!r}: column {self.column.name!r}"


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_textual(kind: pa.DataType) -> bool:
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _fails(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return True
    return False
