"""The figures of private answers: noisy bars with their intervals, errors against epsilon, and what a list costs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, Drawing, as_svg, canvas, label_axes, panels

_MOST_NAMED_CELLS = 14
_SHORT_NAME = 12
_LINES = {"laplace": (ACCENT, "-"), "gaussian": (INK, "-"), "classical gaussian": (MUTED, (0, (4, 2)))}
_THEOREMS = {"basic": "basic", "strong": "strong", "pld": "loss distributions"}
Answer = Mapping[str, Any]


def histogram_bars(answer: Answer, name: str) -> Drawing:
    """Noisy counts with the interval of their noise, and beside it the one that the other mechanism would have had.

    On bars of thousands an interval of a few rows is no wider than a line, so both are shown below at their own scale.
    """
    counts, cells = answer["value"], answer["cells"]
    chosen, other = _mechanisms(answer)
    radius = answer["comparison"]["radius"]
    figure, (axes, below) = panels(wide=9.2, high=4.0)
    heights = GridSpec(2, 1, figure, height_ratios=(4, 1))
    axes.set_subplotspec(heights[0])
    below.set_subplotspec(heights[1])
    places = range(len(counts))
    axes.bar(places, counts, width=0.72, color=BAR, alpha=0.75)
    apart = 0.13 if len(counts) <= _MOST_NAMED_CELLS else 0.0
    _whiskers(axes, [place - apart for place in places], counts, radius[chosen], ACCENT, 2.0)
    if apart:
        _whiskers(axes, [place + apart for place in places], counts, radius[other], MUTED, 1.0)
    _name_cells(axes, cells)
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    label_axes(axes, answer["column"], "rows")
    _widths(below, {f"{chosen}, drawn": (radius[chosen], ACCENT), other: (radius[other], MUTED)})
    sure = f"{100 * answer['confidence']:g} %"
    caption = f"Coloured: each count without noise lies within {radius[chosen]:,.0f} of its bar with {sure} ({chosen})."
    at = f" at delta {answer['comparison']['delta']:g}" if other == "gaussian" else ""
    caption += f" Grey: within {radius[other]:,.0f} if {other} noise had been drawn{at}. Below: both, larger."
    words = "; ".join(f"{cell} {count:,}" for cell, count in zip(cells, counts, strict=True))
    description = f"Bar chart of noisy counts of {answer['column']}, each within {radius[chosen]:,.0f}: {words}"
    return Drawing(f"Rows by {answer['column']}", caption, as_svg(figure, name, description))


def error_lines(answer: Answer, name: str) -> Drawing:
    """The noise's standard deviation against epsilon, for both mechanisms and for the classical calibration."""
    comparison = answer["comparison"]
    figure, axes = canvas()
    for mechanism, errors in comparison["errors"].items():
        points = [(e, error) for e, error in zip(comparison["epsilons"], errors, strict=True) if error is not None]
        if points:
            colour, style = _LINES[mechanism]
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.6)
            axes.annotate(mechanism, points[-1], xytext=(4, 2), textcoords="offset points", fontsize=7.5, color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    low, high = comparison["epsilons"][0], comparison["epsilons"][-1]
    axes.set_xlim(low / 1.1, high * (high / low) ** 0.2)  # room for names
    chosen, _ = _mechanisms(answer)
    here = _at(comparison, chosen, answer["epsilon"])
    axes.plot([answer["epsilon"]], [here], marker="o", markersize=6, color=ACCENT)
    label_axes(axes, "epsilon", "standard deviation")
    caption = (
        f"Of the noise on {answer['noised']}; Gaussian at delta {comparison['delta']:g}, dashed as the classical bound "
        f"asks for it. The dot is this answer: {_short(here)} at epsilon {answer['epsilon']:g}."
    )
    description = (
        f"Line chart of the error against epsilon, {_short(here)} at {answer['epsilon']:g} with {chosen} noise"
    )
    return Drawing(f"Error against epsilon: {answer['kind']} of {answer['column']}", caption,
                   as_svg(figure, name, description))  # fmt: skip


def composition_bars(composition: Mapping[str, float]) -> Drawing:
    """Epsilon of all answers together, by theorem."""
    figure, axes = canvas(high=1.7)
    values = [composition[theorem] for theorem in _THEOREMS]
    for place, (theorem, value) in enumerate(zip(_THEOREMS, values, strict=True)):
        axes.barh(-place, value, height=0.6, color=ACCENT if theorem == "pld" else BAR)
        axes.annotate(_short(value), (value, -place), xytext=(5, 0), textcoords="offset points", va="center",
                      fontsize=8.5, color=INK)  # fmt: skip
    axes.set_yticks([-place for place in range(len(values))], list(_THEOREMS.values()))
    axes.tick_params(axis="y", labelsize=8.5, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.2 * max(values))
    label_axes(axes, f"epsilon at delta {composition['delta']:g}", "")
    words = ", ".join(f"{name} {_short(value)}" for name, value in zip(_THEOREMS.values(), values, strict=True))
    caption = "Each is a proven bound; the statement takes that of loss distributions."
    return Drawing("What all answers cost together", caption,
                   as_svg(figure, "composition", f"Bar chart of epsilon by composition: {words}"))  # fmt: skip


def _mechanisms(answer: Answer) -> tuple[str, str]:
    """The one that was used and the other one."""
    return ("gaussian", "laplace") if answer["delta"] else ("laplace", "gaussian")


def _whiskers(
    axes: Axes, places: Sequence[float], counts: Sequence[float], radius: float, colour: str, width: float
) -> None:
    axes.errorbar(places, counts, yerr=radius, fmt="none", ecolor=colour, elinewidth=width, capsize=2.5)


def _widths(axes: Axes, radii: Mapping[str, tuple[float, str]]) -> None:
    """Intervals around a count at zero, one below the other, with their numbers."""
    for place, (name, (radius, colour)) in enumerate(radii.items()):
        axes.errorbar(0, -place, xerr=radius, fmt="|", color=colour, elinewidth=2.0, capsize=3.5)
        axes.annotate(f"± {radius:,.0f}  {name}", (radius, -place), xytext=(7, 0), textcoords="offset points",
                      va="center", fontsize=8.5, color=colour)  # fmt: skip
    widest = max([1.0, *(radius for radius, _ in radii.values())])
    axes.set_xlim(-1.1 * widest, 1.6 * widest)  # room for names
    axes.set_ylim(-len(radii) + 0.4, 0.6)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+,.0f}" if value else "0"))
    label_axes(axes, "what noise may have moved each bar by, in rows", "")


def _name_cells(axes: Axes, cells: Sequence[str]) -> None:
    """All names where they fit, else every so many of them."""
    every = max(1, math.ceil(len(cells) / _MOST_NAMED_CELLS))
    shown = range(0, len(cells), every)
    axes.set_xticks(list(shown), [cells[place] for place in shown])
    axes.tick_params(axis="x", labelsize=7.5)
    if any(len(cells[place]) > _SHORT_NAME for place in shown):
        axes.tick_params(axis="x", labelrotation=25)


def _at(comparison: Mapping[str, Any], mechanism: str, epsilon: float) -> float:
    epsilons, errors = comparison["epsilons"], comparison["errors"][mechanism]
    return float(min(zip(epsilons, errors, strict=True), key=lambda point: abs(math.log(point[0] / epsilon)))[1])


def _short(value: float) -> str:
    return f"{value:,.4g}"
