"""However an experiment ends, its folder states no less than may have been drawn, and no model beside less."""

import json
import math

import pytest
import torch
from dp_accounting import ComposedDpEvent
from private_checks import plan
from safetensors.torch import load_file

from tacit.core import Budget, BudgetExceededError, InputError, Neighbours, UnsupportedError
from tacit.datasets import DataSet, Split
from tacit.ledger import Ledger
from tacit.training import Checkpoint, Execution, Experiment, RunFolder, Settings, TrainingInterrupted, experiment

PLAN = plan(steps=40, noise_multiplier=3.0)


class CrashError(Exception):
    """What a callback fails with."""


def data(count=16):
    generator = torch.Generator().manual_seed(3)
    inputs, targets = torch.randn(count, 8, generator=generator), torch.arange(count) % 4
    return DataSet("d", Split(inputs, targets), Split(inputs[:8], targets[:8]), 4, (8,), "drawn here")


SETTINGS = Settings(model="linear", steps=40, batch_size=8, clip=0.5, optimizer="sgd", learning_rate=0.1)


def stop_at(error, step, model=0):
    """Progress that ends the run after a step of a model."""

    def progress(number, done, _):
        if (number, done) == (model, step):
            raise error

    return progress


def go_on(*_):
    """Progress that lets the run finish."""


class Runs:
    """Processes that work on one run, one after another."""

    def __init__(self, path, account=None):
        self.path, self.folder, self.account = path, path / "run", account

    def __call__(self, progress=go_on, *, resume=False, redraw=False, every=5, **changes):
        checkpoint = Checkpoint(self.path / "saved", every=every, resume=resume, redraw=redraw)
        values = {"dataset": data(), "settings": SETTINGS, "plan": PLAN, "account": self.account, **changes}
        values.setdefault("checkpoint", checkpoint)
        return Experiment(**values, folder=RunFolder.create(self.folder, "d", goes_on=resume)).run(progress)

    def fails(self, error, progress=go_on, **options):
        with pytest.raises(error):
            self(progress, **options)

    def interrupted(self, step, model=0, **options):
        self.fails(TrainingInterrupted, stop_at(KeyboardInterrupt, step, model), **options)

    @property
    def record(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def history(self):
        return [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]

    @property
    def epsilon(self):
        return self.record["statement"]["epsilon"]

    @property
    def has_model(self):
        return (self.folder / "model.safetensors").exists()

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture
def account(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5)).account("d")


@pytest.fixture(params=["no ledger", "ledger"])
def runs(request, tmp_path):
    return Runs(tmp_path, request.getfixturevalue("account") if request.param == "ledger" else None)


def together(*steps):
    """Epsilon of several models, each of so many steps."""
    event = ComposedDpEvent([PLAN.event(count) for count in steps])
    return PLAN.unit_accountant().epsilon(event, PLAN.delta, PLAN.neighbours)


def test_a_refused_resume_leaves_the_folder_as_it_was(runs):
    runs.interrupted(12)
    (runs.folder / "report.html").write_text("12 steps")
    before = runs.files()
    assert runs.epsilon == pytest.approx(PLAN.epsilon(12))
    assert runs.has_model
    runs.fails(InputError, resume=True, dataset=data(15))
    runs.fails(InputError, resume=True, plan=plan(steps=40, noise_multiplier=3.1))
    assert runs.files() == before


def test_a_refused_resume_leaves_no_folder_where_there_was_none(tmp_path):
    runs = Runs(tmp_path)
    runs.interrupted(12)
    runs.folder = tmp_path / "other"
    runs.fails(InputError, resume=True, dataset=data(15))
    runs.fails(InputError)  # the checkpoint's folder holds a run
    assert not runs.folder.exists()


def test_an_error_before_the_first_noise_of_a_resumed_run_changes_nothing(runs, monkeypatch):
    runs.interrupted(12)
    before = runs.files()
    monkeypatch.setattr("tacit.training.private.Private._sum", _failing)
    runs.fails(CrashError, resume=True)
    assert runs.files() == before


