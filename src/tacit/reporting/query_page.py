"""The page of private answers: one HTML file that needs nothing else, with its record beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.reporting.canvas import Drawing
from tacit.reporting.query_figures import composition_bars, error_lines, histogram_bars
from tacit.reporting.rendering import Headline, display, fill, moment, write_whole

Answer = Mapping[str, Any]


def prepare_folder(folder: Path | str) -> Path:
    """The folder, made where it is missing: before anything is spent on what would be written there."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out={str(path)!r}: cannot be a folder ({error.strerror}). Choose another.") from error
    return path


def write_query_page(folder: Path | str, record: Mapping[str, Any]) -> Path:
    """Write ``answers.json`` and ``report.html`` into the folder, and say where the page is.

    The record is that of `tacit.queries.record.answer_all`; all of it may be published.
    """
    path = prepare_folder(folder)
    page = path / "report.html"
    try:
        write_whole(path / "answers.json", to_json(dict(record), indent=2))
        write_whole(page, render_answers(record))
    except OSError as error:
        raise InputError(f"out={str(path)!r}: cannot be written ({error.strerror}). Choose another folder.") from error
    return page


def render_answers(record: Mapping[str, Any]) -> str:
    """The page as text."""
    answers = record["answers"]
    composition = record.get("composition")
    return fill(
        "query.html",
        {
            "table": record["table"],
            "created": moment(record["created"]),
            "alone": answers[0] if len(answers) == 1 else None,
            "headlines": _headlines(record),
            "wide": [histogram_bars(answer, f"bars{i}") for i, answer in enumerate(answers) if "cells" in answer],
            "drawings": _drawings(answers, composition),
            "rows": [_cells(answer) for answer in answers],
            "statement": record.get("statement", answers[0]["statement"]),
            "details": [answer["statement"] for answer in answers] if len(answers) > 1 else [],
        },
    )


def _drawings(answers: list[Answer], composition: Mapping[str, float] | None) -> list[Drawing]:
    drawings = [error_lines(answer, f"error{i}") for i, answer in enumerate(answers) if answer["comparison"]]
    return drawings if composition is None else [composition_bars(composition), *drawings]


def _headlines(record: Mapping[str, Any]) -> list[Headline]:
    answers = record["answers"]
    if len(answers) > 1:
        return [
            Headline("Answers", display(len(answers))),
            Headline("Epsilon", display(record["epsilon"]), "of all, by loss distributions"),
            Headline("Delta", display(record["delta"])),
        ]
    answer = answers[0]
    headlines = [] if "cells" in answer else [Headline(_title(answer), _value(answer), _error(answer))]
    return [
        *headlines,
        Headline("Epsilon", display(answer["epsilon"]), f"one {answer['unit']}, {answer['neighbours']}"),
        Headline("Delta", display(answer["delta"])),
        Headline("Scale of the noise", display(float(answer["scale"])), f"on {answer['noised']}"),
    ]


def _cells(answer: Answer) -> list[str]:
    return [_title(answer), _value(answer), _error(answer), display(answer["epsilon"]), display(answer["delta"])]


def _title(answer: Answer) -> str:
    where = f" where {answer['where']}" if answer["where"] else ""
    return f"{answer['kind']} of {answer['column']}{where}"


def _value(answer: Answer) -> str:
    if "cells" in answer:
        return f"{len(answer['cells'])} cells"
    return answer["value"] if isinstance(answer["value"], str) else _number(answer["value"])


def _error(answer: Answer) -> str:
    sure = f"{100 * answer['confidence']:g} %"
    if "rank_error" in answer:
        return f"within {display(answer['rank_error'])} rows of its rank, {sure}"
    if "count_error" in answer:
        return f"within {display(answer['count_error'])} rows of the largest count, {sure}"
    if "cells" in answer:
        return f"± {display((answer['interval'][0][1] - answer['interval'][0][0]) / 2)} in each, {sure}"
    low, high = answer["interval"]
    return f"{_number(low)} to {_number(high)}, {sure}"


def _number(value: Any) -> str:
    """With more digits than `display` has where the number is large."""
    return f"{value:,.1f}" if isinstance(value, float) and abs(value) >= 1000 else display(value)
