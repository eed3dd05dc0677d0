"""A run that is taken up while its process lives: one of the two goes on, and everything either drew is counted.

The second process works on a copy of the folder, as on another machine: the lock on the folder does not stop it.
"""

import os
import shutil

import pytest
import torch
from private_checks import cross_entropy, network, plan, records

from tacit.core import LedgerError
from tacit.ledger import EntryState, Ledger
from tacit.training import Checkpoint, Execution, fit, resume

STEPS, BLOCK, EVERY = 320, 5, 2
WAITS, GOES_ON = 3, 4  # the steps after which the first process waits for the second, and the second for the first


class Process:
    """A fork that trains; it stops after the steps named, and goes on when told to."""

    def __init__(self, folder, out, ledger, *, stops=(), **options):
        self._told, tell = os.pipe()
        wait, self._go = os.pipe()
        self._id = os.fork()
        if self._id == 0:
            os.close(self._told)
            os.close(self._go)  # so that it ends with the tests, should they fail
            status = 1
            try:
                _train(folder, out, ledger, stops, tell, wait, options)
                status = 0
            except LedgerError as error:
                (out / "refused").write_text(str(error))
                status = 2
            finally:
                os._exit(status)
        os.close(tell)
        os.close(wait)

    def until_stop(self):
        assert os.read(self._told, 1) == b"s"

    def go_on(self):
        os.write(self._go, b"g")

    def end(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self._id, 0)[1])
        os.close(self._told)
        os.close(self._go)
        return status


def _train(folder, out, ledger, stops, tell, wait, options):
    model = network()

    def look(step, current):
        gradient = torch.cat([p.grad.flatten() for p in current.parameters()])
        torch.save(gradient, out / f"{step}.part")
        os.replace(out / f"{step}.part", out / f"{step}.pt")
        if step in stops:
            os.write(tell, b"s")
            assert os.read(wait, 1) == b"g"

    fit(
        model,
        cross_entropy,
        records(),
        plan(steps=STEPS),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        account=Ledger.open(ledger).account("d"),
        execution=Execution(preflight=False),
        callbacks=[look],
        checkpoint=Checkpoint(folder, every=EVERY, **options),
    )


class Two:
    """The first process has drawn three steps and waits; the second takes the run up from its state after two."""

    def __init__(self, path):
        self.path, self.ledger = path, path / "ledger.db"
        self.account = Ledger.create(self.ledger, dataset="d", budget=None).account("d")
        self.out = [path / "one", path / "two"]
        for folder in self.out:
            folder.mkdir()
        self.first = Process(path / "saved", self.out[0], self.ledger, stops=(WAITS,))
        self.first.until_stop()
        shutil.copytree(path / "saved", path / "copy")

    def second(self, **options):
        return Process(self.path / "copy", self.out[1], self.ledger, resume=True, **options)

    def drew(self, which):
        found = {int(path.stem): torch.load(path, weights_only=True) for path in self.out[which].glob("*.pt")}
        return dict(sorted(found.items()))

    def refusal(self, which):
        return (self.out[which] / "refused").read_text()


@pytest.fixture
def two(tmp_path):
    return Two(tmp_path)


def test_the_second_goes_on_and_the_first_is_refused(two):
    second = two.second(stops=(GOES_ON,))
    second.until_stop()
    two.first.go_on()
    assert two.first.end() == 2
    assert two.refusal(0).startswith("reservation 1 was taken up by another process.")
    second.go_on()
    assert second.end() == 0
    one, again = two.drew(0), two.drew(1)
    assert max(one) <= BLOCK  # what it may have drawn before it looked is below its mark
    assert list(again) == list(range(EVERY + 1, STEPS + 1))
    assert all(torch.equal(one[step], again[step]) for step in one if step in again)
    assert [(entry.state, entry.steps_charged) for entry in two.account.entries()] == [(EntryState.COMMITTED, STEPS)]


def test_steps_drawn_afresh_beside_a_living_process_are_counted_on_top(two):
    second = two.second(redraw=True)
    assert second.end() == 0
    two.first.go_on()
    assert two.first.end() == 2
    assert "is closed in the ledger" in two.refusal(0)
    one, again = two.drew(0), two.drew(1)
    assert not any(torch.equal(one[step], again[step]) for step in one if step in again)
    stretches = [entry.steps_charged for entry in two.account.entries()]
    assert stretches == [BLOCK, STEPS - EVERY]
    assert len(one) <= stretches[0]
    assert len(again) == stretches[1]


def test_the_first_goes_on_where_it_is_ahead(two, monkeypatch):
    """It raises its mark after the second has looked at the ledger, and before that one draws."""
    explain = resume.explain

    def waiting(account, **facts):
        found = explain(account, **facts)
        two.first.go_on()
        assert two.first.end() == 0
        return found

    monkeypatch.setattr(resume, "explain", waiting)
    with pytest.raises(LedgerError, match=r"reservation 1: another process has drawn from it meanwhile|is committed"):
        _train(two.path / "copy", two.out[1], two.ledger, (), None, None, {"resume": True})
    assert two.drew(1) == {}
    assert [entry.steps_charged for entry in two.account.entries()] == [STEPS]
