"""Whole runs: equal to a loop of one's own, with any optimizer, and with a ledger that is right however they end."""

import math

import pytest
import torch
from private_checks import cross_entropy, network, plan, records
from torch import nn

import tacit
from tacit.core import Budget, BudgetExceededError, InputError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.ledger.entries import EntryState
from tacit.training import Execution, NoiseCorrectedAdam, Private, TrainingInterrupted, WeightAverage, fit


@pytest.fixture
def account(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5)).account("d")


def run(the_plan=None, *, model=None, optimizer=None, data=None, **options):
    model = model or network()
    options.setdefault("randomness", Randomness(unsafe_seed=4))
    return fit(
        model,
        options.pop("loss_fn", cross_entropy),
        records() if data is None else data,
        the_plan or plan(),
        optimizer=optimizer(model.parameters()) if optimizer else torch.optim.SGD(model.parameters(), lr=0.1),
        **options,
    )


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "noise-corrected adam": lambda p: NoiseCorrectedAdam(p, lr=0.01, noise_variance=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fit_is_the_loop_of_ones_own(name):
    fitted = run(optimizer=OPTIMIZERS[name]).model
    model = network()
    private = Private(
        model, cross_entropy, OPTIMIZERS[name](model.parameters()), plan(), randomness=Randomness(unsafe_seed=4)
    )
    for batch in private.batches(records()):
        private.step(batch)
    assert torch.equal(weights(fitted), weights(model))
    assert not torch.equal(weights(fitted), weights(network()))
    assert bool(weights(model).isfinite().all())


def test_the_result():
    model = network()
    result = tacit.fit(model, cross_entropy, records(), plan(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert result.model is model
    assert result.steps == 5
    assert result.statement == plan().statement()
    assert result.engine.startswith("bookkeeping, because")


@pytest.mark.parametrize(
    "execution",
    [Execution(chunk_size=2), Execution(chunk_size=3, pad_chunks=True), Execution(engine="functional")],
    ids=str,
)
def test_execution_does_not_change_the_result(execution):
    """The same seed under other chunks and engines: the same lots and the same noise, to rounding."""
    torch.testing.assert_close(weights(run(execution=execution).model), weights(run().model), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sampler", ["poisson", "truncated-poisson", "fixed-size", "shuffled"])
def test_every_sampler_trains(sampler):
    result = run(plan(sampler=sampler))
    assert result.steps == 5
    assert 0 < result.statement.epsilon < math.inf
    assert result.statement.sampler == plan(sampler=sampler).sampler.describe()


def test_a_public_size_must_be_the_real_one():
    with pytest.raises(InputError, match=r"^examples=15: must be the declared 16"):
        run(plan(sampler="shuffled"), data=records(15))


def test_a_schedule_is_stepped_after_every_step():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rates = []
    fit(
        model,
        cross_entropy,
        records(),
        plan(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
        callbacks=[lambda step, _: rates.append(optimizer.param_groups[0]["lr"])],
    )
    assert rates == [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_callbacks_see_every_step_and_the_model():
    seen = []
    result = run(callbacks=[lambda step, model: seen.append((step, model))] * 2)
    assert [step for step, _ in seen] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert all(model is result.model for _, model in seen)


def test_averaged_weights_are_the_models_in_the_end():
    trail = []
    plain = run(callbacks=[lambda _, model: trail.append(weights(model).clone())]).model
    averaged = run(average_decay=0.5).model
    expected = weights(network())
    for t, now in enumerate(trail):
        decay = min(0.5, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * now
    torch.testing.assert_close(weights(averaged), expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(weights(averaged), weights(plain))


def test_callbacks_see_the_averaged_weights_and_change_nothing():
    seen = []
    shown = run(average_decay=0.5, callbacks=[lambda _, model: seen.append(weights(model).clone())] * 2).model
    for step in (1, 3, 5):
        ended_there = run(plan(steps=step), average_decay=0.5).model
        assert all(torch.equal(one, weights(ended_there)) for one in seen[2 * step - 2 : 2 * step])
    assert torch.equal(weights(shown), weights(run(average_decay=0.5).model))


def test_a_callback_that_fails_leaves_the_models_own_weights():
    model, average = network(), WeightAverage(network(), 0.5)
    with torch.no_grad():
        model[0].weight += 1.0
    before = weights(model).clone()

    def fails():
        with average.shown_by(model):
            assert not torch.equal(weights(model), before)
            raise ValueError("of the callback")

    with pytest.raises(ValueError, match="of the callback"):
        fails()
    assert torch.equal(weights(model), before)


def test_the_average_leaves_frozen_parameters_and_buffers_alone():
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4).eval()).double()
    model[0].weight.requires_grad_(False)
    average = WeightAverage(model, 0.9)
    assert set(average.weights) == {"0.bias", "1.weight", "1.bias"}
    with torch.no_grad():
        model[0].bias.fill_(3.0)
    average.update(model)
    assert float(model[0].bias.detach()[0]) == 3.0  # an update reads, and only copy_to writes
    for _ in range(200):
        average.update(model)
    average.copy_to(model)
    torch.testing.assert_close(model[0].bias.detach(), torch.full((4,), 3.0, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, math.nan])
def test_a_bad_decay_is_refused_and_reserves_nothing(decay, account):
    with pytest.raises(InputError, match=r"^decay="):
        run(average_decay=decay, account=account, run="r")
    assert account.entries() == []


def test_a_budget_that_is_too_small_spends_nothing_and_trains_nothing(tmp_path):
    account = Ledger.create(tmp_path / "l.db", dataset="d", budget=Budget(0.5, 1e-5)).account("d")
    model = network()
    with pytest.raises(BudgetExceededError):
        run(model=model, account=account, run="r")
    assert account.entries() == []
    assert torch.equal(weights(model), weights(network()))


def test_a_finished_run_is_charged_whole(account):
    result = run(account=account, run="r")
    (entry,) = account.entries()
    assert (entry.state, entry.run) == (EntryState.COMMITTED, "r")
    assert account.spent() == pytest.approx(result.statement.epsilon, rel=1e-3)


def interrupt_at(step):
    def callback(done, model):
        if done == step:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("step", [1, 3, 5])
def test_ctrl_c_keeps_what_was_spent_and_hands_over_the_model(account, step):
    model = network()
    with pytest.raises(TrainingInterrupted, match=rf"^interrupted after {step} steps") as caught:
        run(model=model, account=account, run="r", callbacks=[interrupt_at(step)])
    result = caught.value.result
    assert isinstance(caught.value, KeyboardInterrupt)
    assert result.model is model
    assert result.steps == step
    assert result.statement.mechanism.startswith(f"{step} steps of DP-SGD")
    assert result.statement.epsilon == plan().epsilon(step)
    (entry,) = account.entries()
    assert entry.state is EntryState.COMMITTED
    assert account.spent() == pytest.approx(plan().epsilon(step), rel=1e-3)


def test_ctrl_c_between_noise_and_update_counts_the_step(account):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []

    def interrupted_step(closure=None):
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt

    optimizer.step = interrupted_step
    with pytest.raises(TrainingInterrupted) as caught:
        fit(model, cross_entropy, records(), plan(), optimizer=optimizer, account=account, run="r")
    assert caught.value.result.steps == 3
    assert caught.value.result.statement.epsilon == plan().epsilon(3)
    assert account.spent() == pytest.approx(plan().epsilon(3), rel=1e-3)


def test_ctrl_c_with_an_average_hands_over_the_average():
    with pytest.raises(TrainingInterrupted) as caught:
        run(average_decay=0.5, callbacks=[interrupt_at(2)])
    whole = run(plan(steps=2), average_decay=0.5)
    assert torch.equal(weights(caught.value.result.model), weights(whole.model))


@pytest.mark.parametrize("place", ["loss", "callback"])
def test_an_error_leaves_the_ledger_with_exactly_what_began(account, place):
    calls = []

    def loss_fn(model, x, y):
        if place == "loss" and len(calls) == 2:
            raise RuntimeError("broken")
        return cross_entropy(model, x, y)

    def callback(step, model):
        calls.append(step)
        if place == "callback" and step == 2:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run(loss_fn=loss_fn, callbacks=[callback], account=account, run="r")
    (entry,) = account.entries()
    assert entry.state is EntryState.COMMITTED
    assert account.spent() == pytest.approx(plan().epsilon(2), rel=1e-3)


def test_a_data_set_that_is_refused_gives_the_budget_back(account):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*records()))
    with pytest.raises(UnsupportedError, match=r"^train_set=DataLoader"):
        run(data=loader, account=account, run="r")
    assert [entry.state for entry in account.entries()] == [EntryState.RELEASED]
    assert account.spent() == 0


def test_without_a_seed_no_two_runs_are_alike():
    source = Randomness()
    ends = {float(weights(run(randomness=randomness).model)[0]) for randomness in (None, None, source, source)}
    assert len(ends) == 4


def test_training_learns():
    """Enough records and steps: private training ends well below the loss that it started from."""
    torch.manual_seed(2)
    x = torch.randn(400, 8, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    model = network()
    before = float(cross_entropy(model, x, y).detach().mean())
    the_plan = plan(examples=400, expected_batch_size=100, steps=60, clipping=tacit.clipping.Flat(1.0), epsilon=8.0)
    run(the_plan, model=model, data=(x, y), optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
    assert float(cross_entropy(model, x, y).detach().mean()) < 0.5 * before
