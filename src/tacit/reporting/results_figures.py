"""The figures of the results page, each a file of its own: frontiers, curves over epochs, sweeps, accountants."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from tacit.reporting.canvas import INK, PALETTE, as_svg_file, canvas, label_axes, panels

Row = Mapping[str, Any]
_WIDE, _HIGH = 6.4, 4.0
_LOG_FROM = 15.0
_TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 4, 8, 16)


def frontier(dataset: str, measured: Sequence[Row], published: Sequence[Row]) -> str:
    """Accuracy against epsilon on one data set: a line a method with its spread, published points hollow."""
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    colours = _colours([*(row["line"] for row in measured), *(row["line"] for row in published)])
    for line, rows in _grouped(measured, "line").items():
        points = sorted(rows, key=lambda row: row["epsilon"])
        _errorbars(axes, points, "epsilon", "accuracy", colours[line], line)
    for line, rows in _grouped(published, "line").items():
        places = [row["epsilon"] for row in rows], [row["accuracy"] for row in rows]
        axes.plot(*places, linestyle="", marker="D", fillstyle="none", color=colours[line], label=line)
    _logarithmic_epsilon(axes, [row["epsilon"] for row in [*measured, *published]])
    _percent(axes)
    _legend(axes)
    label_axes(axes, "epsilon (logarithmic), delta 1e-5", "test accuracy")
    return as_svg_file(figure, f"frontier-{dataset}", f"Test accuracy against epsilon on {dataset}")


def over_epochs(name: str, results: Sequence[Row]) -> str:
    """Accuracy over epochs above epsilon over epochs, one line a result, the mean over its seeds."""
    figure, (axes, below) = panels(wide=_WIDE, high=1.5 * _HIGH)
    for colour, result in zip(_cycle(), results, strict=False):
        means = _means(result["history"])
        epochs = [epoch for epoch, *_ in means]
        axes.plot(epochs, [accuracy for _, accuracy, _ in means], color=colour, linewidth=1.6, label=result["line"])
        below.plot(epochs, [epsilon for *_, epsilon in means], color=colour, linewidth=1.6)
    _percent(axes)
    _legend(axes)
    label_axes(axes, "", "test accuracy")
    label_axes(below, "epochs", "epsilon")
    return as_svg_file(figure, name, f"Test accuracy and epsilon over the epochs: {name}")


def sweep(name: str, result: Row) -> str:
    """Accuracy against the first knob, one line for each combination of the others."""
    key, *others = (axis["key"] for axis in result["over"])
    accuracy = next(field for field in ("test_accuracy", "held_out_accuracy") if field in result["rows"][0])
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    lines: dict[str, list[Row]] = {}
    for row in result["rows"]:
        lines.setdefault(", ".join(f"{other} {_shown(row[other])}" for other in others), []).append(row)
    for colour, (label, rows) in zip(_cycle(), lines.items(), strict=False):
        _errorbars(axes, rows, key, accuracy, colour, label)
    _scale(axes, [row[key] for row in result["rows"]])
    _percent(axes)
    if others:
        _legend(axes)
    label_axes(axes, key.replace("_", " "), accuracy.replace("_", " "))
    return as_svg_file(figure, name, f"Accuracy against {key}: {name}")


def accountants(name: str, epochs: Sequence[float], curves: Mapping[str, Sequence[float]], setting: str) -> str:
    """Epsilon over epochs under several accountants."""
    figure, axes = canvas(wide=_WIDE, high=_HIGH)
    for colour, (accountant, values) in zip(_cycle(), curves.items(), strict=False):
        axes.plot(epochs, values, color=colour, linewidth=1.6, label=accountant)
    axes.set_ylim(bottom=0)
    _legend(axes)
    label_axes(axes, "epochs", "epsilon")
    return as_svg_file(figure, name, f"Epsilon over the epochs under each accountant, {setting}")


def _means(history: Iterable[Row]) -> list[tuple[float, float, float]]:
    """(epochs, mean accuracy, epsilon) of the steps that were looked at."""
    steps: dict[int, list[Row]] = {}
    for point in history:
        steps.setdefault(point["step"], []).append(point)
    return [
        (points[0]["epochs"], sum(point["accuracy"] for point in points) / len(points), points[0]["epsilon"])
        for _, points in sorted(steps.items())
    ]


def _errorbars(axes: Axes, rows: Sequence[Row], across: str, up: str, colour: str, label: str) -> None:
    places = [row[across] for row in rows], [row[up] for row in rows]
    spread = [row["std"] or 0.0 for row in rows]
    axes.errorbar(
        *places, yerr=spread, color=colour, linewidth=1.6, marker="o", markersize=4.5, capsize=2.5, label=label or None
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


def _percent(axes: Axes) -> None:
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 1, symbol=" %"))


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
    return value if isinstance(value, str) else f"{value:g}"
