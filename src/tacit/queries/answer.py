"""What a query answers."""

import dataclasses
from typing import TYPE_CHECKING, Any

from tacit.core.privacy import Statement
from tacit.queries.noise import Cost
from tacit.queries.terms import Terms

if TYPE_CHECKING:
    from dp_accounting import DpEvent

FIXED_SEED = "the noise came from a fixed seed, and hides nothing"
Value = float | int | str | list[Any]


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a query makes of its noisy integers. All of it is public.

    Attributes:
        value: the answer.
        interval: where the answer without noise lies, with the confidence that was asked for; one pair, or one for each
            cell. It speaks of the noise alone: the rows are what they are.
        mechanism: what drew it.
        scale: of the noise, in the units of what it was added to.
        noised: what that is.
        facts: whatever else belongs to this kind of answer, such as the names of the cells.
    """

    value: Value
    interval: list[Any] | None
    mechanism: str
    scale: float
    noised: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Answer:
    """A private statistic with everything that belongs to it.

    Attributes:
        query: what was asked, as plain values.
        reading: the value and its interval.
        confidence: of the interval.
        terms: the guarantee.
        cost: what it adds to a composition.
    """

    query: dict[str, Any]
    reading: Reading
    confidence: float
    terms: Terms
    cost: Cost
    voids_guarantee: bool = False

    @property
    def value(self) -> Value:
        return self.reading.value

    def event(self) -> "DpEvent":
        """What accountants and ledgers count, for one row; they apply the unit's size themselves."""
        return self.cost.event(1)

    @property
    def asked(self) -> str:
        """The question in words, with its condition. The column of a count is not read, and not named."""
        kind, where = self.query["kind"], self.query["where"]
        what = "a count" if kind == "count" else f"a {kind} of {self.query['column']}"
        return f"{what} where {where}" if where else what

    def statement(self) -> Statement:
        """The guarantee in words."""
        terms = self.terms
        how = f"{self.reading.mechanism} of scale {self.reading.scale:.6g} on {self.reading.noised}"
        return Statement(
            epsilon=float("inf") if self.voids_guarantee else terms.epsilon,
            delta=terms.delta,
            neighbours=terms.neighbours,
            unit=terms.unit,
            mechanism=f"{self.asked} by {how}",
            sampler="no sampling",
            accountant="its own bound",
            caveats=(FIXED_SEED,) if self.voids_guarantee else (),
            released="answer",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; all of them may be published."""
        terms = self.terms
        return {
            **self.query,
            "value": self.reading.value,
            "interval": self.reading.interval,
            "confidence": self.confidence,
            "mechanism": self.reading.mechanism,
            "scale": float(f"{self.reading.scale:.12g}"),
            "noised": self.reading.noised,
            **self.reading.facts,
            "epsilon": terms.epsilon,
            "delta": terms.delta,
            "neighbours": terms.neighbours.value,
            "unit": str(terms.unit),
            "statement": str(self.statement()),
        }
