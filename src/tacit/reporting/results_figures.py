"""The figures of the results page, each a file of its own: frontiers, curves over epochs, sweeps, accountants."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from tacit.reporting.canvas import INK, MUTED, PALETTE, as_svg_file, canvas, label_axes, label_shares, panels

Row = Mapping[str, Any]
_WIDE, _HIGH = 6.4, 4.0
_LOG_FROM = 15.0
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 8, 16)
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "v", "D", "P")
_HOLLOW = ("D", "s", "v", "^")  # of published points, whose methods have run through the colours so many times


class Moment(NamedTuple):
    """A step that was looked at, with the mean accuracy over the seeds."""

    step: int
    epochs: float
    accuracy: float
    epsilon: float | None


def mean_history(history: Iterable[Row]) -> list[Moment]:
    """The steps that were looked at, in order."""
    steps: dict[int, list[Row]] = {}
    for point in history:
        steps.setdefault(point["step"], []).append(point)
    return [
        Moment(step, points[0]["epochs"], statistics.fmean(p["accuracy"] for p in points), points[0]["epsilon"])
        for step, points in sorted(steps.items())
    ]


def frontier(dataset: str, measured: Sequence[Row], published: Sequence[Row]) -> str:
    """Accuracy against epsilon on one data set: a colour a method, a line a setting with its spread, published points
    hollow. Where there are more methods than colours, the markers of further ones differ.

    Args:
        dataset: its name.
        measured: with ``method``, ``setting``, ``epsilon``, ``accuracy`` and ``std``.
        published: with ``method``, ``epsilon`` and ``accuracy``, and ``number`` where there is a note.
    """
    figure, axes = canvas(wide=_WIDE, high=1.3 * _HIGH)
    colours = _colours(row["method"] for row in [*measured, *published])
    markers, hollow = (
        {method: kinds[place // len(PALETTE)] for place, method in enumerate(colours)} for kinds in (_MARKERS, _HOLLOW)
    )
    for method, own in _grouped(measured, "method").items():
        for style, (setting, rows) in zip(itertools.cycle(_STYLES), _grouped(own, "setting").items(), strict=False):
            points = sorted(rows, key=lambda row: row["epsilon"])
            look = _Look(colours[method], markers[method], style)
            _errorbars(axes, points, ("epsilon", "accuracy"), f"{method}, {setting}", look)
    for method, rows in _grouped(published, "method").items():
        places = [row["epsilon"] for row in rows], [row["accuracy"] for row in rows]
        numbers = dict.fromkeys(str(row["number"]) for row in rows if row.get("number"))
        label = f"{method}, as published" + (f" [{', '.join(numbers)}]" if numbers else "")
        axes.plot(*places, linestyle="", marker=hollow[method], fillstyle="none", color=colours[method], label=label)
    _logarithmic_epsilon(axes, [row["epsilon"] for row in [*measured, *published]])
    label_shares(axes)
    label_axes(axes, "epsilon (logarithmic), delta 1e-5", "test accuracy")
    figure.legend(frameon=False, fontsize=8, labelcolor=INK, loc="outside lower center", ncols=2)
    return as_svg_file(figure, f"Test accuracy against epsilon on {dataset}")


def over_epochs(name: str, results: Sequence[Row]) -> str:
    """Accuracy over epochs above epsilon over epochs, one line a result, the mean over its seeds.

    Where no result has a guarantee there is nothing below.
    """
    histories = [mean_history(result["history"]) for result in results]
    spent = [mean.epsilon for means in histories for mean in means if mean.epsilon is not None]
    figure, (axes, *below) = panels(wide=_WIDE, high=_HIGH * (1.5 if spent else 1), count=2 if spent else 1)
    for colour, result, means in zip(_cycle(), results, histories, strict=False):
        epochs = [mean.epochs for mean in means]
        axes.plot(epochs, [mean.accuracy for mean in means], color=colour, linewidth=1.6, label=result["line"])
        epsilons = [mean.epsilon for mean in means if mean.epsilon is not None]
        if epsilons:
            below[0].plot(epochs, epsilons, color=colour, linewidth=1.6)
    if spent and max(spent) > _LOG_FROM**2 * min(spent):
        below[0].set_yscale("log")
    label_shares(axes)
    _legend(axes)
    label_axes(axes, "" if spent else "epochs", results[0].get("metric", "test accuracy"))
    for each in below:
        label_axes(each, "epochs", "epsilon")
    return as_svg_file(figure, f"Accuracy and epsilon over the epochs: {name}")


def deltas(name: str, lines: Sequence[Row]) -> str:
    """Accuracy against epsilon, one colour a delta, one marker a noise level.

    Args:
        name: of the file.
        lines: each with ``delta``, ``noise``, and ``points``: (epsilon, accuracy) along one run.
    """
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    colours = _colours(f"delta {line['delta']:g}" for line in lines)
    markers = dict(zip(dict.fromkeys(line["noise"] for line in lines), _MARKERS, strict=False))
    for line in lines:
        label = f"delta {line['delta']:g}"
        axes.plot(
            *zip(*line["points"], strict=True),
            color=colours[label],
            linewidth=1.2,
            marker=markers[line["noise"]],
            markersize=3.5,
            label=label if line["noise"] == lines[0]["noise"] else None,
        )
    for noise, marker in markers.items():
        axes.plot([], [], color=MUTED, linestyle="", marker=marker, markersize=4.5, label=f"noise {noise:g}")
    _logarithmic_epsilon(axes, [epsilon for line in lines for epsilon, _ in line["points"]])
    label_shares(axes)
    _legend(axes)
    label_axes(axes, "epsilon (logarithmic)", "test accuracy")
    return as_svg_file(figure, f"Test accuracy against epsilon for several deltas: {name}")


def sweep(name: str, result: Row) -> str:
    """Accuracy against the first knob, one line for each combination of the others."""
    key, *others = (axis["key"] for axis in result["over"])
    accuracy = next(field for field in ("test_accuracy", "held_out_accuracy") if field in result["rows"][0])
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    lines: dict[str, list[Row]] = {}
    for row in result["rows"]:
        lines.setdefault(", ".join(f"{other} {_shown(row[other])}" for other in others), []).append(row)
    for colour, (label, rows) in zip(_cycle(), lines.items(), strict=False):
        _errorbars(axes, rows, (key, accuracy), label, _Look(colour))
    _scale(axes, [row[key] for row in result["rows"]])
    label_shares(axes)
    if others:
        _legend(axes)
    label_axes(axes, key.replace("_", " "), accuracy.replace("_", " "))
    return as_svg_file(figure, f"Accuracy against {key}: {name}")


def accountants(epochs: Sequence[float], curves: Mapping[str, Sequence[float]], setting: str) -> str:
    """Epsilon over epochs under several accountants."""
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    for colour, (accountant, values) in zip(_cycle(), curves.items(), strict=False):
        axes.plot(epochs, values, color=colour, linewidth=1.6, label=accountant)
    axes.set_ylim(bottom=0)
    _legend(axes)
    label_axes(axes, "epochs", "epsilon")
    return as_svg_file(figure, f"Epsilon over the epochs under each accountant, {setting}")


class _Look(NamedTuple):
    """Of a line with its points."""

    colour: str
    marker: str = "o"
    style: str = "-"


def _errorbars(axes: Axes, rows: Sequence[Row], keys: tuple[str, str], label: str, look: _Look) -> None:
    """A line over the first of the keys, the second one upwards: a share, whose bars end at nothing and at all."""
    across, up = keys
    shares, spreads = (np.array([row[key] or 0.0 for row in rows]) for key in (up, "std"))
    axes.errorbar(
        [row[across] for row in rows],
        shares,
        yerr=np.clip([shares, 1.0 - shares], 0.0, spreads),
        color=look.colour,
        linestyle="" if isinstance(rows[0][across], str) else look.style,  # nothing lies between names
        linewidth=1.6,
        marker=look.marker,
        markersize=4.5,
        capsize=2.5,
        label=label or None,
    )


def _colours(names: Iterable[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(names), _cycle(), strict=False))


def _cycle() -> Iterable[str]:
    return itertools.cycle(PALETTE)


def _grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row[key]), []).append(row)
    return groups


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="best")


def _scale(axes: Axes, values: Sequence[float | str]) -> None:
    """Logarithmic where numbers span much, even steps for names."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values):
        return
    if min(numbers) > 0 and max(numbers) > _LOG_FROM * min(numbers):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sorted(set(numbers)), [_shown(value) for value in sorted(set(numbers))])


def _logarithmic_epsilon(axes: Axes, values: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.2, max(values) * 1.2)
    axes.set_xticks([tick for tick in _TICKS if min(values) / 1.2 <= tick <= max(values) * 1.2])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _shown(value: float | str) -> str:
    """Three digits: an epsilon that was asked for is met to a few more, which nobody asks for."""
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.3g}"
    return value if isinstance(value, str) else f"{value:g}"
