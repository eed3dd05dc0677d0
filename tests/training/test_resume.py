"""Runs that stop and go on: the same weights to the last bit, the same cost, never the same noise on another sum."""

import shutil
import stat

import pytest
import torch
from private_checks import cross_entropy, network, plan, records
from torch import nn

from tacit.core import Budget, BudgetExceededError, InputError, LedgerError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.ledger import EntryState, Ledger
from tacit.training import Checkpoint, Execution, TrainingInterrupted, fit
from tacit.training.checkpoint import Store
from tacit.training.optimizers import NoiseCorrectedAdam
from tacit.training.views import Augmented
from tacit.training.witness import Witness

STEPS = 8


class StopError(Exception):
    """Stands for a crash: the process could as well be gone."""


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "noise-corrected adam": lambda p: NoiseCorrectedAdam(p, lr=0.1, noise_variance=0.01),
}
SCHEDULES = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=STEPS),
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=2),
}


class Run:
    """What is needed to start a run again, as a new process would; every call builds everything anew."""

    def __init__(self, folder, account=None):
        self.folder, self.account = folder, account
        self.seen: list[int] = []
        self.gradients: dict[int, list] = {}

    def __call__(self, *, stop=None, error=StopError, checkpoint=True, **changes):
        given = [name for name in ("every", "redraw", "resume", "keep", "canaries") if name in changes]
        options = {"every": 3, "resume": True, **{name: changes.pop(name) for name in given}}
        model = changes.pop("model", network)()
        optimizer = changes.pop("optimizer", OPTIMIZERS["momentum"])(model.parameters())
        schedule = changes.pop("schedule", SCHEDULES["lambda"])

        def look(step, current):
            self.seen.append(step)
            gradient = torch.cat([p.grad.flatten() for p in current.parameters()])
            self.gradients.setdefault(step, []).append(gradient)
            if step == stop:
                raise error

        arguments = {
            "loss_fn": cross_entropy,
            "train_set": records(),
            "plan": plan(steps=STEPS),
            "average_decay": 0.9,
            "randomness": Randomness(unsafe_seed=3),
            "account": self.account,
            "execution": Execution(preflight=False),
            **changes,
        }
        return fit(
            model,
            optimizer=optimizer,
            scheduler=None if schedule is None else schedule(optimizer),
            callbacks=[look],
            checkpoint=Checkpoint(self.folder, **options) if checkpoint else None,
            **arguments,
        )

    def crash(self, step, **changes):
        with pytest.raises(StopError):
            self(stop=step, **changes)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5))


@pytest.fixture
def account(ledger):
    return ledger.account("d")


@pytest.fixture
def run(tmp_path, account):
    return Run(tmp_path / "checkpoint", account)


def uninterrupted(tmp_path, **changes):
    return Run(tmp_path / "unused")(checkpoint=False, **changes)


def assert_same(one, two):
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, two.model.state_dict()[name])


def charged(account):
    return [entry.steps_charged for entry in account.entries()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_weights_to_the_last_bit_for_each_optimizer(tmp_path, name):
    run = Run(tmp_path / "checkpoint")
    changes = {"optimizer": OPTIMIZERS[name]}
    run.crash(2, **changes)
    run.crash(5, **changes)
    result = run(**changes)
    assert run.seen == [1, 2, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    assert_same(result, uninterrupted(tmp_path, **changes))
    assert all(torch.equal(each[0], again) for each in run.gradients.values() for again in each)


@pytest.mark.parametrize("schedule", [None, *SCHEDULES])
@pytest.mark.parametrize("decay", [None, 0.5])
def test_the_same_weights_for_each_schedule_and_average(tmp_path, schedule, decay):
    run = Run(tmp_path / "checkpoint")
    changes = {"schedule": schedule and SCHEDULES[schedule], "average_decay": decay}
    run.crash(5, **changes)
    assert_same(run(**changes), uninterrupted(tmp_path, **changes))


@pytest.mark.parametrize("sampler", ["poisson", "shuffled", "fixed-size", "truncated-poisson"])
def test_the_same_weights_for_each_sampler(tmp_path, sampler):
    run = Run(tmp_path / "checkpoint")
    changes = {"plan": plan(steps=STEPS, sampler=sampler)}
    run.crash(4, **changes)
    assert_same(run(**changes), uninterrupted(tmp_path, **changes))


def dropping():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4)).double()


