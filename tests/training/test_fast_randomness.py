"""Runs in the fast mode of randomness: right noise, a statement that tells, and a checkpoint that keeps to it."""

import dataclasses

import pytest
import torch
from private_checks import (
    check_noise_scale,
    check_uncorrelated,
    cross_entropy,
    flat,
    network,
    plan,
    records,
    updates,
)

from tacit.core import Budget, InputError
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.mechanisms import step_noise
from tacit.training import Checkpoint, Execution, PrincipalComponents, fit, prepare, resume
from tacit.training.run_header import Header

STEPS = 8
SAID = "random numbers came at least in part from Philox, which is not cryptographic"


class CrashError(Exception):
    """The process could as well be gone."""


def fast(seed=7):
    return Randomness(unsafe_seed=seed, fast=True)


@pytest.fixture
def gpu(monkeypatch):
    """The way of a GPU, on whatever is here; what the cipher drew is counted."""
    ciphered = []
    add = step_noise.add_normal_
    monkeypatch.setattr(step_noise, "_on_gpu", lambda sums: True)
    monkeypatch.setattr(step_noise, "add_normal_", lambda *given: ciphered.append(given) or add(*given))
    return ciphered


def noise_of_steps(randomness, steps=40):
    return torch.stack([flat(update) for update in updates(plan(steps=steps), randomness=randomness)])


def test_on_a_gpu_the_noise_has_its_scale_and_every_step_its_own(gpu):
    rows = noise_of_steps(fast())
    assert gpu == []
    check_noise_scale(rows.flatten(), 1.5 * 0.5)
    check_uncorrelated(rows[:, :200])
    assert not torch.equal(rows, noise_of_steps(fast(8)))
    assert torch.equal(rows, noise_of_steps(fast()))


def test_planted_bug_one_seed_for_all_steps_is_seen(gpu, monkeypatch):
    monkeypatch.setattr(Randomness, "fast_seed", lambda self, *path: 5)
    with pytest.raises(AssertionError):
        check_uncorrelated(noise_of_steps(fast(), steps=4)[:, :200])


def test_planted_bug_noise_that_is_scaled_by_the_number_of_tensors_is_seen(gpu, monkeypatch):
    add = step_noise.add_fast_normals_

    def halved(values, scales, seed):
        add(values, [scale / len(values) ** 0.5 for scale in scales], seed)

    monkeypatch.setattr(step_noise, "add_fast_normals_", halved)
    with pytest.raises(AssertionError):
        check_noise_scale(noise_of_steps(fast()).flatten(), 1.5 * 0.5)


def test_without_the_flag_a_gpu_has_the_cipher(gpu):
    noise_of_steps(Randomness(unsafe_seed=7), steps=2)
    assert len(gpu) == 2 * 4


def test_on_a_cpu_the_noise_is_the_cipher_s():
    """Where lots are equal, noise is: a fixed size needs no stream."""
    found = [
        flat(next(updates(plan(sampler="fixed-size"), randomness=Randomness(unsafe_seed=7, fast=mode))))
        for mode in (True, False)
    ]
    assert torch.equal(*found)


def train(folder, *, stop=None, redraw=False, randomness=None, account=None):
    model = network()

    def look(step, _):
        if step == stop:
            raise CrashError

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
        checkpoint=None if folder is None else Checkpoint(folder, every=3, resume=True, redraw=redraw),
    )


def crash(folder, **given):
    with pytest.raises(CrashError):
        train(folder, stop=5, **given)


def weights(result):
    return torch.cat([parameter.detach().flatten() for parameter in result.model.parameters()])


def test_the_statement_of_a_run_says_which_generator_was_used():
    told = train(None, randomness=Randomness(fast=True)).statement
    assert told.generator == "Philox"
    assert SAID in str(told)
    for usual in (None, Randomness()):
        silent = train(None, randomness=usual).statement
        assert (silent.generator, silent.caveats) == ("ChaCha20", ())
        assert dataclasses.replace(told, generator="ChaCha20") == silent


def test_a_crashed_run_goes_on_in_the_mode_that_it_began_in(tmp_path):
    crash(tmp_path / "fast", randomness=fast())
    resumed = train(tmp_path / "fast")
    assert SAID in str(resumed.statement)
    assert torch.equal(weights(resumed), weights(train(None, randomness=fast())))
    assert SAID in str(train(tmp_path / "fast").statement)  # once more when it is done and its key is gone


def test_a_run_that_began_with_the_cipher_does_not_become_fast(tmp_path):
    crash(tmp_path / "usual", randomness=Randomness(unsafe_seed=7))
    resumed = train(tmp_path / "usual", randomness=fast())
    assert resumed.statement.generator == "ChaCha20"
    assert torch.equal(weights(resumed), weights(train(None, randomness=Randomness(unsafe_seed=7))))


@pytest.mark.parametrize("seed", [None, 7])
def test_steps_drawn_again_are_drawn_in_the_same_mode(tmp_path, seed):
    account = Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(90.0, 1e-5)).account("d")
    crash(tmp_path / "run", randomness=Randomness(unsafe_seed=seed, fast=True), account=account)
    resumed = train(tmp_path / "run", redraw=True, account=account)
    assert resumed.steps > STEPS
    assert SAID in str(resumed.statement)


def test_planted_bug_a_resumed_run_that_forgets_its_mode_is_seen(tmp_path, monkeypatch):
    crash(tmp_path, randomness=fast())
    restore = Randomness.from_secret_key

    def forget(key, *, voids_guarantee, fast):
        return restore(key, voids_guarantee=voids_guarantee)

    monkeypatch.setattr(resume.Randomness, "from_secret_key", forget)
    with pytest.raises(InputError, match="step 3: its sum is not what it was before"):
        train(tmp_path)


@pytest.mark.parametrize("changes", [{"fast_randomness": None}, {"fast_randomness": 1}, {}])
def test_a_checkpoint_without_its_mode_is_refused(changes):
    header = Header("r", 0, 0, (), 0, None, None, None, False, True, {})
    values = header.to_json({})
    assert Header.from_json(values) == header
    del values["fast_randomness"]
    with pytest.raises(InputError, match="header of no known form"):
        Header.from_json({**values, **changes})


def test_preparations_whose_statement_cannot_tell_are_drawn_by_the_cipher():
    the_plan = plan(preparations=(PrincipalComponents(2, 1.0),))
    inputs = records()[0].float()
    found = [
        prepare(the_plan, inputs, randomness=Randomness(unsafe_seed=3, fast=mode))[0].directions
        for mode in (True, False)
    ]
    assert torch.equal(*found)
