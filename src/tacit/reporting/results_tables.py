"""The tables of the results page: what was measured on a data set, beside what was published."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tacit.reporting.rendering import moment
from tacit.reporting.results_notes import Notes

Row = Mapping[str, Any]

LARGEST_EPSILON = 32.0  # what lies beyond has no meaning, and would flatten the rest of a figure
_HEADERS = (
    *("method", "setting", "published", "measured", "seeds", "epsilon (PLD)", "epsilon (moments)", "noise", "steps"),
    *("s a seed", "on", "file"),
)


def results_table(rows: Sequence[Row], notes: Notes) -> str:
    """One line a result file."""
    return table(_HEADERS, (_cells(row, notes) for row in rows))


def beside_table(rows: Sequence[Row]) -> str:
    """Other figures of the same models, and of the same rows without privacy."""
    names, cells = _told(rows, "beside", lambda value: f"{100 * value:.2f}")
    return f"Beside the accuracy:\n\n{table(('method', 'measured', *names), cells)}" if cells else ""


def epsilons_table(rows: Sequence[Row]) -> str:
    """What else epsilon was said to be, beside the figure that it was said of."""
    names, cells = _told(rows, "epsilons", lambda value: f"{value:,.4g}")
    if not cells:
        return ""
    own = (_epsilon(row) for row in rows if row.get("epsilons"))
    headers = ("method", "measured", *(f"epsilon, {name}" for name in names), "epsilon of this row")
    lines = ([*line, epsilon] for line, epsilon in zip(cells, own, strict=True))
    return f"Epsilons that were, or could be, said of the same noise:\n\n{table(headers, lines)}"


def _told(rows: Sequence[Row], field: str, shown: Callable[[float], str]) -> tuple[list[str], list[list[str]]]:
    """The names in a field of numbers by name, and a line for each row that has it: method, measured, the numbers."""
    told = [row for row in rows if row.get(field)]
    names = list(dict.fromkeys(name for row in told for name in row[field]))
    cells = [
        [
            f"[{row['method']}, {setting_of(row)}]({row['file']})",
            f"{100 * row['measured']:.2f}",
            *(shown(row[field][name]) if name in row[field] else "–" for name in names),
        ]
        for row in told
    ]
    return names, cells


def setting_of(row: Row) -> str:
    """The setting, on which inputs where a recipe has several, what else it was asked for but epsilon, and whether
    the recipe has changed since.
    """
    setting, inputs = row["knobs"].get("setting", "ours"), row["knobs"].get("inputs")
    shown = ("epsilon", "setting", "inputs")
    others = [_in_words(key, value) for key, value in row["settings"].items() if key not in shown]
    earlier = ["earlier"] if row.get("earlier") else []
    held_out = ["on held-out training examples"] if is_held_out(row) else []
    return ", ".join([setting, *([] if inputs is None else [inputs]), *others, *earlier, *held_out])


def _in_words(key: str, value: object) -> str:
    return f"{re.sub('[_-]', ' ', key)} {f'{value:.3g}' if isinstance(value, float) else value}"


def _before(row: Row) -> str:
    earlier = [_in_words(key, value) for key, value in row.get("earlier", {}).items()]
    return f" ({', '.join(earlier)})" if earlier else ""


def is_held_out(row: Row) -> bool:
    """Whether it was measured to choose by, and says nothing of the test set."""
    return "held-out" in row["measured_on"]


def counted(number: int, noun: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"


def _cells(row: Row, notes: Notes) -> list[str]:
    spread = "" if row["std"] is None else f" ± {100 * row['std']:.2f}"
    moments = row["epsilon_by_accountant"].get("moments")
    return [
        row["method"],
        f"{setting_of(row)}{_before(row)}",
        _published(row, notes),
        f"**{100 * row['measured']:.2f}**{spread}",
        str(row["seeds"]),
        _epsilon(row),
        "–" if moments is None else f"{moments:.3f}",
        "–" if row["noise_multiplier"] is None else f"{row['noise_multiplier']:.3g}",
        f"{row['steps']:,}",
        f"{row['seconds_a_seed']:.0f}",
        f"{_machine(row)}, {moment(row['date'])}",
        f"[{row['name']}]({row['file']})",
    ]


def _published(row: Row, notes: Notes) -> str:
    if row.get("published") is None:
        return "–"
    epsilon = row["published_epsilon"]
    price = "without privacy" if epsilon is None else f"at {epsilon:g}"
    return f"{100 * row['published']:.3g} {price}{notes.mark(row)}"


def _epsilon(row: Row) -> str:
    value = row["epsilon"]
    if value is None:
        return "none"
    note = f" ({row['epsilon_note']})" if row.get("epsilon_note") else ""
    return (f"{value:.3f}" if value < LARGEST_EPSILON else f"{value:,.0f}") + note


def _machine(row: Row) -> str:
    """Where it ran, how many models shared it, and a seed's share of what all took: seconds depend on both."""
    where, models = _processors(row["hardware"]), min(row.get("jobs", 1), row["seeds"])
    if models == 1:
        return where
    return f"{where}, {models} models at a time ({row['seconds'] / row['seeds']:.0f} s for each of {row['seeds']})"


def _processors(hardware: Mapping[str, Any]) -> str:
    if hardware.get("gpu"):
        return str(hardware["gpu"])
    if "cores" not in hardware:
        return counted(hardware["threads"], "CPU thread")
    return f"{counted(hardware['threads'], 'thread')} of {counted(hardware['cores'], 'CPU core')}"
