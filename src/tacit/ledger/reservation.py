"""A reserved part of a budget while a run spends it, in the one order that survives a crash.

``before_noise(step)`` is durable before the noise of that step exists; ``commit`` closes the reservation with what was
really drawn. A process that dies in between leaves the reservation open, and **an open reservation counts whole**: the
ledger cannot tell a dead run from a slow one that is about to draw the rest, so anything less could be overspent. The
durable mark below which noise may have been drawn is kept with the entry, for whoever resumes the run.

**One process owns a reservation**: the one that raised its mark last. Whoever takes it up writes a record under a name
of its own before its first noise, so that of two processes one finds another's record, at the latest where it would
raise the mark, and is refused. Below the mark it looks for such a record as well, as often as costs little: what it
draws there until it looks is counted, since all steps below the mark are taken for drawn.
"""

import abc
import math
import os
import secrets
import time
import types
from typing import Self

from tacit.core.errors import BudgetExceededError, LedgerError
from tacit.core.validation import check_count
from tacit.ledger.history import History
from tacit.ledger.journal import Journal, Record
from tacit.ledger.spending import EventFor, encode_event

# A run marks its progress about this often: rare enough to cost nothing, often enough to say where a crash was.
_MARKS_A_RUN = 64
# Looking whether the reservation is still its own takes a process about so much of its time. A look takes well below a
# millisecond, so that steps of 50 ms are each preceded by one.
_LOOKING_SHARE = 0.01
_LONGEST_TRUST_SECONDS = 1.0


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
        self._process = os.getpid()

    @property
    def steps_begun(self) -> int:
        """How many steps were allowed to draw their noise."""
        return self._begun

    @property
    def last_record(self) -> int:
        """The number of the last record that this process wrote or found of the reservation; 0 without a ledger."""
        return 0

    def before_noise(self, step: int) -> None:
        """Record that the noise of ``step`` (counted from 0) is about to be drawn; durable on return.

        Raises:
            BudgetExceededError: the reservation holds no such step.
            LedgerError: the step is not the next one (its noise would be drawn twice, or a step left
                uncounted), the reservation is closed or another process has taken it up, or the mark could not be
                written. No noise may be drawn then.
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
        self._mark_drawn(self._begun + 1)
        self._begun += 1

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
        if self._open and self._process == os.getpid():  # a fork leaves the block too, and must not close it
            self.commit()

    def _require_open(self) -> None:
        if self._process != os.getpid():
            raise LedgerError(
                f"the reservation belongs to process {self._process}, and this is a fork of it: both would draw the "
                "same noise. Reserve in each process for itself."
            )
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
        self._marked, self._mark_before = 0, 0
        self._last_record, self._owner = number, secrets.token_hex(8)
        self._trusted_until = -math.inf

    @property
    def last_record(self) -> int:
        """The number of the last record that this process knows of; another one later is another process's."""
        return self._last_record

    def _mark_drawn(self, steps: int) -> None:
        if steps <= self._marked:
            self._look()
            return
        mark = max(self._mark_before, min(self._marked + self._block, self.steps))
        self._append({"kind": "drawn", "steps": mark, "owner": self._owner})
        self._marked = mark

    def _close(self, steps: int) -> None:
        if steps == 0:
            self._append({"kind": "released"})
        else:
            event = encode_event(self._event_for(steps))
            self._append({"kind": "committed", "steps": steps, "event": event})

    def _append(self, values: Record) -> None:
        def record(history: History) -> Record:
            self._require_owned(history)
            return {**values, "reservation": self.id}

        self._last_record = self._journal.append(record)

    def _look(self) -> None:
        began = time.monotonic()
        if began < self._trusted_until:
            return
        self._require_owned(self._journal.follow())
        ended = time.monotonic()
        self._trusted_until = ended + min((ended - began) / _LOOKING_SHARE, _LONGEST_TRUST_SECONDS)

    def _require_owned(self, history: History) -> None:
        is_open, last = history.is_open(self.id), history.last_record(self.id)
        if is_open and history.owner(self.id) == self._owner:
            self._last_record = last  # a record may be there although writing it was said to have failed
        if not is_open or last != self._last_record:
            found = "was taken up by another process" if is_open else "is closed in the ledger"
            raise LedgerError(f"reservation {self.id} {found}. Let one process go on, or reserve again.")


def unlimited(steps: int) -> Reservation:
    """A reservation for a run without a ledger, so that training has one code path."""
    return UnlimitedReservation(steps)
