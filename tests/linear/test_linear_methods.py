"""The methods: what they cost, what they recover, and what their defaults are worth."""

import math

import numpy as np
import pytest
from transcripts import as_examples

from tacit.accounting import epsilon as epsilon_of
from tacit.core.errors import BudgetExceededError, InputError, UnsupportedError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.linear import AdaSSP, Functional, Guarantee, Newton, SufficientStatistics, choose_method
from tacit.linear.fitting import fit_rows, problem_of
from tacit.linear.functional import default_split, planned_noise, regularised_solution
from tacit.linear.guarantee import Spending, Terms
from tacit.linear.plain import plain_classifier, plain_regression
from tacit.linear.rows import PublicScale
from tacit.linear.shrinkage import NORM_SQUARE, MomentNoise, expected_excess, shrunk_solution

_GAUSSIAN = [SufficientStatistics(), AdaSSP(), Newton()]
_BOX = PublicScale.box(-np.ones(4), np.ones(4))


def _table(count=4000, seed=0):
    stream = np.random.default_rng(seed)
    inputs = stream.uniform(-1, 1, (count, 4))
    targets = np.clip(inputs @ [0.4, -0.2, 0.1, 0.0] - 0.2 + 0.1 * stream.standard_normal(count), -1, 1)
    return inputs, targets


def _event(method, problem, guarantee):
    mechanisms = method.mechanisms(problem, guarantee)
    return Spending(mechanisms, guarantee, Terms(), Randomness(unsafe_seed=0)).event(len(mechanisms))


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize("method", _GAUSSIAN, ids=lambda method: method.name)
def test_the_accountant_finds_the_epsilon_that_was_asked_for(method, classes, relation):
    guarantee = Guarantee(0.8, 1e-6, relation)
    spent = epsilon_of(_event(method, problem_of(_BOX, classes=classes), guarantee), 1e-6, neighbours=relation)
    assert 0.999 * 0.8 < spent <= 0.8


@pytest.mark.parametrize("split", [None, 0.3])
def test_the_accountant_finds_the_pure_epsilon_that_was_asked_for(split):
    event = _event(Functional(split), problem_of(_BOX), Guarantee(0.8))
    assert 0.999999 * 0.8 < epsilon_of(event, 0.0) <= 0.8
    replaced = _event(Functional(split), problem_of(_BOX), Guarantee(0.8, 0.0, Neighbours.REPLACE_ONE))
    assert epsilon_of(replaced, 1e-9, neighbours=Neighbours.REPLACE_ONE) <= 0.8 * (1 + 1e-4)
    assert epsilon_of(replaced, 0.0) == pytest.approx(0.4)


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1 / 3, 7.3])
def test_a_pure_budget_can_be_spent_whole_and_no_more(epsilon, relation, tmp_path):
    examples, scale = as_examples(*_table(50))
    book = Ledger.create(tmp_path / "book.sqlite", dataset="t", budget=Budget(epsilon, 0.0), neighbours=relation)
    guarantee, terms = Guarantee(epsilon, 0.0, relation), Terms(book.account("t"))
    fit_rows(examples, scale, problem_of(scale), Functional(), guarantee, terms=terms)
    assert len(book.account("t").entries()) == 1
    with pytest.raises(BudgetExceededError):
        fit_rows(examples, scale, problem_of(scale), Functional(), Guarantee(0.01, 0.0, relation), terms=terms)


def test_a_unit_of_several_rows_takes_that_many_times_the_noise():
    one, many = (Guarantee(1.0, 1e-6, unit=PrivacyUnit("person", rows)) for rows in (1, 3))
    assert many.noise_multiplier() == pytest.approx(3 * one.noise_multiplier())
    assert Guarantee(1.0, unit=PrivacyUnit("person", 3)).laplace_scale() == pytest.approx(3.0)


@pytest.mark.parametrize("method", [*_GAUSSIAN, Functional(), Functional(repair="regularise")])
def test_with_a_large_budget_least_squares_is_found(method):
    inputs, targets = _table()
    examples, scale = as_examples(inputs, targets)
    guarantee = Guarantee(3000.0, 0.0 if isinstance(method, Functional) else 1e-6)
    found = fit_rows(examples, scale, problem_of(scale), method, guarantee).coefficients
    design = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    expected = np.linalg.lstsq(design, targets, rcond=None)[0]
    assert plain_regression(examples)[0] == pytest.approx(expected, abs=1e-4)
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("method", [*_GAUSSIAN, Functional()], ids=lambda method: method.name)
def test_two_classes_are_told_apart(method):
    inputs, targets = _table()
    codes = (targets > np.median(targets)).astype(int)
    examples, scale = as_examples(inputs, codes, classes=2)
    guarantee = Guarantee(100.0, 0.0 if isinstance(method, Functional) else 1e-6)
    model = fit_rows(examples, scale, problem_of(scale, classes=2), method, guarantee)
    plain, constant = plain_classifier(examples, 2)
    best = np.mean((scale.scaled(inputs) @ plain).argmax(1) == codes)
    assert np.mean(model.classes(inputs) == codes) > best - 0.03
    assert constant[0].tolist() == np.bincount(codes).tolist()


def test_newton_tells_many_classes_apart():
    inputs, _ = _table()
    codes = (inputs[:, 0] > 0).astype(int) + 2 * (inputs[:, 1] > 0)
    examples, scale = as_examples(inputs, codes, classes=4)
    model = fit_rows(examples, scale, problem_of(scale, classes=4), Newton(), Guarantee(50.0, 1e-6))
    assert np.mean(model.classes(inputs) == codes) > 0.95


