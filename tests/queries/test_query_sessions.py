"""Sessions: the ledger comes before the noise, and what answers cost together is what the theorems say."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from query_tables import SCHEMA, table

from tacit.accounting import gaussian_delta, gaussian_epsilon
from tacit.core import BudgetExceededError, InputError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.datasets.tables import as_schema
from tacit.ledger import EntryState, Ledger
from tacit.queries import Count, Histogram, Mean, Quantile, Session, Sum, Terms, Top, Variance, Where, ask
from tacit.queries.composition import compose
from tacit.queries.query import Setting

TABLE = table([0.0, 1.0, 2.0, 3.0], "aabc", [0, 1, 1, 0])
DELTA = 1e-6
EVERY = [Count("x"), Histogram("city"), Sum("x"), Mean("x"), Variance("x"), Quantile("x"), Top("city", count=2)]


@pytest.fixture
def account(tmp_path):
    def make(epsilon: float, delta: float = DELTA, **terms):
        book = Ledger.create(tmp_path / "budget.sqlite", dataset="people", budget=Budget(epsilon, delta), **terms)
        return book.account("people")

    return make


@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.kind)
def test_each_answer_is_one_entry_that_costs_its_epsilon(query, account) -> None:
    open_account = account(0.5, 0.0)
    ask(query, TABLE, Terms(0.5), account=open_account, run="first")
    (entry,) = open_account.entries()
    assert (entry.state, entry.run, entry.steps_charged) == (EntryState.COMMITTED, "first", 1)
    assert open_account.spent() == pytest.approx(0.5, rel=1e-9)
    with pytest.raises(BudgetExceededError):
        ask(query, TABLE, Terms(0.01), account=open_account)


@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE])
@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.kind)
def test_an_account_of_exactly_the_cost_holds_it_under_each_relation(query, neighbours, account) -> None:
    query = Count("x", where=Where("flag", "1")) if query == Count("x") else query
    mechanism = {} if query.kind in ("quantile", "top") else {"delta": DELTA}
    open_account = account(0.5 * (1 + 1e-6), neighbours=neighbours)
    ask(query, TABLE, Terms(0.5, neighbours=neighbours, **mechanism), account=open_account)
    assert 0.4 < open_account.spent() <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE])
@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.kind)
def test_an_account_with_a_delta_takes_two_pure_answers_of_each_kind(query, neighbours, account) -> None:
    query = Count("x", where=Where("flag", "1")) if query == Count("x") else query
    open_account = account(0.6, neighbours=neighbours)
    session = Session(TABLE, account=open_account)
    pairs = [(query, session.terms(0.3))] * 2
    session.require(pairs)
    for pair in pairs:
        session.ask(*pair)
    assert 0.55 < open_account.spent() <= 0.6
    with pytest.raises(BudgetExceededError):
        session.ask(query, session.terms(0.1))


@pytest.mark.parametrize("delta", [0.0, 1e-8])
@pytest.mark.parametrize("kind", [Sum, Mean, Variance])
def test_two_answers_without_a_ledger_compose(kind, delta: float) -> None:
    session = Session(TABLE)
    for _ in range(2):
        session.ask(kind("x"), session.terms(0.3, delta))
    found = session.composition(DELTA)
    assert 0.2 < found.pld <= found.basic <= 0.6 * (1 + 1e-9)
    assert delta or found.pld == pytest.approx(0.6, rel=1e-4)


@pytest.mark.parametrize("kind", [Sum, Mean, Variance])
def test_two_gaussian_answers_of_one_kind_are_charged_as_one_gaussian(kind, account) -> None:
    open_account = account(0.6)
    session = Session(TABLE, account=open_account)
    for _ in range(2):
        multiplier = session.ask(kind("x"), session.terms(0.3, 1e-8)).event().noise_multiplier
    assert open_account.spent() == pytest.approx(gaussian_epsilon(multiplier / math.sqrt(2), DELTA), rel=1e-4)


def test_the_accounting_of_sums_and_moments_takes_little_memory() -> None:
    """The process's own peak: one number for each step of a row, and no more for a person with many rows."""
    program = (
        "import resource, sys\n"
        "from query_tables import SCHEMA\n"
        "from tacit.core.privacy import PrivacyUnit\n"
        "from tacit.datasets.tables import as_schema\n"
        "from tacit.queries import Count, Mean, Sum, Terms, Variance\n"
        "from tacit.queries.composition import compose\n"
        "from tacit.queries.query import Setting\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def cost(kind, rows):\n"
        "    terms = Terms(0.3, unit=PrivacyUnit('person', rows))\n"
        "    costs = [kind('x').cost(Setting(as_schema(SCHEMA), terms))] * 2\n"
        "    return compose(costs, 1e-6, terms.neighbours, terms.unit).pld\n"
        "cost(Count, 1)\n"
        "before = peak()\n"
        "found = [cost(kind, rows) for kind in (Sum, Mean, Variance) for rows in (1, 16, 1000)]\n"
        "print(min(found), max(found), peak() - before)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    least, most, kilobytes = map(float, ran.stdout.split())
    assert 0.55 < least <= most <= 0.6
    assert kilobytes < 200_000


def test_no_noise_is_drawn_before_the_ledger_knows(account, monkeypatch) -> None:
    open_account, seen = account(1.0), []

    def spying(self, tally, setting, stream):
        seen.append(open_account.entries()[-1].steps_drawn)
        raise RuntimeError("stopped where the noise begins")

    monkeypatch.setattr(Count, "read", spying)
    with pytest.raises(RuntimeError):
        ask(Count("x"), TABLE, Terms(0.5), account=open_account)
    assert seen == [1]
    assert open_account.spent() > 0.49  # what was begun is spent


def test_a_table_that_cannot_be_read_costs_nothing(account) -> None:
    open_account = account(1.0)
    with pytest.raises(InputError, match=r"row 2.*outside"):
        ask(Sum("x"), table([0.0, 9.0]), Terms(0.5), account=open_account)
    assert open_account.entries() == []


def test_a_cell_that_cannot_be_read_loses_no_answer_that_was_paid_for(account) -> None:
    """The bad one is in the column of the last query; the first ones read only good cells."""
    open_account = account(1.0)
    session = Session(table([0.0, 9.0], "ab"), account=open_account)
    wanted = [(Histogram("city"), session.terms(0.2)), (Sum("x"), session.terms(0.2))]
    with pytest.raises(InputError, match=r"row 2.*outside"):
        session.ask_all(wanted)
    assert open_account.entries() == []
    assert session.answers == []
    assert [answer.query["kind"] for answer in session.ask_all(wanted[:1] * 2)] == ["histogram"] * 2
    assert len(open_account.entries()) == len(session.answers) == 2


def test_a_refused_answer_reads_no_noise(account, monkeypatch) -> None:
    monkeypatch.setattr(Count, "read", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExceededError):
        ask(Count("x"), TABLE, Terms(0.5), account=account(0.4))


def test_the_unit_of_an_account_is_that_of_its_answers(account) -> None:
    person = PrivacyUnit("person", 3)
    open_account = account(0.6, 0.0, unit=person)
    session = Session(TABLE, account=open_account)
    assert session.unit == person
    answer = session.ask(Count("x"), session.terms(0.6))
    assert answer.reading.scale == pytest.approx(3 / 0.6)
    assert open_account.spent() == pytest.approx(0.6, rel=1e-9)
    with pytest.raises(InputError, match="unit="):
        ask(Count("x"), TABLE, Terms(0.1), account=open_account)


def test_queries_are_refused_together_before_any_is_asked(account) -> None:
    open_account = account(1.0, 0.0)
    session = Session(TABLE, account=open_account)
    wanted = [(Count("x"), session.terms(0.6)), (Sum("x"), session.terms(0.6))]
    with pytest.raises(BudgetExceededError):
        session.require(wanted)
    assert open_account.entries() == []
    session.require(wanted[:1])


def test_gaussians_compose_to_one_gaussian() -> None:
    session = Session(TABLE)
    for query in (Count("x"), Histogram("city"), Mean("x"), Variance("x")):
        session.ask(query, session.terms(0.5, DELTA))
    found = session.composition(1e-5)
    multiplier = session.answers[0].event().noise_multiplier
    assert found.pld == pytest.approx(gaussian_epsilon(multiplier / 2, 1e-5), rel=1e-6)
    assert found.pld < found.strong <= found.basic
    assert gaussian_delta(multiplier, 0.5) == pytest.approx(DELTA, rel=1e-4)


def test_pure_answers_compose_as_the_theorems_say() -> None:
    """Fifty counts at a tenth each: basic 5, strong as its formula, and loss distributions below both."""
    terms = Terms(0.1)
    costs = [Count("x").cost(Setting(as_schema(SCHEMA), terms))] * 50
    found = compose(costs, 1e-5, terms.neighbours, terms.unit)
    assert found.basic == pytest.approx(5.0)
    formula = min(
        50 * 0.1 * math.tanh(0.05) + math.sqrt(-2 * 50 * 0.1**2 * math.log(1e-5)),
        5.0,
    )
    assert found.strong == pytest.approx(formula, rel=1e-2)
    assert found.pld < found.strong < found.basic


@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.kind)
@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE])
def test_a_persons_rows_count_together_in_every_theorem(query, neighbours) -> None:
    query = Count("x", where=Where("flag", "1")) if query == Count("x") else query
    terms = Terms(0.8, neighbours=neighbours, unit=PrivacyUnit("person", 3))
    cost = query.cost(Setting(as_schema(SCHEMA), terms))
    found = compose([cost], 1e-9, terms.neighbours, terms.unit)
    assert found.basic == pytest.approx(0.8)
    assert 0.7 < found.pld <= 0.8 * (1 + 1e-6)
    one = compose([cost], 1e-9, terms.neighbours, PrivacyUnit())
    assert one.basic == pytest.approx(0.8 / 3)