def test_an_error_before_any_noise_leaves_nothing(tmp_path, monkeypatch):
    runs = Runs(tmp_path)
    monkeypatch.setattr("tacit.training.private.Private._sum", _failing)
    runs.fails(CrashError, checkpoint=None)
    assert not runs.folder.exists()


def _failing(*_):
    raise CrashError


@pytest.mark.parametrize("saves", [True, False])
def test_a_crash_of_a_fresh_run_states_the_steps_that_drew(runs, saves):
    runs.fails(CrashError, stop_at(CrashError, 7), **({} if saves else {"checkpoint": None}))
    assert (runs.record["status"], runs.record["steps_done"]) == ("failed", 7)
    assert runs.epsilon == pytest.approx(PLAN.epsilon(7))
    assert "outcome of 7 steps" in runs.record["statement"]["sentence"]
    assert runs.record["epsilon_by_accountant"]["rdp"] > 0
    assert not runs.has_model


def test_a_step_that_fails_after_its_noise_counts(tmp_path, monkeypatch):
    runs = Runs(tmp_path)
    monkeypatch.setattr("tacit.training.private.Update.__call__", _failing)
    runs.fails(CrashError, checkpoint=None, execution=Execution(engine="reference"))
    assert runs.epsilon == pytest.approx(PLAN.epsilon(1))


@pytest.mark.parametrize("error", [CrashError, InputError("found in a later step")])
def test_a_crash_of_a_resumed_run_states_no_less_than_before(runs, error):
    """Also where the error is the library's own: noise was drawn before it."""
    runs.interrupted(12)
    before = runs.epsilon
    runs.fails((CrashError, InputError), stop_at(error, 14), resume=True)
    assert runs.record["status"] == "failed"
    assert not runs.has_model  # the old one would stand beside a statement that was not made for it
    if runs.account is None:
        assert runs.epsilon == PLAN.epsilon() > before
        assert "all steps are counted" in runs.record["statement"]["sentence"]
    else:
        assert PLAN.epsilon(14) == pytest.approx(runs.epsilon)
    runs(resume=True)
    assert runs.epsilon == PLAN.epsilon()
    assert runs.has_model


def test_steps_that_an_earlier_process_drew_count_while_they_are_replayed(runs):
    """A crash at step 14, with the last state at 10; the next process gets to 12 only."""
    runs.fails(CrashError, stop_at(CrashError, 14))
    before = runs.epsilon
    assert before == pytest.approx(PLAN.epsilon(14))
    for error in (CrashError, KeyboardInterrupt):
        runs.fails((CrashError, KeyboardInterrupt), stop_at(error, 12), resume=True)
        assert runs.epsilon >= before * (1 - 1e-9)


def test_a_crash_counts_what_was_drawn_again(tmp_path, account):
    runs = Runs(tmp_path, account)
    runs.fails(CrashError, stop_at(CrashError, 39), every=100)
    runs.fails(CrashError, stop_at(CrashError, 30), every=100, resume=True, redraw=True)
    assert runs.epsilon >= together(39, 30) * (1 - 1e-9) > PLAN.epsilon()
    assert runs.epsilon <= account.spent()


@pytest.fixture
def every_point(monkeypatch):
    """No point of the history is passed over because testing takes long."""
    monkeypatch.setattr(experiment, "_LOOKING_SHARE", math.inf)


def stretches(*steps, of=PLAN):
    """Epsilon of one model in stretches that each are a run of its own."""
    event = ComposedDpEvent([of.training_event(count) for count in steps])
    return of.unit_accountant().epsilon(event, of.delta, of.neighbours)


