"""What every query is: public facts first, exact integers of the rows next, noise last."""

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit
from tacit.datasets.tables.schema import Schema
from tacit.datasets.tables.table import Table
from tacit.queries.answer import Reading
from tacit.queries.noise import Cost, Distance, Noise
from tacit.queries.rows import Where, find_column
from tacit.queries.steps import to_steps
from tacit.queries.terms import Terms

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Setting:
    """All that is public and settled before a row is read.

    Attributes:
        schema: of the table.
        terms: what the answer may cost.
        confidence: of the interval.
    """

    schema: Schema
    terms: Terms
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        check_open_unit("confidence", self.confidence)


@dataclasses.dataclass(frozen=True)
class Tally:
    """What the rows add up to, exactly. **Private**: only noise may touch it.

    Attributes:
        sums: integers to which each row adds its own.
        rows: how many rows there are. Public under replace-one where no condition chooses among them.
    """

    sums: list[int]
    rows: int


@dataclasses.dataclass(frozen=True)
class Noisy:
    """Sums after their noise. Public.

    Attributes:
        sums: one for each that was released, in steps.
        rows: how many rows there are; None where that is private.
        noise: what was added.
        setting: what was asked for.
    """

    sums: list[int]
    rows: int | None
    noise: Noise
    setting: Setting


@dataclasses.dataclass(frozen=True)
class Query(abc.ABC):
    """A question about one column of a table.

    Attributes:
        column: its name in the schema.
        where: only rows that pass; all by default.
    """

    kind: ClassVar[str]

    column: str
    where: Where | None = dataclasses.field(default=None, kw_only=True)

    @abc.abstractmethod
    def cost(self, setting: Setting) -> Cost:
        """What an answer costs, by public facts alone. Refuses what cannot be answered."""

    @abc.abstractmethod
    def tally(self, table: Table) -> Tally:
        """One pass over the rows, holding a chunk of them at most."""

    @abc.abstractmethod
    def read(self, tally: Tally, setting: Setting, stream: np.random.Generator) -> Reading:
        """Draws the noise and answers."""

    def check(self, schema: Schema) -> None:
        """Refuses columns, values and bounds that the schema does not know."""
        find_column(schema, self.column)
        if self.where is not None:
            self.where.check(schema)

    def describe(self) -> dict[str, Any]:
        """The question as plain values."""
        where = None if self.where is None else str(self.where)
        return {"kind": self.kind, "column": self.column, "where": where}

    def size_is_public(self, terms: Terms) -> bool:
        """Whether neighbouring tables have the same number of rows that pass."""
        return terms.replaces and self.where is None


class NoisySums(Query):
    """A query that is answered from sums with noise on each."""

    # Whether the first sum follows from the others where the number of rows is public, and is not released then.
    first_may_follow: ClassVar[bool] = False

    @abc.abstractmethod
    def distance(self, setting: Setting) -> Distance:
        """How many steps one row moves the released sums at most, under the relation of the terms."""

    @abc.abstractmethod
    def interpret(self, noisy: Noisy) -> Reading:
        """The answer from noisy sums."""

    def units_a_step(self, setting: Setting) -> int:  # noqa: ARG002 - counts are released as they are
        """To whole multiples of what the sums are rounded before their noise; see `tacit.queries.steps`."""
        return 1

    def released(self, tally: Tally, setting: Setting) -> list[int]:
        """What noise is added to: the sums in steps. **Private.**"""
        follows = self.first_may_follow and self.size_is_public(setting.terms)
        units = self.units_a_step(setting)
        return [to_steps(value, units) for value in tally.sums[1 if follows else 0 :]]

    def noise(self, setting: Setting) -> Noise:
        """The noise that the terms ask for."""
        self.check(setting.schema)
        return Noise.calibrated(setting.terms, self.distance(setting))

    def cost(self, setting: Setting) -> Cost:
        return self.noise(setting)

    def read(self, tally: Tally, setting: Setting, stream: np.random.Generator) -> Reading:
        noise, rows = self.noise(setting), tally.rows if self.size_is_public(setting.terms) else None
        return self.interpret(Noisy(noise.add(self.released(tally, setting), stream), rows, noise, setting))


def refuse_gaussian(kind: str, terms: Terms) -> None:
    """For queries that choose one of several candidates."""
    if terms.delta != 0:
        raise InputError(
            f"delta={terms.delta!r}: a {kind} is chosen with pure epsilon. Leave delta and the mechanism out."
        )
