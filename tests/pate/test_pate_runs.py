"""Whole runs of PATE: who votes, under which relation, what is told and what stays private."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from torch import nn

from tacit.accounting import epsilon, rdp_to_epsilon
from tacit.core.errors import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.ledger import Ledger, Rule, unlimited
from tacit.pate import publishing
from tacit.pate.account import data_dependent_epsilon, data_independent_epsilon, first
from tacit.pate.aggregation import ConfidentGNMax, GNMax, LNMax
from tacit.pate.answering import Answers, Round, Terms, event_of
from tacit.pate.calibration import calibrated_knn
from tacit.pate.experiment import STAGES, run_pate
from tacit.pate.interactive import Interaction
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.paying import require_runs, terms_for
from tacit.pate.plan import Pate
from tacit.pate.publishing import Publication
from tacit.pate.record import private_record, public_record
from tacit.pate.settings import Choices, pate_settings
from tacit.pate.students import Supervised
from tacit.pate.teachers import TeacherTraining
from tacit.pate.voters import Classroom, NearestRecords, Shares, estimator_voters, linear_voters, network_voters
from tacit.training.ensemble import Fitting

CLASSES = 3
KNN = PrivateKNN(0.5, 15, ConfidentGNMax(threshold=8, sigma_threshold=2, sigma=1))
QUIET = GNMax(0.5)
UNIT = PrivacyUnit()


def clouds() -> DataSet:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 500)
    rows = torch.from_numpy(3 * np.eye(CLASSES)[labels] + 0.5 * rng.normal(size=(500, CLASSES))).float()
    targets = torch.from_numpy(labels)
    return DataSet("clouds", Split(rows[:300], targets[:300]), Split(rows[300:], targets[300:]), CLASSES, (3,), "made")


def network() -> nn.Module:
    return nn.Linear(CLASSES, CLASSES)


def pate(voters=None, aggregator=QUIET, **changes) -> Pate:
    plan = Pate(
        voters=voters or linear_voters(Shares(10)),
        queries=40,
        aggregator=aggregator,
        student=Supervised(steps=80, learning_rate=0.05),
        build_student=network,
        whitening=0.0,
    )
    return dataclasses.replace(plan, **changes)


@pytest.mark.parametrize(
    ("voters", "aggregator"),
    [
        (linear_voters(Shares(10)), QUIET),
        (network_voters(Shares(10), network, TeacherTraining(Fitting(steps=60, learning_rate=0.05))), QUIET),
        (estimator_voters(Shares(10), GaussianNB()), QUIET),
        (linear_voters(Shares(10, owners=[f"user {row // 3}" for row in range(300)])), QUIET),
        (NearestRecords(KNN), KNN),
    ],
    ids=["linear", "network", "estimator", "by user", "nearest"],
)
def test_every_kind_of_voter_teaches_a_student(voters, aggregator):
    told: dict[str, float] = {}
    result = run_pate(clouds(), pate(voters, aggregator), Randomness(), progress=told.__setitem__)
    assert result.student_accuracy > 0.9
    assert result.aggregator_accuracy > 0.9
    assert result.neighbours is voters.relations[0]
    assert told == dict.fromkeys(STAGES, 1.0)
    assert result.student_curve[-1][1] == pytest.approx(result.student_accuracy)


@pytest.mark.parametrize("choose", ["random", "representative", "least-confident"])
@pytest.mark.parametrize(
    ("voters", "aggregator"),
    [(linear_voters(Shares(10)), QUIET), (NearestRecords(KNN), KNN)],
    ids=["linear", "nearest"],
)
def test_rounds_ask_for_new_inputs_and_teach_all_answers(voters, aggregator, choose):
    told: list[float] = []
    plan = pate(voters, aggregator, rounds=3, choose=choose)
    result = run_pate(
        clouds(), plan, Randomness(), progress=lambda stage, share: told.append(share) if stage == "student" else None
    )
    asked = result.answers.asked.tolist()
    assert len(asked) == len(set(asked)) == 40
    assert told == sorted(told)
    assert told[-1] == 1
    assert (result.poll.unsafe_votes[asked].sum(1) > 0).all()
    assert result.student_accuracy > 0.9
    assert result.epsilon_data_independent == data_independent_epsilon(
        [Round(aggregator, result.answers)], 1e-5, result.neighbours
    )


def test_a_budget_that_ends_between_two_rounds_leaves_a_student(tmp_path):
    answer = epsilon(event_of(QUIET, Neighbours.REPLACE_ONE, 20, 20), 1e-5, neighbours=Neighbours.REPLACE_ONE)
    book = Ledger.create(
        tmp_path / "book.sqlite", dataset="clouds", budget=Budget(answer, 1e-5), neighbours=Neighbours.REPLACE_ONE
    )
    terms = Terms(book.account("clouds"), Neighbours.REPLACE_ONE)
    result = run_pate(clouds(), pate(rounds=2), Randomness(), terms=terms)
    assert result.answers.out_of_budget
    assert len(result.answers.asked) == 20
    assert result.student_accuracy > 0.9


def interactive(**changes) -> Pate:
    opening = ConfidentGNMax(threshold=6, sigma_threshold=1, sigma=0.5)
    talk = Interaction(opening, dataclasses.replace(opening, threshold=3), (20, 20), confidence=0.6)
    return dataclasses.replace(pate(aggregator=opening, rounds=2), interaction=talk, **changes)


def test_teachers_and_student_take_turns(tmp_path):
    """A student that is right is confirmed; the account is that of both rounds, with what the student expected."""
    relation = Neighbours.REPLACE_ONE
    budget = Budget(1e4, 1e-5)
    book = Ledger.create(tmp_path / "book.sqlite", dataset="clouds", budget=budget, neighbours=relation)
    plan = interactive(publish_epsilon=True)
    result = run_pate(clouds(), plan, Randomness(), terms=terms_for(plan, book.account("clouds")))
    first_round, later = result.rounds
    assert len(later.own_rows) > len(later.answers.rows)
    assert later.expected.shape == (20, CLASSES)
    assert result.student_accuracy > 0.9
    assert result.student_curve[-1][1] == pytest.approx(result.student_accuracy)
    assert book.account("clouds").spent() < result.epsilon_data_independent  # as if all had been answered
    votes = result.poll.unsafe_votes
    unaware = dataclasses.replace(later, expected=None)
    own, other = (data_dependent_epsilon(votes, [first_round, last], 1e-5).unsafe_value for last in (later, unaware))
    assert result.epsilon.unsafe_value == own != other
    record = public_record(result, plan, dataset="clouds", unit=UNIT)
    assert record["plan"]["aggregator"] == "interactive-gnmax"
    assert "by interactive-gnmax" in record["statement"]["sentence"]
    curve = private_record(result, plan)["epsilon_by_queries"]
    assert curve[-1]["epsilon"] == pytest.approx(own)


def test_an_interaction_must_be_that_of_the_run():
    with pytest.raises(InputError, match="its questions the 41 queries in 2 rounds"):
        interactive(queries=41)
    with pytest.raises(InputError, match="its opening must be the aggregator"):
        interactive(aggregator=QUIET)


def test_a_second_round_looks_through_the_students_eyes():
    data, model = clouds(), nn.Sequential(nn.Linear(CLASSES, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    room = Classroom(data.train, 2 * data.train.inputs, data.test.inputs, 2 * data.test.inputs, CLASSES)
    seen = room.seen_by(model)
    learned = model[:2](data.test.inputs).detach()
    expected = torch.cat([data.test.inputs, learned - learned.mean(0)], dim=1)
    for half in (slice(0, 3), slice(3, 8)):
        part = expected[:, half] / expected[:, half].norm(dim=1, keepdim=True)
        torch.testing.assert_close(seen.question_features[:, half], part)
    own = model[:2](data.train.inputs[:1]).detach() - learned.mean(0)  # by the public mean, alone or among others
    torch.testing.assert_close(seen.features[:1, 3:], own / own.norm())
    assert model.training


def test_a_teacher_that_cannot_be_trained_is_the_owners_secret():
    data = clouds()
    data.train.inputs[0] = torch.nan
    plan = pate()
    result = run_pate(data, plan, Randomness())
    assert len(result.poll.unsafe_excluded) == 1
    assert result.poll.voters == 10
    record = public_record(result, plan, dataset="clouds", unit=UNIT)
    assert record["teachers"] == 10
    assert "excluded" not in json.dumps(record)


def test_whatever_happens_to_a_teacher_moves_one_vote():
    """Also that it cannot be trained: then it counts for the first class, and the number of votes stays public."""
    before, changed = clouds(), clouds()
    changed.train.inputs[0] = torch.nan
    votes, moved = (run_pate(data, pate(), Randomness()).poll.unsafe_votes for data in (before, changed))
    assert set(moved.sum(1)) == {10}
    assert np.abs(moved - votes).sum(1).max() == 2
    assert (moved[:, 0] - votes[:, 0]).min() >= 0


def test_nearest_records_answer_from_samples_that_the_test_did_not_see():
    all_of_the_sample = dataclasses.replace(KNN, voters=300)
    poll = run_pate(clouds(), pate(NearestRecords(all_of_the_sample), all_of_the_sample), Randomness()).poll
    assert (poll.unsafe_votes != poll.unsafe_tested).any()


def test_the_other_part_of_the_test_split_can_be_public():
    data = clouds()
    results = [run_pate(data, pate(public=public), Randomness()) for public in ("first", "last")]
    assert results[0].truth.tolist() == data.test.targets[:100].tolist()
    assert results[1].truth.tolist() == data.test.targets[100:].tolist()


def test_places_protect_against_replacement_only():
    with pytest.raises(InputError, match="neighbours='add-remove': these voters protect under replace-one, zero-out"):
        run_pate(clouds(), pate(), Randomness(), terms=Terms(neighbours=Neighbours.ADD_REMOVE))
    with_owners = pate(linear_voters(Shares(10, owners=range(300))))
    terms = Terms(neighbours=Neighbours.ADD_REMOVE)
    assert run_pate(clouds(), with_owners, Randomness(), terms=terms).neighbours is Neighbours.ADD_REMOVE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public_share": 0.001}, "public_share=0.001: leaves 0 of 200 test examples public"),
        ({"queries": 2, "rounds": 3}, "rounds=3: must be at most the 2 queries"),
        ({"choose": "best"}, "choose='best': must be one of"),
        ({"voters": linear_voters(Shares(301))}, "teachers=301: must be at most the 300 records"),
        ({"voters": linear_voters(Shares(10, owners=["one"]))}, "owners=1: must be one for each of the 300 records"),
    ],
)
def test_bad_runs_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        run_pate(clouds(), pate(**change), Randomness())


def test_what_is_told_holds_nothing_of_the_votes():
    """The public record is a function of the answers: other votes with the same answers give the same record."""
    plan = pate()
    result = run_pate(clouds(), plan, Randomness())
    votes = result.poll.unsafe_votes
    poll = dataclasses.replace(result.poll, unsafe_votes=votes[::-1].copy(), unsafe_tested=votes, unsafe_excluded=(3,))
    other = dataclasses.replace(result, poll=poll, epsilon=None)
    records = [public_record(one, plan, dataset="clouds", unit=UNIT) for one in (result, other)]
    assert json.dumps(records[0]) == json.dumps(records[1])
    assert not set(result.to_dict()["private"]) & set(records[0])
    assert "for one example under the replace-one relation" in records[0]["statement"]["sentence"]


def test_the_private_record_counts_the_votes():
    plan = pate()
    result = run_pate(clouds(), plan, Randomness())
    found = private_record(result, plan)
    votes = result.poll.unsafe_votes
    assert sum(found["agreement_histogram"]) == len(votes) == 100
    assert found["plurality_accuracy"] == np.mean(votes.argmax(1) == result.truth)
    top = [sorted(row) for row in votes.tolist()]
    assert found["gaps"] == [row[-1] - row[-2] for row in top]
    assert found["epsilon_by_queries"][-1]["epsilon"] == pytest.approx(result.epsilon.unsafe_value)
    assert found["aggregate_accuracy_by_gamma"][-1] > found["aggregate_accuracy_by_gamma"][0] + 0.3


def answers(count: int, answered: int) -> Answers:
    asked = np.arange(count)
    return Answers(asked, asked[:answered], np.zeros(answered, dtype=np.int64), out_of_budget=False)


def test_the_first_questions_cost_less():
    whole = [Round(QUIET, answers(40, 30)), Round(QUIET, answers(10, 10))]
    assert [one.answers.rows.tolist() for one in first(whole, 10)] == [list(range(10)), []]
    assert [len(one.answers.rows) for one in first(whole, 35)] == [30, 0]
    assert [len(one.answers.asked) for one in first(whole, 43)] == [40, 3]
    costs = [data_independent_epsilon(first(whole, count), 1e-5, Neighbours.REPLACE_ONE) for count in (0, 5, 50)]
    assert costs[0] == 0 < costs[1] < costs[2]


def test_samples_have_no_account_that_depends_on_votes():
    votes = np.full((40, 3), 5)
    assert data_dependent_epsilon(votes, [Round(KNN, answers(40, 40))], 1e-5) is None


def agreeing(count: int) -> np.ndarray:
    return np.tile([240, 6, 4], (count, 1))


@pytest.mark.parametrize("aggregator", [GNMax(40.0), ConfidentGNMax(200.0, 150.0, 40.0)])
def test_a_published_epsilon_is_too_small_as_rarely_as_it_says(aggregator):
    """The bound for these votes with the number's own cost: seeds are fixed, and half the shift would be seen."""
    votes, given = agreeing(300), [Round(aggregator, answers(300, 300))]
    plan = Publication.planned([(aggregator, 300)], 1e-5)
    cost = plan.unsafe_cost(votes, given)
    bound = rdp_to_epsilon(plan.order, cost.unsafe_divergence + plan.event.divergence(plan.order), 1e-5)
    published = np.array(
        [plan.epsilon(votes, given, 1e-5, Randomness(unsafe_seed=seed), unlimited(1)).epsilon for seed in range(300)]
    )
    assert 4 <= (published < bound).sum() <= 30
    assert data_dependent_epsilon(votes, given, 1e-5).unsafe_value < bound
    assert np.median(published) < data_independent_epsilon(given, 1e-5, Neighbours.REPLACE_ONE)


