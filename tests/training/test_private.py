"""Loops of one's own: each lot once, in order, with noise, ledger and statement in step."""

import copy
import dataclasses
import inspect

import numpy as np
import pytest
import torch
from private_checks import cross_entropy, network, plan, records
from torch import Tensor, nn

import tacit
from tacit.core import Budget, BudgetExceededError, InputError, LedgerError, Neighbours, PrivacyUnit, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.gradients import ClippedSum
from tacit.ledger import Ledger, Reservation
from tacit.ledger.entries import EntryState
from tacit.training import Execution, FitResult, Private
from tacit.training import position as position_module
from tacit.training import private as private_module
from tacit.training.private import Lot


class Spy(Randomness):
    """Notes every key for noise that is asked for."""

    def __init__(self):
        super().__init__(unsafe_seed=5)
        self.noise_steps = []

    def noise_key(self, step):
        self.noise_steps.append(step)
        return super().noise_key(step)


def make(the_plan=None, *, model=None, loss_fn=cross_entropy, **options):
    model = model or network()
    options.setdefault("execution", Execution(preflight=False))
    return Private(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), the_plan or plan(), **options)


@pytest.fixture
def account(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5))
    return ledger.account("d")


def test_the_loop_of_the_interface():
    model = network(torch.float32)
    private = tacit.Private(model, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), plan())
    steps = 0
    for batch in private.batches(records(dtype=torch.float32)):
        private.step(batch)
        steps += 1
    assert steps == private.steps_done == 5
    statement = private.statement()
    assert statement.epsilon == plan().epsilon()
    assert statement.caveats == ()
    assert private.engine.startswith("bookkeeping, because")
    assert list(private.batches(records())) == []  # the plan is used up


def test_pitfall_15_a_loop_that_is_left_early_goes_on_where_it_stopped():
    spy = Spy()
    private = make(plan(steps=6), randomness=spy)
    for lot in private.batches(records()):
        if lot.step == 2:
            stale = lot
            break
        private.step(lot)
    assert private.steps_done == 2
    assert private.statement().mechanism.startswith("2 steps")
    assert spy.noise_steps == [0, 1]  # nothing was drawn for the lot that was left
    seen = []
    for lot in private.batches(records()):
        if lot.step == 2:
            np.testing.assert_array_equal(lot.unsafe_indices, stale.unsafe_indices)
            with pytest.raises(InputError, match=r"^batch of step 2: is not the one that private\.batches gave last"):
                private.step(stale)
        private.step(lot)
        seen.append(lot.step)
    assert seen == [2, 3, 4, 5]
    assert spy.noise_steps == list(range(6))
    assert private.statement() == plan(steps=6).statement(6, caveats=private.statement().caveats)


def test_pitfall_15_a_lot_is_taken_once():
    private = make()
    batches = private.batches(records())
    lot = next(batches)
    private.step(lot)
    before = [p.clone() for p in private.model.parameters()]
    with pytest.raises(InputError, match=r"^batch of step 0: is not the one .* for step 1\. Take every batch from"):
        private.step(lot)
    assert all(torch.equal(one, two) for one, two in zip(private.model.parameters(), before, strict=True))
    assert private.steps_done == 1


@pytest.mark.parametrize(
    "forge",
    [
        lambda lot, other: dataclasses.replace(lot),
        lambda lot, other: Lot(lot.step, lot.records, np.arange(3)),
        lambda lot, other: next(other.batches(records())),
        lambda lot, other: records(),
        lambda lot, other: None,
    ],
    ids=["copy", "chosen by hand", "of another run", "tensors", "nothing"],
)
def test_only_the_sampler_makes_lots(forge):
    private = make()
    lot = next(private.batches(records()))
    with pytest.raises(InputError, match=r"is not the one that private\.batches gave last"):
        private.step(forge(lot, make()))
    private.step(lot)


def test_a_lot_must_not_be_skipped():
    private = make()
    batches = private.batches(records())
    next(batches)
    with pytest.raises(InputError, match=r"^step 0: private\.step\(batch\) was not called for it"):
        next(batches)


def test_the_sum_comes_first_then_the_ledger_then_the_noise(monkeypatch):
    order = []

    class Watching(Reservation):
        def _mark_drawn(self, steps):
            order.append(f"ledger {steps}")

        def _close(self, steps):
            order.append(f"close {steps}")

    class Streams(Randomness):
        def stream(self, *path):
            order.append(path[0])
            return super().stream(*path)

        def noise_key(self, step):
            order.append("noise")
            return super().noise_key(step)

    def loss_fn(model, x, y):
        order.append("sum")
        return cross_entropy(model, x, y)

    monkeypatch.setattr(position_module, "unlimited", Watching)
    private = make(
        plan(steps=2),
        loss_fn=loss_fn,
        randomness=Streams(unsafe_seed=1),
        execution=Execution(preflight=False, engine="reference", chunk_size=3),
    )
    for lot in private.batches(records()):
        private.step(lot)
    steps = "|".join(order).split("sampling")[1:]
    assert len(steps) == 2
    for number, text in enumerate(steps, start=1):
        kinds = [kind for kind in text.split("|") if kind]
        place = kinds.index(f"ledger {number}")
        assert set(kinds[:place]) == {"sum"}
        assert kinds[place + 1 : place + 2] == ["noise"]
        assert kinds[place + 2 :] == (["close 2"] if number == 2 else [])