def test_the_same_weights_with_dropout_whatever_torch_is_seeded_with(tmp_path):
    run = Run(tmp_path / "checkpoint")
    run.crash(5, model=dropping)
    result = run(model=lambda: (dropping(), torch.manual_seed(99))[0])
    assert_same(result, uninterrupted(tmp_path, model=dropping))


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("stop", range(1, STEPS + 1))
def test_the_cost_and_the_statement_are_the_uninterrupted_ones(tmp_path, run, account, every, stop):
    run.crash(stop, every=every)
    assert [entry.state for entry in account.entries()] == [EntryState.RESERVED]
    result = run(every=every)
    whole = uninterrupted(tmp_path)
    assert_same(result, whole)
    assert (result.statement, result.steps) == (whole.statement, STEPS)
    (entry,) = account.entries()
    assert (entry.state, entry.steps_charged) == (EntryState.COMMITTED, STEPS)
    assert account.spent() == pytest.approx(plan(steps=STEPS).epsilon())
    assert all(torch.equal(each[0], again) for each in run.gradients.values() for again in each)


def test_a_run_under_a_secret_key_replays_its_own_noise(run, account):
    run.crash(5, randomness=None)
    key = run.folder / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    run(randomness=None)
    assert not key.exists()
    assert not list(run.folder.glob("sums-*"))
    assert len(run.gradients[4]) == len(run.gradients[5]) == 2
    assert all(torch.equal(each[0], again) for each in run.gradients.values() for again in each)
    assert charged(account) == [STEPS]


@pytest.mark.parametrize(
    "execution", [Execution(), Execution(chunk_size=3), Execution(engine="functional"), Execution(compile=True)]
)
def test_a_run_under_a_secret_key_replays_its_own_masks(run, account, execution):
    changes = {"randomness": None, "execution": execution}
    run.crash(5, model=dropping, **changes)
    run(model=lambda: (dropping(), torch.manual_seed(99))[0], **changes)
    assert len(run.gradients[4]) == len(run.gradients[5]) == 2
    assert all(torch.equal(each[0], again) for each in run.gradients.values() for again in each)
    assert charged(account) == [STEPS]


def test_views_are_replayed_by_a_run_that_has_no_preflight_to_do_before_them(run, account):
    """The first run fetched records for its preflight in the first step, and the one that goes on in a later one."""
    views = Augmented(records(), lambda x, y: (x + 0.1 * torch.randn_like(x), y))
    changes = {"randomness": None, "execution": Execution(), "train_set": views}
    run.crash(5, **changes)
    run(**changes)
    assert len(run.gradients[4]) == len(run.gradients[5]) == 2
    assert all(torch.equal(each[0], again) for each in run.gradients.values() for again in each)
    assert charged(account) == [STEPS]


class Masks(nn.Dropout):
    """Dropout that keeps what it let through."""

    def forward(self, x):
        MASKS.append(super().forward(torch.ones_like(x)))
        return x * MASKS[-1]


MASKS: list[torch.Tensor] = []


def test_steps_that_are_drawn_again_have_other_masks(tmp_path, account):
    MASKS.clear()
    run = Run(tmp_path / "checkpoint", account)

    def model():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(8, 64), Masks(0.5), nn.Linear(64, 4)).double()

    changes = {"model": model, "randomness": None, "execution": Execution(engine="reference", preflight=False)}
    run.crash(5, **changes)
    before = {tuple(mask.flatten().tolist()) for mask in MASKS}
    MASKS.clear()
    run(redraw=True, **changes)
    assert before
    assert MASKS
    assert before.isdisjoint(tuple(mask.flatten().tolist()) for mask in MASKS)


def test_ctrl_c_in_a_callback_does_that_step_again(run, account):
    with pytest.raises(TrainingInterrupted):
        run(stop=5, error=KeyboardInterrupt)
    run()
    assert run.seen == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    assert charged(account) == [STEPS]


class Interrupting:
    """A loss that is interrupted when it is asked too often; how often is not part of what it does."""

    def __init__(self, limit):
        self.left = limit

    def __call__(self, model, x, y):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return cross_entropy(model, x, y)


def test_ctrl_c_before_the_noise_saves_the_step_and_any_machine_may_go_on(run, account):
    """Nothing was drawn after that state, so that nothing has to be proven of the machine."""
    reference = Execution(preflight=False, engine="reference")
    with pytest.raises(TrainingInterrupted):
        run(loss_fn=Interrupting(30), every=100, execution=reference)
    done = max(run.seen)
    assert 0 < done < STEPS
    result = run(loss_fn=Interrupting(10**9), every=100)
    assert run.seen == list(range(1, STEPS + 1))
    assert charged(account) == [STEPS]
    assert result.steps == STEPS


