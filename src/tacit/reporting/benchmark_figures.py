"""The figures of a benchmark: bars of time and memory for each contender, and lines of how time grows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, Drawing, as_svg, canvas, label_axes

_LOG_SCALE_FROM = 12.0
_OURS = "tacit"
_PLOT_POINTS, _NAME_POINTS = 150.0, 8.0  # the height of the plot and of a name, roughly
Row = Mapping[str, Any]


def time_bars(rows: Sequence[Row]) -> Drawing | None:
    """Milliseconds a step of every contender on one model in one precision, with ratios to the fastest plain step."""
    known = [row for row in rows if row["ms"] is not None]
    if not known:
        return None
    labels = [f"{_short(row['ms'])} ms{_times(row['ratio_fastest'])}" for row in known]
    title = f"{known[0]['model']}, {known[0]['precision']}: time"
    refused = [row["engine"] for row in rows if row["ms"] is None]
    caption = f"Milliseconds a step on batches of {known[0]['batch']:,}; in brackets, to the fastest plain step."
    if refused:
        caption += f" Without a figure: {', '.join(refused)}."
    return _bars(known, "ms", labels, title, caption)


def memory_bars(rows: Sequence[Row]) -> Drawing | None:
    """MiB of every contender on one model in one precision."""
    known = [row for row in rows if row["peak_mib"] is not None and row["peak_mib"] > 0]
    if not known:
        return None
    plain = min((row["peak_mib"] for row in known if row["kind"] == "plain"), default=None)
    labels = [
        f"{_short(row['peak_mib'])} MiB{_times(None if plain is None else row['peak_mib'] / plain)}" for row in known
    ]
    title = f"{known[0]['model']}, {known[0]['precision']}: memory"
    caption = "Parameters, optimizer and step at their peak; in brackets, to the leanest plain step."
    return _bars(known, "peak_mib", labels, title, caption)


def growth_lines(rows: Sequence[Row]) -> Drawing | None:
    """Time against one axis of one model, both logarithmic, one line a contender, with the exponents that fit."""
    known = [row for row in rows if row["exponent"] is not None]
    if not known:
        return None
    figure, axes = canvas()
    ends = []
    for row in known:
        points = [(size, ms) for size, ms in zip(row["sizes"], row["ms"], strict=True) if ms is not None]
        colour, style = _look(row["engine"])
        wide = 2.0 if row["engine"] == _OURS else 1.1
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=wide, linestyle=style, marker="o", markersize=3.2)
        ends.append((row["engine"], points[-1]))
    _logarithmic(axes, known[0]["sizes"])
    _name_ends(axes, ends)
    model, precision, axis = known[0]["model"], known[0]["precision"], known[0]["axis"]
    label_axes(axes, axis, "ms a step")
    exponents = ", ".join(f"{row['engine']} {row['exponent']:.2f}" for row in known)
    title = f"{model}, {precision}: growth with {axis}"
    return Drawing(
        title=title,
        caption=f"Exponents: {exponents}.",
        svg=as_svg(figure, _identifier(title), f"Line chart of time against {axis}, with exponents {exponents}"),
    )


def _look(engine: str) -> tuple[str, Any]:
    """Colour and dashes of a line: ours stands out, plain training is dashed, the rest is grey."""
    if engine == _OURS:
        return ACCENT, "-"
    return (INK, (0, (4, 2))) if engine.startswith("plain") else (BAR, "-")


def _name_ends(axes: Axes, ends: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Names at the ends of lines, moved apart where they would lie on one another."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    lowest = -math.inf
    for engine, (x, y) in sorted(ends, key=lambda end: end[1][1]):
        place = _PLOT_POINTS * (math.log(y) - low) / (high - low)
        lowest = max(place, lowest + _NAME_POINTS)
        axes.annotate(engine, (x, y), xytext=(5, lowest - place), textcoords="offset points", va="center", fontsize=7.5,
                      color=ACCENT if engine == _OURS else MUTED)  # fmt: skip


def _bars(rows: Sequence[Row], key: str, labels: Sequence[str], title: str, caption: str) -> Drawing:
    """Horizontal bars, fastest on top; ours in the page's accent, plain training hollow."""
    ordered = sorted(zip(rows, labels, strict=True), key=lambda pair: -float(pair[0][key]))
    values = [float(row[key]) for row, _ in ordered]
    figure, axes = canvas(high=0.7 + 0.3 * len(ordered))
    for place, ((row, label), value) in enumerate(zip(ordered, values, strict=True)):
        ours = row["engine"] == _OURS
        if row["kind"] == "plain":
            axes.barh(place, value, height=0.62, facecolor="none", edgecolor=MUTED, linewidth=1.1)
        else:
            axes.barh(place, value, height=0.62, color=ACCENT if ours else BAR)
        axes.annotate(label, (value, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8,
                      color=INK, fontweight="bold" if ours else "normal")  # fmt: skip
    axes.set_yticks(range(len(ordered)), [row["engine"] for row, _ in ordered])
    axes.tick_params(axis="y", length=0, labelsize=8.5, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    _scale(axes, values)
    words = "; ".join(f"{row['engine']} {label}" for row, label in reversed(ordered))
    return Drawing(title=title, caption=caption, svg=as_svg(figure, _identifier(title), f"Bar chart, {title}: {words}"))


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Leave room for the figures at the ends of the bars."""
    low, high = min(values), max(values)
    if high > _LOG_SCALE_FROM * low:
        axes.set_xscale("log")
        low /= 3
        axes.set_xlim(low, high * (high / low) ** 0.6)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.65 * high)


def _logarithmic(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(sizes[0] / 1.1, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.5)  # room for names


def _short(value: float) -> str:
    if value <= 0:
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" ({_short(ratio)}×)"


def _identifier(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title)
