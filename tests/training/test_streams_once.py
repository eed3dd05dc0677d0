"""Every noise of every run, crash and resumption: a key and a nonce fall on one sum and no other.

The cipher's own calls are watched, below everything that could be wrong about keys, steps and stretches.
"""

import hashlib
from collections import defaultdict

import pytest
import torch
from private_checks import cross_entropy, network, plan, records

from tacit.core import Budget
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.mechanisms import step_noise
from tacit.training import Checkpoint, Execution, fit

STEPS, PARAMETERS = 8, 4


class CrashError(Exception):
    """The process could as well be gone."""


@pytest.fixture
def used(monkeypatch):
    """Where each pair of key and nonce was used: on which sums, by their digests."""
    found = defaultdict(list)
    add = step_noise.add_normal_

    def watch(values, scale, key, nonce):
        found[key.numpy().tobytes(), nonce].append(hashlib.sha256(values.numpy().tobytes()).hexdigest())
        add(values, scale, key, nonce)

    monkeypatch.setattr(step_noise, "add_normal_", watch)
    return found


@pytest.fixture
def paths(monkeypatch):
    """The paths that keys and streams were asked for, by what asked."""
    found = defaultdict(set)
    for name in ("device_key", "stream"):
        ask = getattr(Randomness, name)

        def watch(self, *path, ask=ask, name=name):
            found[name].add((self.export_secret_key(), path))
            return ask(self, *path)

        monkeypatch.setattr(Randomness, name, watch)
    numbered = Randomness.device_keys

    def watch_numbers(self, *path):
        ask = numbered(self, *path)

        def watched(number):
            found["device_key"].add((self.export_secret_key(), (*path, number)))
            return ask(number)

        return watched

    monkeypatch.setattr(Randomness, "device_keys", watch_numbers)
    return found


def train(tmp_path, *, stop=None, redraw=False, randomness=None, name="one"):
    model = network()
    account = Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(90.0, 1e-5)).account("d")

    def look(step, _):
        if step == stop:
            raise CrashError

    def go():
        return fit(
            model,
            cross_entropy,
            records(),
            plan(steps=STEPS),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            account=account,
            randomness=randomness,
            execution=Execution(preflight=False),
            callbacks=[look],
            checkpoint=Checkpoint(tmp_path / name, every=3, resume=True, redraw=redraw),
        )

    if stop is None:
        return go()
    with pytest.raises(CrashError):
        go()
    return None


def sums_of(used):
    return [set(sums) for sums in used.values()]


def test_a_run_uses_a_pair_for_each_step_and_parameter_once(tmp_path, used):
    train(tmp_path)
    assert len(used) == STEPS * PARAMETERS
    assert all(len(sums) == 1 for sums in used.values())
    keys, nonces = zip(*used, strict=True)
    assert len(set(keys)) == STEPS
    assert len(set(nonces)) == PARAMETERS


def test_two_runs_of_one_source_share_no_pair(tmp_path, used):
    source = Randomness()
    for name in ("one", "two"):
        train(tmp_path, randomness=source, name=name)
    assert len(used) == 2 * STEPS * PARAMETERS


def test_a_replay_uses_its_pairs_on_the_same_sums(tmp_path, used):
    train(tmp_path, stop=5)
    train(tmp_path, stop=7)
    train(tmp_path)
    assert len(used) == STEPS * PARAMETERS
    assert all(len(sums) == 1 for sums in sums_of(used))
    assert max(map(len, used.values())) == 2


def test_steps_drawn_again_have_pairs_of_their_own(tmp_path, used):
    train(tmp_path, stop=5, redraw=True)
    train(tmp_path, stop=7, redraw=True)
    result = train(tmp_path, redraw=True)
    assert len(used) == result.steps * PARAMETERS > STEPS * PARAMETERS
    assert all(len(sums) == 1 for sums in used.values())


def test_under_a_fixed_seed_too_a_stretch_has_pairs_of_its_own(tmp_path, used):
    seed = Randomness(unsafe_seed=5)
    train(tmp_path, stop=5, redraw=True, randomness=seed)
    result = train(tmp_path, redraw=True, randomness=seed)
    assert "fixed seed" in " ".join(result.statement.caveats)
    assert len(used) == result.steps * PARAMETERS
    assert all(len(sums) == 1 for sums in used.values())


def test_planted_bug_a_stretch_under_the_old_key_is_seen(tmp_path, used, monkeypatch):
    old = Randomness(unsafe_seed=5)
    train(tmp_path, stop=5, redraw=True, randomness=old)
    monkeypatch.setattr(Randomness, "from_secret_key", classmethod(lambda cls, key, voids_guarantee, fast: old))
    train(tmp_path, redraw=True, randomness=old)
    assert max(map(len, sums_of(used))) == 2


def test_keys_and_streams_of_a_run_are_asked_for_by_paths_that_no_two_purposes_share(tmp_path, paths):
    train(tmp_path, stop=5)
    train(tmp_path)
    (key,) = {key for key, _ in paths["device_key"] | paths["stream"]}  # one run, one secret
    noise = {("noise", step) for step in range(STEPS)}
    lots = {("sampling", "subset", step) for step in range(STEPS)}
    purposes = {path for _, path in paths["device_key"]}
    masks = {("torch", step) for step in range(STEPS)}
    assert purposes == noise | lots | masks | {("fingerprint",), ("witness",)}
    assert {path for _, path in paths["stream"]} == {("sampling", step) for step in range(STEPS)}
    assert len({Randomness.from_secret_key(key, voids_guarantee=False).device_key(*path) for path in purposes}) == len(
        purposes
    )
