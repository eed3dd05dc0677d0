"""Cells to numbers, by the schema's bounds and lists alone. A cell that does not fit is refused with row and column."""

from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.errors import InputError
from tacit.datasets.tables.schema import BooleanColumn, CategoryColumn, Column, NumberColumn

_BOOLEANS = ("0", "1", "false", "true")


class Cells:
    """The cells of one column in some rows: ``where`` they stand, and after how many rows."""

    def __init__(self, where: str, column: Column, offset: int, values: pa.Array) -> None:
        self.where = where
        self.column = column
        self.offset = offset
        self.values = _plain(values)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self) -> np.ndarray:
        """Booleans as 0 and 1, categories as their place in the schema's list."""
        if isinstance(self.column, BooleanColumn):
            return self._flags()
        if isinstance(self.column, CategoryColumn):
            return self._places(self._text(), self.column.categories, "is not in the schema's categories")
        raise InputError(f"column={self.column.name!r}: is a number and has no codes.")

    def numbers(self) -> np.ndarray:
        """Numbers between the schema's bounds, moved there from outside if it says so; booleans as 0 and 1."""
        if isinstance(self.column, BooleanColumn):
            return np.asarray(self.codes(), dtype=np.float64)
        if not isinstance(self.column, NumberColumn):
            raise InputError(f"column={self.column.name!r}: is a category, and has no numbers.")
        lower, upper = self.column.lower, self.column.upper
        numbers = self._numbers()
        self._refuse_first(~np.isfinite(numbers), "is not a finite number")
        if self.column.clip:
            return np.asarray(np.clip(numbers, lower, upper))
        outside = (numbers < lower) | (numbers > upper)
        self._refuse_first(
            outside, f"lies outside [{lower:g}, {upper:g}]; widen the schema's bounds or set clip = true there"
        )
        return numbers

    def unit_interval(self) -> np.ndarray:
        """`numbers`, scaled so that the schema's bounds become 0 and 1."""
        numbers = self.numbers()
        if not isinstance(self.column, NumberColumn):
            return numbers
        return (numbers - self.column.lower) / (self.column.upper - self.column.lower)

    def _flags(self) -> np.ndarray:
        rule = "must be 0, 1, false or true"
        kind = self.values.type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            self._refuse_empty(self.values)
            flags = np.asarray(self.values.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
            self._refuse_first((flags != 0) & (flags != 1), rule)
            return flags
        return self._places(pc.utf8_lower(self._text()), _BOOLEANS, rule) % 2

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
        return f"{self.where}: column {self.column.name!r}"


def _plain(values: pa.Array) -> pa.Array:
    """Without the two ways of storing text that Arrow's functions do not all know."""
    if pa.types.is_dictionary(values.type):
        return _plain(values.dictionary).take(values.indices)
    return values.cast(pa.string()) if pa.types.is_string_view(values.type) else values


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
