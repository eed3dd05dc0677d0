"""Exact resume: a run that was killed at any moment goes on as if it had not been, and never draws the same noise for
two different sums.

A checkpoint says how far the run was; the ledger says how far its noise may have been drawn. A step in between is done
again in one of two ways only:

- **replayed** from its own stream, at no further cost. The noise of a step depends on the run's key, the step and the
  parameter alone, and dropout's masks on the key and the step, so that the same sum gives the same result, and a result
  that was seen twice says no more than once. It needs the key, an unchanged fingerprint of data, plan, network, loss,
  update and machine, and for every step the very sum that the witness saw (`tacit.training.witness`). Only on a CPU:
  sums on a GPU differ in their last bits.
- **drawn afresh**, with ``redraw=True`` and a ledger: what may have been drawn is charged, the key is destroyed, and
  the rest of the run is a stretch of its own under a new key, which is reserved anew and counted on top.

What is written when: key, state of the first step, reservation, then for each step sums' digest, ledger mark, noise; a
state every few steps; at the end the last state, the ledger's commit, the end of the key. Wherever that is cut, the
next process finds either all that it needs or nothing that was drawn.
"""

import dataclasses
import types
import uuid
from pathlib import Path
from typing import Self

from tacit.core.errors import InputError, LedgerError, TacitError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.ledger import Account, Entry, Reservation
from tacit.training.checkpoint import Saved, Store
from tacit.training.explaining import Explanation, Paid, explain, note_of
from tacit.training.fingerprint import Fingerprint, data_fingerprint
from tacit.training.position import Position, reserve
from tacit.training.run_header import Facts, Header
from tacit.training.witness import Witness

_STATES_A_RUN = 64  # as often as the ledger marks a run's progress


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run saves itself.

    Attributes:
        folder: one for each run. It holds the run's secret key while the run goes on: keep it as private as the data.
        every: how many steps lie between two states; about 64 states a run unless told.
        keep: how many states stay, so that a damaged one does not end the run.
        resume: goes on with what the folder holds; an empty folder begins a new run.
        redraw: allows to draw steps again where they cannot be replayed, which is counted in the ledger.
        canaries: a mark of the canaries among the records, which must not say anything of a record. The fingerprint of
            the records ends with the key; this stays, so that nobody takes a finished run for one with other canaries.
    """

    folder: Path
    every: int | None = None
    keep: int = 3
    resume: bool = False
    redraw: bool = False
    canaries: str = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        check_count("keep", self.keep)
        if self.every is not None:
            check_count("every", self.every)

    def part(self, name: str) -> "Checkpoint":
        """The same for one of several runs, in a folder below; the folder itself is made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"checkpoint={str(self.folder)!r}: cannot be written ({error.strerror}). Choose a folder of your own."
            ) from error
        return dataclasses.replace(self, folder=self.folder / name)


