"""The rows that a query speaks of, a chunk at a time, and the public facts about its column."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.datasets.tables.encoding import Cells
from tacit.datasets.tables.reading import near_matches
from tacit.datasets.tables.schema import BooleanColumn, CategoryColumn, Column, NumberColumn, Schema
from tacit.datasets.tables.table import Table

_BOOLEANS = {"0": 0, "false": 0, "1": 1, "true": 1}


@dataclasses.dataclass(frozen=True)
class Where:
    """Only rows whose ``column`` has this ``value``, by the schema's reading of both.

    Which rows pass depends on each row alone, so that it changes no distance but one: under replace-one a row may
    enter or leave, and how many pass is private.
    """

    column: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Where":
        """``column=value``."""
        column, equals, value = text.partition("=")
        if not equals or not column.strip() or not value.strip():
            raise InputError(f"where={text!r}: must have the form column=value, such as employed=1.")
        return cls(column.strip(), value.strip())

    def __str__(self) -> str:
        return f"{self.column}={self.value}"

    def check(self, schema: Schema) -> None:
        """Refuses a column or value that the schema does not know."""
        self._wanted(find_column(schema, self.column, "where"))

    def passes(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Which rows pass."""
        wanted = self._wanted(cells.column)
        found = cells.numbers() if isinstance(cells.column, NumberColumn) else cells.codes()
        return np.asarray(found == wanted)

    def _wanted(self, column: Column) -> float | int:
        if isinstance(column, CategoryColumn):
            if self.value not in column.categories:
                known = near_matches(self.value, column.categories)
                raise InputError(f"where={str(self)!r}: the schema's categories do not hold {self.value!r}. {known}")
            return column.categories.index(self.value)
        if isinstance(column, BooleanColumn):
            if self.value.lower() not in _BOOLEANS:
                raise InputError(f"where={str(self)!r}: {self.column} is a boolean. Write {self.column}=1 or =0.")
            return _BOOLEANS[self.value.lower()]
        try:
            return float(self.value)
        except ValueError:
            raise InputError(f"where={str(self)!r}: {self.column} is a number, and {self.value!r} is none.") from None


def find_column(schema: Schema, name: str, argument: str = "column") -> Column:
    """The column of the schema, or the nearest names."""
    if name not in schema.columns:
        raise InputError(
            f"{argument}={name!r}: is not a column of the schema. {near_matches(name, list(schema.columns))}"
        )
    return schema.columns[name]


def find_bounds(schema: Schema, name: str) -> tuple[float, float]:
    """The public bounds of a number; those of a boolean are 0 and 1."""
    column = find_column(schema, name)
    if isinstance(column, CategoryColumn):
        raise InputError(f"column={name!r}: is a category, and has no numbers. Ask for a histogram or for the top.")
    lower, upper = (column.lower, column.upper) if isinstance(column, NumberColumn) else (0.0, 1.0)
    if not math.isfinite(upper - lower):
        raise _unfit(upper - lower)
    return lower, upper


def read_cells(table: Table, column: str, where: Where | None) -> Iterator[tuple[Cells, npt.NDArray[np.bool_] | None]]:
    """The column's cells with the rows that pass; None where all do."""
    if where is None:
        for cells in table.cells(column):
            yield cells, None
    else:
        for cells, conditions in table.columns(column, where.column):
            yield cells, where.passes(conditions)


def read_numbers(table: Table, column: str, where: Where | None) -> Iterator[npt.NDArray[np.float64]]:
    """The numbers of the rows that pass, each within the bounds of `find_bounds`."""
    for cells, passing in read_cells(table, column, where):
        numbers = cells.numbers()
        yield numbers if passing is None else numbers[passing]


def read_codes(table: Table, column: str, where: Where | None) -> Iterator[npt.NDArray[np.int64]]:
    """The codes of the rows that pass: places in the schema's categories, or 0 and 1."""
    for cells, passing in read_cells(table, column, where):
        codes = cells.codes()
        yield codes if passing is None else codes[passing]


def power_of_two_step(extent: float, bits: int) -> float:
    """The power of two that divides ``extent`` into 2^(bits - 1) to 2^bits steps: whole numbers of it are floats."""
    exponent = math.frexp(extent)[1] - bits
    step = math.ldexp(1.0, exponent)
    if not 0 < step < math.inf or math.ldexp(step, bits) == math.inf:
        raise _unfit(extent)
    return step


def _unfit(extent: float) -> InputError:
    return InputError(f"bounds: {extent!r} is too wide or too narrow. Measure the column in another unit.")
