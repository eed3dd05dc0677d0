"""Where a run stands: which streams it draws from, what pays for them, and how many steps are done."""

import dataclasses
from collections.abc import Callable, Mapping

from dp_accounting import ComposedDpEvent, DpEvent
from torch import Tensor

from tacit.core.privacy import Statement
from tacit.core.randomness import Randomness
from tacit.ledger import Account, Reservation, unlimited
from tacit.plan import DPSGD


@dataclasses.dataclass(frozen=True)
class Position:
    """The stretch of a run that is under way. A run is one stretch, unless it went on with fresh streams after a crash.

    Attributes:
        randomness: the stretch's own; its streams are numbered from ``first``.
        reservation: what pays for the stretch.
        steps_done: how many steps of the plan are done.
        first: the step of the plan at which the stretch began.
        earlier: how many steps each earlier stretch was charged for.
        held: whether the reservation is closed by whoever made this position, and not at the last step.
        before_noise: is shown each step's sums before their noise is drawn, with the step's number in the stretch.
    """

    randomness: Randomness
    reservation: Reservation
    steps_done: int = 0
    first: int = 0
    earlier: tuple[int, ...] = ()
    held: bool = False
    before_noise: Callable[[int, Mapping[str, Tensor]], None] | None = None

    @property
    def steps_begun(self) -> int:
        """How many steps were charged or are about to be, in all stretches."""
        return sum(self.stretches())

    def stretches(self, step: int | None = None) -> tuple[int, ...]:
        """How many steps each stretch was charged for.

        Args:
            step: where the plan stands, the steps after it not counted; all that may have been drawn unless given.
        """
        return (*self.earlier, self.reservation.steps_begun if step is None else step - self.first)

    def statement(self, plan: DPSGD) -> Statement:
        """The guarantee for everything that was drawn so far."""
        caveats: tuple[str, ...] = ()
        if self.randomness.voids_guarantee:
            caveats = ("its noise came from a fixed seed, so the guarantee is void",)
        generator = self.randomness.generator
        if not self.earlier:
            return dataclasses.replace(plan.statement(self.steps_begun, caveats=caveats), generator=generator)
        again = f"{sum(self.earlier) - self.first} steps were drawn again after an interruption, and are counted again"
        statement = plan.statement(self.steps_begun, caveats=(*caveats, again))
        epsilon = epsilon_of_stretches(plan, self.stretches())
        return dataclasses.replace(statement, epsilon=epsilon, generator=generator)


def event_of_stretches(plan: DPSGD, stretches: tuple[int, ...]) -> DpEvent:
    """What stretches of so many steps cost together.

    Each is a run of its own: for some samplers that costs more than as many steps in one.
    """
    if len(stretches) == 1:
        return plan.event(stretches[0])
    return ComposedDpEvent([plan.event(0), *(plan.training_event(steps) for steps in stretches if steps)])


def epsilon_of_stretches(plan: DPSGD, stretches: tuple[int, ...]) -> float:
    """Epsilon of stretches of so many steps, by the plan's accountant."""
    return plan.unit_accountant().epsilon(event_of_stretches(plan, stretches), plan.delta, plan.neighbours)


def start(plan: DPSGD, account: Account | None, run: str, randomness: Randomness | None) -> Position:
    """The beginning of a run: streams of its own, and all of its steps reserved at once."""
    source = (randomness or Randomness()).fork(may_be_fast=True)
    return Position(source, reserve(plan, plan.steps, account, run))


def reserve(plan: DPSGD, steps: int, account: Account | None, run: str, note: str = "") -> Reservation:
    """Reserves a number of the plan's steps; without an account nothing limits them."""
    if account is None:
        return unlimited(steps)
    return account.reserve(plan.training_event, steps, run=run, note=note, neighbours=plan.neighbours, unit=plan.unit)
