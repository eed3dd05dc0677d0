"""Choosing one of a public list of candidates by private losses: what both such mechanisms share."""

import abc
import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count, check_open_unit, check_positive

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Losses = npt.NDArray[np.int64]
_ROUNDED_DOWN = 1 - 2.0**-50
_LARGEST_EXPONENT = 700.0


@dataclasses.dataclass(frozen=True)
class Selection(abc.ABC):
    r"""Chooses a candidate, with a preference for small losses that grows with :math:`c` = ``rate``.

    Between neighbouring data sets the losses :math:`\ell_i` of the candidates change by some :math:`\Delta_i`. What
    counts is how far two of these lie apart, the **spread** :math:`s = \max_i \Delta_i - \min_i \Delta_i`: one
    choice is :math:`cs`-differentially private, with delta 0. If each loss changes by at most :math:`\Delta`, the
    spread is at most :math:`2\Delta`; if all change the same way, as counts do when a record is added, it is at most
    :math:`\Delta`.

    Losses are integers and the rate is a fraction, so that no floating-point number takes part in the choice.

    Args:
        rate: c, above 0; a float stands for the fraction that it is exactly.
        spread: s, above 0, under the neighbouring relation in use.
    """

    rate: float | Fraction
    spread: float | Fraction

    def __post_init__(self) -> None:
        check_positive("rate", float(self.rate))
        check_positive("spread", float(self.spread))

    @classmethod
    def from_epsilon(cls, epsilon: float | Fraction, spread: float | Fraction) -> Self:
        """The mechanism that is (epsilon, 0)-differentially private: its rate is epsilon / spread."""
        check_positive("epsilon", float(epsilon), remedy="Typical budgets lie between 0.1 and 10.")
        check_positive("spread", float(spread))
        return cls(Fraction(epsilon) / Fraction(spread), spread)

    @property
    def epsilon(self) -> float:
        """The guarantee of one choice, rounded up."""
        exact = Fraction(self.rate) * Fraction(self.spread)
        return float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)

    def event(self, neighbours: Neighbours) -> "DpEvent":
        """One choice under the relation that the spread was counted for."""
        return pure_event(self.epsilon, neighbours)

    def loss_bound(self, candidates: int, confidence: float) -> float:
        r"""How much larger than the least the chosen loss is at most, with this probability, whatever the losses are.

        For both mechanisms :math:`P[\ell \ge \min + t] \le m e^{-ct}` with m candidates (McSherry and Talwar 2007;
        McKenna and Sheldon 2020), so that :math:`t = \ln(m / (1 - \text{confidence})) / c`.
        """
        check_count("candidates", candidates)
        check_open_unit("confidence", confidence)
        return math.log(candidates / (1 - confidence)) / float(self.rate)

    def choose(self, losses: Losses, stream: np.random.Generator) -> int:
        """The place of the chosen candidate."""
        if losses.ndim != 1 or len(losses) == 0 or not np.issubdtype(losses.dtype, np.integer):
            raise InputError(
                f"losses of shape {losses.shape} and dtype {losses.dtype}: must be at least one integer in a row."
            )
        return self._choose(losses - losses.min(), stream)

    @abc.abstractmethod
    def _choose(self, excess: Losses, stream: np.random.Generator) -> int:
        """The place of the chosen candidate, by how much each loss lies above the least."""


def pure_event(epsilon: float, neighbours: Neighbours) -> "DpEvent":
    """The event of a release that is (epsilon, 0)-differentially private, when nothing else is known of it.

    No such release is easier to see through than randomised response on one bit with this epsilon (Kairouz, Oh and
    Viswanath 2015, theorem 3.4), and that is what the event says. Under add-remove and zero-out it has the form of a
    discrete Laplace mechanism of sensitivity 1, whose losses are the same two; that accountants double for a replaced
    record.
    """
    from dp_accounting import dp_event

    check_positive("epsilon", epsilon)
    if neighbours is Neighbours.REPLACE_ONE:
        # The chance to answer at random is 2 / (1 + e^epsilon); rounded down, so that no less than epsilon is counted.
        at_random = 2 / (1 + math.exp(epsilon)) * _ROUNDED_DOWN if epsilon < _LARGEST_EXPONENT else 0.0
        return dp_event.RandomizedResponseDpEvent(at_random, 2)
    return dp_event.DiscreteLaplaceDpEvent(epsilon, 1)
