"""What is promised, how much noise that takes, and the order in which it is spent."""

import dataclasses
import functools
import math
import types
from collections.abc import Sequence
from fractions import Fraction
from typing import Self

from dp_accounting import dp_event

from tacit.accounting.conversion import gaussian_noise
from tacit.accounting.relations import contributions_moved
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement
from tacit.core.randomness import Randomness
from tacit.core.validation import check_open_unit, check_positive
from tacit.ledger import Account, Reservation, unlimited
from tacit.linear.rows import Integers
from tacit.mechanisms import DiscreteLaplace, RoundedGaussian

Mechanism = DiscreteLaplace | RoundedGaussian
_FIXED_SEED = "the noise came from a fixed seed, and hides nothing"


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) for one unit under a relation; a delta of 0 is pure differential privacy.

    The number of rows is public under replace-one and zero-out. Under add-remove it is private: nothing here uses it
    without noise.
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: PrivacyUnit = dataclasses.field(default_factory=PrivacyUnit)

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, remedy="Typical budgets lie between 0.1 and 10.")
        if self.delta != 0:
            check_open_unit("delta", self.delta, remedy="Take 0 for a pure guarantee, or such as 1e-6.")

    @property
    def is_pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0

    @property
    def moved(self) -> int:
        """By how many rows' contributions a sum moves between neighbours."""
        return contributions_moved(self.neighbours) * self.unit.max_examples

    def noise_multiplier(self, share: float = 1.0) -> float:
        r"""Of a Gaussian on one row's bound, with this share of the whole.

        Gaussians compose exactly, :math:`\sum_i z_i^{-2} = z^{-2}`, so that shares are parts of :math:`z^{-2}`.
        """
        return self._whole_noise / math.sqrt(share)

    @functools.cached_property
    def _whole_noise(self) -> float:
        return self.moved * gaussian_noise(self.epsilon, self.delta)

    def laplace_scale(self, share: float = 1.0) -> Fraction:
        """Of Laplace noise on an L1 bound of 1 for one row, with this share of epsilon.

        It is calibrated to less than epsilon by so little, :math:`2^{-40}` of it, that accountants, who round up, still
        find no more: what is left of a budget can be spent whole.
        """
        return self.moved / (Fraction(share) * Fraction(self.epsilon) * (1 - Fraction(1, 1 << 40)))

    def statement(self, mechanism: str, *, void: bool = False, caveats: tuple[str, ...] = ()) -> Statement:
        """The guarantee in words; ``void`` where the noise came from a fixed seed: epsilon is then infinite."""
        if void:
            caveats = (_FIXED_SEED, *caveats)
        return Statement(
            epsilon=math.inf if void else self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            unit=self.unit,
            mechanism=mechanism,
            sampler="every row in each release",
            accountant="basic composition of pure guarantees" if self.is_pure else "the exact composition of Gaussians",
            caveats=caveats,
        )


@dataclasses.dataclass(frozen=True)
class Terms:
    """Who pays: an account, or nobody, and a name for its history."""

    account: Account | None = None
    run: str = "linear"


class Spending:
    """The releases of one fit, planned as a whole; each is recorded before its noise is drawn."""

    def __init__(
        self, mechanisms: Sequence[Mechanism], guarantee: Guarantee, terms: Terms, randomness: Randomness
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        self.guarantee = guarantee
        self._randomness = randomness.fork()
        self._reservation = self._reserved(terms)

    def release(self, values: Integers) -> Integers:
        """The values with the noise of the next planned mechanism."""
        number = self._reservation.steps_begun
        self._reservation.before_noise(number)
        return self.mechanisms[number].add_noise(values, self._randomness.stream("linear", number))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None
    ) -> None:
        self._reservation.__exit__(kind, error, traceback)

    def _reserved(self, terms: Terms) -> Reservation:
        count = len(self.mechanisms)
        if terms.account is None:
            return unlimited(count)
        return terms.account.reserve(
            self.event, count, run=terms.run, neighbours=self.guarantee.neighbours, unit=self.guarantee.unit
        )

    def event(self, releases: int) -> dp_event.DpEvent:
        """What the first so many releases cost."""
        return dp_event.ComposedDpEvent([mechanism.event() for mechanism in self.mechanisms[:releases]])
