"""Rows of a table: read a chunk at a time, divided by a public rule, and fitted."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets.tables import BooleanColumn, CategoryColumn, NumberColumn, Table
from tacit.linear.choosing import choose_method
from tacit.linear.fitting import LinearModel, fit_rows, problem_of
from tacit.linear.guarantee import Guarantee, Terms
from tacit.linear.rows import Block, Floats, Integers, PublicScale, unit_targets_on_grid

_HELD_BYTES = 1 << 26
_DEALT = (
    "rows are dealt to training and testing by their place in the table: the guarantee is for the training rows as "
    "they were dealt, where a row that is added or removed leaves the others where they are, and rows for testing are "
    "not protected"
)


@dataclasses.dataclass(frozen=True)
class Task:
    """What to predict from what, in which rows.

    Attributes:
        table: the rows.
        target: the column to predict.
        features: the columns to predict from.
        test_fraction: of the rows, those that are not fitted to; 0 for none.
        split_seed: None for the rule of all tables in tacit (see `Chunk.is_test`). A number shuffles the row numbers by
            numpy's ``default_rng(seed).permutation`` and takes the last of them for testing: for comparison with a
            study that did so. It needs the number of rows, and a bit for each, and deals all rows anew where there is
            one more: the guarantee is then for the training rows as they were dealt.
    """

    table: Table
    target: str
    features: tuple[str, ...]
    test_fraction: float = 0.0
    split_seed: int | None = None

    def __post_init__(self) -> None:
        if self.split_seed is not None:
            check_count("split_seed", self.split_seed, minimum=0)

    @classmethod
    def of(
        cls,
        table: Table,
        target: str,
        features: Sequence[str] | None = None,
        *,
        test_fraction: float = 0.0,
        split_seed: int | None = None,
    ) -> "Task":
        """A task; all other columns of the schema are features by default."""
        return cls(table, target, table.choose_features(target, features), test_fraction, split_seed)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the target's classes; none for a number."""
        column = self.table.schema.columns[self.target]
        if isinstance(column, CategoryColumn):
            return column.categories
        return ("false", "true") if isinstance(column, BooleanColumn) else ()

    @property
    def target_bounds(self) -> tuple[float, float]:
        """The bounds of a number."""
        column = self.table.schema.columns[self.target]
        if not isinstance(column, NumberColumn):
            raise InputError(f"target={self.target!r}: is not a number and has no bounds.")
        return column.lower, column.upper

    def scale(self) -> PublicScale:
        """How its rows are scaled."""
        return PublicScale.of_table(self.table, self.features)

    def describe_inputs(self) -> list[dict[str, Any]]:
        """How each input of a row comes from its columns, as plain JSON values; all of it is public.

        With ``lower`` and ``upper`` it is (value - lower) / (upper - lower), the value cut to these bounds; a boolean
        is 0 or 1. With ``category`` it is 1 where the column has that value and else 0.
        """
        described: list[dict[str, Any]] = []
        for name in self.features:
            column = self.table.schema.columns[name]
            if isinstance(column, CategoryColumn):
                described += [{"column": name, "category": category} for category in column.categories]
            else:
                lower, upper = (column.lower, column.upper) if isinstance(column, NumberColumn) else (0.0, 1.0)
                described.append({"column": name, "lower": lower, "upper": upper})
        return described

    def rows(self, *, test: bool) -> Iterator[tuple[Floats, npt.NDArray[np.generic]]]:
        """Inputs in [0, 1] and targets, in [-1, 1] or as codes, of the rows for testing or of the others."""
        shuffled = None if self.split_seed is None or not self.test_fraction else self._shuffled_test_rows()
        for chunk in self.table.chunks(self.features, self.target):
            if shuffled is not None:
                for_test = shuffled[chunk.offset : chunk.offset + len(chunk)]
            else:
                for_test = chunk.is_test(self.test_fraction)
            chosen = for_test if test else ~for_test
            yield chunk.inputs[chosen], chunk.targets[chosen]

    def _shuffled_test_rows(self) -> npt.NDArray[np.bool_]:
        count = sum(len(cells.values) for cells in self.table.cells(self.target))
        mask = np.zeros(count, dtype=bool)
        order = np.random.default_rng(self.split_seed).permutation(count)
        mask[order[int((1 - self.test_fraction) * count) :]] = True
        return mask


class TrainingRows:
    """The training rows of a task on the grid, to be read again and again.

    Up to 64 MiB of them are kept in memory; beyond that each pass reads the table anew, and holds no more than a chunk.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._scale = task.scale()
        self._held: list[_Held] | None = None
        self._fits = True

    def __call__(self) -> Iterator[Block]:
        """All rows from the beginning."""
        if self._held is not None:
            yield from (block.restored() for block in self._held)
            return
        held: list[_Held] = []
        size = 0
        for inputs, targets in self._task.rows(test=False):
            block = Block(self._scale.on_grid(inputs), _targets(targets))
            if self._fits:
                held.append(_Held(block.design.astype(np.int16), block.targets))
                size += held[-1].design.nbytes + held[-1].targets.nbytes
                self._fits = size <= _HELD_BYTES
            else:
                held.clear()
            yield block
        self._held = held if self._fits else None


@dataclasses.dataclass(frozen=True, eq=False)
class _Held:
    """A block in a quarter of its space: its whole numbers are below 2^15."""

    design: npt.NDArray[np.int16]
    targets: Integers

    def restored(self) -> Block:
        return Block(self.design.astype(np.float64), self.targets)


def fit_table(
    task: Task,
    guarantee: Guarantee,
    *,
    method: str = "auto",
    split: float | None = None,
    examples: int | None = None,
    rows: TrainingRows | None = None,
    terms: Terms | None = None,
    randomness: Randomness | None = None,
) -> LinearModel:
    """Fits to the training rows of a task.

    Args:
        task: what to predict; a number makes a regression, a boolean or category a classification.
        guarantee: what is promised.
        method, split: as for `choose_method`.
        examples: about how many rows, as a public number; see `LinearRegression`. Under replace-one and zero-out they
            are counted, if it is not given.
        rows: of this task, where several fits share what is held of them.
        terms: who pays.
        randomness: of the noise; a new one by default.
    """
    training = rows or TrainingRows(task)
    if examples is not None:
        check_count("examples", examples, remedy="It is about how many rows there are, where that is public.")
    elif guarantee.neighbours is not Neighbours.ADD_REMOVE:
        examples = sum(len(block.targets) for block in training())
    scale = task.scale()
    problem = problem_of(scale, classes=len(task.classes), examples=examples)
    chosen = choose_method(method, problem, guarantee, split=split)
    caveats = (_DEALT,) if task.test_fraction else ()
    return fit_rows(training, scale, problem, chosen, guarantee, terms=terms, randomness=randomness, caveats=caveats)


def _targets(targets: npt.NDArray[np.generic]) -> Integers:
    if targets.dtype == np.float64:
        return unit_targets_on_grid(targets.astype(np.float64))
    return targets.astype(np.int64)
