"""The tanh filter's claim falls to every attack, and tacit's own accounts of it to none."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.accounting import tanh_filter_statements
from tacit.auditing import tanh_filter
from tacit.auditing.tanh_filter import TanhRun, records_in_one_run, worst_case_run, worst_case_step
from tacit.auditing.watching import contributions
from tacit.benchmarking import tanh_filter_audit
from tacit.clipping import Tanh
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.mechanisms import step_noise

PUBLISHED, SOUND = Tanh(), Tanh(bound=1.0)
NUMBERS = 400


def small(rule, **changes):
    """The paper's noise, and a higher rate for fewer steps; what is claimed for it is much the same."""
    return TanhRun(rule, NUMBERS, **{"batch_size": 1, "examples": 60, "steps": 160, **changes})


def claims(run):
    return tanh_filter_statements(
        sampling_rate=run.batch_size / run.examples,
        noise_std=run.noise_std,
        steps=run.steps,
        delta=run.delta,
        numbers=run.numbers,
    )


def source(seed=1):
    return Randomness(unsafe_seed=seed)


def test_the_papers_setting():
    """Table I of the paper: noise 1.1, delta 1e-5, minibatch 256, sampling rate 0.427 % for MNIST; 15 epochs."""
    run = TanhRun(PUBLISHED, 26_010)
    assert run.sensitivity == pytest.approx(math.sqrt(26_010))
    assert run.mechanism().scale == pytest.approx(1.1)
    assert run.plan().sampling_rate == pytest.approx(0.00427, rel=1e-3)
    assert run.steps == math.ceil(15 * 60_000 / 256)
    assert TanhRun(SOUND, 26_010).plan().noise_multiplier == pytest.approx(1.1)
    assert claims(run).claimed.epsilon == pytest.approx(1.281, abs=1e-3)


def test_the_worst_case_moves_the_sum_by_all_of_the_sensitivity():
    for rule, shift in ((PUBLISHED, math.sqrt(NUMBERS)), (Tanh(0.5, 2.0, bound=3.0), 3.0)):
        plan = small(rule, batch_size=1, examples=1, steps=100).plan()
        signs = torch.ones(NUMBERS)
        found = tanh_filter._projections(plan, signs, signs[None], source())
        assert np.mean(found) == pytest.approx(shift, abs=6 * 1.1 / math.sqrt(100))
        assert np.std(found) == pytest.approx(1.1, rel=0.4)


def test_a_worst_case_step_gives_more_away_than_is_claimed_and_the_sound_variant_does_not():
    run = small(PUBLISHED)
    bound, said = worst_case_step(run, 500, randomness=source()), claims(run.one_step())
    assert said.claimed.epsilon < bound.epsilon <= said.actual.epsilon
    sound = worst_case_step(small(SOUND), 200, randomness=source())
    assert 0 < sound.epsilon <= said.sound.epsilon


def test_worst_case_runs_give_more_away_than_is_claimed_and_those_of_the_sound_variant_do_not():
    run = small(PUBLISHED)
    bound, said = worst_case_run(run, 8000, randomness=source()), claims(run)
    assert said.claimed.epsilon < bound.epsilon <= said.actual.epsilon
    sound = worst_case_run(small(SOUND), 8000, randomness=source())
    assert 0 < sound.epsilon <= said.sound.epsilon


def test_the_sound_account_is_not_exceeded_beyond_what_the_confidence_allows():
    """A one-step run of everyone, where Clopper-Pearson comes closest to the truth."""
    run, repetitions = small(SOUND).one_step(), 40
    true = claims(run).sound.epsilon
    found = [worst_case_run(run, 160, randomness=source(seed)).epsilon for seed in range(repetitions)]
    assert sum(epsilon > true for epsilon in found) <= 0.05 * repetitions
    assert np.median(found) > 0


def small_problem():
    """Records that a linear model has wrong, so that their gradients are long, as those of mislabelled digits are."""
    generator = torch.Generator().manual_seed(3)
    inputs = 3 * torch.randn(200, 39, generator=generator)
    model = nn.Linear(39, 10)
    with torch.no_grad():
        model.weight.copy_(torch.randn(10, 39, generator=generator))
    return model, (inputs, (model(inputs).argmax(1) + 1) % 10)


