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

from tacit.core import Budget, InputError, chacha, philox
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.mechanisms import step_noise
from tacit.training import Checkpoint, Execution, PrincipalComponents, fit, prepare, resume
from tacit.training.captured_step import CapturedStep
from tacit.training.run_header import Header

STEPS = 8
SAID = "the noise of its steps came from Philox, which is not cryptographic"


class CrashError(Exception):
    """The process could as well be gone."""


def fast(seed=7):
    return Randomness(unsafe_seed=seed, fast=True)


def noise_of_steps(randomness, steps=40):
    return torch.stack([flat(update) for update in updates(plan(steps=steps), randomness=randomness)])


def test_the_noise_has_its_scale_and_every_step_its_own():
    rows = noise_of_steps(fast())
    check_noise_scale(rows.flatten(), 1.5 * 0.5)
    check_uncorrelated(rows[:, :200])
    assert not torch.equal(rows, noise_of_steps(fast(8)))
    assert torch.equal(rows, noise_of_steps(fast()))


def test_planted_bug_one_key_for_all_steps_is_seen(monkeypatch):
    monkeypatch.setattr(Randomness, "noise_key", lambda self, step: bytes(32))
    with pytest.raises(AssertionError):
        check_uncorrelated(noise_of_steps(fast(), steps=4)[:, :200])


def test_planted_bug_noise_of_nine_tenths_is_seen(monkeypatch):
    add = step_noise.add_normal_

    def less(values, scale, key, nonce, *, fast):
        add(values, 0.9 * scale, key, nonce, fast=fast)

    monkeypatch.setattr(step_noise, "add_normal_", less)
    with pytest.raises(AssertionError):
        check_noise_scale(noise_of_steps(fast()).flatten(), 1.5 * 0.5)


@pytest.mark.parametrize("mode", [True, False])
def test_the_generator_that_the_statement_names_is_the_one_of_all_noise(monkeypatch, mode):
    drawn = {"Philox": 0, "ChaCha20": 0}

    def counted(name, write):
        def draw(*arguments):
            drawn[name] += 1
            write(*arguments)

        return draw

    monkeypatch.setattr(philox, "write_keystream", counted("Philox", philox.write_keystream))
    monkeypatch.setattr(chacha, "write_keystream", counted("ChaCha20", chacha.write_keystream))
    the_plan = plan(sampler="fixed-size")
    private = list(updates(the_plan, randomness=Randomness(unsafe_seed=7, fast=mode)))
    assert len(private) == the_plan.steps
    named, other = ("Philox", "ChaCha20") if mode else ("ChaCha20", "Philox")
    assert Randomness(fast=mode).generator == named
    assert drawn[named] >= 4 * the_plan.steps  # parameters
    assert drawn[other] <= (the_plan.steps if mode else 0)  # lots


def test_lots_and_all_streams_are_the_cipher_s():
    usual = Randomness(unsafe_seed=7)
    for step in range(20):
        lots = [plan().sampler.indices(step, 16, source).tolist() for source in (usual, fast())]
        assert lots[0] == lots[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", [True, False])
def test_on_a_gpu_captured_steps_draw_from_the_same_generator(monkeypatch, mode):
    """The noise of a step is that of the CPU, whichever way the step takes."""
    captured, prepare = [], CapturedStep.prepare

    def watched(*given):
        captured.append(prepare(*given))
        return captured[-1]

    monkeypatch.setattr(CapturedStep, "prepare", watched)

    def noise_on(device, execution):
        return [
            flat(update).cpu()
            for update in updates(
                plan(steps=20),
                model=network(torch.float32).to(device),
                data=records(dtype=torch.float32),
                execution=execution,
                randomness=Randomness(unsafe_seed=7, fast=mode),
            )
        ]

    found = noise_on("cuda", Execution(preflight=False, compile=True))
    expected = noise_on("cpu", Execution(preflight=False, compile=False))
    assert any(captured)
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-4, atol=1e-4)


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
    with pytest.raises(InputError, match="step 4: its sum is not what it was before"):
        train(tmp_path)


@pytest.mark.parametrize("changes", [{"fast_randomness": None}, {"fast_randomness": 1}, {}])
def test_a_checkpoint_without_its_mode_is_refused(changes):
    header = Header("r", 0, 0, (), "", 0, None, None, None, False, True, {})
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