def test_a_run_publishes_its_epsilon_where_it_is_told_to():
    plan = pate(aggregator=GNMax(2.0), publish_epsilon=True)
    result = run_pate(clouds(), plan, Randomness())
    assert result.to_dict()["epsilon_released"] == result.epsilon_released.epsilon
    assert result.epsilon.unsafe_value < result.epsilon_released.epsilon
    assert run_pate(clouds(), pate(), Randomness()).epsilon_released is None
    with pytest.raises(InputError, match="aggregator='lnmax': its epsilon cannot be published"):
        run_pate(clouds(), pate(aggregator=LNMax(1.0), publish_epsilon=True), Randomness())


def book_with(place, epsilon_budget: float, rule: Rule = Rule.FIXED_PLAN) -> Ledger:
    budget, relation = Budget(epsilon_budget, 1e-5), Neighbours.REPLACE_ONE
    return Ledger.create(place / "book.sqlite", dataset="clouds", budget=budget, neighbours=relation, rule=rule)


def test_what_is_certain_counts_every_question_as_answered():
    """However many pass the test, the statement is that of all of them; without a test it is what there was."""
    relation, asked = Neighbours.REPLACE_ONE, np.arange(10)
    strict = ConfidentGNMax(threshold=200.0, sigma_threshold=9.0, sigma=4.0)
    every = epsilon(event_of(strict, relation, 10, 10), 1e-5, neighbours=relation)
    for answered in (0, 3, 10):
        some = Round(strict, Answers(asked, asked[:answered], asked[:answered], out_of_budget=False))
        assert data_independent_epsilon([some], 1e-5, relation) == pytest.approx(every)
    ended = Round(strict, Answers(asked, asked[:3], asked[:3], out_of_budget=True))
    one_more = epsilon(event_of(strict, relation, 11, 11), 1e-5, neighbours=relation)
    assert data_independent_epsilon([ended], 1e-5, relation) == pytest.approx(one_more)
    assert data_independent_epsilon([ended.first(4)], 1e-5, relation) < every
    untested = Round(GNMax(4.0), Answers(asked[:4], asked[:4], asked[:4], out_of_budget=True))
    assert data_independent_epsilon([untested], 1e-5, relation) == pytest.approx(
        epsilon(event_of(GNMax(4.0), relation, 0, 4), 1e-5, neighbours=relation)
    )


