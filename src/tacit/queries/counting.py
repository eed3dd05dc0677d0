"""Counts and histograms: integers that each row moves by one."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.datasets.tables.schema import CategoryColumn, NumberColumn, Schema
from tacit.datasets.tables.table import Table
from tacit.queries.answer import Reading
from tacit.queries.intervals import radius
from tacit.queries.noise import Distance, at_least_root
from tacit.queries.query import Noisy, NoisySums, Setting, Tally
from tacit.queries.rows import Where, find_bounds, find_column, read_cells, read_codes, read_numbers

MOST_BINS = 1 << 16
Bins = int | tuple[float, ...]


class Count(NoisySums):
    """How many rows there are, or how many pass a condition.

    A row moves it by 1 under either relation. Without a condition, under replace-one, the number is public, and there
    is nothing to protect.
    """

    kind: ClassVar[str] = "count"

    def distance(self, setting: Setting) -> Distance:
        if self.size_is_public(setting.terms):
            raise InputError(
                "neighbours='replace-one': the number of rows is public there. Count rows that pass a condition, or "
                "take add-remove."
            )
        return Distance.of_one_integer(1)

    def tally(self, table: Table) -> Tally:
        passing = [
            len(cells) if chosen is None else int(chosen.sum())
            for cells, chosen in read_cells(table, self.column, self.where)
        ]
        return Tally([sum(passing)], sum(passing))

    def interpret(self, noisy: Noisy) -> Reading:
        value, reach = noisy.sums[0], radius(noisy.noise.mechanism, noisy.setting.confidence)
        return Reading(value, [value - reach, value + reach], noisy.noise.name, noisy.noise.scale, "the count")


@dataclasses.dataclass(frozen=True)
class Histogram(NoisySums):
    r"""How many rows fall into each of some disjoint cells.

    The cells are the schema's categories, the two values of a boolean, or bins of a number between public edges: each
    bin holds its lower edge, the last one its upper edge too, and what lies beyond the outer edges counts in the outer
    bins.

    A row is in one cell. Added or removed it moves one count by 1; replaced it may move two, an L1 distance of 2 and an
    L2 distance of :math:`\sqrt 2`. So noise does not grow with the number of cells.

    Attributes:
        bins: for a number: how many bins of equal width between the schema's bounds, or their edges in rising order.
    """

    kind: ClassVar[str] = "histogram"

    bins: Bins | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bins, int):
            check_count("bins", self.bins)
        elif self.bins is not None:
            _check_edges(self.bins)

    def check(self, schema: Schema) -> None:
        super().check(schema)
        cell_names(schema, self.column, self.bins)

    def describe(self) -> dict[str, Any]:
        bins = list(self.bins) if isinstance(self.bins, tuple) else self.bins
        return super().describe() | ({} if bins is None else {"bins": bins})

    def distance(self, setting: Setting) -> Distance:
        return Distance(2, at_least_root(2)) if setting.terms.replaces else Distance.of_one_integer(1)

    def tally(self, table: Table) -> Tally:
        return count_cells(table, self.column, self.bins, self.where)

    def interpret(self, noisy: Noisy) -> Reading:
        schema, reach = noisy.setting.schema, radius(noisy.noise.mechanism, noisy.setting.confidence)
        column = find_column(schema, self.column)
        facts: dict[str, Any] = {"cells": cell_names(schema, self.column, self.bins)}
        if isinstance(column, NumberColumn):
            facts["edges"] = list(bin_edges(schema, self.column, self.bins))
        intervals = [[count - reach, count + reach] for count in noisy.sums]
        return Reading(noisy.sums, intervals, noisy.noise.name, noisy.noise.scale, "each cell", facts)


def count_cells(table: Table, column: str, bins: Bins | None, where: Where | None) -> Tally:
    """The exact counts of the cells."""
    names = cell_names(table.schema, column, bins)
    counts: npt.NDArray[np.int64] = np.zeros(len(names), dtype=np.int64)
    if isinstance(find_column(table.schema, column), NumberColumn):
        inner = np.asarray(bin_edges(table.schema, column, bins)[1:-1])
        for numbers in read_numbers(table, column, where):
            counts += np.bincount(np.searchsorted(inner, numbers, side="right"), minlength=len(names))
    else:
        for codes in read_codes(table, column, where):
            counts += np.bincount(codes, minlength=len(names))
    return Tally(counts.tolist(), int(counts.sum()))


def cell_names(schema: Schema, column: str, bins: Bins | None) -> list[str]:
    """What each cell is called; all of it is public."""
    found = find_column(schema, column)
    if not isinstance(found, NumberColumn):
        if bins is not None:
            raise InputError(f"bins={bins!r}: {column} is no number, and has the cells of the schema. Leave bins out.")
        return list(found.categories) if isinstance(found, CategoryColumn) else ["false", "true"]
    edges = bin_edges(schema, column, bins)
    names = [f"[{low:g}, {high:g})" for low, high in itertools.pairwise(edges)]
    return [*names[:-1], f"{names[-1][:-1]}]"]


def bin_edges(schema: Schema, column: str, bins: Bins | None) -> Sequence[float]:
    """The edges of a number's bins."""
    if isinstance(bins, tuple):
        return bins
    if bins is None:
        raise InputError(f"bins=None: {column} is a number. Say how many bins of equal width, or their edges.")
    if bins > MOST_BINS:
        raise InputError(f"bins={bins}: must be at most {MOST_BINS}.")
    return [float(edge) for edge in np.linspace(*find_bounds(schema, column), bins + 1)]


def _check_edges(edges: Sequence[float]) -> None:
    if len(edges) < 2 or len(edges) > MOST_BINS + 1 or not all(math.isfinite(edge) for edge in edges):
        raise InputError(f"bins={list(edges)!r}: must be two edges or more, each a finite number.")
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise InputError(f"bins={list(edges)!r}: must be in rising order, each edge above the one before.")