def test_a_crash_after_an_orderly_stop_is_a_crash(run, account):
    """The state of the orderly stop no longer says that nothing was drawn after it."""
    reference = Execution(preflight=False, engine="reference")
    with pytest.raises(TrainingInterrupted):
        run(loss_fn=Interrupting(30), every=100, execution=reference)
    run.crash(max(run.seen) + 2, loss_fn=Interrupting(10**9), every=100, execution=reference)
    with pytest.raises(UnsupportedError, match="versions, processor, threads or execution changed"):
        run(loss_fn=Interrupting(10**9), every=100)


def test_an_older_copy_of_an_orderly_stop_is_not_believed(tmp_path, run, account):
    """The run went on since, as the ledger's mark shows, so that another machine must not go on from the copy."""
    reference = Execution(preflight=False, engine="reference")
    with pytest.raises(TrainingInterrupted):
        run(loss_fn=Interrupting(30), every=100, execution=reference)
    shutil.copytree(run.folder, tmp_path / "copy")
    run.crash(max(run.seen) + 2, loss_fn=Interrupting(10**9), every=100, execution=reference)
    run.folder = tmp_path / "copy"
    with pytest.raises(UnsupportedError, match="versions, processor, threads or execution changed"):
        run(loss_fn=Interrupting(10**9), every=100)


def test_a_finished_run_is_given_back_and_costs_nothing(run, account):
    first = run()
    entries = account.entries()
    again = run()
    assert_same(first, again)
    assert again.statement == first.statement
    assert run.seen == list(range(1, STEPS + 1))
    assert account.entries() == entries


NOISY = plan(steps=STEPS, noise_multiplier=20.0)
SUMS_APART = 2 * 16 * 0.5  # at most, for two sums of sixteen clipped gradients
NOISE_APART = 20.0 * 0.5 * (2 * 212) ** 0.5  # about, for two draws on 212 numbers


def test_steps_whose_key_is_gone_are_drawn_again_and_counted_again(run, account):
    run.crash(5, plan=NOISY)
    (run.folder / "key").unlink()
    with pytest.raises(UnsupportedError, match=r"^checkpoint at step 3: .*key is gone\. .*the 2 steps that may"):
        run(plan=NOISY)
    assert charged(account) == [STEPS]
    result = run(plan=NOISY, redraw=True)
    assert charged(account) == [5, STEPS - 3]
    assert result.steps == STEPS + 2
    assert "2 steps were drawn again" in result.statement.caveats[-1]
    assert result.statement.epsilon == pytest.approx(NOISY.epsilon(STEPS + 2), rel=1e-3)
    assert result.statement.epsilon > NOISY.epsilon(STEPS + 1)
    for step in (4, 5):
        one, two = run.gradients[step]
        assert torch.linalg.vector_norm(one - two) * 8 == pytest.approx(NOISE_APART, rel=0.3)
    assert not (run.folder / "key").exists()


def test_a_run_may_draw_again_more_than_once(run, account):
    for stop in (4, 5, 8):
        run.crash(stop, redraw=True, randomness=None)
        (run.folder / "key").unlink(missing_ok=True)
    result = run(redraw=True, randomness=None)
    assert sum(charged(account)) == result.steps > STEPS
    assert [entry.state for entry in account.entries()] == [EntryState.COMMITTED] * 4
    # What each stretch was charged is what was seen of it.
    assert sum(map(len, run.gradients.values())) == result.steps


def test_a_shuffled_stretch_is_counted_as_a_run_of_its_own(run, account, ledger, tmp_path):
    """Two permutations of one epoch cost two epochs, where as many steps of one permutation cost one."""
    shuffled = plan(steps=STEPS, sampler="shuffled", expected_batch_size=4)  # four steps an epoch
    terms = {"neighbours": shuffled.neighbours, "budget": Budget(500.0, 1e-5)}
    run.account = Ledger.create(tmp_path / "other.db", dataset="d", **terms).account("d")
    run.crash(2, plan=shuffled, every=1)
    (run.folder / "key").unlink()
    result = run(plan=shuffled, every=1, redraw=True)
    assert charged(run.account) == [2, STEPS - 1]
    epochs = 1 + 2
    assert result.statement.epsilon == pytest.approx(shuffled.epsilon(4 * epochs), rel=1e-3)
    assert shuffled.epsilon(result.steps) == pytest.approx(shuffled.epsilon(4 * epochs))


def test_without_a_ledger_nobody_knows_what_was_drawn(tmp_path):
    run = Run(tmp_path / "checkpoint")
    run.crash(5)
    (run.folder / "key").unlink()
    with pytest.raises(UnsupportedError, match=r"Without a ledger nobody knows how many were drawn: start a new run"):
        run(redraw=True)


