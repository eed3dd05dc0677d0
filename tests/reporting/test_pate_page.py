"""The page of a PATE run: what it shows, what it marks, and what a page for release never holds."""

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core import InputError
from tacit.reporting import write_report
from tacit.reporting.pate_figures import accuracy_by_gamma, agreement, epsilon_over_queries, gap_against_noise
from tacit.reporting.pate_page import PRIVATE_MARK, render_pate, write_pate_page
from tacit.reporting.pate_record import read_pate_record

SENTENCE = "The student is (9.7, 1e-05)-differentially private for one record under the replace-one relation."


def record(**changes):
    return {
        "dataset": "mnist",
        "statement": {"sentence": SENTENCE, "caveats": []},
        "epsilon_data_independent": 9.6543,
        "epsilon_released": 3.2109,
        "delta": 1e-5,
        "teachers": 250,
        "queries": 1000,
        "answered": 987,
        "noise_deviation": 28.3,
        "student_accuracy": 0.98761,
        "aggregator_accuracy": 0.95432,
        "student_curve": [{"step": step, "accuracy": 1 - 1 / (step / 100 + 2)} for step in range(0, 1001, 50)],
        "epsilon_by_queries": [{"queries": count, "epsilon": 0.3 * count**0.5} for count in range(0, 1001, 100)],
        "seconds": 75.0,
        "command": ["tacit", "pate", "mnist"],
        "created": "2026-11-15T12:12:44+02:00",
        "seed": 0,
        "plan": {"aggregator": {"kind": "lnmax", "gamma": 0.05}, "secret": "SECRET"},
        "versions": {"torch": "2.13.0", "home": "SECRET"},
        "hardware": {"cores": 2},
        "private": {
            "epsilon": 2.71828,
            "teacher_accuracy": 0.91727,
            "plurality_accuracy": 0.96643,
            "agreement_histogram": [0, 3, 7, 10, 80],
            "gaps": [5.0, 40.0, 41.0, 120.0, 200.0, 230.0, 250.0],
            "gammas": [0.001, 0.01, 0.05, 0.5],
            "aggregate_accuracy_by_gamma": [0.3, 0.8, 0.93219, 0.96],
            "epsilon_by_queries": [{"queries": count, "epsilon": 0.07 * count**0.5} for count in range(0, 1001, 100)],
        },
        **changes,
    }


def seen(page):
    """What a reader can see of the page."""
    return page.split("</style>")[1]


PRIVATE_TITLES = (
    *("How far the teachers agree", "The lead against the noise", "Accuracy of the aggregate against the noise"),
    *("for these votes</", "2.718", "91.73", "96.64"),
)


def test_the_owner_sees_everything_and_what_is_private_is_marked():
    page = render_pate(record())
    for part in (SENTENCE, "98.76 %", "95.43 %", "9.654", "3.211", "1e-5", "987", "of 1,000", "250", "1 min 15 s"):
        assert part in page, part
    for part in (*PRIVATE_TITLES, "tacit pate mnist", "torch 2.13.0", "lnmax, gamma 0.05", "2026-11-15 10:12 UTC"):
        assert part in page, part
    assert "SECRET" not in page
    assert page.count("<svg") == 5
    assert 'class="banner private" role="alert"' in page
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)
    marked = [PRIVATE_MARK in figure for figure in figures]
    titles = [re.search(r"<h2>(.*?)</h2>", figure)[1] for figure in figures]
    assert dict(zip(titles, marked, strict=True)) == {
        "The student learns": False,
        "Epsilon against queries": True,
        "How far the teachers agree": True,
        "The lead against the noise": True,
        "Accuracy of the aggregate against the noise": True,
    }
    public, private = re.findall(r"<dl.*?</dl>", page, flags=re.DOTALL)
    assert all(part in private and part not in public for part in ("2.718", "96.64 %", "91.73 %"))
    assert page.split(private)[0].rstrip().endswith(f"{PRIVATE_MARK}</span>")


def test_a_page_for_release_holds_nothing_that_votes_without_noise_said():
    page = render_pate(record(), public=True)
    for part in (SENTENCE, "98.76 %", "9.654", "3.211", "Epsilon against queries", "The student learns", "left out"):
        assert part in page, part
    for part in PRIVATE_TITLES:
        assert part not in seen(page), part
    assert PRIVATE_MARK not in page
    assert "Private" not in seen(page)
    assert page.count("<svg") == 2