def test_two_answers_of_one_session_share_no_noise() -> None:
    session = Session(TABLE, randomness=Randomness(unsafe_seed=5))
    terms = session.terms(0.001)
    first, second = session.ask(Count("x"), terms), session.ask(Count("x"), terms)
    assert first.value != second.value
    with pytest.raises(InputError, match="terms"):
        session.ask(Count("x"), Terms(1.0, unit=PrivacyUnit("other")))


def test_a_sessions_statement_names_every_query_with_its_condition() -> None:
    session = Session(TABLE)
    for query in (Count("x", where=Where("city", "a")), Mean("x", where=Where("flag", "1")), Histogram("city")):
        session.ask(query, session.terms(0.1))
    said = str(session.statement(DELTA))
    assert "a count where city=a, a mean of x where flag=1, a histogram of city" in said
    assert "a count where city=a by discrete Laplace noise" in str(session.answers[0].statement())


def test_an_empty_session_costs_nothing() -> None:
    assert Session(TABLE).composition(1e-5).to_dict() == {"basic": 0.0, "strong": 0.0, "pld": 0.0}


def test_memory_is_bounded_by_a_chunk_and_not_by_the_file(tmp_path) -> None:
    """Arrow's own peak while a query reads, in a process of its own: that of three million rows is that of one."""
    program = (
        "import sys, pyarrow as pa\n"
        "from tacit.datasets.tables import Table\n"
        "from tacit.queries import Histogram\n"
        "schema = {'columns': {'x': {'type': 'number', 'lower': -1, 'upper': 3}}}\n"
        "sums = Histogram('x', 4).tally(Table.open(sys.argv[1], schema)).sums\n"
        "print(sum(sums), pa.default_memory_pool().max_memory())"
    )
    peaks = {}
    for millions in (1, 3):
        path, rows = tmp_path / f"{millions}.parquet", millions * 10**6
        numbers = np.random.default_rng(millions).uniform(-1, 3, rows)
        pq.write_table(pa.table({"x": numbers}), path, row_group_size=500_000, use_dictionary=False)
        ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
        counted, peaks[millions] = map(int, ran.stdout.split())
        assert counted == rows
    assert peaks[3] <= 1.2 * peaks[1]
    assert peaks[3] < 8 * 3 * 10**6  # the bytes of the column
