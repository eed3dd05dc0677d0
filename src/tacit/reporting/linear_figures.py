"""The figures of a linear fit's page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, Drawing, as_svg, canvas, label_axes

Values = Mapping[str, Any]
_DASHES = (0, (4, 3))
_MOST_FEATURES = 40


def predictions(values: Values) -> Drawing:
    """Predicted against true: a cloud for numbers, a table of shades for classes."""
    shown = np.asarray(values["shown"], dtype=np.float64)
    classes = values["release"].get("classes")
    return _class_cells(shown, classes) if classes else _cloud(shown, values["release"]["target_bounds"])


def coefficients(values: Values) -> Drawing:
    """One row a feature: the private coefficient as a point, the one without privacy as a tick."""
    rows = list(values["coefficients"])
    largest = sorted(rows, key=lambda row: -abs(row["plain"]))[:_MOST_FEATURES]
    chosen = [row for row in rows if row in largest][::-1]
    figure, axes = canvas(high=0.8 + 0.2 * len(chosen))
    axes.axvline(0, color=MUTED, linewidth=0.9)
    for place, row in enumerate(chosen):
        axes.plot([row["plain"], row["private"]], [place, place], color=BAR, linewidth=2.2, zorder=2)
        axes.plot(row["plain"], place, marker="|", color=INK, markersize=10, markeredgewidth=1.6, zorder=3)
        axes.plot(row["private"], place, marker="o", color=ACCENT, markersize=4.6, zorder=4)
    axes.set_yticks(range(len(chosen)), [row["feature"] for row in chosen])
    axes.tick_params(axis="y", labelsize=8, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    label_axes(axes, "coefficient of the scaled feature", "")
    words = "; ".join(f"{row['feature']} {row['private']:.3g} for {row['plain']:.3g}" for row in reversed(chosen))
    more = f" The largest {len(chosen)} of {len(rows)}." if len(chosen) < len(rows) else ""
    return Drawing(
        title="Coefficients",
        caption=f"Dots: as released. Ticks: without privacy. Features and target scaled to [-1, 1].{more}",
        svg=as_svg(figure, "coefficients", f"Dot chart of coefficients, private for plain: {words}"),
    )


def error_against_epsilon(values: Values) -> Drawing:
    """Median and quartiles at each epsilon, one line a method and delta, with both lines that need no privacy."""
    accuracy = "test_accuracy" in values
    figure, axes = canvas()
    _levels(axes, {"without privacy": values["plain"], "constant": values["constant"]})
    lines = _by_method(values["curves"])
    for colour, marker, (label, rows) in zip((ACCENT, INK), ("o", "s"), lines.items(), strict=False):
        epsilons = [row["epsilon"] for row in rows]
        low, high = ([row["quartiles"][end] for row in rows] for end in (0, 1))
        axes.fill_between(epsilons, low, high, color=BAR, alpha=0.35, linewidth=0)
        axes.plot(epsilons, [row["median"] for row in rows], color=colour, marker=marker, markersize=4, linewidth=1.7,
                  label=label)  # fmt: skip
    _logarithmic(axes, [row["epsilon"] for row in values["curves"]])
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center right" if accuracy else "upper right",
                bbox_to_anchor=(1.0, 0.35 if accuracy else 0.8))  # fmt: skip
    label_axes(axes, "epsilon", "test accuracy" if accuracy else "test mean squared error")
    words = "; ".join(
        f"{label}: " + ", ".join(f"{row['median']:.4f} at {row['epsilon']:g}" for row in rows)
        for label, rows in lines.items()
    )
    return Drawing(
        title=f"{'Accuracy' if accuracy else 'Error'} against epsilon",
        caption=f"Median and quartiles of {values['curve_repeats']} draws of the noise. Lines of different delta "
        "promise different things at the same epsilon.",
        svg=as_svg(figure, "curves", f"Line chart. {words}. Plain {values['plain']:.4f}."),
    )


def split_expectation(split: Values) -> Drawing:
    """What the functional mechanism's split is expected to cost, by public facts alone."""
    figure, axes = canvas()
    axes.plot(split["shares"], split["excess"], color=INK, linewidth=1.7)
    for share, excess, name, colour in (
        (split["default"], split["default_excess"], "default", ACCENT),
        (0.5, split["even_excess"], "even", MUTED),
    ):
        axes.plot(share, excess, marker="o", color=colour, markersize=6)
        axes.annotate(f"{name}: {excess:.4f}", (share, excess), xytext=(0, 9), textcoords="offset points", ha="center",
                      color=colour, fontsize=8.5)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
    label_axes(axes, "share of epsilon for the quadratic coefficients", "expected excess error")
    return Drawing(
        title="The functional mechanism's split",
        caption=f"Expected from bounds, number of rows and epsilon {split['epsilon']:g} alone. The default is the "
        f"minimum, at {100 * split['default']:.0f}\u00a0%.",
        svg=as_svg(figure, "split", f"Line chart of expected excess error, least at {split['default']:.2f}"),
    )