def test_a_ledger_that_cannot_be_written_stops_the_noise(monkeypatch):
    class Broken(Reservation):
        def _mark_drawn(self, steps):
            raise LedgerError("ledger: the disk is full.")

        def _close(self, steps):
            pass

    monkeypatch.setattr(position_module, "unlimited", Broken)
    spy = Spy()
    private = make(randomness=spy)
    before = [p.clone() for p in private.model.parameters()]
    with pytest.raises(LedgerError):
        private.step(next(private.batches(records())))
    assert spy.noise_steps == []
    assert all(torch.equal(one, two) for one, two in zip(private.model.parameters(), before, strict=True))
    assert private.statement().epsilon == 0


def test_an_error_in_the_loss_spends_nothing_and_the_step_can_be_tried_again(account):
    def loss_fn(model, x, y):
        if broken:
            raise RuntimeError("out of memory")
        return cross_entropy(model, x, y)

    broken = False
    private = make(loss_fn=loss_fn, account=account, run="r")
    batches = private.batches(records())
    private.step(next(batches))
    lot = next(batches)
    broken = True
    with pytest.raises(RuntimeError, match="out of memory"):
        private.step(lot)
    assert private.statement().mechanism.startswith("1 steps")
    broken = False
    private.step(lot)
    private.close()
    (entry,) = account.entries()
    assert entry.state is EntryState.COMMITTED
    assert account.spent() == pytest.approx(plan().epsilon(2), rel=1e-3)


def test_a_step_that_fails_after_its_noise_is_charged_and_cannot_be_repeated(account):
    private = make(account=account, run="r")
    lot = next(private.batches(records()))
    private.optimizer.step = lambda: (_ for _ in ()).throw(RuntimeError("optimizer"))
    with pytest.raises(RuntimeError, match="optimizer"):
        private.step(lot)
    assert private.steps_done == 0
    assert private.statement().mechanism.startswith("1 steps")
    with pytest.raises(LedgerError, match=r"^step=0: the next step to draw noise for is 1"):
        private.step(lot)
    private.close()
    assert account.spent() == pytest.approx(plan().epsilon(1), rel=1e-3)


def test_the_account_is_charged_for_what_was_drawn(account):
    with make(account=account, run="early") as private:
        for lot in private.batches(records()):
            private.step(lot)
            if private.steps_done == 3:
                break
    (entry,) = account.entries()
    assert entry.state is EntryState.COMMITTED
    assert entry.run == "early"
    assert account.spent() == pytest.approx(plan().epsilon(3), rel=1e-3)
    with pytest.raises(LedgerError, match="closed"):
        private.step(next(private.batches(records())))
    whole = make(account=account, run="whole")
    for lot in whole.batches(records()):
        whole.step(lot)
    assert [entry.state for entry in account.entries()] == [EntryState.COMMITTED] * 2
    whole.close()  # closing twice is no error


def test_a_run_that_drew_nothing_gives_everything_back(account):
    with make(account=account, run="none"):
        pass
    assert [entry.state for entry in account.entries()] == [EntryState.RELEASED]
    assert account.spent() == 0


def test_a_run_that_is_never_closed_counts_whole(account):
    private = make(account=account, run="lost")
    private.step(next(private.batches(records())))
    assert account.spent() == pytest.approx(plan().epsilon(), rel=1e-3)


def test_a_budget_that_is_too_small_refuses_before_anything_happens(tmp_path):
    account = Ledger.create(tmp_path / "l.db", dataset="d", budget=Budget(0.1, 1e-5)).account("d")
    with pytest.raises(BudgetExceededError, match=r"Nothing was spent"):
        make(account=account, run="r")
    assert account.entries() == []
    assert account.spent() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"neighbours": Neighbours.ZERO_OUT}, r"^neighbours='zero-out': the account of 'd' counts under 'add-remove'"),
        ({"unit": PrivacyUnit("user", 3), "accountant": "rdp"}, r"^unit='user \(up to 3 examples\)': the account of"),
    ],
)
def test_an_account_with_other_terms_refuses(account, changes, message):
    with pytest.raises(InputError, match=message):
        make(plan(**changes), account=account, run="r")
    assert account.entries() == []


def test_a_fixed_seed_is_a_caveat_of_the_statement():
    assert make(randomness=Randomness(unsafe_seed=0)).statement().caveats == (
        "its noise came from a fixed seed, so the guarantee is void",
    )
    assert "the guarantee is void" in str(make(randomness=Randomness(unsafe_seed=0)).statement())
    assert make(randomness=Randomness()).statement().caveats == ()