def test_a_budget_that_holds_whatever_is_looked_at_bounds_the_statement(tmp_path):
    rarely_agreed = ConfidentGNMax(threshold=14.0, sigma_threshold=4.0, sigma=4.0)  # most questions cost the test alone
    plan = pate(aggregator=rarely_agreed)
    account = book_with(tmp_path, 8.0, Rule.ADAPTIVE).account("clouds")
    result = run_pate(clouds(), plan, Randomness(), terms=terms_for(plan, account))
    assert data_independent_epsilon(result.rounds, 1e-5, result.neighbours) > 8.0
    assert result.epsilon_data_independent == 8.0
    elsewhere = Terms(account, Neighbours.REPLACE_ONE, account.unit)
    assert elsewhere.most(1e-5) == 8.0
    assert elsewhere.most(1e-6) == math.inf  # the budget is none at a smaller delta
    assert Terms(account, Neighbours.ADD_REMOVE, account.unit).most(1e-5) == math.inf
    assert Terms().most(1e-5) == math.inf


def test_a_published_epsilon_is_paid_for_before_its_noise_is_drawn(tmp_path, monkeypatch):
    account = book_with(tmp_path, 1000.0).account("clouds")
    plan = pate(aggregator=GNMax(2.0), publish_epsilon=True)
    drawn = []

    class Watched(publishing.Gaussian):
        def add_noise(self, value, stream):
            drawn.append((account.entries()[0].steps_drawn, account.entries()[0].state.value))
            return super().add_noise(value, stream)

    monkeypatch.setattr(publishing, "Gaussian", Watched)
    result = run_pate(clouds(), plan, Randomness(), terms=terms_for(plan, account))
    assert drawn == [(1, "reserved")]
    first_entry = account.entries()[0]
    assert first_entry.run == "pate (published epsilon)"
    assert account.spent() == pytest.approx(result.epsilon_data_independent)
    answers_alone = data_independent_epsilon(result.rounds, 1e-5, result.neighbours)
    assert result.epsilon_data_independent > answers_alone