def _cloud(shown: np.ndarray, bounds: Sequence[float]) -> Drawing:
    lower, upper = bounds
    real = (lower + upper) / 2 + (upper - lower) / 2 * shown
    figure, axes = canvas()
    axes.plot([lower, upper], [lower, upper], color=MUTED, linewidth=1.0, linestyle=_DASHES)
    axes.plot(real[:, 0], real[:, 1], linestyle="", marker="o", markersize=2.1, markeredgewidth=0, color=ACCENT,
              alpha=0.45, rasterized=False)  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if upper - lower > 10 else f"{value:g}")
        )
    label_axes(axes, "true", "predicted")
    correlation = float(np.corrcoef(shown.T)[0, 1]) if len(shown) > 1 else 0.0
    return Drawing(
        title="Predicted against true",
        caption=f"{len(shown):,} rows for testing. On the dashed line a prediction is right.",
        svg=as_svg(figure, "cloud", f"Scatter plot of {len(shown)} rows, with correlation {correlation:.2f}"),
    )


def _class_cells(shown: np.ndarray, classes: Sequence[str]) -> Drawing:
    count = len(classes)
    table = np.zeros((count, count), dtype=int)
    np.add.at(table, (shown[:, 0].astype(int), shown[:, 1].astype(int)), 1)
    figure, axes = canvas(high=1.2 + 0.42 * count)
    axes.imshow(np.sqrt(table / max(1, table.max())), cmap=_shade(), vmin=0, vmax=1, aspect="auto", alpha=0.5)
    axes.grid(visible=False)
    for true, predicted in np.ndindex(count, count):
        axes.annotate(f"{table[true, predicted]:,}", (predicted, true), ha="center", va="center", fontsize=9, color=INK)
    axes.set_xticks(range(count), list(classes))
    axes.set_yticks(range(count), list(classes))
    label_axes(axes, "predicted", "true")
    right = int(np.trace(table))
    return Drawing(
        title="Predicted against true",
        caption=f"{len(shown):,} rows for testing, {right:,} of them right.",
        svg=as_svg(figure, "cells", f"Table of true and predicted classes: {right} of {len(shown)} right"),
    )


def _shade() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("accent", ["#0b6e6e00", "#0b6e6e"])


def _levels(axes: Axes, levels: Mapping[str, float]) -> None:
    """Dashed lines, the higher one named above itself and the lower one below, out of the curves' way."""
    highest = max(levels.values())
    for label, level in levels.items():
        axes.axhline(level, color=MUTED, linewidth=1.0, linestyle=_DASHES)
        above = level == highest
        axes.annotate(label, (0.99, level), xycoords=("axes fraction", "data"), xytext=(0, 3 if above else -4),
                      textcoords="offset points", ha="right", va="bottom" if above else "top", color=MUTED,
                      fontsize=8)  # fmt: skip
    axes.margins(y=0.12)


def _by_method(curves: Sequence[Values]) -> dict[str, list[Values]]:
    lines: dict[str, list[Values]] = {}
    for row in curves:
        guarantee = "pure" if row["delta"] == 0 else f"delta {row['delta']:g}"
        lines.setdefault(f"{row['method']} ({guarantee})", []).append(row)
    return lines


def _logarithmic(axes: Axes, epsilons: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    places = sorted(set(epsilons))
    axes.set_xticks(places, [f"{epsilon:g}" for epsilon in places])
