"""The nouns of the field: who is protected, against what change of the data, by how much."""

import dataclasses
import decimal
import enum
from typing import Any

from tacit.core.validation import check_count, check_non_negative, check_open_unit

GENERATOR = "ChaCha20"
FAST_GENERATOR = "Philox"


class Neighbours(enum.Enum):
    """Which two data sets a guarantee makes hard to tell apart.

    - ``ADD_REMOVE``: one has one privacy unit more than the other. The size of the data set is private.
    - ``REPLACE_ONE``: one unit has other values. The size is public; a sum of terms of norm C moves by up to 2C.
    - ``ZERO_OUT``: one unit is replaced by an empty one that contributes zero. The size is public, the sum moves by
      up to C.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


@dataclasses.dataclass(frozen=True)
class PrivacyUnit:
    """What a guarantee protects as a whole: one example by default, or everything that one person contributed.

    Attributes:
        name: what one unit is called in statements, such as ``example`` or ``user``.
        max_examples: how many examples one unit holds at most. Above 1 the guarantee for one example is turned into
            one for the unit by group privacy.
    """

    name: str = "example"
    max_examples: int = 1

    def __post_init__(self) -> None:
        check_count("max_examples", self.max_examples)

    def __str__(self) -> str:
        return self.name if self.max_examples == 1 else f"{self.name} (up to {self.max_examples} examples)"


@dataclasses.dataclass(frozen=True)
class Budget:
    r"""A limit (epsilon, delta): for all neighbouring D, D' and sets of outcomes S,
    :math:`P[M(D) \in S] \le e^\epsilon P[M(D') \in S] + \delta`.

    Delta may be 0 (pure differential privacy).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_non_negative("epsilon", self.epsilon, remedy="Typical budgets lie between 0.1 and 10.")
        if self.delta != 0:
            check_open_unit("delta", self.delta, remedy="Take it well below 1 / number of examples, such as 1e-5.")


def _rounded_up(value: float) -> str:
    """Four significant digits, never below the value: a guarantee must not be overstated in print."""
    context = decimal.Context(prec=4, rounding=decimal.ROUND_CEILING)
    return f"{float(context.create_decimal(repr(float(value)))):.4g}"


def _about(generator: str) -> tuple[str, ...]:
    if generator == GENERATOR:
        return ()
    return (f"the noise of its steps came from {generator}, which is not cryptographic",)


@dataclasses.dataclass(frozen=True)
class Statement:
    """A number called epsilon together with everything that it depends on.

    ``str(statement)`` is one sentence of prose for a report; ``to_dict`` is the form that JSON files carry.

    Attributes:
        epsilon, delta: the guarantee. An infinite epsilon means that there is none.
        neighbours, unit: the relation and the unit that the guarantee speaks of.
        mechanism: what was released, such as ``500 steps of DP-SGD with noise multiplier 1.1``.
        sampler: how the records of each release were chosen.
        accountant: how epsilon was computed from the events.
        caveats: whatever weakens the guarantee, such as a fixed seed; each a clause of its own.
        released: what is called private, a model or the answer to a query.
        generator: of the noise: ChaCha20, or Philox for the noise of training steps where the fast mode was asked for;
            the sentence then says so. All other random numbers come from ChaCha20 in both modes.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    unit: PrivacyUnit
    mechanism: str
    sampler: str
    accountant: str
    caveats: tuple[str, ...] = ()
    released: str = "model"
    generator: str = GENERATOR

    def __str__(self) -> str:
        caveats = "".join(f"; {caveat}" for caveat in (*_about(self.generator), *self.caveats))
        guarantee = (
            f"({_rounded_up(self.epsilon)}, {_rounded_up(self.delta)})-differentially private"
            if self.epsilon < float("inf")
            else "not differentially private (epsilon is infinite)"
        )
        return (
            f"The released {self.released} is {guarantee} for one {self.unit} under the {self.neighbours.value} "
            f"relation, as the outcome of {self.mechanism}, with {self.sampler}, accounted by {self.accountant}"
            f"{caveats}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain JSON values; an infinite epsilon becomes ``None``."""
        return {
            "epsilon": self.epsilon if self.epsilon < float("inf") else None,
            "delta": self.delta,
            "neighbours": self.neighbours.value,
            "unit": str(self.unit),
            "mechanism": self.mechanism,
            "sampler": self.sampler,
            "accountant": self.accountant,
            "caveats": list(self.caveats),
            "released": self.released,
            "generator": self.generator,
            "sentence": str(self),
        }
