"""The figures of a PATE run. Those that take a `VoteRecord` are private, as it is."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from tacit.reporting.canvas import ACCENT, INK, MUTED, Drawing, as_svg, canvas, label_axes, label_shares
from tacit.reporting.pate_record import Curve, VoteRecord

_MARKERS_UP_TO = 40
_MOST_POINTS = 400
_LOG_FROM = 15.0
_MOST_TICKS = 8
_DASHED = (0, (4, 3))


def agreement(votes: VoteRecord, teachers: int) -> Drawing | None:
    """How many teachers chose the first class, as a histogram over the inputs; None where it was not recorded."""
    inputs = sum(votes.agreement)
    if not inputs or not teachers:
        return None
    figure, axes = canvas()
    width = teachers / len(votes.agreement)
    places = [width * (place + 0.5) for place in range(len(votes.agreement))]
    axes.bar(places, [count / inputs for count in votes.agreement], width=0.92 * width, color=ACCENT)
    axes.set_xlim(0, teachers)
    label_shares(axes)
    label_axes(axes, "teachers on the first class", "share of the inputs")
    unanimous = votes.agreement[-1] / inputs
    words = f"On {_share(unanimous)} of {inputs:,.0f} inputs {teachers - width:,.0f} to {teachers:,} teachers agree"
    return Drawing(
        title="How far the teachers agree",
        caption=f"{words}. The more agree, the less an answer says about any one of them.",
        svg=as_svg(figure, "agreement", f"Histogram of agreement among {teachers} teachers: {words}"),
    )


def gap_against_noise(votes: VoteRecord, deviation: float | None) -> Drawing | None:
    """The share of inputs whose first class leads by more than so many votes, beside what noise moves the lead by.

    Args:
        votes: with the gaps.
        deviation: of the noise on one count; the difference of two counts has the square root of two times as much.
    """
    if not votes.gaps:
        return None
    figure, axes = canvas()
    gaps = sorted(votes.gaps)
    total = len(gaps)
    line = _thinned([(gap, 1 - (place + 1) / total) for place, gap in enumerate(gaps)])
    axes.step(*zip((0.0, 1.0), *line, strict=True), where="post", color=ACCENT, linewidth=1.9)
    axes.set_ylim(0, 1.05)
    caption = "For every input the lead of the first class over the second, in votes."
    if deviation is not None and deviation > 0:
        moved = math.sqrt(2) * deviation
        above = sum(gap > moved for gap in gaps) / total
        axes.axvline(moved, color=MUTED, linewidth=0.9, linestyle=_DASHED)
        axes.annotate(f"noise: ± {moved:.3g}", (moved, 0.04), xycoords=("data", "axes fraction"), xytext=(4, 0),
                      textcoords="offset points", color=MUTED, fontsize=8)  # fmt: skip
        caption += f" Noise moves it by ± {moved:.3g}, one standard deviation; {_share(above)} of them lead by more."
    label_shares(axes)
    label_axes(axes, "lead of the first class, votes", "inputs that lead by more")
    return Drawing("The lead against the noise", caption, as_svg(figure, "gap", f"Line chart. {caption}"))


def accuracy_by_gamma(votes: VoteRecord) -> Drawing | None:
    """How often the noisy first class is right, against the noise (Papernot et al. 2017, figure 2)."""
    curve = votes.accuracy_by_gamma
    if not curve:
        return None
    figure, axes = canvas()
    _line(axes, curve)
    if curve[0][0] > 0 and curve[-1][0] > _LOG_FROM * curve[0][0]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        if len(curve) <= _MOST_TICKS:
            axes.set_xticks([gamma for gamma, _ in curve])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    if votes.plurality_accuracy is not None:
        axes.axhline(votes.plurality_accuracy, color=MUTED, linewidth=0.9, linestyle=_DASHED)
        axes.annotate("without noise", (0.02, votes.plurality_accuracy), xycoords=("axes fraction", "data"),
                      xytext=(0, -10), textcoords="offset points", color=MUTED, fontsize=8)  # fmt: skip
    label_shares(axes)
    label_axes(axes, "gamma: noise of scale 1 / gamma", "accuracy of the aggregate")
    gamma, best = max(curve, key=lambda point: point[1])
    words = f"{100 * best:.1f} % at gamma {gamma:g}"
    return Drawing(
        title="Accuracy of the aggregate against the noise",
        caption=f"Noisy answers on the public inputs: {words}. A smaller gamma is more noise and more privacy.",
        svg=as_svg(figure, "gamma", f"Line chart of the aggregate's accuracy against gamma, {words} at most"),
    )


def epsilon_over_queries(independent: Curve, votes: VoteRecord | None) -> Drawing | None:
    """Epsilon against the number of queries: whatever the votes, and, where they are given, for these votes."""
    dependent = () if votes is None else votes.epsilon_by_queries
    if not independent and not dependent:
        return None
    figure, axes = canvas()
    ends = []
    if independent:
        _line(axes, independent, colour=MUTED, style=_DASHED, label="whatever the votes")
        ends.append(f"{independent[-1][1]:.3g} whatever the votes")
    if dependent:
        _line(axes, dependent, label="for these votes")
        ends.append(f"{dependent[-1][1]:.3g} for these votes")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="upper left")
    label_axes(axes, "queries", "epsilon")
    last = max(curve[-1][0] for curve in (independent, dependent) if curve)
    words = f"After {last:,.0f} queries: epsilon {', '.join(ends)}."
    return Drawing("Epsilon against queries", words, as_svg(figure, "epsilon-queries", f"Line chart. {words}"))


def student_over_steps(curve: Curve) -> Drawing | None:
    """The student's accuracy while it learns."""
    if not curve:
        return None
    figure, axes = canvas()
    _line(axes, curve)
    label_shares(axes)
    label_axes(axes, "steps", "student’s accuracy")
    step, accuracy = curve[-1]
    words = f"{100 * accuracy:.2f} % after {step:,.0f} steps"
    return Drawing(
        title="The student learns",
        caption=f"On examples that nobody saw: {words}.",
        svg=as_svg(figure, "student", f"Line chart of the student's accuracy over the steps, ending at {words}"),
    )


def _line(axes: Axes, curve: Curve, *, colour: str = ACCENT, style: object = "-", label: str | None = None) -> None:
    marker = "o" if len(curve) <= _MARKERS_UP_TO else ""
    places = zip(*_thinned(curve), strict=True)
    axes.plot(*places, color=colour, linestyle=style, linewidth=1.7, marker=marker, markersize=3.2, label=label)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most so many points at even distances, the first and the last among them."""
    last = len(points) - 1
    if last < _MOST_POINTS:
        return points
    return [points[round(place * last / (_MOST_POINTS - 1))] for place in range(_MOST_POINTS)]


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
