"""The results page: a README of tables and figures, made from result files and nothing else."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

from tacit.accounting import dpsgd_event, epsilon, epsilon_over_steps, event_from_json
from tacit.accounting.events import flatten
from tacit.reporting import results_figures as figures
from tacit.reporting.rendering import write_whole
from tacit.reporting.results_notes import Notes, not_measured
from tacit.reporting.results_tables import (
    LARGEST_EPSILON,
    beside_table,
    counted,
    epsilons_table,
    is_held_out,
    results_table,
    setting_of,
    table,
)

Row = Mapping[str, Any]

_FOLDER = "figures"
_RATE, _NOISE, _DELTA, _EPOCHS = 0.01, 4.0, 1e-5, 400
_DELTAS_OF, _DELTAS = "abadi2016-mnist", (1e-2, 1e-3, 1e-4, 1e-5)
_DELTAS_TEXT = """\
## Accuracy against epsilon and delta

The same runs for several deltas, under the moments accountant (Abadi et al. 2016, figure 4).
"""
_SHOWN_ACCOUNTANTS = ("strong", "moments", "rdp", "pld")
_OPENING = """\
# Results

Made by `tacit recipe page` from the files beside it; do not edit. [docs/recipes.md](../docs/recipes.md) says how to
measure a row again. Every figure: Poisson sampling as accounted, the last iterate or its moving average after a fixed
number of steps, nothing chosen on the test set unless its method says so. Choices were made on held-out training
examples or taken from the papers; choosing on training data costs privacy that, as in the papers, is not counted in
epsilon. `tacit sweep --private` (`tacit.recipes.private_sweep`) is how to pay for it.
`epsilon` is that of what really ran, by privacy loss distributions (PLD), with every preparation of the data in it.
Accuracies are means over seeds ± standard deviation, in percent of the test set. A number in brackets, in the table or
the legend of a plot, leads from a published figure to its note below the table.

*published* settings have the paper's noise; their epsilon under the moments accountant of 2016 stands beside, that of
others in the file. Starts of networks, inputs and averages of weights are ours where the recipe's docstring says so:
tanh CNNs start with orthogonal weights, on grey images with Gabor filters as well, and the digits of 2016 are upright
unless the row says *pixels*.
*recalibrated* ones have the least noise that PLD allows at the same epsilon. *own* ones, or *ours* where a recipe has
nothing else, are not the paper's.
{earlier}
Seconds are those that passed for one model, often with other runs on the same machine: alone a row takes less. Where
models of a row trained at a time, what all took stands beside, divided by their number. Seconds leave out fixed
features (upright digits, scattering, random filters, maps of a prior from noise), which are computed before the first
seed or were kept on disk.

PATE and Private-kNN also learn from public inputs without labels, nine tenths of the test set, and are tested on the
rest; an epsilon of *these votes*, with an asterisk in plots, depends on how teachers agreed and is no guarantee: it
would be private in earnest. What holds whatever the votes stands below the table.
Where epsilon is *none* there is no privacy at all: such a row says what the same network reaches without it.
"""
_EARLIER = """\

*earlier* marks a row whose recipe was changed since, with what it had then as far as its file tells. Views *by the
draws of a public seed* are no matter while nobody knows the seed; such a row's epsilon does not hold against whoever
does. Recipes draw them in secret now.
"""
_TWO_WEIGHTS = "On the way the weights themselves, at the end their moving average."
_SWEEPS = """\
## Sweeps

