"""Shadow models: fair coins, one ensemble, and the whole attack on models that remember and on models that cannot."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.auditing.attacks import ATTACKS, attack_each
from tacit.auditing.ceilings import Ceiling
from tacit.auditing.shadows import fair_memberships, observe, train_plain, train_private
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.training.ensemble import Fitting

RECORDS, MODELS, INPUTS, CLASSES = 240, 12, 20, 4
SEEDED = Randomness(unsafe_seed=5)
OVERFITTED = Fitting(steps=150, batch_size=64, learning_rate=2e-2, weight_decay=0.0)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, CLASSES))


@pytest.fixture(scope="module")
def pool() -> Split:
    """Labels that nothing explains: what a model knows about them, it remembers."""
    generator = torch.Generator().manual_seed(0)
    return Split(
        torch.randn(RECORDS, INPUTS, generator=generator), torch.randint(0, CLASSES, (RECORDS,), generator=generator)
    )


@pytest.fixture(scope="module")
def member() -> np.ndarray:
    return fair_memberships(MODELS, RECORDS, SEEDED, "test")


def test_coins_are_fair_and_of_their_own():
    drawn = fair_memberships(64, 2000, SEEDED, "many")
    assert abs(drawn.mean() - 0.5) < 5 * 0.5 / np.sqrt(drawn.size)
    among_models = np.corrcoef(drawn)[np.triu_indices(64, 1)]
    assert np.abs(among_models).max() < 6 / np.sqrt(2000)
    assert len(set(drawn.sum(axis=0).tolist())) > 5  # not exactly half of the models
    assert not np.array_equal(drawn, fair_memberships(64, 2000, SEEDED, "other"))


def test_overfitted_models_are_caught(pool, member):
    seen = observe(train_plain(build, pool, member, OVERFITTED), pool, member)
    assert seen.confidence.shape == (MODELS, 1, RECORDS)
    for name in ("loss", "calibrated-loss", "lira-online-fixed", "lira-offline-fixed"):
        assert attack_each(seen, ATTACKS[name]).auc().low > 0.8, name
    assert attack_each(seen, ATTACKS["lira-online-fixed"]).tpr_at(0.01).tpr.low > 0.15


def test_plain_models_do_not_depend_on_the_number_of_threads(pool, member, monkeypatch):
    found = []
    for threads in (1, 2):
        monkeypatch.setattr("tacit.training.side_by_side.threads_worth", lambda *_, threads=threads, **__: threads)
        found.append(train_plain(build, pool, member[:5], Fitting(steps=6))(pool.inputs))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_models_that_were_trained_on_others_are_not_accused(pool, member):
    """The same attack, where the membership that is asked for decided about nothing."""
    answers = train_plain(build, pool, member, OVERFITTED)
    unrelated = fair_memberships(MODELS, RECORDS, SEEDED, "unrelated")
    for attack in ATTACKS.values():
        area = attack_each(observe(answers, pool, unrelated), attack).auc(confidence=0.9999)
        assert area.low <= 0.5 <= area.high


def test_private_models_stay_under_their_ceiling_and_noise_free_ones_do_not(pool, member):
    """One planted bug, no noise at all, against the true mechanism at epsilon 1."""
    found, few = {}, member[:6]
    none = {"noise_multiplier": 0.0, "unsafe_no_noise": True}
    for name, noise in (("private", {"epsilon": 1.0}), ("no noise", none)):
        plan = tacit.DPSGD(
            expected_batch_size=60,
            examples=RECORDS // 2,
            steps=80,
            clipping=tacit.clipping.Flat(1.0),
            delta=1e-4,
            **noise,
        )
        answers = train_private(
            build, pool, few, plan, lambda model: torch.optim.Adam(model.parameters(), lr=0.03), randomness=SEEDED
        )
        found[name] = attack_each(observe(answers, pool, few), ATTACKS["lira-online-fixed"]).tpr_at(0.01)
        if name == "private":
            allowed = Ceiling.of_claim(plan.epsilon(), plan.delta)
    for name, kept in (("private", True), ("no noise", False)):  # even where the false positive rate is at its highest
        assert (found[name].tpr.low < allowed.at(found[name].fpr.high)) == kept, name


def test_private_models_have_noise_of_their_own_even_under_a_seed(pool):
    everyone = np.ones((2, RECORDS), dtype=bool)
    plan = tacit.DPSGD(
        expected_batch_size=RECORDS // 2,
        examples=RECORDS,
        steps=1,
        clipping=tacit.clipping.Flat(1e-6),
        noise_multiplier=1e6,
        delta=1e-4,
    )
    moved = []

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        moved.append(model)
        return torch.optim.SGD(model.parameters(), lr=1.0)

    for source in (SEEDED, Randomness()):
        train_private(build, pool, everyone, plan, optimizer, randomness=source)
    noise = [model[0].weight.detach() for model in moved]
    assert all(not torch.allclose(a, b, atol=1e-3) for i, a in enumerate(noise) for b in noise[:i])
    train_private(build, pool, everyone, plan, optimizer, randomness=SEEDED)
    torch.testing.assert_close(moved[-2][0].weight, moved[0][0].weight)


class Convolutional(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Unflatten(1, (1, INPUTS)), nn.Conv1d(1, 2, 5), nn.Flatten(), nn.Linear(32, CLASSES))


def test_what_cannot_be_stacked_is_trained_one_after_another_and_says_so(pool, member, monkeypatch):
    plan = tacit.DPSGD(
        expected_batch_size=20,
        examples=RECORDS // 2,
        steps=3,
        clipping=tacit.clipping.Flat(1.0),
        noise_multiplier=1.0,
        delta=1e-4,
    )
    said: list[str] = []
    shares: list[float] = []

    def answers(made) -> torch.Tensor:
        found = train_private(
            made,
            pool,
            member[:3],
            plan,
            lambda model: torch.optim.SGD(model.parameters(), lr=0.5),
            randomness=SEEDED,
            progress=shares.append,
            told=said.append,
        )
        assert shares[-1] == pytest.approx(1.0)
        return found(pool.inputs)

    answers(Convolutional)
    assert said.pop().startswith("one after another, because they cannot be stacked: convolution")
    for threads in (1, 2):
        monkeypatch.setattr("tacit.training.side_by_side.threads_worth", lambda *_, threads=threads, **__: threads)
        stacked = answers(build)
        assert said.pop() == "all at once"
        with monkeypatch.context() as without:
            without.setattr("tacit.auditing.shadows.PrivateEnsemble", _refused)
            alone = answers(build)
        assert said.pop().endswith("for a test")
        torch.testing.assert_close(stacked, alone, rtol=1e-3, atol=1e-4)


def _refused(*_: object, **__: object) -> None:
    raise UnsupportedError("for a test")


def test_views_are_further_queries(pool, member):
    answers = train_plain(build, pool, member[:3], Fitting(steps=5))
    seen = observe(answers, pool, member[:3], views=[torch.neg])
    assert seen.confidence.shape == (3, 2, RECORDS)
    mirrored = Split(-pool.inputs, pool.targets)
    assert seen.confidence[:, 1] == pytest.approx(observe(answers, mirrored, member[:3]).confidence[:, 0])


def test_bad_input_is_refused(pool, member):
    with pytest.raises(InputError, match="member of shape"):
        train_plain(build, pool, member[:, :-1], OVERFITTED)
    with pytest.raises(InputError, match="a model has no records"):
        train_plain(build, pool, np.zeros((2, RECORDS), dtype=bool), OVERFITTED)
    with pytest.raises(InputError, match="models=0"):
        fair_memberships(0, 3, SEEDED, "test")