def test_blocks_change_nothing():
    inputs, targets = _table(500)
    guarantee = Guarantee(1.0, 1e-6)
    for method in _GAUSSIAN:
        found = [
            fit_rows(
                as_examples(inputs, targets, blocks=blocks)[0], _BOX, problem_of(_BOX), method, guarantee,
                randomness=Randomness(unsafe_seed=3),
            ).coefficients
            for blocks in (1, 7)
        ]  # fmt: skip
        assert found[0] == pytest.approx(found[1], abs=1e-9)


@pytest.mark.parametrize("d", [2, 5, 14, 40])
def test_the_default_split_is_the_closed_form_where_noise_is_small(d):
    """(e1 / e2)^3 = |w|^2 (p + 3) / p (L / 2)^2, and it grows with d."""
    problem = problem_of(PublicScale.box(-np.ones(d), np.ones(d)), examples=10**9)
    odds = (NORM_SQUARE * (d + 4) / (d + 1) * ((d + 1) / 2) ** 2) ** (1 / 3)
    assert default_split(problem, Guarantee(1.0)) == pytest.approx(odds / (1 + odds), abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 0.8, 3.2])
def test_the_default_split_minimises_the_expected_excess(epsilon):
    problem = problem_of(PublicScale.box(-np.ones(14), np.ones(14)), examples=20_000)
    guarantee = Guarantee(epsilon)

    def cost(share):
        return expected_excess(planned_noise(problem, guarantee, share), problem.size, 20_000)

    best = cost(default_split(problem, guarantee))
    assert best <= min(cost(share) for share in np.linspace(0.05, 0.95, 91)) * (1 + 1e-6)
    assert best < cost(0.5)


def test_the_expected_excess_is_that_of_simulated_tables():
    """Tables drawn as the prior says, noised as planned: right within a fifth where noise is moderate."""
    stream, size, count = np.random.default_rng(0), 6, 2000
    noise = MomentNoise(20.0, 20.0, 20.0)
    excess = []
    for _ in range(300):
        eigenvalues = np.full(size, count / 3)
        eigenvalues[0] = count
        truth = math.sqrt(NORM_SQUARE / size) * stream.standard_normal(size)
        error = 20 * stream.standard_normal((size, size))
        gram = np.diag(eigenvalues) + np.triu(error) + np.triu(error, 1).T
        found = shrunk_solution(gram, eigenvalues * truth + 20 * stream.standard_normal(size), noise)
        excess.append(np.sum(eigenvalues * (found - truth) ** 2) / count)
    assert np.mean(excess) == pytest.approx(expected_excess(noise, size, count), rel=0.2)


def test_an_indefinite_form_is_repaired():
    gram = np.array([[5.0, 0.0], [0.0, -3.0]])
    cross = np.array([1.0, 1.0])
    shrunk = shrunk_solution(gram, cross, MomentNoise(1.0, 1.0, 1.0))
    assert shrunk[1] == pytest.approx(0.0)
    assert 0 < shrunk[0] < 0.2
    assert regularised_solution(gram, cross, 1.0) == pytest.approx([1 / 6, 0.0])  # trimmed: -3 + 1 is below 0
    assert regularised_solution(gram, cross, 4.0) == pytest.approx([1 / 9, 1.0])  # the ridge is enough


def test_auto_goes_by_public_facts():
    def chosen(epsilon, delta, examples=None, classes=0):
        return choose_method(
            "auto", problem_of(_BOX, classes=classes, examples=examples), Guarantee(epsilon, delta)
        ).name

    assert chosen(1.0, 0.0) == "functional"
    assert chosen(1.0, 1e-6) == "newton"
    assert chosen(1.0, 1e-6, examples=1000) == "newton"
    assert chosen(1.0, 1e-6, examples=1_000_000) == "sufficient"
    assert chosen(1.0, 1e-6, examples=1_000_000, classes=2) == "newton"


@pytest.mark.parametrize(
    ("method", "guarantee", "classes", "message"),
    [
        (Functional(), (1.0, 1e-6), 0, "guarantee is pure"),
        (Newton(), (1.0, 0.0), 0, "no pure guarantee"),
        (AdaSSP(), (1.0, 0.0), 0, "no pure guarantee"),
        (Functional(), (1.0, 0.0), 3, "two classes"),
        (SufficientStatistics(), (1.0, 1e-6), 3, "two classes"),
    ],
)
def test_what_has_no_guarantee_is_refused(method, guarantee, classes, message):
    with pytest.raises((InputError, UnsupportedError), match=message):
        method.mechanisms(problem_of(_BOX, classes=classes), Guarantee(*guarantee))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Guarantee(0.0), "epsilon=0"),
        (lambda: Guarantee(1.0, 1.5), "delta=1.5"),
        (lambda: Functional(split=1.0), "split=1.0"),
        (lambda: Functional(repair="hope"), "repair='hope'"),
        (lambda: Newton(steps=0), "steps=0"),
        (lambda: choose_method("magic", problem_of(_BOX), Guarantee(1.0)), "method='magic'"),
        (lambda: choose_method("newton", problem_of(_BOX), Guarantee(1.0, 1e-6), split=0.5), "have a split"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
