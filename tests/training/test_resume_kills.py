"""Killed with SIGKILL, struck by faults and resumed: the quick form of ``make torture``, and proof that it can fail.

A planted bug is a change to the library in this process, which the forked ones inherit.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tacit.benchmarking.torture import faults, judging, victim
from tacit.benchmarking.torture.campaign import Torture
from tacit.benchmarking.torture.faults import ClockBack, DiskFull, LyingDisk, OlderCopy, PowerLoss, ReadOnly
from tacit.benchmarking.torture.processes import BOUNDARIES, KILLED, REFUSED, Ended, killed_at, run_process
from tacit.benchmarking.torture.victim import AHEAD, KINDS, NUMBERS, STEPS, Observed, Trial
from tacit.core.randomness import Randomness
from tacit.ledger import Account, Ledger, journal
from tacit.ledger.reservation import LedgerReservation, Reservation
from tacit.ledger.resumption import ResumedReservation
from tacit.ledger.sqlite import SqliteDatabase
from tacit.mechanisms import StepNoise
from tacit.training import checkpoint, private, resume
from tacit.training.explaining import Explanation, Paid
from tacit.training.resume import Session
from tacit.training.run_state import RunState
from tacit.training.update import Update
from tacit.training.witness import Witness

KILLS, LATE = 6, ("after the update", 5)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("torture") / "torture.json"
    options = ["--kills", str(KILLS), "--faults", "1", "--out", str(out)]
    command = [sys.executable, "-m", "tacit.benchmarking.torture", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout) == json.loads(out.read_text())
    return json.loads(ended.stdout)


def test_killed_runs_lose_no_spending_and_never_reuse_noise(figures):
    assert figures["wrong"] == []
    assert sum(figures["kills_by_boundary"].values()) >= KILLS / 2
    assert sum(figures["kills_at_random_times"].values()) >= KILLS / 2
    assert {sum(counted.values()) for counted in figures["faults"].values()} == {1}


def test_the_boundaries_are_places_in_the_library():
    """A function that was renamed would never be arrived at, and its boundary never be killed at."""
    homes = (Account, LedgerReservation, Reservation, StepNoise, checkpoint.Store, Update, Witness, SqliteDatabase)
    methods = {member.__qualname__ for home in homes for member in vars(home).values() if callable(member)}
    functions = {name for name, member in vars(checkpoint).items() if callable(member)}
    assert {qualname for qualname, _ in BOUNDARIES.values()} <= methods | functions


@pytest.fixture
def torture(tmp_path):
    return Torture(tmp_path, seed=0)


def said(torture):
    """What was found wrong, without the trial."""
    return [what.split(": ", 1)[1] for what in torture.wrong]


def test_nothing_is_wrong_with_a_late_kill(torture):
    for kind in KINDS:
        torture.kill(kind, [LATE, LATE])
    assert torture.wrong == []
    assert torture.kills["boundaries"].total() >= len(KINDS)
    assert torture.steps["replayed"] > 0
    assert torture.steps["drawn again"] > 0
    assert torture.changed_data_refused == 2


def test_planted_bug_a_resumed_run_that_reserves_nothing(torture, monkeypatch):
    reserve = Session._reserve

    def skip(self, explanation, begun):
        paid = Paid(explanation.steps, done=self._header.done, begun=begun)
        return reserve(self, explanation, begun) if explanation.entry is None else paid

    monkeypatch.setattr(Session, "_reserve", skip)
    torture.kill("secret", [LATE])
    assert "a reservation is still open" in said(torture)
    assert f"{STEPS} noisy gradients were seen, and the ledger knows of 6" in said(torture)


def test_planted_bug_changed_data_under_the_old_stream(torture, monkeypatch):
    monkeypatch.setattr(Session, "_check_same_run", lambda self, header, source: source is not None)
    monkeypatch.setattr(Witness, "__call__", lambda self, step, sums: None)
    lots = [victim.plan().sampler.indices(step, victim.RECORDS, Randomness(unsafe_seed=7)) for step in (3, 4)]
    assert [0 in lot for lot in lots] == [False, True]  # which lots of those that come again hold the changed record
    torture.kill("seeded", [("after the update", 6)])
    assert "went on with changed data (status 0) " in said(torture)
    assert "steps 5 and 5: two different sums have the same noise" in said(torture)


def test_planted_bug_steps_drawn_again_under_the_old_key(torture, monkeypatch):
    """The new stretch counts its streams from 0, so that the noise of step 1 comes again at another step."""
    old = Randomness(unsafe_seed=7)
    monkeypatch.setattr(Randomness, "from_secret_key", classmethod(lambda cls, key, voids_guarantee, fast: old))
    torture.kill("redrawn", [LATE])
    assert "steps 1 and 4: two different sums have the same noise" in said(torture)


def test_planted_bug_noise_before_its_mark(torture, monkeypatch):
    def release(sums, noise, reservation, randomness, step, *, recorded):
        noise.apply_(sums, randomness, step)
        reservation.before_noise(step)

    monkeypatch.setattr(private, "release_gradient", release)
    torture.kill("secret", [("after the noise", AHEAD + 1)])
    assert said(torture) == [f"noise was drawn {AHEAD + 1} times, and the ledger knows of {AHEAD}"]


def test_planted_bug_fewer_steps_charged_than_were_drawn(torture, monkeypatch):
    draw = Session._draw_afresh
    monkeypatch.setattr(
        Session, "_draw_afresh", lambda self, header, source, why, begun: draw(self, header, source, why, header.done)
    )
    torture.kill("redrawn", [LATE])
    assert said(torture) == [f"{STEPS + 1} noisy gradients were seen, and the ledger knows of {STEPS}"]


def test_the_mark_is_ahead_of_the_noise(torture):
    """Else bugs of runs whose marks come in blocks would never be seen."""
    trial = torture._new_trial("secret")
    run_process(trial, hooks=killed_at("after the noise", 1, trial))
    assert (trial.observed.noises, judging.marked(trial.entries())) == (1, AHEAD)
    assert AHEAD > 1


class WithinOneMark(OlderCopy):
    """The run goes on by one step, which the mark covers already."""

    def __init__(self, trial, choice):
        super().__init__(trial, choice)
        self._stop, self._further = 2, 1


def test_nothing_is_wrong_with_older_copies(torture):
    for kind in KINDS:
        torture.strike(kind, WithinOneMark, kills=0)
    assert torture.wrong == []
    assert torture.faults[OlderCopy.name] == {"refused": 2, "continued": 1}


@pytest.fixture
def believed_by_the_mark(monkeypatch):
    """The bug: a state is believed while the mark stands still, and steps below the mark write nothing."""
    take_up = ResumedReservation.__init__

    def marked_before(self, journal, entry, event_for, *, steps_done, steps_begun):
        take_up(self, journal, entry, event_for, steps_done=steps_done, steps_begun=steps_begun)
        self._marked = entry.steps_drawn

    monkeypatch.setattr(ResumedReservation, "__init__", marked_before)
    monkeypatch.setattr(Explanation, "last_record", property(lambda self: self.entry and self.entry.steps_drawn))


@pytest.mark.usefixtures("believed_by_the_mark")
def test_planted_bug_an_older_copy_that_is_believed_by_another_engine(torture):
    torture.strike("secret", WithinOneMark, kills=0)
    assert "steps 2 and 2: two different sums have the same noise" in said(torture)


@pytest.mark.usefixtures("believed_by_the_mark")
def test_planted_bug_an_older_copy_that_is_believed_when_drawn_again(torture):
    torture.strike("redrawn", WithinOneMark, kills=0)
    assert f"{STEPS + 1} noisy gradients were seen, and the ledger knows of {STEPS}" in said(torture)


def test_planted_bug_a_second_reservation_beyond_the_budget(torture, monkeypatch):
    reserve = Session._reserve

    def twice(self, explanation, begun):
        if explanation.entry is not None:
            reserve(self, Explanation(None, explanation.steps, 0), 0)
        return reserve(self, explanation, begun)

    monkeypatch.setattr(Session, "_reserve", twice)
    torture.kill("secret", [LATE])
    assert "above the budget" in said(torture)[0]
    monkeypatch.setattr(Account, "_check_budget", lambda *_: None)
    torture.wrong.clear()
    torture.kill("secret", [LATE])
    assert {"the budget is exceeded", f"{2 * STEPS} steps are charged, and the run has {STEPS}"} <= set(said(torture))


def test_planted_bug_a_state_that_is_not_restored_whole(torture, monkeypatch):
    restore = RunState.restore

    def forget_average(self, packed, tensors):
        restore(self, packed, tensors)
        self.average.steps = 0

    monkeypatch.setattr(RunState, "restore", forget_average)
    torture.kill("seeded", [LATE])
    assert said(torture) == ["the weights are not those of the uninterrupted run"]


def test_planted_bug_a_key_that_stays(torture, monkeypatch):
    monkeypatch.setattr(checkpoint.Store, "destroy_key", lambda self: None)
    torture.kill("secret", [])
    assert said(torture) == ["the key is still there"]


def test_planted_bug_a_clock_that_nobody_looks_at(torture, monkeypatch):
    monkeypatch.setattr(journal, "_check_clock", lambda *_: None)
    torture.strike("secret", ClockBack, kills=0)
    assert said(torture) == ["clock moved back: was charged all the same"]


def test_planted_bug_a_full_disk_that_is_not_minded(torture, monkeypatch):
    """Marks that could not be written, and noise all the same."""
    mark = ResumedReservation._mark_drawn

    def ignore(self, steps):
        try:
            mark(self, steps)
        except Exception:
            self._marked = steps

    trial = torture._new_trial("secret")
    assert run_process(trial, hooks=killed_at(*LATE, trial)).status == KILLED
    fault = DiskFull(trial, torture._choice)
    fault._limit = 33_000  # states fit, and the log does not
    ended = run_process(trial, prepare=fault.prepare)
    assert ended.status == REFUSED
    assert list(judging.refusal(ended)) == list(judging.after_a_death(trial)) == []
    monkeypatch.setattr(ResumedReservation, "_mark_drawn", ignore)
    run_process(trial, prepare=fault.prepare)
    assert any("noisy gradients were seen, and the ledger knows of" in what for what in judging.after_a_death(trial))


def test_planted_bug_an_explanation_that_is_made_up(torture, monkeypatch):
    """A disk that lost the reservation, and a run that goes on all the same."""

    def believe(account, *, dataset, run, stretch, token, reservation, done, steps):
        return Explanation(None, steps, done)

    class LostReservation(LyingDisk):
        def strike(self):
            self._log.unlink(missing_ok=True)
            self._trial.ledger.unlink()
            self._trial.account()

    def struck(trial):
        assert run_process(trial, hooks=killed_at(*LATE, trial)).status == KILLED
        LostReservation(trial, torture._choice).strike()
        return run_process(trial)

    assert "the ledger cannot explain it" in struck(torture._new_trial("secret")).said
    monkeypatch.setattr(resume, "explain", believe)
    trial = torture._new_trial("secret")
    torture._finish(trial, struck(trial))
    assert said(torture) != []


def test_a_refusal_without_a_remedy_or_on_two_lines_is_told():
    assert list(judging.refusal(Ended(REFUSED, said="disk full. Make room."))) == []
    assert len(list(judging.refusal(Ended(REFUSED, said="disk full")))) == 1
    assert len(list(judging.refusal(Ended(REFUSED, said="disk\nfull. Make room.")))) == 1


def test_read_only_holds_for_everyone_in_a_process_that_drops_its_privileges(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    pid = os.fork()
    if pid == 0:
        faults.drop_privileges()
        try:
            (tmp_path / "closed" / "file").touch()
        except PermissionError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_planted_bug_a_log_that_is_not_synchronised(torture, monkeypatch):
    monkeypatch.setattr(SqliteDatabase, "_make_durable", lambda self: None)
    trial = torture._new_trial("secret")
    fault = PowerLoss(trial, torture._choice)
    assert run_process(trial, hooks={**fault.hooks(), **killed_at(*LATE, trial)}).status == KILLED
    assert list(judging.after_a_death(trial)) == []
    assert fault._synchronised() == 0
    fault._tear = lambda path, kept: os.truncate(path, kept)  # the worst that can happen
    fault.strike()
    assert list(judging.after_a_death(trial)) == ["4 noisy gradients were seen, and the ledger knows of 0"]


def test_a_power_loss_spares_what_was_synchronised(torture):
    trial = torture._new_trial("secret")
    fault = PowerLoss(trial, torture._choice)
    hooks = {**fault.hooks(), **killed_at(*LATE, trial)}
    assert run_process(trial, hooks=hooks).status == KILLED
    before, kept = fault._log.read_bytes(), fault._synchronised()
    assert kept == len(before) > 0
    fault._log.write_bytes(before + b"a frame that was not synchronised")
    entries = trial.entries()
    for _ in range(5):
        fault.strike()
        assert fault._log.read_bytes()[:kept] == before
    assert trial.entries() == entries


def test_moved_records_are_a_history_that_fits(torture):
    trial = torture._new_trial("secret")
    run_process(trial)
    before = trial.entries()
    faults.move_records(trial.ledger, 3600)
    (moved,), (entry,) = trial.entries(), before
    assert moved.created > entry.created
    faults.move_records(trial.ledger, -3600)
    assert Ledger.open(trial.ledger).account("d").entries() == before


def test_a_read_only_place_is_given_back(torture):
    trial = torture._new_trial("secret")
    fault = ReadOnly(trial, torture._choice)
    mode = trial.folder.stat().st_mode
    fault.strike()
    fault.lift()
    assert trial.folder.stat().st_mode == mode
    assert run_process(trial, prepare=fault.prepare).status == 0


def test_a_redrawn_run_in_a_read_only_folder_leaves_the_ledger_as_it_was(torture):
    trial = torture._new_trial("redrawn")
    assert run_process(trial, hooks=killed_at(*LATE, trial)).status == KILLED
    before = trial.entries()
    trial.checkpoint.chmod(0o500)
    ended = run_process(trial, prepare=faults.drop_privileges)
    trial.checkpoint.chmod(0o700)
    assert (ended.status, trial.entries()) == (REFUSED, before)
    assert "cannot be written" in ended.said


def gradient(noise, total):
    return ((noise + total) / victim.DIVISOR).astype(np.float64).tobytes()


def test_the_same_noise_on_two_sums_would_be_seen():
    generator = np.random.default_rng(0)
    one, two = generator.normal(0, victim.NOISE * victim.CLIP, (2, NUMBERS))
    total = np.zeros(NUMBERS)
    other = np.full(NUMBERS, 4 / np.sqrt(NUMBERS))  # as long as a sum of eight clipped gradients can be
    assert list(judging.same_or_far_apart(set())) == []
    assert list(judging.same_or_far_apart({(1, gradient(one, total)), (1, gradient(two, other))})) == []
    for step in (1, 2):
        drawn = {(1, gradient(one, total)), (step, gradient(one, other))}
        assert list(judging.same_or_far_apart(drawn)) == [f"steps 1 and {step}: two different sums have the same noise"]


def test_what_a_killed_process_saw_outlives_it(tmp_path):
    trial = Trial(tmp_path, "secret", Observed())
    ended = run_process(trial, hooks=killed_at("after the state", 2, trial))
    assert ended.status == KILLED
    assert [step for step, _ in trial.observed] == [1, 2, 3]
    assert trial.observed.noises == 3
    trial.observed.clear()
    assert list(trial.observed) == []
