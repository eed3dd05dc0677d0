"""What an answer may cost, and whom it protects."""

import dataclasses
from fractions import Fraction

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.validation import check_choice, check_open_unit, check_positive

LAPLACE, GAUSSIAN = "laplace", "gaussian"
MECHANISMS = (LAPLACE, GAUSSIAN)


@dataclasses.dataclass(frozen=True)
class Terms:
    """The guarantee of one answer.

    Attributes:
        epsilon: what the answer may cost **one whole unit**, above 0.
        delta: 0 for Laplace noise and for choices, which need none; above 0 for Gaussian noise.
        mechanism: ``laplace`` or ``gaussian``; by default whichever goes with delta.
        neighbours: add-remove, where the number of rows is private, or replace-one, where it is public.
        unit: one row, or up to ``max_examples`` rows of one person, who may be in any of them: group privacy. Noise is
            calibrated to what all of them together can move.
    """

    epsilon: float
    delta: float = 0.0
    mechanism: str = ""
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: PrivacyUnit = dataclasses.field(default_factory=PrivacyUnit)

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, remedy="Typical budgets lie between 0.1 and 10.")
        if not self.mechanism:
            object.__setattr__(self, "mechanism", GAUSSIAN if self.delta else LAPLACE)
        check_choice("mechanism", self.mechanism, MECHANISMS)
        if self.mechanism == GAUSSIAN:
            check_open_unit("delta", self.delta, remedy="Gaussian noise needs one, well below 1 / rows, such as 1e-6.")
        elif self.delta != 0:
            raise InputError(
                f"delta={self.delta!r}: Laplace noise needs none. Leave it out, or take the mechanism gaussian."
            )
        if self.neighbours is Neighbours.ZERO_OUT:
            raise UnsupportedError(
                f"neighbours={self.neighbours.value!r}: a row has no empty value that it could be replaced by: even "
                "zeros are counted in some cell, and in the divisor of a mean. Take add-remove, where the number of "
                "rows is private, or replace-one, where it is public, for the query and for its ledger account."
            )

    @property
    def exact_epsilon(self) -> Fraction:
        """What noise is calibrated to: less by so little that accountants, who round up, still find no more."""
        return Fraction(self.epsilon) * (1 - Fraction(1, 1 << 40))

    @property
    def records(self) -> int:
        """How many rows one unit has at most."""
        return self.unit.max_examples

    @property
    def replaces(self) -> bool:
        """Whether neighbours have one row replaced, and the same number of rows."""
        return self.neighbours is Neighbours.REPLACE_ONE
