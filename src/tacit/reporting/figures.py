"""The figures of a report, as inline SVG that takes its colours and its font from the page around it."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from tacit.accounting import ACCOUNTANTS
from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, Drawing, as_svg, canvas, label_axes, label_shares
from tacit.reporting.record import Point

MAX_POINTS_A_LINE = 300

_LOG_SCALE_FROM = 15.0
_LARGEST_BAR = 1e100  # axes overflow beyond it, and such an epsilon means nothing
_MARKERS_UP_TO = 40
_VOID_NOTE = " This run has no guarantee: the figure is what its noise would have earned."


Line = list[tuple[int, float]]


def accuracy_over_steps(history: Sequence[Point]) -> Drawing | None:
    """Test accuracy against steps, one line a seed and their mean; None where none was recorded."""
    lines = _lines_by_seed(history, "test_accuracy")
    if not lines:
        return None
    figure, axes = canvas()
    mean = _draw_lines(axes, lines)
    label_shares(axes)
    label_axes(axes, "steps", "test accuracy")
    step, accuracy = (mean or lines[-1])[-1]
    last = f"{100 * accuracy:.1f} % after {step:,} steps"
    return Drawing(
        title="Test accuracy over the steps",
        caption=_whose(lines, mean, last),
        svg=as_svg(figure, "accuracy", f"Line chart of test accuracy over the steps, ending at {last}"),
    )


def error_over_steps(history: Sequence[Point]) -> Drawing | None:
    """The squared error of a regression on test records against steps; None where none was recorded."""
    lines = _lines_by_seed(history, "test_mse")
    if not lines:
        return None
    figure, axes = canvas()
    mean = _draw_lines(axes, lines)
    label_axes(axes, "steps", "test squared error")
    step, error = (mean or lines[-1])[-1]
    last = f"{error:.4g} after {step:,} steps"
    return Drawing(
        title="Test squared error over the steps",
        caption=_whose(lines, mean, last),
        svg=as_svg(figure, "error", f"Line chart of the squared error over the steps, ending at {last}"),
    )


def _whose(lines: Sequence[object], mean: object, last: str) -> str:
    if len(lines) == 1:
        return f"One seed: {last}."
    return f"{'Mean of' if mean else 'Last of'} {len(lines)} seeds: {last}."


def epsilon_over_steps(history: Sequence[Point], *, target: float | None, void: bool) -> Drawing | None:
    """Epsilon spent against steps, with the epsilon that was asked for; None where none was recorded.

    Args:
        target: the epsilon that the plan asked for, if it did.
        void: whether the run has no guarantee; the caption then says that the curve is only what might have
            been.
    """
    lines = _lines_by_seed(history, "epsilon")
    if not lines:
        return None
    figure, axes = canvas()
    lines = _merged(lines)
    mean = _draw_lines(axes, lines)
    axes.set_ylim(bottom=0)
    if target:
        axes.axhline(target, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(f"asked for: {target:g}", (0.02, target), xycoords=("axes fraction", "data"),
                      xytext=(0, 3), textcoords="offset points", color=MUTED, fontsize=8)  # fmt: skip
        axes.set_ylim(top=1.15 * max(target, *(y for line in lines for _, y in line)))
    label_axes(axes, "steps", "epsilon spent")
    step, epsilon = (mean or lines[-1])[-1]
    last = f"epsilon {epsilon:.4g} after {step:,} steps"
    return Drawing(
        title="Privacy spent over the steps",
        caption=f"{last[0].upper()}{last[1:]}.{_VOID_NOTE if void else ''}",
        svg=as_svg(figure, "epsilon", f"Line chart of epsilon over the steps, ending at {last}"),
    )


def epsilon_by_accountant(values: Mapping[str, float | None], *, chosen: str, void: bool) -> Drawing | None:
    """One bar an accountant; hollow, hatched bars are estimates that may lie below the true epsilon."""
    known = {
        name: value
        for name, value in values.items()
        if name in ACCOUNTANTS and value is not None and value < _LARGEST_BAR
    }
    if not known:
        return None
    names = sorted(known, key=lambda name: known[name], reverse=True)
    figure, axes = canvas(high=0.75 + 0.36 * len(names))
    for row, name in enumerate(names):
        _draw_bar(axes, row, known[name], certified=ACCOUNTANTS[name].is_upper_bound, chosen=name == chosen)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    logarithmic = max(known.values()) > _LOG_SCALE_FROM * min(known.values()) > 0
    _scale_bars(axes, list(known.values()), logarithmic=logarithmic)
    estimates = [name for name in names if not ACCOUNTANTS[name].is_upper_bound]
    label_axes(axes, "epsilon (logarithmic)" if logarithmic else "epsilon", "")
    words = "; ".join(f"{name} {known[name]:.4g}" for name in reversed(names))
    note = f" Hatched bars ({', '.join(estimates)}) are estimates, not upper bounds." if estimates else ""
    return Drawing(
        title="Epsilon under each accountant",
        caption=f"The same run, counted in different ways at the same delta.{note}{_VOID_NOTE if void else ''}",
        svg=as_svg(figure, "accountants", f"Bar chart of epsilon under each accountant: {words}"),
    )


def _draw_bar(axes: Axes, row: int, value: float, *, certified: bool, chosen: bool) -> None:
    colour = ACCENT if chosen else BAR
    if certified:
        axes.barh(row, value, height=0.62, color=colour)
    else:
        axes.barh(row, value, height=0.62, facecolor="none", edgecolor=colour, hatch="////", linewidth=1.0)
    label = f"{value:.4g}" if certified else f"{value:.4g} (estimate)"
    axes.annotate(label, (value, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5,
                  color=INK, fontweight="bold" if chosen else "normal")  # fmt: skip


def _scale_bars(axes: Axes, values: Sequence[float], *, logarithmic: bool) -> None:
    """Leave room for the figures at the ends of the bars."""
    if logarithmic:
        axes.set_xscale("log")
        low, high = min(values) / 3, max(values)
        axes.set_xlim(low, high * (high / low) ** 0.3)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, (max(values) or 1.0) * 1.35)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))


def _lines_by_seed(history: Sequence[Point], field: str) -> list[Line]:
    by_seed: dict[int, dict[int, float]] = {}
    for point in history:
        value = getattr(point, field)
        if value is not None:
            by_seed.setdefault(point.seed, {})[point.step] = value
    return [sorted(points.items()) for points in by_seed.values()]


def _merged(lines: list[Line]) -> list[Line]:
    """One line where all agree on every step that they share, as epsilon does; the lines as they are otherwise."""
    union: dict[int, float] = {}
    agree = all(union.setdefault(step, value) == value for line in lines for step, value in line)
    return [sorted(union.items())] if agree else lines


def thin(line: Line) -> Line:
    """At most `MAX_POINTS_A_LINE` points at even distances, the first and the last among them."""
    if len(line) <= MAX_POINTS_A_LINE:
        return line
    last = len(line) - 1
    return [line[round(index * last / (MAX_POINTS_A_LINE - 1))] for index in range(MAX_POINTS_A_LINE)]


def _draw_lines(axes: Axes, lines: list[Line]) -> Line:
    """Draw each line and, above them, their mean over the steps that all have; returns the mean, possibly empty."""
    tables = [dict(line) for line in lines]
    common = sorted(set.intersection(*(set(table) for table in tables)))
    mean = [(step, sum(table[step] for table in tables) / len(tables)) for step in common]
    if len(lines) > 1:
        for line in lines:
            axes.plot(*zip(*thin(line), strict=True), color=ACCENT, alpha=0.3, linewidth=0.9)
    if mean:
        marker = "o" if len(mean) <= _MARKERS_UP_TO else ""
        axes.plot(*zip(*thin(mean), strict=True), color=ACCENT, linewidth=1.9, marker=marker, markersize=3.2)
    return mean