def changed_records():
    x, y = records()
    x = x.clone()
    x[3, 2] += 1e-9
    return x, y


OTHER = {
    "data": {"train_set": changed_records()},
    "plan": {"plan": plan(steps=STEPS, noise_multiplier=1.6)},
    "model": {"model": lambda: nn.Sequential(network(), nn.Identity())},
    "loss_fn": {"loss_fn": lambda m, x, y: 1 * cross_entropy(m, x, y)},
    "optimizer": {"optimizer": OPTIMIZERS["adam"]},
    "scheduler": {"schedule": SCHEDULES["cosine"]},
    "average_decay": {"average_decay": 0.5},
    "canaries": {"canaries": "a mark"},
}


@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("part", OTHER)
def test_another_run_is_refused_and_spends_nothing(run, account, part, redraw):
    run.crash(5)
    before, seen = account.entries(), list(run.seen)
    with pytest.raises(InputError, match=rf"^checkpoint: it is of another run, since {part} changed\. Resume"):
        run(redraw=redraw, **OTHER[part])
    assert account.entries() == before
    assert run.seen == seen
    run()  # and the run itself goes on


@pytest.mark.parametrize("mark", ["none", "a mark"])
def test_a_finished_run_still_knows_its_canaries_and_an_older_state_does_not_tell(tmp_path, mark):
    run = Run(tmp_path / "checkpoint")
    first = run(canaries=mark)
    with pytest.raises(InputError, match=r"since canaries changed\. .* What --canaries planted is kept"):
        run(canaries="another mark")
    assert_same(run(canaries=mark), first)
    store = Store(run.folder, keep=1)
    saved = store.newest()
    del saved.header["fingerprint"]["canaries"]
    store.write(0, STEPS, saved)
    store.close()
    assert_same(run(canaries=mark), first)


def test_one_record_more_or_less_is_another_data_set(run):
    run.crash(5)
    with pytest.raises(InputError, match="since data changed"):
        run(train_set=records(15))


def test_other_threads_or_engines_are_not_proven_to_round_alike(run, account):
    run.crash(5)
    with pytest.raises(UnsupportedError, match="versions, processor, threads or execution changed"):
        run(execution=Execution(preflight=False, engine="reference"))
    assert charged(account) == [STEPS]
    run(execution=Execution(preflight=False, engine="reference"), redraw=True)
    assert charged(account) == [5, STEPS - 3]


def wobbling(records_of_run):
    """An augmentation with a generator of its own that nobody saves."""
    generator = torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(0))))
    generator.seed()
    return Augmented(records_of_run, lambda x, y: (x + torch.randn(x.shape, generator=generator, dtype=x.dtype), y))


def test_randomness_out_of_control_is_found_by_the_witness_before_the_noise(run, account):
    run.crash(5, train_set=wobbling(records()))
    before = account.entries()
    with pytest.raises(InputError, match=r"^step 3: its sum is not what it was before .* redraw=True"):
        run(train_set=wobbling(records()))
    assert account.entries() == before
    assert len(run.gradients[4]) == 1
    run(train_set=wobbling(records()), redraw=True)
    assert charged(account) == [5, STEPS - 3]


def test_the_witness_is_what_finds_it(run, monkeypatch):
    """The bug planted: without the witness the same noise falls on another sum, and their difference has none."""
    monkeypatch.setattr(Witness, "__call__", lambda self, step, sums: None)
    run.crash(5, train_set=wobbling(records()), plan=NOISY)
    run(train_set=wobbling(records()), plan=NOISY)
    one, two = run.gradients[4]
    assert 0 < torch.linalg.vector_norm(one - two) * 8 <= SUMS_APART < NOISE_APART / 2


def test_a_ledger_that_counts_fewer_steps_is_refused(tmp_path, run, ledger):
    """An older copy of the ledger was put back."""
    run.crash(2, every=1)
    copy = tmp_path / "older.db"
    for suffix in ("", "-wal", "-shm"):
        if (tmp_path / f"ledger.db{suffix}").exists():
            shutil.copy(tmp_path / f"ledger.db{suffix}", f"{copy}{suffix}")
    run.crash(6, every=1)
    run.account = Ledger.open(copy).account("d")
    with pytest.raises(LedgerError, match=r"cannot explain it: entry 1 counts 2 steps, .* has done 5\. One of"):
        run(every=1, redraw=True)


