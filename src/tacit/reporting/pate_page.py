"""The page of a PATE run: for the owner of the data with what the votes say, or for release without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.reporting import pate_figures as figures
from tacit.reporting.canvas import Drawing
from tacit.reporting.pate_record import PLAN_KEYS, PateRecord, read_pate_record
from tacit.reporting.rendering import Headline, display, duration, fill, moment, write_whole

PRIVATE_MARK = "private: for the owner of the data only"


def write_pate_page(values: Mapping[str, Any], path: Path, *, public: bool = False) -> Path:
    """Writes the page of a record, and says where it is; see `render_pate`."""
    html = render_pate(values, public=public)
    try:
        write_whole(path, html)
    except OSError as error:
        raise InputError(f"page={str(path)!r}: cannot be written ({error.strerror}). Choose another file.") from error
    return path


def render_pate(values: Mapping[str, Any], *, public: bool = False) -> str:
    """The page of a PATE run as text.

    What was computed from votes without noise carries the mark `PRIVATE_MARK`, and so does the page that shows it.

    Args:
        values: plain JSON values; `PateRecord` and `VoteRecord` name the keys.
        public: makes the page for release, without anything that was computed from votes without noise.
    """
    record = read_pate_record(values, public=public)
    return fill(
        "pate.html",
        {
            "record": record,
            "private_mark": PRIVATE_MARK,
            "headlines": _headlines(record),
            "private_headlines": _private_headlines(record),
            "figures": [(drawing, private) for drawing, private in _drawings(record) if drawing is not None],
            "plan": [(label, display(record.plan[key])) for key, label in PLAN_KEYS.items() if key in record.plan],
            "provenance": _provenance(record),
        },
    )


def _drawings(record: PateRecord) -> list[tuple[Drawing | None, bool]]:
    """Each figure, and whether it is private."""
    votes = record.votes
    of_votes = (
        []
        if votes is None
        else [
            figures.agreement(votes, record.teachers),
            figures.gap_against_noise(votes, record.noise_deviation),
            figures.accuracy_by_gamma(votes),
        ]
    )
    shows_votes = votes is not None and bool(votes.epsilon_by_queries)
    return [
        (figures.student_over_steps(record.student_curve), False),
        (figures.epsilon_over_queries(record.epsilon_by_queries, votes), shows_votes),
        *((drawing, True) for drawing in of_votes),
    ]


def _headlines(record: PateRecord) -> list[Headline]:
    headlines = []
    if record.student_accuracy is not None:
        headlines.append(Headline("Student’s accuracy", _percent(record.student_accuracy), "on examples nobody saw"))
    if record.epsilon is not None:
        headlines.append(Headline("Epsilon", display(record.epsilon), "whatever the votes"))
    if record.epsilon_released is not None:
        headlines.append(Headline("Epsilon released", display(record.epsilon_released), "for these votes, with noise"))
    if record.delta is not None:
        headlines.append(Headline("Delta", display(record.delta)))
    headlines.append(Headline("Answered", display(record.answered), f"of {record.queries:,} queries"))
    headlines.append(Headline("Teachers", display(record.teachers)))
    if record.aggregator_accuracy is not None:
        headlines.append(Headline("Answers right", _percent(record.aggregator_accuracy), "of those given"))
    if record.seconds is not None:
        headlines.append(Headline("Time", duration(record.seconds)))
    return headlines


def _private_headlines(record: PateRecord) -> list[Headline]:
    if record.votes is None:
        return []
    votes, headlines = record.votes, []
    if votes.epsilon is not None:
        headlines.append(Headline("Epsilon", display(votes.epsilon), "for these votes"))
    if votes.plurality_accuracy is not None:
        headlines.append(Headline("Votes without noise", _percent(votes.plurality_accuracy), "right"))
    if votes.teacher_accuracy is not None:
        headlines.append(Headline("A teacher alone", _percent(votes.teacher_accuracy), "right, in the mean"))
    return headlines


def _provenance(record: PateRecord) -> list[tuple[str, str]]:
    rows = [
        ("Created", moment(record.created)),
        ("Command", record.command),
        ("Seed", record.seed),
        ("Versions", display(record.versions)),
        ("Hardware", display(record.hardware)),
    ]
    return [(label, value) for label, value in rows if value]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