def test_a_copy_that_would_draw_the_same_noise_is_refused():
    with pytest.raises(UnsupportedError, match=r"^randomness: cannot be copied"):
        copy.deepcopy(make(randomness=Randomness()))


def test_the_model_is_not_wrapped():
    model = network()
    keys, kind, forward = list(model.state_dict()), type(model), model.forward.__func__
    private = make(model=model)
    for lot in private.batches(records()):
        private.step(lot)
    assert private.model is model
    assert type(model) is kind
    assert list(model.state_dict()) == keys
    assert model.forward.__func__ is forward
    assert not model._forward_hooks
    assert not model._backward_hooks


def test_gradients_after_a_step_are_the_noisy_mean():
    private = make(plan(steps=1))
    before = [p.detach().clone() for p in private.model.parameters()]
    private.step(next(private.batches(records())))
    for parameter, old in zip(private.model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old - 0.1 * parameter.grad, rtol=1e-12, atol=1e-15)


def test_gradients_of_the_last_step_are_gone_while_the_next_sum_is_taken():
    model, alive = network(), []

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        alive.append(any(parameter.grad is not None for parameter in model.parameters()))
        return cross_entropy(model, inputs, targets)

    private = Private(model, losses, torch.optim.SGD(model.parameters(), lr=0.1), plan())
    for lot, _ in zip(private.batches(records()), range(2), strict=False):
        private.step(lot)
        assert all(parameter.grad is not None for parameter in model.parameters())
    assert alive
    assert not any(alive)


def test_the_preflight_runs_once_and_its_refusal_spends_nothing(account, monkeypatch):
    calls = []
    monkeypatch.setattr(private_module, "preflight", lambda grad, *batch: calls.append(len(batch[0])))
    private = make(execution=Execution(), account=account, run="r")
    for lot in private.batches(records()):
        private.step(lot)
    assert len(calls) == 1

    def refuse(grad, *batch):
        raise UnsupportedError("model: mixes examples")

    monkeypatch.setattr(private_module, "preflight", refuse)
    with make(execution=Execution(), account=account, run="r") as private:
        lot = next(private.batches(records()))
        for _ in range(2):
            with pytest.raises(UnsupportedError):
                private.step(lot)
    assert [entry.state for entry in account.entries()] == [EntryState.COMMITTED, EntryState.RELEASED]


def test_pitfall_25_a_model_that_mixes_examples_is_refused_by_the_first_step():
    def loss_fn(model, x, y):
        return cross_entropy(model, x - x.mean(0), y)

    private = make(loss_fn=loss_fn, execution=Execution(engine="bookkeeping"))
    with pytest.raises(UnsupportedError, match="mixes examples"):
        private.step(next(private.batches(records())))
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).double()
    private = make(model=model, execution=Execution())
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(UnsupportedError, match=r"^1 \(BatchNorm1d\): .*replace_batchnorm"):
        private.step(next(private.batches(records())))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_bad_execution_is_refused():
    with pytest.raises(InputError, match=r"^chunk_size=0: must be at least 1"):
        Execution(chunk_size=0)
    with pytest.raises(InputError, match=r"^engine='fast': must be one of auto"):
        Execution(engine="fast")


def test_a_model_without_trainable_parameters_reserves_nothing(account):
    with pytest.raises(InputError, match="no trainable parameter"):
        Private(
            nn.Linear(8, 4).requires_grad_(False),
            cross_entropy,
            torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1),
            plan(),
            account=account,
        )
    assert account.entries() == []


PUBLIC_RESULTS = {
    FitResult: {"model", "statement", "steps", "stretches", "engine", "compile_seconds"},  # a program sees no record
    tacit.Statement: {
        *("epsilon", "delta", "neighbours", "unit", "mechanism", "sampler", "accountant", "caveats", "released"),
        "generator",
    },
    Lot: {"step", "records"},  # the records are the caller's own data set, whole
    ClippedSum: {"grads"},  # by contract what a mechanism must noise before anything leaves
}


@pytest.mark.parametrize("kind", PUBLIC_RESULTS)
def test_pitfall_35_results_carry_nothing_private_but_what_is_called_unsafe(kind):
    public = {field.name for field in dataclasses.fields(kind) if not field.name.startswith("unsafe_")}
    properties = {name for name, _ in inspect.getmembers(kind, lambda member: isinstance(member, property))}
    assert public | properties == PUBLIC_RESULTS[kind]


def test_pitfall_35_a_step_returns_nothing_and_private_holds_no_raw_tensor():
    private = make()
    lot = next(private.batches(records()))
    assert private.step(lot) is None
    held = [value for value in vars(private).values() if isinstance(value, Tensor | dict | list | np.ndarray)]
    assert held == []
    assert private._pending is None
