"""Estimators vote as teachers: each on its own part, for classes by their right numbers, and only if they can."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from tacit.core import InputError
from tacit.datasets import Split
from tacit.pate import count_votes, partition
from tacit.pate.estimators import EstimatorTeachers

FOREST = RandomForestClassifier(n_estimators=3, max_features=1)


def records(count: int = 120, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 4, (count,), generator=generator)
    inputs = torch.randn(count, 1, 2, 2, generator=generator)
    inputs.flatten(1)[torch.arange(count), targets] += 5.0
    return Split(inputs, targets)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), GaussianNB(), DecisionTreeClassifier(), make_pipeline(StandardScaler(), SVC())],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_teaches(estimator):
    data, told = records(300), []
    teachers = EstimatorTeachers.train(estimator, data, partition(300, 10), progress=told.append)
    votes = count_votes(teachers.predictions(data.inputs), 4)
    assert (votes.argmax(1) == data.targets.numpy()).mean() > 0.95
    assert (votes.sum(1) == teachers.count).all()
    assert teachers.count == 10
    assert teachers.excluded == teachers.retrained == ()
    assert told == [(k + 1) / 10 for k in range(10)]


def test_predictions_are_those_of_an_estimator_fitted_to_the_part_alone():
    data, parts = records(), partition(120, 5)
    found = EstimatorTeachers.train(LogisticRegression(), data, parts).predictions(data.inputs)
    for said, part in zip(found, parts, strict=True):
        alone = LogisticRegression().fit(data.inputs[part].flatten(1).numpy(), data.targets[part].numpy())
        np.testing.assert_array_equal(said, alone.predict(data.inputs.flatten(1).numpy()))


@pytest.mark.parametrize("seed", range(5))
def test_another_record_changes_one_teacher_alone(seed):
    """With random estimators too: what one teacher draws never moves another's generator."""
    data = records(121, seed)
    other = Split(data.inputs.clone(), data.targets.clone())
    other.inputs[7], other.targets[7] = 100.0, (other.targets[7] + 1) % 4
    fewer = Split(data.inputs[:120], data.targets[:120])
    said = [
        EstimatorTeachers.train(FOREST, each, partition(len(each), 8)).predictions(data.inputs)
        for each in (data, other, fewer)
    ]
    home = next(k for k, part in enumerate(partition(121, 8)) if 7 in part)
    last = next(k for k, part in enumerate(partition(121, 8)) if 120 in part)
    assert [k for k in range(8) if not np.array_equal(said[0][k], said[1][k])] == [home]
    assert [k for k in range(8) if not np.array_equal(said[0][k], said[2][k])] in ([], [last])