One knob or two are changed, the others are as in the recipe; every row has the epsilon of its own noise. A point is one
model, of one seed, unless the line below the figure names more: small differences between such points mean nothing.
"""


def write_results_page(
    folder: Path, measured: Sequence[Row], sweeps: Sequence[Row], published: Sequence[Row]
) -> tuple[Path, list[Path]]:
    """Writes ``README.md`` and the SVG files it shows; returns all paths.

    Args:
        folder: where the result files lie.
        measured, sweeps: what `tacit.recipes.read_results` found there.
        published: figures of papers, with ``recipe``, ``dataset``, ``method``, ``epsilon`` and ``accuracy``, and where
            there is more to say ``accountant`` and ``note``. Data sets without a measurement are left out.
    """
    (folder / _FOLDER).mkdir(exist_ok=True)
    drawn: dict[str, str] = {}
    parts = [_OPENING.format(earlier=_EARLIER if any(row.get("earlier") for row in measured) else "")]
    for dataset in dict.fromkeys(row["dataset"] for row in measured):
        rows, claims = ([row for row in given if row["dataset"] == dataset] for given in (measured, published))
        parts.append(_dataset_part(dataset, rows, claims, drawn))
    parts += [_curves_part(measured, drawn), _deltas_part(measured, drawn), _sweeps_part(sweeps, drawn)]
    parts.append(_accountants_part(drawn))
    paths = []
    for name, svg in drawn.items():
        paths.append(folder / _FOLDER / f"{name}.svg")
        write_whole(paths[-1], svg)
    page = folder / "README.md"
    write_whole(page, "\n".join(part for part in parts if part))
    return page, paths


def _dataset_part(dataset: str, rows: Sequence[Row], claims: Sequence[Row], drawn: dict[str, str]) -> str:
    notes = Notes.of(claims)
    metrics = dict.fromkeys(row["metric"] for row in rows if "metric" in row)
    numbered = [{**claim, "number": notes.number(claim)} for claim in claims if claim["epsilon"] is not None]
    parts = [
        f"## {dataset}\n",
        f"Measured is the {', '.join(metrics)}.\n" if metrics else _frontier(dataset, rows, numbered, drawn),
        results_table(rows, notes),
        notes.listed(),
        not_measured(rows),
        beside_table(rows),
        epsilons_table(rows),
    ]
    return "\n".join(part for part in parts if part)


def _frontier(dataset: str, rows: Sequence[Row], claims: Sequence[Row], drawn: dict[str, str]) -> str:
    points = [
        {**row, "setting": _setting_on_plot(row), "accuracy": row["measured"]}
        for row in rows
        if row["epsilon"] is not None and row["epsilon"] <= LARGEST_EPSILON and not is_held_out(row)
    ]
    if not points and not claims:
        return ""
    name = f"frontier-{dataset}"
    drawn[name] = figures.frontier(dataset, points, claims)
    return f"{_image(name, f'Accuracy against epsilon on {dataset}')}\n"


def _setting_on_plot(row: Row) -> str:
    """With a mark where epsilon is that of certain votes, and no guarantee."""
    return f"{setting_of(row)} *" if row.get("epsilon_is_private") else setting_of(row)


def _curves_part(measured: Sequence[Row], drawn: dict[str, str]) -> str:
    groups: dict[str, list[Row]] = {}
    compared = {row["name"] for row in measured if row["epsilon"] is None and "metric" in row}  # in no frontier
    for row in (row for row in measured if row["history"]):
        kind = setting_of(row)
        if row["name"] in compared:  # with and without a guarantee, the settings of each in one figure
            kind = "without-noise" if row["epsilon"] is None else "private"
        groups.setdefault(f"{row['name']}-{_file_name(kind)}", []).append(row)
    text = "## Over the epochs\n"
    for group, rows in groups.items():
        name = f"{group}-epochs"
        ordered = sorted(rows, key=lambda row: float(row["epsilon"] or 0))
        drawn[name] = figures.over_epochs(name, [{**row, "line": _curve_line(row)} for row in ordered])
        text += f"\n{_image(name, f'{group}: accuracy and epsilon over the epochs')}\n"
        if any(map(_ends_with_average, rows)):
            text += f"\n{_TWO_WEIGHTS}\n"
    return text if groups else ""


def _file_name(setting: str) -> str:
    return re.sub("[, ]+", "-", setting)


def _ends_with_average(row: Row) -> bool:
    """Whether a file says of averaged weights, and not that those on the way were averaged, too."""
    training = row.get("training", {})
    averaged = training.get("average") is not None or str(training.get("weights")).startswith("exponential")
    return averaged and "weights_on_the_way" not in training


def _curve_line(row: Row) -> str:
    if row["epsilon"] is not None:
        return f"{setting_of(row)}, epsilon {row['epsilon']:.3g}"
    setting, rate = setting_of(row), row.get("training", {}).get("learning_rate")
    return setting if rate is None or "learning rate" in setting else f"{setting}, learning rate {rate:g}"


def _deltas_part(measured: Sequence[Row], drawn: dict[str, str]) -> str:
    groups: dict[str, list[Row]] = {}
    for row in measured:
        if row["name"] == _DELTAS_OF and row["knobs"]["setting"] == "published" and "event" in row:
            groups.setdefault(setting_of(row), []).append(row)
    text = ""
    for setting, rows in groups.items():
        name = f"{_DELTAS_OF}-{_file_name(setting)}-deltas"
        lines = [
            {"delta": delta, "noise": row["noise_multiplier"], "points": _points_at(row, delta)}
            for row in sorted(rows, key=lambda row: -float(row["noise_multiplier"]))
            for delta in _DELTAS
        ]
        drawn[name] = figures.deltas(name, lines)
        text += f"\n{_image(name, f'Accuracy against epsilon for several deltas, {setting}')}\n"
    return f"{_DELTAS_TEXT}{text}" if groups else ""


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
    text = _SWEEPS
    for result in sweeps:
        name = Path(result["file"]).stem
        drawn[name] = figures.sweep(name, result)
        settings = ", ".join(f"{key} {value}" for key, value in result["settings"].items())
        over = " and ".join(axis["key"] for axis in result["over"])
        subject = f"{result['name']}{f' ({settings})' if settings else ''}"
        seeds = counted(result["seeds"], "seed")
        caption = f"{subject}: accuracy on the {result['measured_on']} against {over}"
        text += f"\n{_image(name, caption)}\n\n`{result['command']}`: {caption}; {seeds} a point.\n"
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
    drawn[name] = figures.accountants(epochs, curves, setting)
    rows = [[str(epochs[k]), *(f"{curve[k]:.2f}" for curve in curves.values())] for k in (9, 19, 29, 39)]
    return (
        f"## Accountants\n\nEpsilon over the epochs at {setting}: strong composition against the moments accountant "
        "(Abadi et al. 2016, figure 2), and what came later. Computed when this page is made.\n\n"
        f"{_image(name, 'Epsilon over the epochs under each accountant')}\n\n{table(('epochs', *curves), rows)}"
    )


def _image(name: str, text: str) -> str:
    return f"![{text}]({_FOLDER}/{name}.svg)"
