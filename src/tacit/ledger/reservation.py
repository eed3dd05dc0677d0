"""A reserved part of a budget while a run spends it, in the one order that survives a crash.

``before_noise(step)`` is durable before the noise of that step exists; ``commit`` closes the reservation with what was
really drawn. A process that dies in between leaves the reservation open, and **an open reservation counts whole**: the
ledger cannot tell a dead run from a slow one that is about to draw the rest, so anything less could be overspent. The
durable mark below which noise may have been drawn is kept with the entry, for whoever resumes the run.
"""

import abc
import math
import types
from typing import Self

from tacit.core.errors import BudgetExceededError, LedgerError
from tacit.core.validation import check_count
from tacit.ledger.history import History
from tacit.ledger.journal import Journal, Record
from tacit.ledger.spending import EventFor, encode_event

# A run marks its progress about this often: rare enough to cost nothing, often enough to say where a crash was.
_MARKS_A_RUN = 64


class Reservation(abc.ABC):
    """Permission to draw the noise of a number of steps, each once and in order.

    Use it as a context manager: leaving the block by its end, by an error or by Ctrl-C commits the steps that began.

    Every step whose noise may have been drawn is charged, also where an error stopped the step after its noise and
    before its update: `commit` counts what `before_noise` allowed, not what the caller believes.
    """

    def __init__(self, steps: int) -> None:
        self.steps = check_count("steps", steps)
        self._begun = 0
        self._open = True

    @property
    def steps_begun(self) -> int:
        """How many steps were allowed to draw their noise."""
        return self._begun

    def before_noise(self, step: int) -> None:
        """Record that the noise of ``step`` (counted from 0) is about to be drawn; durable on return.

        Raises:
            BudgetExceededError: the reservation holds no such step.
            LedgerError: the step is not the next one (its noise would be drawn twice, or a step left
                uncounted), the reservation is closed, or the mark could not be written. No noise may be drawn
                then.
        """
        self._require_open()
        if step >= self.steps:
            raise BudgetExceededError(
                f"step={step}: the reservation holds {self.steps} steps (0 to {self.steps - 1}). "
                "Reserve more steps before the run."
            )
        if step != self._begun:
            raise LedgerError(
                f"step={step}: the next step to draw noise for is {self._begun}. "
                "Draw the noise of each step once, in order."
            )
        self._mark_drawn(step + 1)
        self._begun = step + 1

    def commit(self, steps_done: int | None = None) -> None:
        """Close the reservation and charge the steps that began; with none begun this is a release.

        Args:
            steps_done: how many steps the caller finished, as a check: more than began means that noise was
                drawn without `before_noise`, and the whole reservation then stays spent.

        Raises:
            LedgerError: ``steps_done`` contradicts the reservation, it is closed, or the ledger cannot be
                written; the whole reservation then stays spent.
        """
        self._require_open()
        if steps_done is not None and steps_done > self._begun:
            raise LedgerError(
                f"steps_done={steps_done}: only {self._begun} steps began. Call before_noise(step) before each noise."
            )
        self._close(self._begun)
        self._open = False

    def release(self) -> None:
        """Close the reservation and charge nothing, which is true only while no noise was drawn.

        Raises:
            LedgerError: a step has begun; commit instead.
        """
        self._require_open()
        if self._begun:
            raise LedgerError(f"release: {self._begun} steps have drawn noise. Call commit() to charge them.")
        self._close(0)
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        if self._open:
            self.commit()

    def _require_open(self) -> None:
        if not self._open:
            raise LedgerError("the reservation is closed. Reserve again before drawing more noise.")

    @abc.abstractmethod
    def _mark_drawn(self, steps: int) -> None:
        """Make it durable that the noise of the first ``steps`` steps may have been drawn."""

    @abc.abstractmethod
    def _close(self, steps: int) -> None:
        """Record durably that the noise of the first ``steps`` steps was drawn and that no more will be."""


class UnlimitedReservation(Reservation):
    """The same order for a run without a ledger: nothing is limited and nothing is written."""

    def _mark_drawn(self, steps: int) -> None:
        """Nothing to write."""

    def _close(self, steps: int) -> None:
        """Nothing to write."""


class LedgerReservation(Reservation):
    """A reservation in a ledger's database; made by `Account.reserve`.

    The mark is written ahead in blocks of steps, so that most steps write nothing.
    """

    def __init__(self, journal: Journal, number: int, event_for: EventFor, steps: int) -> None:
        super().__init__(steps)
        self.id = number
        self._journal = journal
        self._event_for = event_for
        self._block = math.ceil(steps / _MARKS_A_RUN)
        self._marked = 0

    def _mark_drawn(self, steps: int) -> None:
        if steps <= self._marked:
            return
        mark = min(self._marked + self._block, self.steps)
        self._append({"kind": "drawn", "steps": mark})
        self._marked = mark

    def _close(self, steps: int) -> None:
        if steps == 0:
            self._append({"kind": "released"})
        else:
            event = encode_event(self._event_for(steps))
            self._append({"kind": "committed", "steps": steps, "event": event})

    def _append(self, values: Record) -> None:
        def record(history: History) -> Record:
            if not history.is_open(self.id):
                raise LedgerError(f"reservation {self.id} is closed in the ledger. Reserve again.")
            return {**values, "reservation": self.id}

        self._journal.append(record)


def unlimited(steps: int) -> Reservation:
    """A reservation for a run without a ledger, so that training has one code path."""
    return UnlimitedReservation(steps)
