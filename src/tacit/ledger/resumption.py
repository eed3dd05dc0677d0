"""An open reservation of a process that is gone, taken up by another process."""

from tacit.core.errors import LedgerError
from tacit.ledger.entries import Entry, EntryState
from tacit.ledger.journal import Journal
from tacit.ledger.reservation import LedgerReservation
from tacit.ledger.spending import EventFor, encode_event


class ResumedReservation(LedgerReservation):
    """The rest of a reservation; made by `Account.resume`.

    The first step writes a record before its noise, also where the mark already covers it, so that whoever knows the
    entry's last record sees that more was drawn, and the process before is refused. Later steps raise the mark as
    before. Whatever becomes of the run, what may have been drawn before is charged.

    Args:
        journal, entry: where the reservation is.
        event_for: what its steps cost.
        steps_done: the step to begin with.
        steps_begun: below this noise may have been drawn.
    """

    def __init__(
        self, journal: Journal, entry: Entry, event_for: EventFor, *, steps_done: int, steps_begun: int
    ) -> None:
        super().__init__(journal, entry.id, event_for, entry.steps_reserved)
        self._begun, self._marked, self._drawn_before = steps_done, steps_done, steps_begun
        self._mark_before, self._last_record = entry.steps_drawn, entry.last_record

    @property
    def steps_begun(self) -> int:
        """How many steps were allowed to draw their noise, by this process or those before."""
        return max(self._begun, self._drawn_before)

    def _close(self, steps: int) -> None:
        super()._close(max(steps, self._drawn_before))


def check_resumable(entry: Entry, event_for: EventFor, steps_done: int, steps_begun: int) -> None:
    """Refuses to take up what is closed, was reserved for something else, or contradicts the ledger's mark."""
    if entry.state is not EntryState.RESERVED:
        raise LedgerError(f"reservation {entry.id} is {entry.state.value} in the ledger. Reserve again.")
    if encode_event(event_for(entry.steps_reserved)) != entry.encoded_event:
        raise LedgerError(
            f"reservation {entry.id} was made for another event than the run's. Resume with the plan of that run."
        )
    if not 0 <= steps_done <= steps_begun <= entry.steps_drawn:
        raise LedgerError(
            f"steps_done={steps_done}, steps_begun={steps_begun}: reservation {entry.id} allowed the noise of "
            f"{entry.steps_drawn} steps so far. Neither more steps nor fewer than none can have been done or begun."
        )
