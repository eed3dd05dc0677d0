"""Killed with SIGKILL and resumed: the quick form of ``make torture``, and proof that its checks can fail."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tacit.benchmarking import torture

KILLS = 10


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("torture") / "torture.json"
    command = [sys.executable, "-m", "tacit.benchmarking.torture", "--kills", str(KILLS), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout) == json.loads(out.read_text())
    return json.loads(ended.stdout)


def test_killed_runs_lose_no_spending_and_never_reuse_noise(figures):
    assert figures["wrong"] == []
    assert figures["kills"] >= KILLS
    assert set(figures["runs"]) == set(torture.KINDS)


def test_the_boundaries_are_places_in_the_library():
    """A function that was renamed would never be arrived at, and its boundary never be killed at."""
    from tacit.ledger import Account
    from tacit.ledger.reservation import LedgerReservation, Reservation
    from tacit.mechanisms import StepNoise
    from tacit.training import checkpoint
    from tacit.training.update import Update
    from tacit.training.witness import Witness

    homes = (Account, LedgerReservation, Reservation, StepNoise, checkpoint.Store, Update, Witness)
    methods = {member.__qualname__ for home in homes for member in vars(home).values() if callable(member)}
    functions = {name for name, member in vars(checkpoint).items() if callable(member)}
    assert {qualname for qualname, _ in torture.BOUNDARIES.values()} <= methods | functions


def gradient(noise, total):
    return ((noise + total) / 4).astype(np.float64).tobytes()


def test_the_same_noise_on_two_sums_would_be_seen():
    numbers = 1010
    generator = np.random.default_rng(0)
    one, two = generator.normal(0, 4.0 * 0.5, (2, numbers))
    total = np.zeros(numbers)
    other = np.full(numbers, 4 / np.sqrt(numbers))  # as long as a sum of eight clipped gradients can be
    assert list(torture._same_or_far_apart({(1, gradient(one, total)), (1, gradient(two, other))})) == []
    assert list(torture._same_or_far_apart({(1, gradient(one, total)), (2, gradient(one, other))})) == []
    assert list(torture._same_or_far_apart({(1, gradient(one, total)), (1, gradient(one, other))})) == [
        "step 1: two different sums have the same noise"
    ]


class Forgetful(torture.Torture):
    """Checks a trial without killing anything."""

    def __init__(self):
        self.replayed_steps = self.redrawn_steps = 0
        self._reference = torture._work(None)


def finished(tmp_path, kind):
    trial = torture.Trial(tmp_path, kind)
    weights = torture._work(trial)
    (tmp_path / "weights").write_bytes(weights.numpy().tobytes())
    return trial


def test_what_is_wrong_with_a_trial_is_told(tmp_path):
    trial = finished(tmp_path, "seeded")
    assert list(Forgetful()._check(trial)) == []
    (trial.folder / "weights").write_bytes(b"others")
    (trial.checkpoint / "key").touch()
    observed = (trial.folder / "observed").read_bytes()
    extra = np.int64(3).tobytes() + np.random.default_rng(0).normal(0, 9, 1010).tobytes()
    (trial.folder / "observed").write_bytes(observed + extra)
    assert list(Forgetful()._check(trial)) == [
        "the key is still there",
        "13 noisy gradients were seen, and 12 steps are charged",
        "the weights are not those of the uninterrupted run",
    ]