class Coin(ClassifierMixin, BaseEstimator):
    """Votes by its random state alone."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, inputs, labels):
        self.classes_ = np.unique(labels)
        return self

    def predict(self, inputs):
        return np.random.default_rng(self.random_state).choice(self.classes_, len(inputs))


@pytest.mark.parametrize("estimator", [Coin(), Coin(random_state=5), make_pipeline(StandardScaler(), Coin())])
def test_every_teacher_has_a_random_state_of_its_own(estimator):
    data, parts = records(), partition(120, 6)
    np.random.seed(0)
    first, same, other = (
        EstimatorTeachers.train(estimator, data, parts, seed=seed).predictions(data.inputs) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert len({said.tobytes() for said in [*first, *other]}) == 12
    some = EstimatorTeachers.train(estimator, data, parts[:3], seed=1).predictions(data.inputs)
    np.testing.assert_array_equal(some, first[:3])


def test_the_callers_estimator_stays_as_it_was():
    data, forest = records(), RandomForestClassifier(n_estimators=2, random_state=9)
    EstimatorTeachers.train(forest, data, partition(120, 3))
    assert forest.random_state == 9
    assert not hasattr(forest, "estimators_")


class Gapless(GaussianNB):
    """Wants classes 0, 1, 2, … without a gap, as some libraries do."""

    def fit(self, inputs, labels):
        if sorted(set(labels.tolist())) != list(range(len(set(labels.tolist())))):
            raise ValueError("classes have gaps")
        return super().fit(inputs, labels)


@pytest.mark.parametrize("estimator", [GaussianNB(), Gapless(), LogisticRegression()])
def test_classes_that_are_missing_keep_the_numbers_of_the_others(estimator):
    data = records()
    targets = data.targets.numpy()
    parts = [np.flatnonzero(np.isin(targets, held)) for held in ([0, 2], [1, 3], [3])]
    teachers = EstimatorTeachers.train(estimator, data, parts)
    assert teachers.excluded == ()
    said = teachers.predictions(data.inputs)
    assert [set(row.tolist()) for row in said] == [{0, 2}, {1, 3}, {3}]
    assert (said[0][parts[0]] == targets[parts[0]]).mean() > 0.95
    assert (said[1][parts[1]] == targets[parts[1]]).mean() > 0.95
    votes = count_votes(said, 4)
    assert votes.shape == (120, 4)
    assert (votes.sum(1) == 3).all()


class Odd(GaussianNB):
    """Fails or talks nonsense where a number among the inputs is beyond bounds."""

    def __init__(self, what="fit"):
        super().__init__()
        self.what = what

    def fit(self, inputs, labels):
        if self.what == "fit" and np.abs(inputs).max() > 50:
            raise ZeroDivisionError("odd")
        return super().fit(inputs, labels)

    def predict(self, inputs):
        said = super().predict(inputs)
        if np.abs(inputs).max() <= 50:
            return said
        return {
            "none": np.full(len(said), np.nan),
            "half": said + 0.5,
            "beyond": said + 100,
            "below": said - 100,
            "short": said[1:],
            "scores": super().predict_proba(inputs),
            "names": np.full(len(said), "three"),
        }.get(self.what, said)


NONSENSE = ["none", "half", "beyond", "below", "short", "scores", "names"]


@pytest.mark.parametrize("what", ["fit", *NONSENSE])
def test_who_fails_or_talks_nonsense_never_votes_and_is_named(what):
    data, parts = records(), partition(120, 6)
    data.inputs[5] = 80.0
    sick = next(k for k, part in enumerate(parts) if 5 in part)
    teachers = EstimatorTeachers.train(Odd(what), data, parts)
    assert teachers.excluded == (sick,)
    assert teachers.count == 5
    assert teachers.predictions(data.inputs[:4]).shape == (5, 4)


def test_public_inputs_that_a_teacher_fails_on_exclude_it_before_any_vote():
    data, parts = records(), partition(120, 6)
    public = torch.cat([data.inputs[:3], torch.full((1, 1, 2, 2), 80.0)])
    unwarned = EstimatorTeachers.train(Odd("beyond"), data, parts)
    with pytest.raises(InputError, match=r"does not predict one class for each .* give train all inputs"):
        unwarned.predictions(public)
    with pytest.raises(InputError, match="no teacher can vote"):
        EstimatorTeachers.train(Odd("beyond"), data, parts, public=public)
    # Three neighbours cannot be found in a part of two.
    parts = [np.arange(2), np.arange(2, 60), np.arange(60, 120)]
    teachers = EstimatorTeachers.train(KNeighborsClassifier(3), data, parts, public=data.inputs)
    assert teachers.excluded == (0,)
    assert teachers.predictions(data.inputs).shape == (2, 120)


def test_an_error_that_is_no_estimators_fault_goes_on():
    class Stopped(GaussianNB):
        def fit(self, inputs, labels):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EstimatorTeachers.train(Stopped(), records(), partition(120, 3))


@pytest.mark.parametrize(
    ("estimator", "parts", "message"),
    [
        (object(), [np.arange(9)], "estimator=<object .* must have fit, predict and get_params"),
        (GaussianNB(), [], "parts: every teacher needs a record"),
        (GaussianNB(), [np.arange(9), np.arange(0)], "parts: every teacher needs a record"),
        (
            SGDClassifier(loss="nothing"),
            partition(120, 3),
            "no teacher can vote, the first one by .*Error: .*loss",
        ),
    ],
)
def test_bad_input_is_named(estimator, parts, message):
    with pytest.raises(InputError, match=message):
        EstimatorTeachers.train(estimator, records(), parts)
