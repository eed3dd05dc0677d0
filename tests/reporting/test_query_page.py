"""The page of private answers holds what was released, with words for those who do not see the figures."""

import re

import pyarrow as pa
import pytest

from tacit.core.errors import InputError
from tacit.datasets.tables import Table
from tacit.queries import Session
from tacit.queries.listing import Listed, Priced, build_query
from tacit.queries.record import answer_all
from tacit.reporting.query_page import prepare_folder, render_answers, write_query_page

SCHEMA = {
    "columns": {
        "age": {"type": "number", "lower": 0, "upper": 100},
        "town": {"type": "category", "categories": ["<b>", "Köln"]},
    }
}
TABLE = Table.open(pa.table({"age": [20.0, 30.0, 70.0], "town": ["<b>", "Köln", "Köln"]}), SCHEMA)
KINDS = [
    {"kind": "count", "column": "age"},
    {"kind": "histogram", "column": "town"},
    {"kind": "histogram", "column": "age", "bins": 40},
    {"kind": "sum", "column": "age"},
    {"kind": "mean", "column": "age"},
    {"kind": "variance", "column": "age"},
    {"kind": "quantile", "column": "age"},
    {"kind": "top", "column": "town"},
]


def record(kinds, delta=0.0):
    queries = tuple(Priced(build_query(facts), 0.5, delta, "") for facts in kinds)
    return answer_all(Session(TABLE), Listed(queries, 1e-6), 0.95, compared=True)


@pytest.mark.parametrize(
    "facts", KINDS, ids=lambda facts: "-".join(facts.values() if "bins" not in facts else ["bins"])
)
def test_each_kind_of_answer_has_a_page(facts):
    answers = record([facts])
    page = render_answers(answers)
    (answer,) = answers["answers"]
    assert answer["statement"] in page
    figures = page.count("<svg")
    assert figures == (0 if facts["kind"] in ("quantile", "top") else 2 if facts["kind"] == "histogram" else 1)
    assert len(re.findall(r'<svg[^>]*aria-label="[^"]+"', page)) == figures
    assert "<b>" not in page.replace("<blockquote>", "")
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/\S+", "", page)


def test_bars_show_the_released_counts_and_both_intervals():
    (answer,) = (answers := record([{"kind": "histogram", "column": "town"}], delta=1e-5))["answers"]
    page = render_answers(answers)
    assert f"Köln {answer['value'][1]:,}" in page
    radius = answer["comparison"]["radius"]
    assert f"within {radius['gaussian']:,.0f} of its bar with 95 % (gaussian)" in page
    assert f"within {radius['laplace']:,.0f} if laplace noise had been drawn" in page
    assert f"± {radius['gaussian']:,.0f}  gaussian, drawn" in page
    assert f"± {radius['laplace']:,.0f}  laplace" in page
    assert (answer["interval"][0][1] - answer["interval"][0][0]) / 2 == radius["gaussian"]


def test_errors_fall_with_epsilon_and_the_classical_bound_lies_above():
    comparison = record([{"kind": "count", "column": "age"}])["answers"][0]["comparison"]
    errors = comparison["errors"]
    for name in ("laplace", "gaussian"):
        assert all(one > other for one, other in zip(errors[name], errors[name][1:], strict=False))
    proved = [(a, b) for a, b in zip(errors["gaussian"], errors["classical gaussian"], strict=True) if b is not None]
    assert proved
    assert all(ours < classical for ours, classical in proved)


def test_several_answers_show_what_they_cost_together():
    answers = record(KINDS[:3])
    page = render_answers(answers)
    assert answers["statement"] in page
    assert "What all answers cost together" in page
    assert page.count("<h1>3 answers") == 1


def test_page_and_record_are_written(tmp_path):
    page = write_query_page(tmp_path / "new" / "folder", record(KINDS[:1]))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (page.parent / "answers.json").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_spent(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out="):
        prepare_folder(tmp_path / "file")
