"""Copies of one checkpoint's folder that are resumed side by side: each draws its own noise, or none."""

import shutil

import pytest
import torch
from test_resume import STEPS, Run, StopError

from tacit.core import LedgerError
from tacit.ledger import Account, EntryState, Ledger
from tacit.training import resume
from tacit.training.checkpoint import Saved, Store, read_state


@pytest.fixture
def account(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="d", budget=None).account("d")


@pytest.fixture
def runs(tmp_path, account):
    return [Run(tmp_path / name, account) for name in ("one", "two")]


def before_reserving(monkeypatch, act):
    """Does something once, when a process is about to reserve."""
    reserve, left = Account.reserve, [act]

    def late(self, *arguments, **options):
        if left:
            left.pop()()
        return reserve(self, *arguments, **options)

    monkeypatch.setattr(Account, "reserve", late)


def fail():
    raise StopError


def states(account):
    return [entry.state for entry in account.entries()]


def test_of_two_that_begin_with_one_key_the_second_draws_nothing(runs, account, monkeypatch):
    """Killed after the first state and before the reservation, copied, and resumed in both places at once."""
    one, two = runs
    secret = {"randomness": None}
    before_reserving(monkeypatch, fail)
    with pytest.raises(StopError):
        one(**secret)
    shutil.copytree(one.folder, two.folder)
    before_reserving(monkeypatch, lambda: one.crash(3, **secret))
    with pytest.raises(LedgerError, match=r"another process has begun it from a copy of the folder, as entry 1\. Let"):
        two(**secret)
    assert two.seen == []
    assert states(account) == [EntryState.RESERVED, EntryState.RELEASED]
    two(**secret)  # as the one that goes on with the first entry
    assert [entry.steps_charged for entry in account.entries()] == [STEPS, 0]
    for step in (1, 2, 3):
        assert torch.equal(one.gradients[step][0], two.gradients[step][0])


def test_two_that_draw_afresh_each_find_their_own_entry(runs, account, monkeypatch):
    """Both die before their first state names the entry; the entry of the other pays for other noise."""
    one, two = runs
    options = {"redraw": True, "every": 100, "randomness": None}
    one.crash(5, every=100, randomness=None)
    account.settle(account.entries()[0].id)
    shutil.copytree(one.folder, two.folder)
    before_reserving(monkeypatch, lambda: one.crash(2, **options))
    two.crash(3, **options)
    assert [entry.steps_drawn for entry in account.entries()] == [5, 2, 3]
    for each in (one, two):
        each(**{**options, "redraw": False})
    assert [entry.steps_charged for entry in account.entries()] == 3 * [STEPS]
    for step in range(1, STEPS + 1):
        assert not torch.equal(one.gradients[step][-1], two.gradients[step][-1])
    for again, step in ((one, 2), (two, 3)):
        assert torch.equal(*again.gradients[step][-2:])


def test_a_copy_from_before_the_steps_were_drawn_afresh_is_refused(runs, account):
    one, two = runs
    one.crash(5)
    shutil.copytree(one.folder, two.folder)
    one.crash(6, redraw=True)
    with pytest.raises(LedgerError, match="the ledger cannot explain it: entry 8 has drawn steps again since"):
        two(redraw=True)


def test_a_state_without_a_token_finds_its_entry(runs, account, monkeypatch):
    """As states and entries were before."""
    one, _ = runs
    with monkeypatch.context() as patch:
        patch.setattr(resume, "note_of", lambda run, stretch, _: f"checkpoint {run}/{stretch}")
        one.crash(5)
    saved = read_state(max(one.folder.glob("state-*")))
    header = {name: value for name, value in saved.header.items() if name != "token"}
    store = Store(one.folder, keep=3)
    store.write(0, header["step"], Saved(header, saved.tensors))
    store.close()
    one()
    assert one.seen == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    assert [(entry.steps_charged, entry.state) for entry in account.entries()] == [(STEPS, EntryState.COMMITTED)]