def test_a_budget_that_ends_the_questions_still_holds_the_published_epsilon(tmp_path):
    account = book_with(tmp_path, 15.0).account("clouds")
    plan = pate(aggregator=GNMax(2.0), publish_epsilon=True)
    result = run_pate(clouds(), plan, Randomness(), terms=terms_for(plan, account))
    assert result.answers.out_of_budget
    assert result.epsilon_released is not None
    assert account.spent() == pytest.approx(result.epsilon_data_independent)
    assert account.spent() <= 15.0


def test_a_published_epsilon_that_does_not_fit_costs_nothing(tmp_path):
    account = book_with(tmp_path, 1.0).account("clouds")
    plan = pate(aggregator=GNMax(2.0), publish_epsilon=True)
    with pytest.raises(BudgetExceededError):
        run_pate(clouds(), plan, Randomness(), terms=terms_for(plan, account))
    assert account.spent() == 0


def test_several_runs_are_asked_for_with_all_of_their_questions_and_what_they_publish(tmp_path):
    plan, relation = pate(aggregator=GNMax(2.0)), Neighbours.REPLACE_ONE
    answers = epsilon(event_of(plan.aggregator, relation, 40, 40), 1e-5, neighbours=relation)
    account = book_with(tmp_path, 1.001 * answers).account("clouds")
    require_runs([plan], account)
    require_runs([plan, plan], None)
    for more in (
        [plan, plan],
        [pate(aggregator=GNMax(2.0), queries=41)],
        [pate(aggregator=GNMax(2.0), publish_epsilon=True)],
    ):
        with pytest.raises(BudgetExceededError):
            require_runs(more, account)
    assert not account.entries()
    wrong = Ledger.create(tmp_path / "wrong.sqlite", dataset="clouds", budget=None, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(InputError, match="neighbours='add-remove'"):
        require_runs([plan], wrong.account("clouds"))


def test_a_statement_speaks_of_the_published_epsilon_too():
    plan = pate(aggregator=GNMax(2.0), publish_epsilon=True)
    result = run_pate(clouds(), plan, Randomness())
    record = public_record(result, plan, dataset="clouds", unit=UNIT)
    assert "and of a published epsilon for these votes" in record["statement"]["sentence"]
    assert record["statement"]["accountant"] == "rdp"
    assert record["epsilon_released_failure"] == 0.05


def test_which_epsilon_will_be_published_is_chosen_before_any_vote():
    """Nothing of it depends on votes or answers: the plan for the same questions is the same."""
    early, late = (Publication.planned([(GNMax(40.0), 300)], 1e-5) for _ in range(2))
    assert early == late
    assert early.event.is_bounded_at(early.order)
    assert Publication.planned([(GNMax(40.0), 600)], 1e-5).order < early.order


def test_epsilons_of_laplace_noise_are_not_published():
    with pytest.raises(InputError, match="aggregator='lnmax': its epsilon cannot be published"):
        Publication.planned([(LNMax(0.05), 5)], 1e-5)


@pytest.mark.parametrize("wanted", [0.5, 3.0])
def test_noise_is_calibrated_to_the_whole_cost(wanted):
    found = calibrated_knn(60_000, 100, epsilon=wanted, delta=1e-5)
    assert found.voters == 100

    def cost(how: PrivateKNN) -> float:
        event = event_of(how, Neighbours.ADD_REMOVE, 100, 100)
        return epsilon(event, 1e-5, neighbours=Neighbours.ADD_REMOVE)

    assert 0.99 * wanted < cost(found) <= wanted
    less = dataclasses.replace(found.noise, sigma=0.95 * found.noise.sigma)
    assert cost(dataclasses.replace(found, noise=less)) > wanted


def test_defaults_scale_the_published_noise_with_the_teachers():
    data = clouds()
    plans = {
        name: pate_settings(data, Choices(teachers=100, aggregator=name)).aggregator
        for name in ("lnmax", "gnmax", "confident-gnmax")
    }
    assert plans["lnmax"] == LNMax(0.125)
    assert plans["gnmax"] == GNMax(16.0)
    assert plans["confident-gnmax"] == ConfidentGNMax(80.0, 60.0, 16.0)
    talk = pate_settings(data, Choices(teachers=100, aggregator="interactive-gnmax", queries=25, rounds=3)).interaction
    assert talk.questions == (8, 8, 9)
    assert (talk.opening.threshold, talk.checking.threshold, talk.confidence) == (80.0, 40.0, 0.9)
    told = Choices(aggregator="private-knn", sigma=3.0, threshold=4.0, sigma_threshold=5.0, voters=9)
    assert pate_settings(data, told).aggregator.noise == ConfidentGNMax(4.0, 5.0, 3.0)
    assert pate_settings(data, Choices(aggregator="private-knn", sigma=3.0)).aggregator.noise == GNMax(3.0)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"aggregator": "mean"}, "aggregator='mean': must be one of"),
        ({"epsilon": 1.0}, "epsilon=1: sets the noise of private-knn alone"),
        ({"confidence": 0.8}, "confidence=0.8: is for interactive-gnmax alone"),
        ({"sigma": 40.0}, "sigma=40: is for gnmax, .* alone, and the aggregator is lnmax"),
        ({"aggregator": "gnmax", "gamma": 0.05}, "gamma=0.05: is for lnmax alone, and the aggregator is gnmax"),
        ({"aggregator": "gnmax", "threshold": 200.0}, "threshold=200: is for confident-gnmax, .* alone"),
        ({"sigma_threshold": 5.0}, "sigma_threshold=5: is for confident-gnmax, .* alone"),
        ({"aggregator": "confident-gnmax", "voters": 9}, "voters=9: is for private-knn alone"),
        ({"aggregator": "gnmax", "sampling_rate": 0.01}, "sampling_rate=0.01: is for private-knn alone"),
        ({"aggregator": "interactive-gnmax", "rounds": 1}, "rounds=1: must be .*A student must be there before"),
        ({"aggregator": "interactive-gnmax", "confidence": 1.5}, "confidence=1.5"),
        ({"aggregator": "private-knn", "owners": ["one"]}, "owners: private-knn has no teachers"),
        ({"keep_teachers": Path("here")}, "keep_teachers='here': is for networks alone"),
        (
            {"aggregator": "private-knn", "sigma_threshold": 2.0},
            "sigma_threshold=2: there is no test without a threshold",
        ),
        ({"aggregator": "private-knn", "epsilon": 1.0, "sigma": 2.0}, "epsilon=1: sets the noise, and so does sigma"),
    ],
)
def test_choices_that_do_not_fit_are_refused(choices, message):
    with pytest.raises(InputError, match=message):
        pate_settings(clouds(), Choices(**choices))
