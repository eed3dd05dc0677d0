"""The results page: a README of tables and figures, made from result files and nothing else."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

from tacit.accounting import dpsgd_event, epsilon, epsilon_over_steps, event_from_json
from tacit.accounting.events import flatten
from tacit.reporting import results_figures as figures
from tacit.reporting.rendering import moment, write_whole

Row = Mapping[str, Any]

_FOLDER = "figures"
_RATE, _NOISE, _DELTA, _EPOCHS = 0.01, 4.0, 1e-5, 400
_FRONTIER_UP_TO = 32.0  # what lies beyond has no meaning, and would flatten the rest
_DELTAS_OF, _DELTAS = "abadi2016-mnist", (1e-2, 1e-3, 1e-4, 1e-5)
_SHOWN_ACCOUNTANTS = ("strong", "moments", "rdp", "pld")
_OPENING = """\
# Results

Made by `tacit recipe page` from the files beside it; do not edit. Every figure: Poisson sampling as accounted, the last
iterate or its moving average after a fixed number of steps, nothing chosen on the test set unless its method says so.
`epsilon` is that of what really ran, by privacy loss distributions (PLD), with every preparation of the data in it.
*published* settings have the paper's noise; their epsilon under the paper's own accountant stands beside.
*recalibrated* ones have the least noise that PLD allows at the same epsilon. Accuracies are means over seeds ± standard
deviation, in percent of the test set.
Seconds are those that passed, often with other runs on the same machine: alone a row takes less.
PATE and Private-kNN also learn from public inputs without labels, nine tenths of the test set, and are tested on the
rest; an epsilon of *these votes* depends on how teachers agreed, and would be private in earnest.
"""


def write_results_page(
    folder: Path, measured: Sequence[Row], sweeps: Sequence[Row], published: Sequence[Row]
) -> tuple[Path, list[Path]]:
    """Writes ``README.md`` and the SVG files it shows; returns all paths.

    Args:
        folder: where the result files lie.
        measured, sweeps: what `tacit.recipes.read_results` found there.
        published: figures of papers, with ``dataset``, ``method``, ``epsilon`` and ``accuracy``.
    """
    (folder / _FOLDER).mkdir(exist_ok=True)
    drawn: dict[str, str] = {}
    parts = [_OPENING]
    for dataset in dict.fromkeys(row["dataset"] for row in [*measured, *published]):
        parts.append(_dataset_part(dataset, measured, published, drawn))
    parts += [_curves_part(measured, drawn), _deltas_part(measured, drawn), _sweeps_part(sweeps, drawn)]
    parts.append(_accountants_part(drawn))
    paths = []
    for name, svg in drawn.items():
        paths.append(folder / _FOLDER / f"{name}.svg")
        write_whole(paths[-1], svg)
    page = folder / "README.md"
    write_whole(page, "\n".join(part for part in parts if part))
    return page, paths


def _dataset_part(dataset: str, measured: Sequence[Row], published: Sequence[Row], drawn: dict[str, str]) -> str:
    rows = [row for row in measured if row["dataset"] == dataset]
    parts = [f"## {dataset}\n"]
    metrics = dict.fromkeys(row["metric"] for row in rows if "metric" in row)
    parts.append(f"Measured is the {', '.join(metrics)}.\n" if metrics else _frontier(dataset, rows, published, drawn))
    if rows:
        parts.append(_table(_HEADERS, map(_cells, rows)))
    return "\n".join(part for part in [*parts, _beside_table(rows), _epsilons_table(rows)] if part)


def _frontier(dataset: str, rows: Sequence[Row], published: Sequence[Row], drawn: dict[str, str]) -> str:
    points = [
        {**row, "setting": _setting(row), "accuracy": row["measured"]}
        for row in rows
        if row["epsilon"] is not None and row["epsilon"] <= _FRONTIER_UP_TO
    ]
    claims = [row for row in published if row["dataset"] == dataset]
    if not points and not claims:
        return ""
    name = f"frontier-{dataset}"
    drawn[name] = figures.frontier(dataset, points, claims)
    return f"{_image(name, f'Accuracy against epsilon on {dataset}')}\n"


def _beside_table(rows: Sequence[Row]) -> str:
    """Other figures of the same models, and of the same rows without privacy."""
    told = [row for row in rows if row.get("beside")]
    if not told:
        return ""
    names = list(dict.fromkeys(name for row in told for name in row["beside"]))
    cells = (
        [
            f"[{row['method']}, {_setting(row)}]({row['file']})",
            f"{100 * row['measured']:.2f}",
            *(f"{100 * row['beside'][name]:.2f}" if name in row["beside"] else "–" for name in names),
        ]
        for row in told
    )
    return f"Beside the accuracy:\n\n{_table(('method', 'measured', *names), cells)}"


def _epsilons_table(rows: Sequence[Row]) -> str:
    """What else epsilon was said to be, beside the figure that it was said of."""
    told = [row for row in rows if row.get("epsilons")]
    if not told:
        return ""
    names = list(dict.fromkeys(name for row in told for name in row["epsilons"]))
    cells = (
        [
            f"[{row['method']}, {_setting(row)}]({row['file']})",
            f"{100 * row['measured']:.2f}",
            *(f"{row['epsilons'][name]:,.4g}" if name in row["epsilons"] else "–" for name in names),
            _epsilon(row),
        ]
        for row in told
    )
    headers = ("method", "measured", *(f"epsilon, {name}" for name in names), "epsilon of this row")
    return f"Epsilons that were, or could be, said of the same noise:\n\n{_table(headers, cells)}"


_HEADERS = (
    *("method", "setting", "published", "measured", "seeds", "epsilon (PLD)", "epsilon (moments)", "noise", "steps"),
    *("s a seed", "on", "file"),
)


def _cells(row: Row) -> list[str]:
    published = "–" if row.get("published") is None else f"{_percent(row['published'])} at {row['published_epsilon']:g}"
    spread = "" if row["std"] is None else f" ± {100 * row['std']:.2f}"
    moments = row["epsilon_by_accountant"].get("moments")
    return [
        row["method"],
        _setting(row),
        published,
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


def _curves_part(measured: Sequence[Row], drawn: dict[str, str]) -> str:
    groups: dict[str, list[Row]] = {}
    compared = {row["name"] for row in measured if row["epsilon"] is None}
    for row in (row for row in measured if row["history"]):
        kind = _setting(row)
        if row["name"] in compared:  # with and without a guarantee, the settings of each in one figure
            kind = "without-noise" if row["epsilon"] is None else "private"
        groups.setdefault(re.sub("[, ]+", "-", f"{row['name']}-{kind}"), []).append(row)
    text = "## Over the epochs\n"
    for group, rows in groups.items():
        name = f"{group}-epochs"
        ordered = sorted(rows, key=lambda row: float(row["epsilon"] or 0))
        drawn[name] = figures.over_epochs(name, [{**row, "line": _curve_line(row)} for row in ordered])
        text += f"\n{_image(name, f'{group}: accuracy and epsilon over the epochs')}\n"
    return text if groups else ""


def _curve_line(row: Row) -> str:
    if row["epsilon"] is not None:
        return f"{_setting(row)}, epsilon {row['epsilon']:.3g}"
    setting, rate = _setting(row), row.get("training", {}).get("learning_rate")
    return setting if rate is None or "learning rate" in setting else f"{setting}, learning rate {rate:g}"


def _deltas_part(measured: Sequence[Row], drawn: dict[str, str]) -> str:
    rows = [
        row
        for row in measured
        if row["name"] == _DELTAS_OF and row["knobs"]["setting"] == "published" and "event" in row
    ]
    if not rows:
        return ""
    name = f"{_DELTAS_OF}-deltas"
    drawn[name] = figures.deltas(
        name,
        [
            {"delta": delta, "noise": row["noise_multiplier"], "points": _points_at(row, delta)}
            for row in sorted(rows, key=lambda row: -float(row["noise_multiplier"]))
            for delta in _DELTAS
        ],
    )
    return (
        "## Accuracy against epsilon and delta\n\nThe same runs for several deltas, under the moments accountant "
        f"(Abadi et al. 2016, figure 4).\n\n{_image(name, 'Accuracy against epsilon for several deltas')}\n"
    )


def _points_at(row: Row, delta: float) -> list[tuple[float, float]]:
    """(epsilon, accuracy) along a run, at another delta."""
    *before, training = flatten(event_from_json(row["event"]))
    points = []
    for mean in figures.mean_history(row["history"]):
        parts = [*before, (training[0], mean.step)]
        so_far = ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in parts])
        points.append((epsilon(so_far, delta, accountant="moments"), mean.accuracy))
    return points


def _sweeps_part(sweeps: Sequence[Row], drawn: dict[str, str]) -> str:
    text = "## Sweeps\n\nOne knob at a time, the others as in the recipe; every row has the epsilon of its own noise.\n"
    for result in sweeps:
        name = Path(result["file"]).stem
        drawn[name] = figures.sweep(name, result)
        settings = ", ".join(f"{key} {value}" for key, value in result["settings"].items())
        over = " and ".join(axis["key"] for axis in result["over"])
        subject = f"{result['name']}{f' ({settings})' if settings else ''}"
        caption = f"{subject}: accuracy on the {result['measured_on']} against {over}"
        text += f"\n{_image(name, caption)}\n\n`{result['command']}`: {caption}; {result['seeds']} seed(s) a point.\n"
    return text if sweeps else ""


def _accountants_part(drawn: dict[str, str]) -> str:
    name = "accountants"
    step = dpsgd_event(_RATE, _NOISE, 1)
    epochs = [*range(10, _EPOCHS + 1, 10)]
    steps = [round(epoch / _RATE) for epoch in epochs]
    curves = {
        accountant: epsilon_over_steps(step, steps, _DELTA, accountant=accountant) for accountant in _SHOWN_ACCOUNTANTS
    }
    setting = f"q = {_RATE:g}, sigma = {_NOISE:g}, delta = {_DELTA:g}"
    drawn[name] = figures.accountants(name, epochs, curves, setting)
    rows = [[str(epochs[k]), *(f"{curve[k]:.2f}" for curve in curves.values())] for k in (9, 19, 29, 39)]
    return (
        f"## Accountants\n\nEpsilon over the epochs at {setting}: strong composition against the moments accountant "
        "(Abadi et al. 2016, figure 2), and what came later. Computed when this page is made.\n\n"
        f"{_image(name, 'Epsilon over the epochs under each accountant')}\n\n{_table(('epochs', *curves), rows)}"
    )


def _epsilon(row: Row) -> str:
    value = row["epsilon"]
    if value is None:
        return "none"
    note = f" ({row['epsilon_note']})" if row.get("epsilon_note") else ""
    return (f"{value:.3f}" if value < _FRONTIER_UP_TO else f"{value:,.0f}") + note


def _setting(row: Row) -> str:
    """The setting, on which inputs where a recipe has several, and what else the command has set but epsilon."""
    setting, inputs = row["knobs"].get("setting", "ours"), row["knobs"].get("inputs")
    others = [
        f"{key.replace('_', ' ')} {value}"
        for key, value in re.findall(r"--set (\w+)=(\S+)", row["command"])
        if key not in ("epsilon", "setting", "inputs")
    ]
    return ", ".join([setting, *([] if inputs is None else [inputs]), *others])


def _machine(row: Row) -> str:
    hardware = row["hardware"]
    return str(hardware.get("gpu") or f"{hardware['threads']} CPU core(s)")


def _percent(value: float) -> str:
    return f"{100 * value:.3g}"


def _image(name: str, text: str) -> str:
    return f"![{text}]({_FOLDER}/{name}.svg)"


def _table(headers: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"