def test_a_ledger_that_does_not_know_the_run_is_refused(tmp_path, run):
    run.crash(5)
    run.account = Ledger.create(tmp_path / "new.db", dataset="d", budget=Budget(50.0, 1e-5)).account("d")
    with pytest.raises(LedgerError, match=r"it has no entry for it, though the checkpoint names entry 1"):
        run(redraw=True)
    assert run.account.entries() == []
    run.account = None
    with pytest.raises(InputError, match=r"^account=None: the checkpoint's run spends from 'd'\. Resume it"):
        run()


def test_a_checkpoint_from_before_steps_were_drawn_again_is_refused(tmp_path, run, account):
    run.crash(5)
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    (run.folder / "key").unlink()
    run(redraw=True)
    run.folder, before = copy, account.entries()
    with pytest.raises(LedgerError, match=r"entry \d+ has drawn steps again since"):
        run(redraw=True)
    assert account.entries() == before


def test_a_damaged_state_falls_back_to_one_that_the_ledger_explains(tmp_path, run, account):
    run.crash(8)
    newest = max(run.folder.glob("state-*"))
    newest.write_bytes(newest.read_bytes()[:-5])
    result = run()
    assert run.seen == [*range(1, 9), *range(4, 9)]
    assert_same(result, uninterrupted(tmp_path))
    assert charged(account) == [STEPS]


def test_a_run_that_was_charged_whole_is_replayed_for_nothing(tmp_path, run, account, monkeypatch):
    """It was killed after its commit, and its last state is damaged."""
    with monkeypatch.context() as patch:
        patch.setattr(Store, "destroy_key", dying_once_committed(account, Store.destroy_key))
        with pytest.raises(StopError):
            run()
    assert [(entry.state, entry.steps_charged) for entry in account.entries()] == [(EntryState.COMMITTED, STEPS)]
    max(run.folder.glob("state-*")).unlink()
    entries = account.entries()
    assert_same(run(), uninterrupted(tmp_path))
    assert account.entries() == entries
    assert not (run.folder / "key").exists()


def dying_once_committed(account, destroy_key):
    def die(self):
        if any(entry.state is EntryState.COMMITTED for entry in account.entries()):
            raise StopError
        destroy_key(self)

    return die


def test_a_finished_run_without_its_last_state_is_not_drawn_again_unasked(run, account):
    run()
    max(run.folder.glob("state-*")).unlink()
    with pytest.raises(UnsupportedError, match="the run's key is gone"):
        run()
    assert charged(account) == [STEPS]


def test_a_folder_that_holds_a_run_is_not_overwritten(run, account):
    run.crash(5)
    with pytest.raises(InputError, match=r"already holds a run\. Resume it with resume=True \(--resume\), or choose"):
        run(resume=False)
    assert len(account.entries()) == 1


def test_a_refused_budget_leaves_nothing_behind(tmp_path):
    account = Ledger.create(tmp_path / "small.db", dataset="d", budget=Budget(0.1, 1e-5)).account("d")
    run = Run(tmp_path / "checkpoint", account)
    with pytest.raises(BudgetExceededError):
        run()
    assert [path.name for path in run.folder.iterdir()] == ["lock"]
    assert account.entries() == []


def test_a_budget_that_does_not_hold_the_steps_again_refuses_them(tmp_path):
    budget = Budget(plan(steps=STEPS).epsilon() * 1.001, 1e-5)
    account = Ledger.create(tmp_path / "small.db", dataset="d", budget=budget).account("d")
    run = Run(tmp_path / "checkpoint", account)
    run.crash(5)
    (run.folder / "key").unlink()
    for _ in range(2):
        with pytest.raises(BudgetExceededError):
            run(redraw=True)
    assert charged(account) == [5]
    assert account.spent() <= budget.epsilon


def test_a_model_that_cannot_be_trained_reserves_nothing(run, account):
    with pytest.raises(InputError, match="no trainable parameter"):
        run(model=lambda: network().requires_grad_(False))
    assert account.entries() == []


@pytest.mark.parametrize("bad", [{"every": 0}, {"keep": 0}])
def test_bad_settings_are_refused(tmp_path, bad):
    with pytest.raises(InputError, match=r"=0: must be at least 1"):
        Checkpoint(tmp_path, **bad)


def test_a_key_comes_back_as_the_same_streams():
    source = Randomness()
    again = Randomness.from_secret_key(source.export_secret_key(), voids_guarantee=False)
    assert source.device_key("noise", 3) == again.device_key("noise", 3)
    assert not again.voids_guarantee
    assert Randomness.from_secret_key(bytes(32), voids_guarantee=True).voids_guarantee
    with pytest.raises(InputError, match="key of 5 bytes: must have 32"):
        Randomness.from_secret_key(b"short", voids_guarantee=False)
