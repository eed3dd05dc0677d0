"""Whether the ledger explains a checkpoint, and how much of its stretch may have been drawn."""

import dataclasses

from tacit.core.errors import InputError, LedgerError
from tacit.ledger import Account, Entry, EntryState, Reservation


def note_of(run: str, stretch: int, token: str) -> str:
    """What the ledger's entry of a stretch says of itself, by which it is found again.

    The token tells stretches apart that were begun from copies of one folder, each under a key of its own; older states
    have none.
    """
    return f"checkpoint {run}/{stretch} {token}".rstrip()


def _is_of(entry: Entry, run: str, stretch: int) -> bool:
    return entry.note.split(" ")[:2] == note_of(run, stretch, "").split(" ")


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What is known of a stretch of a run, durably and apart from its checkpoint.

    Attributes:
        entry: the ledger's; None without a ledger, or where nothing was reserved yet.
        steps: how many steps the stretch has.
        begun: an upper bound on the steps whose noise may have been drawn.
    """

    entry: Entry | None
    steps: int
    begun: int

    @property
    def last_record(self) -> int:
        """The number of the entry's last record, which moves on with every process that draws; 0 without an entry."""
        return 0 if self.entry is None else self.entry.last_record

    @property
    def is_open(self) -> bool:
        """Whether the rest of the steps may still be drawn."""
        return self.entry is None or self.entry.state is EntryState.RESERVED

    @property
    def is_paid(self) -> bool:
        """Whether every step of the stretch is reserved or charged, so that replaying all of it costs nothing."""
        return self.is_open or self.begun == self.steps


def explain(
    account: Account | None,
    *,
    dataset: str | None,
    run: str,
    stretch: int,
    token: str,
    reservation: int | None,
    done: int,
    steps: int,
) -> Explanation:
    """What the ledger says of a stretch.

    Args:
        account: where the run's budget comes from.
        dataset: the account that the checkpoint names; None for a run without a ledger.
        run, stretch, token, reservation: what the checkpoint says; the last is None where it was written before
            reserving.
        done: how many steps of the stretch the checkpoint has.
        steps: how many the stretch has.

    Raises:
        InputError: the account is not the checkpoint's.
        LedgerError: the ledger cannot explain the checkpoint.
    """
    given = None if account is None else account.dataset
    if given != dataset:
        raise InputError(
            f"account={given!r}: the checkpoint's run spends from {dataset!r}. Resume it with the same ledger and "
            "account."
        )
    if account is None:
        return Explanation(None, steps, steps)
    entries = account.entries()
    if later := [entry.id for entry in entries if _is_of(entry, run, stretch + 1)]:
        raise _unexplained(run, f"entry {later[0]} has drawn steps again since")
    # The first one: a process that reserved the same stretch again has drawn nothing, see `Session`.
    entry = next((entry for entry in entries if entry.note == note_of(run, stretch, token)), None)
    if entry is None:
        if reservation is not None or done:
            raise _unexplained(run, f"it has no entry for it, though the checkpoint names entry {reservation}")
        return Explanation(None, steps, 0)
    if reservation not in (None, entry.id):
        raise _unexplained(run, f"its entry is {entry.id}, and the checkpoint names entry {reservation}")
    if entry.steps_reserved != steps:
        raise _unexplained(run, f"entry {entry.id} holds {entry.steps_reserved} steps, and the checkpoint {steps}")
    begun = entry.steps_drawn if entry.state is EntryState.RESERVED else entry.steps_charged
    if begun < done:
        raise _unexplained(run, f"entry {entry.id} counts {begun} steps, and the checkpoint has done {done}")
    return Explanation(entry, steps, begun)


def _unexplained(run: str, reason: str) -> LedgerError:
    return LedgerError(
        f"checkpoint of run {run}: the ledger cannot explain it: {reason}. One of the two is an older copy, or belongs "
        "elsewhere. Restore what belongs together, or start a new run in another folder; what was spent stays counted."
    )


class Paid(Reservation):
    """Steps that are charged already, or that no ledger counts: to be drawn in order, with nothing to write.

    Args:
        steps: how many there are.
        done: the steps after which the run goes on.
        begun: below this noise may have been drawn.
    """

    def __init__(self, steps: int, *, done: int, begun: int) -> None:
        super().__init__(steps)
        self._begun, self._drawn_before = done, begun

    @property
    def steps_begun(self) -> int:
        """How many steps were allowed to draw their noise, by this process or the one before."""
        return max(self._begun, self._drawn_before)

    def _mark_drawn(self, steps: int) -> None:
        """Nothing to write."""

    def _close(self, steps: int) -> None:
        """Nothing to write."""
