"""`Table`: the rows of a file or frame as numbers, a chunk at a time."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.core.errors import InputError
from tacit.datasets.partition import evenly_spread
from tacit.datasets.tables.encoding import Cells
from tacit.datasets.tables.reading import Batch, Source, near_matches, no_rows, open_source
from tacit.datasets.tables.schema import AtLeast, BooleanColumn, CategoryColumn, NumberColumn, Schema, as_schema


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows as numbers.

    Attributes:
        offset: how many rows stand before them.
        inputs: float64 of shape (rows, d), every entry in [0, 1]: a number scaled by its bounds, a boolean as 0 or 1,
            a category as one input for each value in the schema's order, 1 where it applies.
        targets: float64 in [-1, 1] for a number, else int64 codes: 0 and 1, or places in the schema's categories.
    """

    offset: int
    inputs: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    def is_test(self, fraction: float) -> np.ndarray:
        """Which rows are for testing: row i is if u(i) < fraction, with u of `evenly_spread`.

        It depends on row numbers alone, and is the split of `load_table`.
        """
        return evenly_spread(len(self), start=self.offset) < fraction


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows and the public facts about their columns. Open one with `Table.open`.

    Each pass reads the rows anew, and holds no more than a chunk of them. What is wrong with a cell is an `InputError`
    with row and column. Such a message tells about the data: it is for whoever holds the file, and no release.
    """

    source: Source
    schema: Schema

    @classmethod
    def open(cls, source: object, schema: Schema | Mapping[str, Any] | str | Path) -> "Table":
        """A table by its schema.

        Args:
            source: the path of a .csv, .csv.gz, .parquet or .pq file, a pandas or polars DataFrame, or a pyarrow Table.
            schema: a `Schema`, a TOML file (see `tacit.datasets.tables.schema`), or the same keys in a dictionary.
        """
        facts = as_schema(schema)
        return cls(open_source(source, facts.delimiter), facts)

    @property
    def name(self) -> str:
        """The file's name; ``table`` for a frame."""
        return self.source.name

    def cells(self, column: str) -> Iterator[Cells]:
        """One column, some rows at a time: `Cells.numbers` for numbers and booleans, `Cells.codes` for categories."""
        for (cells,) in self.columns(column):
            yield cells

    def columns(self, *names: str) -> Iterator[tuple[Cells, ...]]:
        """Several columns in step, some rows at a time."""
        for name in names:
            self._check_known("column", name)
        for batch in self._batches(names):
            yield tuple(self._cells(name, batch) for name in names)

    def chunks(self, features: Sequence[str], target: str) -> Iterator[Chunk]:
        """Inputs and targets, some rows at a time; see `choose_features` for what may be asked for."""
        self.choose_features(target, features)
        for batch in self._batches([*features, target]):
            inputs = np.concatenate([_as_inputs(self._cells(name, batch)) for name in features], axis=1)
            yield Chunk(batch.offset, inputs, _as_target(self._cells(target, batch)))

    def choose_features(self, target: str, features: Sequence[str] | None = None) -> tuple[str, ...]:
        """The columns to predict from. By default all others of the schema, but for those that the target is computed
        from or that are computed from it: they would tell it.
        """
        self._check_known("target", target)
        if features is None:
            telling = set(self.schema.read_from(target))
            features = [name for name in self.schema.columns if not telling & set(self.schema.read_from(name))]
        for name in features:
            self._check_known("features", name)
        if not features or target in features or len(set(features)) < len(features):
            raise InputError(
                f"features={list(features)!r}: must be at least one column, each once, and not the target."
            )
        return tuple(features)

    def feature_names(self, features: Sequence[str]) -> tuple[str, ...]:
        """A name for each column of `Chunk.inputs`: ``region=north`` for the value of a category."""
        names: list[str] = []
        for name in features:
            column = self.schema.columns[name]
            names += (
                [f"{name}={value}" for value in column.categories] if isinstance(column, CategoryColumn) else [name]
            )
        return tuple(names)

    def _check_known(self, argument: str, name: str) -> None:
        known = list(self.schema.columns)
        if name not in known:
            raise InputError(f"{argument}={name!r}: is not a column of the schema. {near_matches(name, known)}")

    def _batches(self, names: Sequence[str]) -> Iterator[Batch]:
        wanted = list(dict.fromkeys(root for name in names for root in self.schema.read_from(name)))
        empty = True
        for batch in self.source.batches(wanted):
            empty = False
            yield batch
        if empty:
            raise no_rows(self.source.where)

    def _cells(self, name: str, batch: Batch) -> Cells:
        column = self.schema.columns[name]
        if isinstance(column, BooleanColumn) and column.rule is not None:
            sources = [self._cells(source, batch).numbers() for source in column.rule.sources]
            threshold = column.rule.threshold if isinstance(column.rule, AtLeast) else 1
            values = pa.array(np.all([numbers >= threshold for numbers in sources], axis=0))
        else:
            values = batch.columns[name]
        return Cells(self.source.where, column, batch.offset, values)


def _as_inputs(cells: Cells) -> np.ndarray:
    """The columns of inputs that a column of the table becomes."""
    if isinstance(cells.column, CategoryColumn):
        one_hot: np.ndarray = np.eye(len(cells.column.categories))[cells.codes()]
        return one_hot
    return cells.unit_interval()[:, None]


def _as_target(cells: Cells) -> np.ndarray:
    if isinstance(cells.column, NumberColumn):
        return 2 * cells.unit_interval() - 1
    return cells.codes()
