"""Budgets, units and statements carry everything that an epsilon depends on."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import Budget, InputError, Neighbours, PrivacyUnit, Statement

STATEMENT = Statement(
    epsilon=2.71828,
    delta=1e-5,
    neighbours=Neighbours.ADD_REMOVE,
    unit=PrivacyUnit(),
    mechanism="500 steps of DP-SGD with noise multiplier 1.1",
    sampler="Poisson sampling at rate 0.01",
    accountant="pld",
)


def test_a_statement_is_one_sentence_with_every_assumption() -> None:
    assert str(STATEMENT) == (
        "The released model is (2.719, 1e-05)-differentially private for one example under the add-remove relation, "
        "as the outcome of 500 steps of DP-SGD with noise multiplier 1.1, with Poisson sampling at rate 0.01, "
        "accounted by pld."
    )


@given(st.floats(1e-9, 1e6))
def test_the_printed_epsilon_is_never_below_the_true_one(epsilon: float) -> None:
    sentence = str(dataclasses.replace(STATEMENT, epsilon=epsilon))
    printed = float(sentence.split("(")[1].split(",")[0])
    assert epsilon <= printed <= epsilon * 1.001


def test_caveats_are_clauses_of_the_sentence() -> None:
    weakened = dataclasses.replace(STATEMENT, caveats=("a fixed seed voids the guarantee", "two runs shared it"))
    assert str(weakened).endswith("accounted by pld; a fixed seed voids the guarantee; two runs shared it.")


def test_users_with_several_examples_are_named() -> None:
    unit = PrivacyUnit("user", max_examples=8)
    assert "for one user (up to 8 examples) under" in str(dataclasses.replace(STATEMENT, unit=unit))
    assert str(PrivacyUnit("user")) == "user"
    with pytest.raises(InputError, match="max_examples=0"):
        PrivacyUnit("user", max_examples=0)


@pytest.mark.parametrize("epsilon", [math.inf, math.nan])
def test_without_a_finite_epsilon_nothing_is_claimed(epsilon: float) -> None:
    nothing = dataclasses.replace(STATEMENT, epsilon=epsilon)
    assert "is not differentially private (epsilon is infinite)" in str(nothing)
    assert nothing.to_dict()["epsilon"] is None
    json.dumps(nothing.to_dict(), allow_nan=False)


@given(
    epsilon=st.floats(0, 1e6),
    delta=st.floats(0, 1, exclude_max=True),
    neighbours=st.sampled_from(Neighbours),
    examples=st.integers(1, 100),
    caveats=st.lists(st.text(max_size=20), max_size=3),
)
def test_the_dictionary_is_plain_json_with_every_field(
    epsilon: float, delta: float, neighbours: Neighbours, examples: int, caveats: list[str]
) -> None:
    statement = dataclasses.replace(
        STATEMENT,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        unit=PrivacyUnit("user", examples),
        caveats=tuple(caveats),
    )
    plain = statement.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain) == {field.name for field in dataclasses.fields(Statement)} | {"sentence"}
    assert (plain["epsilon"], plain["delta"], plain["neighbours"]) == (epsilon, delta, neighbours.value)
    assert plain["sentence"] == str(statement)


def test_relations_have_the_names_of_the_interface() -> None:
    assert [relation.value for relation in Neighbours] == ["add-remove", "replace-one", "zero-out"]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (1.0, 0), (8, 0.99)])
def test_budgets_in_range_are_kept(epsilon: float, delta: float) -> None:
    budget = Budget(epsilon, delta)
    assert (budget.epsilon, budget.delta) == (epsilon, delta)
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 3.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (-1, 1e-5, r"^epsilon=-1: .*Typical budgets"),
        (math.nan, 1e-5, "^epsilon=nan: "),
        (math.inf, 1e-5, "^epsilon=inf: "),
        (1, 1.0, r"^delta=1.0: must lie strictly between 0 and 1\. Take it well below"),
        (1, -1e-9, "^delta=-1e-09: "),
        (1, math.nan, "^delta=nan: "),
    ],
)
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Budget(epsilon, delta)