def loss(model, inputs, targets):
    return F.cross_entropy(model(inputs), targets, reduction="none")


def test_real_records_give_more_away_than_is_claimed_and_not_if_their_norms_are_bounded():
    model, records = small_problem()
    before = model.weight.clone()
    run = small(PUBLISHED)
    bound, said = records_in_one_run(run, model, loss, records, randomness=source()), claims(run)
    assert said.claimed.epsilon < bound.epsilon <= said.actual.epsilon
    sound = records_in_one_run(small(SOUND), model, loss, records, randomness=source())
    assert sound.epsilon <= said.sound.epsilon
    assert torch.equal(model.weight, before)


def test_contributions_are_filtered_gradients():
    model, records = small_problem()
    found = contributions(model, loss, Tanh(2.0, 3.0), tuple(column[:5] for column in records))
    for row, x, y in zip(found, *records, strict=False):
        grads = torch.autograd.grad(loss(model, x[None], y[None])[0], list(model.parameters()))
        expected = 2.0 * torch.tanh(torch.cat([g.flatten() for g in grads]) / 3.0)
        np.testing.assert_allclose(row, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_sound_variant_without_noise_is_caught(monkeypatch):
    real = step_noise.add_normal_
    monkeypatch.setattr(
        step_noise, "add_normal_", lambda values, scale, key, nonce: real(values, 0.01 * scale, key, nonce)
    )
    run = small(SOUND)
    assert worst_case_step(run, 500, randomness=source()).epsilon > claims(run.one_step()).sound.epsilon


def test_what_does_not_fit_is_refused():
    model, records = small_problem()
    with pytest.raises(InputError, match="numbers=399: must be the 400"):
        records_in_one_run(TanhRun(PUBLISHED, 399), model, loss, records)
    with pytest.raises(InputError, match="draws=7: must be at least 8"):
        worst_case_step(small(PUBLISHED), 7)
    with pytest.raises(InputError, match="runs=0: must be at least 8"):
        worst_case_run(small(PUBLISHED), 0)


def test_the_command_writes_claimed_true_and_audited_epsilons(tmp_path, capsys):
    out = tmp_path / "audit" / "tanh.json"
    arguments = ["--draws", "60", "--runs", "600", "--records", "0"]
    assert tanh_filter_audit.main([*arguments, "--out", str(out)]) == 0
    assert capsys.readouterr() == ("", f"{out}\n")
    written = json.loads(out.read_text())
    assert written["effort"] == {"draws": 60, "runs": 600, "records": 0}
    assert tanh_filter_audit.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["effort"] == written["effort"]
    rows = {(row["experiment"], row["setting"]): row for row in written["rows"]}
    assert len(rows) == 4
    for (_, setting), row in rows.items():
        assert row["epsilon_lower"] <= row["largest"]
        assert row["epsilon_true"] > row["epsilon_claimed"] or setting == "sound"
    assert rows["worst-case gradient, whole runs", "published"]["exceeds_claim"]


def test_the_command_refuses_in_a_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert tanh_filter_audit.main(["--out", str(tmp_path / "file" / "tanh.json")]) == 2
    assert tanh_filter_audit.main(["--draws", "7", "--records", "0"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert [part in told.err for part in ("cannot be written", "draws=7: must be at least 8")] == [True, True]


def test_rows_of_real_records(monkeypatch):
    model, (inputs, targets) = small_problem()
    effort = tanh_filter_audit.Effort(records=40)
    monkeypatch.setattr(tanh_filter_audit, "TanhRun", lambda rule, numbers: small(rule, steps=20))
    rows = list(tanh_filter_audit.real_records(effort, model, Split(inputs, targets), 10))
    assert [(row["experiment"].split()[4], row["setting"]) for row in rows] == [
        *(("own", "published"), ("own", "sound")),
        *(("wrong", "published"), ("wrong", "sound")),
    ]
    assert all("40 canaries" in row["method"] for row in rows)