class Session:
    """A run that saves itself, from its start or resumption to its end in this process.

    A context manager, which lets another process have the folder at its end.

    Args:
        checkpoint: where the run is saved.
        facts: what the run is; its state is set to what was saved.
        randomness: the source for a new run; one that goes on has its own.
    """

    def __init__(self, checkpoint: Checkpoint, facts: Facts, randomness: Randomness | None) -> None:
        self._checkpoint, self._facts, self._given = checkpoint, facts, randomness
        self._every = checkpoint.every or -(-facts.plan.steps // _STATES_A_RUN)
        self._store = Store(checkpoint.folder, checkpoint.keep)
        self._header: Header
        self._reservation: Reservation
        self._settled, self._drawn_before = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None
    ) -> None:
        self._store.close()

    def begin(self) -> Position:
        """Where the run starts or goes on; model, optimizer, schedule and average are set accordingly.

        Raises:
            InputError: the folder cannot be used, or what it holds is another run's.
            LedgerError: the ledger cannot explain the checkpoint.
            UnsupportedError: the steps can neither be replayed nor, without ``redraw`` and a ledger, drawn again.
            BudgetExceededError: the account does not hold what must be reserved.
        """
        saved = self._store.newest()
        if saved is None:
            return self._begin_anew()
        if not self._checkpoint.resume:
            raise InputError(
                f"checkpoint={str(self._checkpoint.folder)!r}: already holds a run. Resume it with resume=True "
                "(--resume), or choose another folder."
            )
        return self._take_up(saved)

    def after_step(self, done: int) -> None:
        """A step and all that follows from it is done: saves the state where it is time to."""
        self._settled = done
        if done % self._every == 0 or done == self._facts.plan.steps:
            self._save(done)

    def finish(self) -> None:
        """All steps are done and the last state is saved: the commit, and the end of the key."""
        self._reservation.commit(self._header.done)
        self._store.destroy_key()
        self._store.forget_sums(self._header.stretch)

    def stop(self) -> None:
        """The run stops early and in order, to be resumed. The reservation stays open and counts whole.

        Where no noise was drawn since the last finished step, that step's state is saved, and nothing is done again.
        """
        begun = max(self._reservation.steps_begun, self._drawn_before)
        if begun == self._settled - self._header.first and self._settled < self._facts.plan.steps:
            # Not what the ledger's last record is now: a process that took the run up meanwhile may have written it.
            self._header = dataclasses.replace(self._header, clean_record=self._reservation.last_record)
            self._save(self._settled)

    def _begin_anew(self) -> Position:
        facts, source = self._facts, (self._given or Randomness()).fork(may_be_fast=True)
        header = Header(
            run=uuid.uuid4().hex,
            stretch=0,
            first=0,
            earlier=(),
            token=uuid.uuid4().hex,
            step=0,
            clean_record=None,
            dataset=None if facts.account is None else facts.account.dataset,
            reservation=None,
            voids_guarantee=source.voids_guarantee,
            fast_randomness=source.fast,
            fingerprint=self._fingerprint(source),
        )
        try:
            return self._start_stretch(header, source)
        except TacitError:
            self._store.discard()
            raise

    def _take_up(self, saved: Saved) -> Position:
        facts, header = self._facts, Header.from_json(saved.header)
        key = self._store.read_key(header.run, header.stretch)
        void, fast = header.voids_guarantee, header.fast_randomness
        source = None if key is None else Randomness.from_secret_key(key, voids_guarantee=void, fast=fast)
        proven = self._check_same_run(header, source)
        explanation = self._explain(header)
        facts.state.restore(saved.header["state"], saved.tensors)
        # Else the run went on after it had stopped in order, or may have: a closed entry does not tell.
        clean = explanation.is_open and header.clean_record == explanation.last_record
        begun = header.done if clean else explanation.begun
        needs_replay = begun > header.done
        may_replay = proven and not self._checkpoint.redraw
        if header.step == facts.plan.steps:
            source = source or Randomness(unsafe_seed=0 if void else None, fast=fast)  # nothing is left to draw
        elif source is None or not explanation.is_paid or (needs_replay and not may_replay):
            return self._draw_afresh(header, source, explanation, begun)
        return self._open(header, source, explanation, begun)

    def _draw_afresh(self, header: Header, source: Randomness | None, explanation: Explanation, begun: int) -> Position:
        """Charges what may have been drawn, and goes on under a new key as a stretch that is counted on top."""
        facts, entry = self._facts, explanation.entry
        if facts.account is None or not self._checkpoint.redraw:
            raise UnsupportedError(self._why_not_replayed(header, source, begun))
        if entry is not None and explanation.is_open:
            self._resume(facts.account, entry, done=begun, begun=begun).commit()
        fast = header.fast_randomness
        fresh = Randomness(fast=fast)
        if header.voids_guarantee:
            key = (source or Randomness(unsafe_seed=0)).device_key("stretch", header.stretch + 1)
            fresh = Randomness.from_secret_key(key, voids_guarantee=True, fast=fast)
        following = dataclasses.replace(
            header,
            stretch=header.stretch + 1,
            first=header.step,
            earlier=(*header.earlier, begun),
            token=uuid.uuid4().hex,
            clean_record=None,
            reservation=None,
            fingerprint=self._fingerprint(fresh),
        )
        return self._start_stretch(following, fresh)

    def _start_stretch(self, header: Header, source: Randomness) -> Position:
        self._store.forget_sums(header.stretch)
        self._store.write_key(header.run, header.stretch, source.export_secret_key())
        return self._open(header, source, Explanation(None, self._facts.plan.steps - header.first, 0), 0)

    def _open(self, header: Header, source: Randomness, explanation: Explanation, begun: int) -> Position:
        """Saves the present state, then takes up the reservation or makes it, in this order."""
        self._header = dataclasses.replace(header, clean_record=None)
        self._settled, self._drawn_before = header.step, begun
        self._save(header.step)
        witness = Witness(self._store.sums_path(header.stretch), source)
        if begun == header.done:
            witness.forget_from(begun)
        self._reservation = self._reserve(explanation, begun)
        if self._facts.account is not None and header.reservation is None:
            self._header = dataclasses.replace(self._header, reservation=self._entry_number(explanation))
        return Position(
            source,
            self._reservation,
            steps_done=header.step,
            first=header.first,
            earlier=header.earlier,
            held=True,
            before_noise=witness if self._facts.on_cpu else None,
        )

    def _reserve(self, explanation: Explanation, begun: int) -> Reservation:
        facts, header, entry = self._facts, self._header, explanation.entry
        if facts.account is None:
            return Paid(explanation.steps, done=header.done, begun=header.done)
        if entry is None:
            note = note_of(header.run, header.stretch, header.token)
            return reserve(facts.plan, explanation.steps, facts.account, facts.run, note)
        if explanation.is_open:
            return self._resume(facts.account, entry, done=header.done, begun=begun)
        return Paid(explanation.steps, done=header.done, begun=begun)

    def _entry_number(self, explanation: Explanation) -> int | None:
        """The number of the stretch's entry, which is the first one of its name.

        A second one is made where two processes begin with copies of one folder, and so with one key, before either
        has reserved. Whoever comes second then draws nothing.
        """
        entry = self._explain(self._header).entry
        if entry is not None and explanation.entry is None and entry.id != self._reservation.last_record:
            self._reservation.release()
            raise LedgerError(
                f"checkpoint of run {self._header.run}: another process has begun it from a copy of the folder, as "
                f"entry {entry.id}. Let one process go on, or start a new run in another folder."
            )
        return None if entry is None else entry.id

    def _resume(self, account: Account, entry: Entry, *, done: int, begun: int) -> Reservation:
        """Takes an entry up as it was when it was explained: a process that lives may have raised its mark since."""
        event_for = self._facts.plan.training_event
        return account.resume(entry.id, event_for, steps_done=done, steps_begun=begun, last_record=entry.last_record)

    def _explain(self, header: Header) -> Explanation:
        return explain(
            self._facts.account,
            dataset=header.dataset,
            run=header.run,
            stretch=header.stretch,
            token=header.token,
            reservation=header.reservation,
            done=header.done,
            steps=self._facts.plan.steps - header.first,
        )

    def _save(self, step: int) -> None:
        self._header = dataclasses.replace(self._header, step=step)
        packed, tensors = self._facts.state.capture()
        self._store.write(self._header.stretch, step, Saved(self._header.to_json(packed), tensors))

    def _fingerprint(self, source: Randomness | None) -> Fingerprint:
        """What the run is told by. That of the records needs the run's key."""
        found = {**self._facts.fingerprint(), "canaries": self._checkpoint.canaries}
        return found if source is None else {**found, "data": data_fingerprint(self._facts.records, source)}

    def _check_same_run(self, header: Header, source: Randomness | None) -> bool:
        """Refuses another run's checkpoint; true where steps may be replayed to the last bit."""
        facts = self._facts
        now = self._fingerprint(source)
        saved = {"canaries": self._checkpoint.canaries, **header.fingerprint}  # older states do not tell
        differing = [part for part, digest in now.items() if saved.get(part) != digest]
        changed = [part for part in differing if part != "machine"]
        if changed or header.step > facts.plan.steps:
            remedy = "Resume with what the run was started with, or start a new run in another folder."
            if "canaries" in changed:
                remedy += " What --canaries planted is kept in the run's folder: name that with --out."
            raise InputError(
                f"checkpoint: it is of another run, since {', '.join(changed) or 'the plan'} changed. {remedy}"
            )
        return facts.on_cpu and not differing and source is not None

    def _why_not_replayed(self, header: Header, source: Randomness | None, begun: int) -> str:
        if source is None:
            reason = "the run's key is gone"
        elif not self._facts.on_cpu:
            reason = "sums on a GPU differ in their last bits"
        elif begun > header.done:
            reason = "versions, processor, threads or execution changed"
        else:
            reason = "the ledger has closed the run's reservation"
        remedy = (
            "Without a ledger nobody knows how many were drawn: start a new run in another folder."
            if self._facts.account is None
            else f"Resume with redraw=True (--redraw): the {begun - header.done} steps that may have been drawn since "
            "are then counted again."
        )
        return f"checkpoint at step {header.step}: the steps after it cannot be replayed, since {reason}. {remedy}"