@pytest.mark.usefixtures("every_point")
def test_the_history_counts_again_what_was_drawn_again(tmp_path, account):
    """Crashes at step 14 and at step 22, with the last states at 10 and 20: 4 and 2 steps are drawn again."""
    runs, told = Runs(tmp_path, account), {}

    def listen(stop, *ends):
        def progress(_, step, epsilon):
            told.setdefault(ends, {})[step] = epsilon
            stop(0, step, epsilon)

        return progress

    runs.fails(CrashError, listen(stop_at(CrashError, 14)))
    runs.fails(CrashError, listen(stop_at(CrashError, 22), 14), resume=True, redraw=True)
    runs(listen(go_on, 14, 12), resume=True, redraw=True)
    starts = {(): 0, (14,): 10, (14, 12): 20}
    expected = {
        ends: {step: stretches(*ends, step - starts[ends]) for step in range(starts[ends] + 1, last + 1)}
        for ends, last in (((), 14), ((14,), 22), ((14, 12), 40))
    }
    assert told == {ends: pytest.approx(values) for ends, values in expected.items()}
    due = [  # a crash comes before the point of its step
        (step, value)
        for ends, crash in (((), 14), ((14,), 22), ((14, 12), None))
        for step, value in expected[ends].items()
        if step % 2 == 0 and step != crash
    ]
    assert [point["step"] for point in runs.history] == [step for step, _ in due]
    assert [point["epsilon"] for point in runs.history] == pytest.approx([value for _, value in due])
    assert runs.history[-1]["epsilon"] == runs.epsilon == pytest.approx(account.spent())
    assert runs.epsilon > PLAN.epsilon()


@pytest.mark.usefixtures("every_point")
def test_replayed_steps_cost_nothing_in_the_history(runs):
    runs.fails(CrashError, stop_at(CrashError, 14))
    runs(resume=True)
    epsilons = {point["step"]: point["epsilon"] for point in runs.history}
    assert epsilons == pytest.approx({step: PLAN.epsilon(step) for step in range(2, 41, 2)})


def test_each_stretch_of_a_shuffled_run_is_counted_as_a_run_of_its_own(tmp_path):
    """One step and three more begin three epochs, and four steps in one two; so it is in every figure of the record."""
    shuffled = plan(steps=4, noise_multiplier=3.0, sampler="shuffled", neighbours=Neighbours.ZERO_OUT)
    terms = {"budget": Budget(50.0, 1e-5), "neighbours": Neighbours.ZERO_OUT}
    runs = Runs(tmp_path, Ledger.create(tmp_path / "ledger.db", dataset="d", **terms).account("d"))
    options = {"plan": shuffled, "every": 1}
    runs.fails(CrashError, stop_at(CrashError, 1), **options)
    (tmp_path / "saved" / "0" / "key").unlink()
    runs(resume=True, redraw=True, **options)
    assert runs.epsilon == pytest.approx(stretches(1, 3, of=shuffled))
    assert runs.epsilon > shuffled.epsilon(4)
    assert runs.record["epsilon_by_accountant"]["rdp"] >= runs.epsilon * (1 - 1e-9)
    assert runs.history[-1]["epsilon"] == runs.epsilon