@settings(max_examples=50, deadline=None)
@given(
    st.floats(0.01, 50),
    st.lists(st.integers(0, 10**4), min_size=1, max_size=30),
    st.lists(st.floats(0, 250), max_size=40),
    st.floats(0, 1),
)
def test_a_page_for_release_is_the_same_whatever_the_votes(epsilon, histogram, gaps, accuracy):
    other = copy.deepcopy(record())
    other["private"] |= {"epsilon": epsilon, "agreement_histogram": histogram, "gaps": gaps}
    other["private"] |= {"plurality_accuracy": accuracy, "epsilon_by_queries": []}
    assert read_pate_record(other, public=True) == read_pate_record(record(), public=True)
    assert read_pate_record(other) != read_pate_record(record())


def test_a_page_for_release_does_not_even_read_what_is_private():
    class Untouchable(dict):
        def get(self, key, default=None):
            assert key != "private"
            return super().get(key, default)

        def __getitem__(self, key):
            assert key != "private"
            return super().__getitem__(key)

    assert read_pate_record(Untouchable(record()), public=True).votes is None


def test_a_record_without_votes_has_no_marks():
    page = render_pate({key: value for key, value in record().items() if key != "private"})
    assert page == render_pate(record(), public=True)


def test_what_is_missing_is_not_drawn():
    bare = {"statement": {"sentence": SENTENCE}, "teachers": 3, "queries": 2, "answered": 0}
    page = render_pate({**bare, "private": {"epsilon": 1.0}})
    assert "<svg" not in page
    assert PRIVATE_MARK in page
    infinite = record(epsilon_by_queries=[{"queries": 1, "epsilon": None}, {"queries": 2, "epsilon": 1.5}])
    assert read_pate_record(infinite).epsilon_by_queries == ((2.0, 1.5),)


def test_figures_say_in_words_what_they_draw():
    votes = read_pate_record(record()).votes
    assert "On 80.0 % of 100 inputs 200 to 250 teachers agree" in agreement(votes, 250).caption
    # The difference of two counts has noise of deviation 28.3 times the root of two: 40.02, and 5 of 7 lead by more.
    assert "± 40, one standard deviation; 71.4 %" in gap_against_noise(votes, 28.3).caption
    assert "Noise" not in gap_against_noise(votes, None).caption
    assert "96.0 % at gamma 0.5" in accuracy_by_gamma(votes).caption
    both = epsilon_over_queries(read_pate_record(record()).epsilon_by_queries, votes).caption
    assert both == "After 1,000 queries: epsilon 9.49 whatever the votes, 2.21 for these votes."
    assert epsilon_over_queries((), None) is None


def test_the_page_stands_alone_and_escapes_what_others_wrote():
    page = render_pate(record(dataset="<b>x</b>", command="<script>alert(1)</script>"))
    assert "<b>x" not in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "@import" not in page
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    assert render_pate(record()) == render_pate(record())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"statement": {}}, "has no statement"),
        ({"teachers": None}, "teachers=None in the record: must be a count"),
        ({"queries": -1}, "queries=-1 in the record"),
        ({"answered": "all"}, "answered='all'"),
        ({"private": {"gammas": [1.0, 2.0], "aggregate_accuracy_by_gamma": [0.5]}}, "1 numbers for 2 gammas"),
        ({"private": {"gaps": [1.0, "two"]}}, "a list of numbers holds something else"),
    ],
)
def test_records_of_another_kind_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        render_pate(record(**changes))


def test_the_page_is_written_or_the_folder_is_named(tmp_path):
    page = write_pate_page(record(), tmp_path / "report.html", public=True)
    assert page.read_text(encoding="utf-8") == render_pate(record(), public=True)
    with pytest.raises(InputError, match=r"no/such/page.html.*cannot be written"):
        write_pate_page(record(), tmp_path / "no" / "such" / "page.html")


def test_the_page_for_release_is_written_again_from_a_runs_folder(tmp_path):
    """Also where somebody has put what votes say into the record."""
    (tmp_path / "run.json").write_text(json.dumps({**record(), "schema": 1}), encoding="utf-8")
    page = write_report(tmp_path)
    assert page == tmp_path / "report.html"
    assert page.read_text(encoding="utf-8") == render_pate(record(), public=True)
