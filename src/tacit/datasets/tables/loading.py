"""`load_table`: a table and its public schema as a data set."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit
from tacit.datasets.partition import evenly_spread
from tacit.datasets.split import ColumnKind, DataSet, Split
from tacit.datasets.tables.schema import CategoryColumn, Column, NumberColumn, Schema
from tacit.datasets.tables.table import Table


def load_table(
    source: object,
    target: str,
    schema: Schema | Mapping[str, Any] | str | Path,
    *,
    features: Sequence[str] | None = None,
    test_fraction: float | None = None,
) -> DataSet:
    """A table as inputs and targets in memory, by the public facts of its schema alone.

    A number is scaled to [0, 1] by its bounds, a boolean is 0 or 1, a category becomes one input for each value in the
    schema's order, 1 where it applies. A number as the target makes a regression, scaled to [-1, 1]; a category or
    boolean makes a classification. Which rows are for testing depends on their numbers only: row i is if u(i) <
    test_fraction, with u of `evenly_spread`.

    Args:
        source: a file that ends in .csv, .csv.gz, .parquet or .pq, a pandas or polars DataFrame, or a pyarrow Table.
        target: the column to predict.
        schema: a TOML file, its keys in a dictionary, or a `Schema`; see `tacit.datasets.tables.schema`.
        features: the columns to predict from; all others of the schema by default.
        test_fraction: in the place of the schema's.

    Raises:
        InputError: with row and column for a cell that is empty, not a number, or outside the schema; with the nearest
            names for a column that is missing; for rows of different lengths, an empty file, or a target that never
            varies among the rows for testing.
    """
    table = Table.open(source, schema)
    share = table.schema.test_fraction if test_fraction is None else check_open_unit("test_fraction", test_fraction)
    inputs = table.choose_features(target, features)
    train, test = _split(table, inputs, target, share)
    _check_varies(target, test)
    found = str(source) if isinstance(source, (str, Path)) else type(source).__name__
    data = DataSet(table.name, train, test, 1, tuple(train.inputs.shape[1:]), found)
    return _describe(data, table, inputs, target)


def _split(table: Table, features: Sequence[str], target: str, fraction: float) -> tuple[Split, Split]:
    inputs: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for chunk in table.chunks(features, target):
        inputs.append(chunk.inputs.astype(np.float32))
        targets.append(chunk.targets.astype(np.float32) if chunk.targets.dtype == np.float64 else chunk.targets)
    x, y = np.concatenate(inputs), np.concatenate(targets)
    test = evenly_spread(len(y)) < fraction
    if test.all() or not test.any():
        raise InputError(
            f"{table.source.where}: its {len(y)} rows leave a split empty at test_fraction={fraction:g}. "
            "Take a longer table or another fraction."
        )
    train, held_out = (Split(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in (~test, test))
    return train, held_out


def _check_varies(target: str, test: Split) -> None:
    """Refuses a target with one value only.

    It looks at the rows for testing, about which every score tells something without noise. Whether the training rows
    vary is theirs to keep: if all but one of them were alike, a refusal would turn on that one person's answer.
    """
    if bool((test.targets == test.targets[0]).all()):
        raise InputError(
            f"target={target!r}: has the same value in every row for testing, so that no model could be told from a "
            "constant. Take another target or a longer table."
        )


def _kind(column: Column) -> tuple[ColumnKind, int]:
    if isinstance(column, CategoryColumn):
        return "category", len(column.categories)
    return ("number" if isinstance(column, NumberColumn) else "boolean"), 1


def _describe(data: DataSet, table: Table, features: Sequence[str], target: str) -> DataSet:
    """Adds what the schema says about inputs and target."""
    columns = tuple(_kind(table.schema.columns[name]) for name in features)
    data = dataclasses.replace(data, feature_names=table.feature_names(features), columns=columns)
    aim = table.schema.columns[target]
    if isinstance(aim, NumberColumn):
        return dataclasses.replace(data, task="regression", target_bounds=(aim.lower, aim.upper))
    classes = aim.categories if isinstance(aim, CategoryColumn) else ("false", "true")
    return dataclasses.replace(data, classes=len(classes), class_names=classes)
