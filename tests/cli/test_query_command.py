"""``tacit query`` through its real entry point."""

import json
import subprocess
import sys

import pytest
from command_line import run_process, run_tacit

SESSION = """
delta = 1e-6

[[query]]
kind = "histogram"
column = "age"
bins = [18, 40, 90]
epsilon = 0.2

[[query]]
kind = "mean"
column = "age"
where = "employed=1"
epsilon = 0.5
delta = 1e-7

[[query]]
kind = "top"
column = "city"
epsilon = 0.3
"""


def answer(folder, *arguments):
    ran = run_tacit("query", *arguments, "--json", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_count_needs_no_schema(table):
    found = answer(table, "count", "people.csv", "--column", "age", "--epsilon", "1")
    assert {"value", "scale", "epsilon", "delta", "interval", "statement"} <= found.keys()
    assert (found["scale"], found["epsilon"], found["delta"]) == (1.0, 1.0, 0.0)
    assert abs(found["value"] - 200) < 40


@pytest.mark.parametrize(
    ("arguments", "about", "within"),
    [
        (("histogram", "--column", "age", "--bins", "18,48,90"), [120, 80], 40),
        (("histogram", "--column", "city", "--schema", "people.toml"), [100, 100], 40),
        (("count", "--column", "age", "--where", "employed=1", "--schema", "people.toml"), 67, 40),
        (("sum", "--column", "age", "--bounds", "0,100"), 9300, 4000),
        (("mean", "--column", "age", "--bounds", "18,90"), 46.5, 25),
        (("mean", "--column", "employed", "--schema", "people.toml", "--delta", "1e-3"), 0.335, 0.5),
        (("variance", "--column", "age", "--schema", "people.toml"), 300, 400),
        (("quantile", "--column", "age", "--schema", "people.toml"), 46, 30),
        (("quantile", "--column", "age", "--bounds", "18,90", "--q", "0.9"), 72, 30),
    ],
)
def test_each_kind_answers_from_the_command_line(table, arguments, about, within):
    kind, *options = arguments
    found = answer(table, kind, "people.csv", *options, "--epsilon", "1")
    assert found["value"] == pytest.approx(about, abs=within)
    assert found["kind"] == kind


def test_the_most_common_values_come_in_order(table):
    schema = ("--schema", "people.toml")
    found = answer(table, "top", "people.csv", "--column", "city", *schema, "--epsilon", "50", "--count", "2")
    assert sorted(found["value"]) == ["Bonn", "Köln"]


def test_group_size_and_relation_change_the_noise(table):
    asked = ("histogram", "people.csv", "--column", "city", "--schema", "people.toml", "--epsilon", "1")
    assert answer(table, *asked)["scale"] == 1
    assert answer(table, *asked, "--group-size", "4")["scale"] == 4
    assert answer(table, *asked, "--neighbours", "replace-one")["scale"] == 2
    assert answer(table, *asked, "--delta", "1e-6")["scale"] == pytest.approx(4.22, abs=0.03)


def test_a_ledger_is_charged_and_then_refuses(table):
    made = run_tacit(
        *("ledger", "create", "book.sqlite", "--dataset", "people.csv", "--epsilon", "1", "--delta", "1e-6"),
        *("--unit", "person", "--unit-examples", "2"),
        cwd=table,
    )
    assert made.returncode == 0, made.stderr
    asked = ("count", "people.csv", "--column", "age", "--epsilon", "0.7", "--ledger", "book.sqlite")
    found = answer(table, *asked)
    assert found["unit"] == "person (up to 2 examples)"
    assert found["scale"] == pytest.approx(2 / 0.7)
    again = run_tacit("query", *asked, cwd=table)
    assert again.returncode == 3
    assert "budget" in again.stderr
    spent = json.loads(run_tacit("ledger", "show", "book.sqlite", "--json", cwd=table).stdout)
    assert len(spent["entries"]) == 1
    assert spent["spent"]["epsilon"] == pytest.approx(0.7, rel=1e-2)


@pytest.mark.parametrize("kind", ["sum", "mean", "variance"])
def test_a_ledger_with_a_delta_takes_laplace_noise_on_numbers(table, kind):
    made = ("ledger", "create", "book.sqlite", "--dataset", "people.csv", "--epsilon", "3", "--delta", "1e-6")
    assert run_tacit(*made, cwd=table).returncode == 0
    asked = (kind, "people.csv", "--column", "age", "--bounds", "0,100", "--epsilon", "0.3", "--ledger", "book.sqlite")
    for _ in range(2):
        answer(table, *asked)
    spent = json.loads(run_tacit("ledger", "show", "book.sqlite", "--json", cwd=table).stdout)
    assert spent["spent"]["epsilon"] == pytest.approx(0.6, rel=1e-3)


def test_a_session_answers_all_and_composes_them(table):
    (table / "list.toml").write_text(SESSION)
    asked = ("session", "people.csv", "--queries", "list.toml", "--schema", "people.toml")
    found = answer(table, *asked)
    assert [one["kind"] for one in found["answers"]] == ["histogram", "mean", "top"]
    assert found["epsilon"] == found["composition"]["pld"] <= found["composition"]["basic"]
    assert found["delta"] == 1e-6
    said = run_tacit("query", *asked, cwd=table)
    assert "loss" not in said.stderr
    assert "basic" in said.stdout
    assert "list of 3 answers" in said.stdout


def test_a_session_that_does_not_fit_asks_nothing(table):
    (table / "list.toml").write_text(SESSION)
    made = ("ledger", "create", "book.sqlite", "--dataset", "people.csv", "--epsilon", "0.6", "--delta", "1e-6")
    assert run_tacit(*made, cwd=table).returncode == 0
    asked = ("session", "people.csv", "--queries", "list.toml", "--schema", "people.toml", "--ledger", "book.sqlite")
    assert run_tacit("query", *asked, cwd=table).returncode == 3
    assert json.loads(run_tacit("ledger", "show", "book.sqlite", "--json", cwd=table).stdout)["entries"] == []


def test_a_bad_cell_in_the_column_of_a_later_query_charges_nothing(table):
    (table / "list.toml").write_text(SESSION)
    lines = (table / "people.csv").read_text().splitlines()
    place = lines[0].split(",").index("city")
    cells = lines[-1].split(",")
    lines[-1] = ",".join([*cells[:place], "Atlantis", *cells[place + 1 :]])
    (table / "people.csv").write_text("\n".join(lines) + "\n")
    made = ("ledger", "create", "book.sqlite", "--dataset", "people.csv", "--epsilon", "3", "--delta", "1e-6")
    assert run_tacit(*made, cwd=table).returncode == 0
    asked = ("session", "people.csv", "--queries", "list.toml", "--schema", "people.toml", "--ledger", "book.sqlite")
    ran = run_tacit("query", *asked, cwd=table)
    assert ran.returncode == 2
    assert "Atlantis" in ran.stderr
    assert json.loads(run_tacit("ledger", "show", "book.sqlite", "--json", cwd=table).stdout)["entries"] == []


def test_prose_tells_value_interval_and_statement(table):
    bounded = ("--column", "age", "--bounds", "18,90", "--epsilon", "1")
    said = run_tacit("query", "mean", "people.csv", *bounded, cwd=table).stdout
    assert "mean of age: " in said
    assert "95 % confidence" in said
    assert "differentially private" in said
    said = run_tacit("query", "histogram", "people.csv", *bounded, "--bins", "60", cwd=table).stdout
    assert "[18, 19.2)" in said
    assert "and 20 more" in said


def test_a_page_comes_with_its_record(table):
    found = answer(
        *(table, "histogram", "people.csv", "--column", "city", "--schema", "people.toml", "--epsilon", "1"),
        *("--out", "answers"),
    )
    page = (table / found["page"]).read_text(encoding="utf-8")
    assert "Köln" in page
    assert json.loads((table / "answers" / "answers.json").read_text())["answers"][0]["value"] == found["value"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "people.csv", "--column", "age", "--epsilon", "0"), "epsilon=0.0: must be a finite number above 0"),
        (("count", "people.csv", "--column", "age"), "epsilon=None: say what the answer may cost"),
        (("count", "people.csv", "--epsilon", "1"), "column=None: say which column"),
        (("count", "people.csv", "--column", "agee", "--epsilon", "1"), "has no column 'agee'. The nearest are age"),
        (("median", "people.csv", "--column", "age", "--epsilon", "1"), "kind='median': must be one of"),
        (("mean", "people.csv", "--column", "age", "--epsilon", "1"), "a mean needs public bounds, or a schema"),
        (
            ("mean", "people.csv", "--column", "age", "--bounds", "90,18", "--epsilon", "1"),
            "lower one must be below",
        ),
        (
            ("mean", "people.csv", "--column", "city", "--bounds", "0,1", "--epsilon", "1"),
            "'Bonn' is not a number",
        ),
        (
            ("quantile", "people.csv", "--column", "age", "--bounds", "18,90", "--q", "1.5", "--epsilon", "1"),
            "q=1.5: must lie between 0 and 1",
        ),
        (("histogram", "people.csv", "--column", "age", "--bins", "1,1", "--epsilon", "1"), "must be in rising order"),
        (("mean", "people.csv", "--column", "age", "--bins", "1,2", "--epsilon", "1"), "a mean has none"),
        (("count", "empty.csv", "--column", "age", "--epsilon", "1"), "is empty. It needs a header and rows"),
        (("count", "header.csv", "--column", "age", "--epsilon", "1"), "has a header but no rows"),
        (("mean", "nan.csv", "--column", "age", "--bounds", "0,9", "--epsilon", "1"), "row 2: 'nan' is not a finite"),
        (("count", "ragged.csv", "--column", "age", "--epsilon", "1"), "row 2: has 1 cells where the header has 2"),
        (("count", "nowhere.csv", "--column", "age", "--epsilon", "1"), "cannot be read"),
        (("session", "people.csv"), "a session needs a file with its queries"),
        (("session", "people.csv", "--column", "age"), "--column age: is said for each query of a session"),
        (
            ("count", "people.csv", "--column", "age", "--epsilon", "1", "--group-size", "0"),
            "max_examples=0: must be at least 1",
        ),
        (
            ("count", "people.csv", "--column", "age", "--epsilon", "1", "--out", "people.csv"),
            "out='people.csv': cannot be a folder",
        ),
    ],
)
def test_bad_input_is_one_line(table, arguments, message):
    (table / "empty.csv").write_text("")
    (table / "header.csv").write_text("age,city\n")
    (table / "nan.csv").write_text("age\n1\nnan\n")
    (table / "ragged.csv").write_text("age,city\n1,a\n2\n")
    ran = run_tacit("query", *arguments, cwd=table)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""


def test_the_installed_program_answers(table):
    ran = run_process("query", "count", "people.csv", "--column", "age", "--epsilon", "1", "--json", cwd=table)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["kind"] == "count"


def test_an_answer_waits_for_neither_torch_nor_accountants(table):
    """They take seconds to load, and a statistic without a ledger needs none of them."""
    program = (
        "import sys; sys.argv = ['tacit', 'query', 'histogram', 'people.csv', '--column', 'age', '--bins', '18,40,90',"
        " '--epsilon', '1', '--json']\n"
        "from tacit.cli import _run\n"
        "assert _run() == 0\n"
        "print([name for name in 'torch dp_accounting scipy sqlalchemy matplotlib'.split() if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=table, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"
