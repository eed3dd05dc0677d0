"""Runs that stop in order while the ledger's mark is ahead of them: an older copy of the stop is not believed.

The mark is written ahead in blocks, one in 64 of the steps long. So it stands still while steps are drawn, and cannot
tell a run that stopped from one that went on.
"""

import json
import shutil

import pytest
import torch
from private_checks import cross_entropy, plan
from test_resume import Run

from tacit.core import UnsupportedError
from tacit.ledger import EntryState, Ledger
from tacit.training import Execution, TrainingInterrupted
from tacit.training.checkpoint import Saved, Store, read_state

REFERENCE = Execution(preflight=False, engine="reference")
LAST = {"steps": 192, "done": 190, "more": 1, "mark": 192}
PLACES = {
    "first block": {"steps": 640, "done": 4, "more": 3, "mark": 10},
    "up to the end of the block": {"steps": 640, "done": 4, "more": 6, "mark": 10},
    "last block": LAST,
    "last step": {**LAST, "more": 2},
}


class InterruptedAfter:
    """A loss that is interrupted, as by Ctrl-C, once so many steps were seen; None for never."""

    def __init__(self, run, done, first=lambda: None):
        self.run, self.done, self.first = run, done, first

    def __call__(self, model, x, y):
        if self.done is not None and self.run.seen[-1:] == [self.done]:
            self.first()
            raise KeyboardInterrupt
        return cross_entropy(model, x, y)


class Stopped:
    """A run that stopped in order after ``done`` steps, with the ledger's mark at ``mark``."""

    def __init__(self, tmp_path, place):
        self.account = Ledger.create(tmp_path / "ledger.db", dataset="d", budget=None).account("d")
        self.run = Run(tmp_path / "checkpoint", self.account)
        self.done, self.further = place["done"], place["done"] + place["more"]
        self.plan, self.copies = plan(steps=place["steps"]), tmp_path / "copies"
        self.stop(self.done)
        assert self.run.seen == list(range(1, self.done + 1))
        assert [(entry.steps_drawn, entry.state) for entry in self.entries()] == [(place["mark"], EntryState.RESERVED)]

    def options(self, done, changes):
        fixed = {"plan": self.plan, "every": 1000, "randomness": None, "schedule": None, "average_decay": None}
        return {**fixed, "loss_fn": InterruptedAfter(self.run, done), "execution": REFERENCE, **changes}

    def stop(self, done, **changes):
        with pytest.raises(TrainingInterrupted):
            self.run(**self.options(done, changes))

    def go_on(self, until, **changes):
        self.run.crash(until, **self.options(None, changes))

    def copy(self, name):
        shutil.copytree(self.run.folder, self.copies / name)

    def back_to(self, name):
        shutil.rmtree(self.run.folder)
        shutil.copytree(self.copies / name, self.run.folder)

    def entries(self):
        return self.account.entries()

    def refuses_another_engine(self):
        before, seen = self.entries(), len(self.run.seen)
        with pytest.raises(UnsupportedError, match="versions, processor, threads or execution changed"):
            self.run(**self.options(None, {"execution": Execution(preflight=False)}))
        return (self.entries(), len(self.run.seen)) == (before, seen)


@pytest.fixture(params=PLACES)
def stopped(tmp_path, request):
    return Stopped(tmp_path, PLACES[request.param])


@pytest.fixture
def stopped_early(tmp_path):
    return Stopped(tmp_path, PLACES["first block"])


def test_another_engine_does_not_go_on_from_an_older_copy(stopped):
    stopped.copy("older")
    stopped.go_on(stopped.further)
    stopped.back_to("older")
    assert stopped.refuses_another_engine()


def test_the_same_machine_replays_from_an_older_copy(stopped):
    stopped.copy("older")
    stopped.go_on(stopped.further)
    stopped.back_to("older")
    stopped.go_on(stopped.further)
    for step in range(stopped.done + 1, stopped.further + 1):
        one, two = stopped.run.gradients[step]
        assert torch.equal(one, two)


def test_steps_after_an_older_copy_are_charged_where_the_key_is_gone(stopped):
    stopped.copy("older")
    stopped.go_on(stopped.further)
    stopped.back_to("older")
    (stopped.run.folder / "key").unlink()
    stopped.go_on(stopped.done + 1, redraw=True)
    first, _ = stopped.entries()
    assert (first.state, first.steps_charged) == (EntryState.COMMITTED, first.steps_drawn)
    assert first.steps_charged >= stopped.further


def test_an_older_copy_is_not_believed_after_the_entry_was_settled(stopped):
    """A closed entry counts whole and is never written to again, whatever is drawn."""
    stopped.copy("older")
    stopped.account.settle(stopped.entries()[0].id)
    stopped.go_on(stopped.further)
    stopped.back_to("older")
    assert stopped.refuses_another_engine()


def test_an_older_copy_is_not_believed_after_a_second_orderly_stop(tmp_path):
    """The mark is the same at both stops; the second one is believed."""
    stopped = Stopped(tmp_path, LAST)
    stopped.copy("older")
    stopped.stop(stopped.further)
    stopped.copy("newer")
    assert stopped.entries()[0].steps_drawn == LAST["mark"]
    stopped.back_to("older")
    assert stopped.refuses_another_engine()
    stopped.back_to("newer")
    stopped.go_on(stopped.further + 1, execution=Execution(preflight=False))


def test_any_machine_goes_on_where_nothing_was_drawn_since(stopped):
    stopped.go_on(stopped.done + 1, execution=Execution(preflight=False))
    assert stopped.run.seen == list(range(1, stopped.done + 2))


def test_a_process_that_stops_before_its_first_noise_leaves_the_stop_as_it_was(stopped_early):
    before = stopped_early.entries()
    stopped_early.stop(stopped_early.done)
    assert stopped_early.entries() == before
    stopped_early.go_on(stopped_early.done + 1, execution=Execution(preflight=False))


def test_only_what_was_drawn_is_charged_where_nothing_was_drawn_since(stopped_early):
    (stopped_early.run.folder / "key").unlink()
    stopped_early.go_on(stopped_early.done + 1, redraw=True)
    assert stopped_early.entries()[0].steps_charged == stopped_early.done


def test_a_state_that_says_only_the_mark_is_not_believed(stopped_early):
    """As states did before: the same machine replays, another one is refused."""
    run = stopped_early.run
    saved = read_state(max(run.folder.glob("state-*")))
    header = json.loads(json.dumps(saved.header))
    del header["clean_record"]
    store = Store(run.folder, keep=3)
    store.write(0, stopped_early.done, Saved({**header, "clean_mark": 10}, saved.tensors))
    store.close()
    assert stopped_early.refuses_another_engine()
    stopped_early.go_on(stopped_early.done + 1)


def test_a_stop_after_another_process_took_the_run_up_is_not_believed(stopped_early):
    """The other one may have drawn up to its mark, and the last record is its own."""
    account, steps, mark = stopped_early.account, stopped_early.plan.training_event, PLACES["first block"]["mark"]

    def take_up():
        account.resume(account.entries()[0].id, steps, steps_done=mark).before_noise(mark)

    further = stopped_early.further
    stopped_early.stop(further, loss_fn=InterruptedAfter(stopped_early.run, further, take_up))
    assert account.entries()[0].steps_drawn == 2 * mark
    assert read_state(max(stopped_early.run.folder.glob("state-*"))).header["step"] == further
    assert stopped_early.refuses_another_engine()
