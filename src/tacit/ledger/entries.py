"""What an account's history says: one entry a reservation, with what became of it."""

import dataclasses
import enum
from typing import Any

import dp_accounting

from tacit.ledger.spending import decode_event


class EntryState(enum.Enum):
    """Where a reservation stands. Reserved, committed and settled ones are spent; a released one costs nothing."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    RELEASED = "released"
    SETTLED = "settled"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One reservation and what became of it.

    Attributes:
        id: the number of the reservation in its account's history.
        run, note: what the run called itself.
        state: reserved (a run that is under way or that died), committed, released, or settled (closed because nobody
            would ever commit it; it counts whole).
        steps_reserved: the steps that the run planned.
        steps_drawn: the durable mark: no noise was ever drawn for a step at or above it.
        last_record: the number of the last record of the reservation. The mark is written ahead and may stand still
            while steps are drawn; a process that takes the reservation up adds a record before its first noise.
        steps_charged: the steps that count as spent: all reserved ones until the commit says otherwise.
        encoded_event: what counts as spent, in the versioned JSON form of `tacit.accounting`.
        created, closed: when it was reserved and when it was closed, in UTC; ``closed`` is None until then.
    """

    id: int
    run: str
    note: str
    state: EntryState
    steps_reserved: int
    steps_drawn: int
    last_record: int
    steps_charged: int
    encoded_event: str
    created: str
    closed: str | None

    @property
    def event(self) -> dp_accounting.DpEvent:
        """What counts as spent; an event that does nothing once released."""
        if self.state is EntryState.RELEASED:
            return dp_accounting.NoOpDpEvent()
        return decode_event(self.encoded_event)

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain JSON values."""
        values = dataclasses.asdict(self)
        return values | {"state": self.state.value}
