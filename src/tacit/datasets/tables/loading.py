"""`load_table`: a CSV or Parquet file and its public schema as a data set."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit
from tacit.datasets.partition import public_uniforms
from tacit.datasets.split import DataSet, Split
from tacit.datasets.tables.encoding import Cells
from tacit.datasets.tables.reading import near_matches, read_batches
from tacit.datasets.tables.schema import BooleanColumn, CategoryColumn, Column, NumberColumn, Schema, read_schema


def load_table(
    path: str | Path,
    target: str,
    schema_path: str | Path,
    *,
    features: Sequence[str] | None = None,
    test_fraction: float | None = None,
) -> DataSet:
    """A table as inputs and targets, by the public facts of its schema alone.

    A number is scaled to [0, 1] by its bounds, a boolean is 0 or 1, a category becomes one input for each value in the
    schema's order, 1 where it applies. A number as the target makes a regression, scaled to [-1, 1]; a category or
    boolean makes a classification. Which rows are for testing depends on their numbers only: row i is if u(i) <
    test_fraction, with the fixed u of `tacit.datasets.partition`.

    Args:
        path: a file that ends in .csv, .csv.gz, .parquet or .pq.
        target: the column to predict.
        schema_path: a TOML file; see `tacit.datasets.tables.schema`.
        features: the columns to predict from; all others of the schema by default.
        test_fraction: in the place of the schema's.

    Raises:
        InputError: with row and column for a cell that is empty, not a number, or outside the schema; with the nearest
            names for a column that is missing; for rows of different lengths, an empty file, or a target that never
            varies.
    """
    path, schema = Path(path), read_schema(schema_path)
    fraction = schema.test_fraction if test_fraction is None else check_open_unit("test_fraction", test_fraction)
    inputs = _choose_features(schema, target, features)
    rows = _encode(path, schema, inputs, schema.columns[target])
    if len(rows.targets) == 0:
        raise InputError(f"file={str(path)!r}: has a header but no rows.")
    if np.all(rows.targets == rows.targets[0]):
        raise InputError(f"target={target!r}: has the same value in every row, so there is nothing to learn.")
    train, test = _split(rows, fraction, path)
    return _describe(DataSet(path.name, train, test, 1, (rows.inputs.shape[1],), str(path)), schema, inputs, target)


@dataclasses.dataclass(frozen=True)
class _Rows:
    inputs: np.ndarray
    targets: np.ndarray


def _choose_features(schema: Schema, target: str, features: Sequence[str] | None) -> list[str]:
    known = list(schema.columns)
    if target not in known:
        raise InputError(f"target={target!r}: is not a column of the schema. {near_matches(target, known)}")
    chosen = [name for name in known if name != target] if features is None else list(features)
    for name in chosen:
        if name not in known:
            raise InputError(f"features={name!r}: is not a column of the schema. {near_matches(name, known)}")
    if not chosen or target in chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"features={chosen!r}: must be at least one column, each once, and not the target.")
    return chosen


def _encode(path: Path, schema: Schema, inputs: list[str], target: Column) -> _Rows:
    features: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for batch in read_batches(path, [*inputs, target.name], schema.delimiter):
        cells = {name: Cells(path, schema.columns[name], batch.offset, batch.columns[name]) for name in batch.columns}
        features.append(np.concatenate([_as_inputs(cells[name]) for name in inputs], axis=1))
        targets.append(_as_target(cells[target.name]))
    if not targets:
        return _Rows(np.zeros((0, 0), dtype=np.float32), np.zeros(0))
    return _Rows(np.concatenate(features), np.concatenate(targets))


def _as_inputs(cells: Cells) -> np.ndarray:
    """The columns of inputs that a column of the table becomes."""
    if isinstance(cells.column, NumberColumn):
        return cells.unit_interval().astype(np.float32)[:, None]
    codes = cells.codes()
    if isinstance(cells.column, BooleanColumn):
        return codes.astype(np.float32)[:, None]
    one_hot: np.ndarray = np.eye(len(cells.column.categories), dtype=np.float32)[codes]
    return one_hot


def _as_target(cells: Cells) -> np.ndarray:
    if isinstance(cells.column, NumberColumn):
        return (2 * cells.unit_interval() - 1).astype(np.float32)
    return cells.codes()


def _split(rows: _Rows, fraction: float, path: Path) -> tuple[Split, Split]:
    test = public_uniforms(len(rows.targets)) < fraction
    if test.all() or not test.any():
        raise InputError(
            f"file={str(path)!r}: its {len(rows.targets)} rows leave a split empty at test_fraction={fraction:g}. "
            "Take a longer table or another fraction."
        )
    train_split, test_split = (
        Split(torch.from_numpy(rows.inputs[chosen]), torch.from_numpy(rows.targets[chosen])) for chosen in (~test, test)
    )
    return train_split, test_split


def _describe(data: DataSet, schema: Schema, inputs: list[str], target: str) -> DataSet:
    """Adds what the schema says about inputs and target."""
    names: list[str] = []
    for name in inputs:
        column = schema.columns[name]
        names += [f"{name}={value}" for value in column.categories] if isinstance(column, CategoryColumn) else [name]
    data = dataclasses.replace(data, feature_names=tuple(names))
    aim = schema.columns[target]
    if isinstance(aim, NumberColumn):
        return dataclasses.replace(data, task="regression", target_bounds=(aim.lower, aim.upper))
    classes = aim.categories if isinstance(aim, CategoryColumn) else ("false", "true")
    return dataclasses.replace(data, classes=len(classes), class_names=classes)