def test_an_interrupted_run_leaves_its_model_with_its_statement(runs):
    runs.interrupted(12)
    first = load_file(runs.folder / "model.safetensors")
    runs.interrupted(20, resume=True)
    second = load_file(runs.folder / "model.safetensors")
    assert runs.record["status"] == "interrupted"
    assert runs.record["steps_done"] == 20
    assert runs.epsilon == pytest.approx(PLAN.epsilon() if runs.account is None else PLAN.epsilon(20))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_an_interruption_before_the_first_noise_is_one_too(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    runs = Runs(tmp_path)
    monkeypatch.setattr(experiment, "loss_for", lambda _: interrupt)
    runs.fails(TrainingInterrupted, checkpoint=None, execution=Execution(preflight=False, engine="reference"))
    assert (runs.record["status"], runs.record["steps_done"], runs.epsilon) == ("interrupted", 0, 0)
    assert runs.has_model


def test_a_refused_budget_leaves_no_folder(tmp_path):
    runs = Runs(tmp_path, Ledger.create(tmp_path / "l.db", dataset="d", budget=Budget(0.01, 1e-5)).account("d"))
    runs.fails(BudgetExceededError)
    assert not runs.folder.exists()
    runs.fails(BudgetExceededError, resume=True)
    assert not runs.folder.exists()


def test_a_second_model_that_fails_is_counted_beside_the_first(runs):
    runs.fails(CrashError, stop_at(CrashError, 9, model=1), seeds=3)
    assert runs.record["status"] == "failed"
    assert runs.epsilon == PLAN.epsilon()
    assert runs.has_model
    assert "2 such models were trained on the same data" in runs.record["statement"]["sentence"]
    assert f"all of them has epsilon {together(40, 9):.4g}" in runs.record["statement"]["sentence"]


def test_a_second_model_that_drew_nothing_is_not_counted(tmp_path):
    """The budget holds one model; with ``resume`` each asks for its own."""
    book = Ledger.create(tmp_path / "l.db", dataset="d", budget=Budget(PLAN.epsilon() * 1.2, 1e-5))
    runs = Runs(tmp_path, book.account("d"))
    runs.fails(BudgetExceededError, resume=True, seeds=2)
    assert runs.record["status"] == "failed"
    assert runs.epsilon == PLAN.epsilon()
    assert "such models" not in runs.record["statement"]["sentence"]
    assert runs.has_model


def test_a_second_model_that_is_refused_changes_nothing(runs):
    runs.interrupted(9, model=1, seeds=2)
    before = runs.files()
    assert f"epsilon {together(40, 9):.4g}" in runs.record["statement"]["sentence"]
    (runs.path / "saved" / "1" / "key").unlink()
    runs.fails(UnsupportedError, resume=True, seeds=2)
    after = runs.files()
    assert {name: after[name] for name in ("run.json", "model.safetensors")} == {
        name: before[name] for name in ("run.json", "model.safetensors")
    }


def test_while_later_models_train_the_old_record_keeps_the_old_model(runs):
    """So that a process killed then leaves no finished model beside the statement of an unfinished one."""
    runs.interrupted(12, seeds=2)
    before = runs.files()
    seen = []

    def look(model, step, _):
        if (model, step) == (1, 1):
            seen.append({name: runs.files()[name] == before[name] for name in ("run.json", "model.safetensors")})

    runs(look, resume=True, seeds=2)
    assert seen == [{"run.json": True, "model.safetensors": True}]
    assert runs.record["status"] == "finished"


@pytest.mark.parametrize(("error", "status"), [(CrashError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_a_model_that_cannot_be_tested_is_there_and_counted(tmp_path, monkeypatch, error, status):
    def evaluate(*_):
        raise error

    runs = Runs(tmp_path)
    monkeypatch.setattr(experiment, "evaluate", evaluate)
    monkeypatch.setattr(experiment, "_LOOKING_SHARE", -1)
    runs.fails(error, checkpoint=None)
    assert (runs.record["status"], runs.record["steps_done"]) == (status, 40)
    assert runs.epsilon == PLAN.epsilon()
    assert runs.record["metrics"]["test_accuracy"] is None
    assert runs.has_model


@pytest.mark.parametrize("cut", ["write_run", "save_model"])
def test_a_cut_between_record_and_model_leaves_no_model(tmp_path, monkeypatch, cut):
    runs = Runs(tmp_path)
    runs.interrupted(12)
    (runs.folder / "report.html").write_text("12 steps")
    monkeypatch.setattr(RunFolder, cut, _failing)
    runs.fails(CrashError, resume=True)
    assert not runs.has_model
    assert not (runs.folder / "report.html").exists()
    assert runs.epsilon == pytest.approx(PLAN.epsilon(12) if cut == "write_run" else PLAN.epsilon())
