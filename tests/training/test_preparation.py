"""Preparations: the order of ledger and noise, DP-PCA's sensitivity and noise, and that each is counted once."""

import dataclasses

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from scipy import stats
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.datasets import load
from tacit.ledger import EntryState, Ledger
from tacit.mechanisms import Gaussian
from tacit.plan import DPSGD
from tacit.training import PrincipalComponents, fit, prepare, prepared
from tacit.training.evaluation import classification_loss

_DIMENSIONS = 20


def make_plan(*preparations, noise=2.0, steps=3):
    return DPSGD(
        expected_batch_size=10,
        examples=100,
        steps=steps,
        clipping=Flat(1.0),
        delta=1e-5,
        noise_multiplier=noise,
        preparations=preparations,
    )


def upper(matrix):
    """The diagonal, and sqrt 2 times what lies above it."""
    size = len(matrix)
    places = [(row, column) for row in range(size) for column in range(row, size)]
    return torch.stack([matrix[place] * (1.0 if place[0] == place[1] else 2.0**0.5) for place in places])


# --- the statistic ---


def test_statistic_is_the_second_moment_of_unit_rows():
    inputs = torch.randn(50, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = inputs.flatten(1) / inputs.flatten(1).norm(dim=1, keepdim=True)
    expected = sum(torch.outer(row, row) for row in rows)
    torch.testing.assert_close(
        PrincipalComponents(2, 1.0).statistic(inputs), upper(expected), rtol=0, atol=50 * 2.0**-14
    )


@pytest.mark.parametrize("kind", ["one pixel", "gaussian", "huge", "tiny", "equal", "steep"])
def test_no_record_moves_the_statistic_further_than_the_sensitivity(kind):
    generator = torch.Generator().manual_seed(1)
    others = torch.rand(40, 30, generator=generator)
    record = {
        "one pixel": torch.eye(30)[:1] * 3.0,
        "gaussian": torch.randn(1, 30, generator=generator),
        "huge": torch.full((1, 30), 3e38),
        "tiny": torch.full((1, 30), 1e-42),
        "equal": torch.ones(1, 30),
        "steep": torch.logspace(-30, 30, 30)[None],
    }[kind]
    pca = PrincipalComponents(5, 1.0)
    moved = pca.statistic(torch.cat([others, record])) - pca.statistic(others)
    assert moved.norm() <= pca.mechanism.sensitivity
    assert moved.norm() > 0.999  # every record attains the bound, up to the grid, so noise for less would be too little


def test_statistic_is_exact_whatever_the_order():
    inputs = torch.rand(300, 30, generator=torch.Generator().manual_seed(2))
    pca = PrincipalComponents(5, 1.0)
    assert torch.equal(pca.statistic(inputs), pca.statistic(inputs[torch.randperm(300)]))
    parts = pca.statistic(inputs[:77]) + pca.statistic(inputs[77:])
    assert (pca.statistic(inputs) - parts).norm() < 300 * 2.0**-51


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
def test_rows_without_a_length_contribute_zero(value):
    rows = torch.rand(4, 6)
    odd = rows[:1].clone()
    odd[0, 0] = value
    if value == 0.0:
        odd.zero_()
    pca = PrincipalComponents(2, 1.0)
    assert torch.equal(pca.statistic(torch.cat([rows, odd])), pca.statistic(rows))
    assert torch.equal(pca.statistic(rows[:0]), torch.zeros(21, dtype=torch.float64))


def test_more_dimensions_than_inputs_are_refused():
    with pytest.raises(InputError, match="dimensions=7"):
        PrincipalComponents(7, 1.0).statistic(torch.rand(4, 6))


# --- the noise ---


@dataclasses.dataclass(frozen=True)
class _Recording:
    """DP-PCA that keeps what was released; with a share below 1 its noise is too small."""

    pca: PrincipalComponents
    released: list = dataclasses.field(default_factory=list)
    share: float = 1.0

    @property
    def mechanism(self):
        return Gaussian(self.pca.noise_multiplier * self.share, 1.0)

    def statistic(self, inputs):
        return self.pca.statistic(inputs)

    def transform(self, released, input_shape):
        self.released.append(released)
        return self.pca.transform(released, input_shape)

    def describe(self):
        return self.pca.describe()


def noise_of(inputs, share=1.0, draws=60):
    """The noise of several releases in units of what the event claims."""
    recording = _Recording(PrincipalComponents(5, 3.0), share=share)
    for _ in range(draws):
        prepare(make_plan(recording), inputs)
    return torch.cat([(released - recording.statistic(inputs)) / 3.0 for released in recording.released]).numpy()


@pytest.mark.parametrize(("share", "passes"), [(1.0, True), (0.9, False), (1.1, False), (0.5, False)])
def test_noise_has_the_law_that_the_event_claims(share, passes):
    drawn = noise_of(torch.rand(30, 40), share=share)
    p_value = stats.kstest(drawn, "norm").pvalue
    assert p_value > 1e-4 if passes else p_value < 1e-6


def test_noise_is_fresh_and_independent_between_releases():
    inputs = torch.rand(30, 40)
    first, second = noise_of(inputs, draws=2).reshape(2, -1)
    assert not np.any(first == second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_event_is_that_of_the_mechanism():
    assert PrincipalComponents(5, 3.0).mechanism.event() == dp_event.GaussianDpEvent(3.0)
    assert PrincipalComponents(5, 3.0).mechanism.scale == 3.0


def test_released_matrix_is_symmetric_and_its_top_directions_are_kept():
    inputs = torch.rand(30, 12, generator=torch.Generator().manual_seed(3))
    recording = _Recording(PrincipalComponents(4, 2.0))
    projection = prepare(make_plan(recording), inputs)[0].directions.double()
    matrix = torch.zeros(12, 12, dtype=torch.float64)
    rows, columns = torch.triu_indices(12, 12)
    matrix[rows, columns] = recording.released[0]
    matrix = (matrix + matrix.T) / 2.0**0.5
    matrix.diagonal().mul_(2.0**-0.5)
    values, vectors = np.linalg.eigh(matrix.numpy())
    torch.testing.assert_close(projection.T @ projection, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-5)
    expected = vectors[:, np.argsort(values)[-4:]]
    np.testing.assert_allclose(projection @ projection.T, expected @ expected.T, atol=1e-5)


def test_map_projects_inputs_as_they_are():
    inputs = torch.rand(30, 3, 4)
    transform = prepare(make_plan(PrincipalComponents(12, 1.0)), inputs)
    lengths = transform(inputs).norm(dim=1)  # all dimensions kept: a rotation
    torch.testing.assert_close(lengths, inputs.flatten(1).norm(dim=1))
    doubled = prepare(make_plan(PrincipalComponents(12, 1.0, gain=2.0)), inputs)
    torch.testing.assert_close(doubled(inputs).norm(dim=1), 2 * lengths)


@pytest.mark.parametrize("whitening", [0.5, 1.0])
def test_whitening_evens_out_the_released_eigenvalues(whitening):
    inputs = torch.randn(4000, 6) * torch.tensor([8.0, 4.0, 2.0, 2.0, 1.0, 1.0])
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    plain, white = (
        prepare(make_plan(PrincipalComponents(6, 0.1, whitening=w)), inputs)(inputs).square().sum(0)
        for w in (0.0, whitening)
    )
    torch.testing.assert_close(white.sum(), plain.sum(), rtol=1e-3, atol=0.0)
    expected = plain ** (1 - whitening)
    torch.testing.assert_close(white / white[0], expected / expected[0], rtol=0.01, atol=0.0)


def test_whitening_stands_eigenvalues_that_noise_made_negative():
    transform = prepare(make_plan(PrincipalComponents(12, 50.0, whitening=1.0)), torch.rand(3, 12))
    assert transform(torch.rand(3, 12)).isfinite().all()


def test_preparation_sees_the_maps_before_it():
    plan = make_plan(PrincipalComponents(6, 1.0), PrincipalComponents(2, 1.0))
    transform = prepare(plan, torch.rand(30, 12))
    assert transform(torch.rand(5, 12)).shape == (5, 2)


def test_both_splits_go_through_the_map():
    digits = load("digits")
    plan = make_plan(PrincipalComponents(7, 1.0))
    mapped = prepared(digits, prepare(plan, digits.train.inputs))
    assert mapped.input_shape == (7,)
    assert mapped.train.inputs.shape == (len(digits.train), 7)
    assert mapped.test.inputs.shape == (len(digits.test), 7)


def test_fixed_seed_repeats_itself_and_torch_seeds_change_nothing():
    inputs, plan = torch.rand(30, 12), make_plan(PrincipalComponents(4, 2.0))
    first, again = (prepare(plan, inputs, randomness=Randomness(unsafe_seed=1))[0].directions for _ in range(2))
    assert torch.equal(first, again)
    torch.manual_seed(0)
    one = prepare(plan, inputs)[0].directions
    torch.manual_seed(0)
    assert not torch.equal(one, prepare(plan, inputs)[0].directions)


# --- the ledger ---


def open_account(path, epsilon):
    return Ledger.create(path / "ledger.db", dataset="d", budget=Budget(epsilon, 1e-5)).account("d")


def train(plan, inputs, account):
    transform = prepare(plan, inputs, account=account, run="r")
    model = nn.Linear(4, 2)
    targets = torch.zeros(len(inputs), dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return fit(model, classification_loss, (transform(inputs), targets), plan, optimizer=optimizer, account=account)


def test_ledger_counts_preparation_and_training_once(tmp_path):
    plan = make_plan(PrincipalComponents(4, 2.0))
    account = open_account(tmp_path, 100.0)
    result = train(plan, torch.rand(100, 12), account)
    before, after = account.entries()
    assert "preparation" in before.run
    assert [before.state, after.state] == [EntryState.COMMITTED] * 2
    assert account.spent() == pytest.approx(plan.epsilon(), rel=1e-6)
    assert result.statement.epsilon == plan.epsilon()


def test_training_that_never_began_leaves_the_preparation_charged(tmp_path):
    plan = make_plan(PrincipalComponents(4, 2.0))
    account = open_account(tmp_path, 100.0)
    prepare(plan, torch.rand(100, 12), account=account)
    assert account.spent() == pytest.approx(plan.epsilon(0), rel=1e-6)


def test_whole_plan_must_fit_before_the_preparation_draws(tmp_path):
    plan = make_plan(PrincipalComponents(4, 2.0))
    account = open_account(tmp_path, 0.5 * (plan.epsilon(0) + plan.epsilon()))
    with pytest.raises(BudgetExceededError):
        prepare(plan, torch.rand(100, 12), account=account)
    assert account.entries() == []


def test_ledger_records_before_the_noise_is_drawn(tmp_path, monkeypatch):
    account = open_account(tmp_path, 100.0)
    seen = []
    draw = Gaussian.add_noise

    def watched(self, value, stream):
        seen.append([entry.state for entry in account.entries()])
        seen.append(account.spent())
        raise RuntimeError("stopped at the noise")

    monkeypatch.setattr(Gaussian, "add_noise", watched)
    with pytest.raises(RuntimeError, match="stopped"):
        prepare(make_plan(PrincipalComponents(4, 2.0)), torch.rand(100, 12), account=account)
    monkeypatch.setattr(Gaussian, "add_noise", draw)
    assert seen[0] == [EntryState.RESERVED]
    assert account.spent() == pytest.approx(seen[1])
    assert account.spent() > 0


def test_inputs_without_records_are_noise_alone():
    transform = prepare(make_plan(PrincipalComponents(4, 2.0)), torch.rand(0, 12))
    assert transform(torch.rand(3, 12)).shape == (3, 4)
