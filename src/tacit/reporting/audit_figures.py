"""The figures of an audit's page."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, RULE, Drawing, as_svg, canvas, label_axes, panels

Values = Mapping[str, Any]
_DASHES, _DOTS = (0, (4, 3)), (0, (1, 2))
_LEAST_RATE = 1e-4
_STYLES: Sequence[tuple[str, float]] = ((ACCENT, 2.0), (INK, 1.4))  # the first model is the one that makes a claim


def roc_curves(findings: Sequence[Values], *, of_records: bool) -> Drawing | None:
    """True against false positive rates on logarithmic axes, one line a model, under a claim's ceiling.

    Args:
        findings: of each model.
        of_records: the attack on records that counts, or the scores of canaries.
    """
    place = 1 if of_records else 0
    if any(len(finding["curves"]) <= place for finding in findings):
        return None
    figure, axes = canvas(high=3.6)
    first = findings[0]
    axes.plot(first["fpr"], first["fpr"], color=MUTED, linewidth=0.9, linestyle=_DOTS, label="guessing")
    for finding, (colour, width) in zip(findings, _STYLES, strict=False):
        curve = finding["curves"][place]["tpr"]
        axes.plot(finding["fpr"], curve, color=colour, linewidth=width, label=finding["name"], drawstyle="steps-post")
    if _has_ceiling(first, of_records=of_records):
        axes.plot(first["fpr"], first["ceiling"], color=ACCENT, linewidth=1.2, linestyle=_DASHES, label="ceiling")
        axes.fill_between(first["fpr"], first["ceiling"], 1.0, color=RULE, alpha=0.5, linewidth=0)
    _rates(axes)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="lower right")
    label_axes(axes, "false positive rate", "true positive rate")
    what = "records" if of_records else "canaries"
    attack = f", by {first['curves'][place]['name']}" if of_records else ""
    words = _roc_words(findings, of_records=of_records)
    return Drawing(
        title=f"Which {what} were trained on{attack}",
        caption=words,
        svg=as_svg(figure, f"roc-{what}", f"ROC curve on logarithmic axes. {words}"),
    )


def _roc_words(findings: Sequence[Values], *, of_records: bool) -> str:
    areas = ", ".join(f"{finding['name']} {_area(finding, of_records=of_records):.3f}" for finding in findings)
    return f"Area under the curve: {areas}; 0.5 is guessing. {_ceiling_words(findings[0], of_records=of_records)}"


def _has_ceiling(finding: Values, *, of_records: bool) -> bool:
    """A claim bounds an attack on those that joined by coins: canaries do, and records where a coin was thrown."""
    return finding["epsilon_claimed"] is not None and (finding["by_coins"] or not of_records)


def _ceiling_words(finding: Values, *, of_records: bool) -> str:
    if _has_ceiling(finding, of_records=of_records):
        return f"Dashed: the ceiling of epsilon {finding['epsilon_claimed']:.4g}, which no attack is above on average."
    if finding["epsilon_claimed"] is None:
        return "Without a claim there is no ceiling."
    return (
        "Members are the training split and non-members the test split, which no coin dealt: this curve refutes "
        "nothing."
    )


def _area(finding: Values, *, of_records: bool) -> float:
    area: float = finding["auc"] if of_records else finding["canary_auc"]["value"]
    return area


def _rates(axes: Axes) -> None:
    for scale, axis in ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis)):
        scale("log")
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g} %"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(_LEAST_RATE, 1.0)
    axes.set_ylim(_LEAST_RATE, 1.05)


def epsilon_ranges(findings: Sequence[Values]) -> Drawing:
    """For every model a bar up to the audited lower bound, a tick at the claim, and the most that could be shown."""
    figure, axes = canvas(high=0.8 + 0.85 * len(findings))
    rows = list(reversed(findings))
    for place, finding in enumerate(rows):
        lower, largest, claimed = (finding[key] for key in ("epsilon_lower", "epsilon_largest", "epsilon_claimed"))
        colour = ACCENT if finding is findings[0] else BAR
        axes.barh(place, largest, height=0.56, facecolor="none", edgecolor=RULE, hatch="////", linewidth=0.8)
        axes.barh(place, lower, height=0.56, color=colour)
        _label(axes, place - 0.3, lower, f"{lower:.3g} shown", "top")
        if claimed is not None:
            axes.plot([claimed, claimed], [place - 0.28, place + 0.34], color=INK, linewidth=2.2)
            _label(axes, place + 0.34, claimed, f"{claimed:.3g} claimed", "bottom")
    axes.set_yticks(range(len(rows)), [finding["name"] for finding in rows])
    axes.tick_params(axis="y", labelsize=9, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.12 * max(max(f["epsilon_largest"], f["epsilon_claimed"] or 0) for f in findings))
    axes.set_ylim(-0.65, len(rows) - 0.35)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    label_axes(axes, "epsilon", "")
    words = "; ".join(_range_words(finding) for finding in findings)
    return Drawing(
        title="Claimed and audited epsilon",
        caption=(
            f"Solid: shown with {100 * findings[0]['confidence']:g} % confidence. Hatched: up to what this test could "
            f"have shown. {words}."
        ),
        svg=as_svg(figure, "epsilon", f"Bar chart of lower bounds on epsilon. {words}"),
    )


def _label(axes: Axes, height: float, value: float, text: str, side: str) -> None:
    axes.annotate(text, (value, height), ha="left", va=side, fontsize=8.5, color=INK)


def _range_words(finding: Values) -> str:
    claimed = "no claim" if finding["epsilon_claimed"] is None else f"claimed {finding['epsilon_claimed']:.4g}"
    return (
        f"{finding['name']}: {claimed}, at least {finding['epsilon_lower']:.4g}, of {finding['epsilon_largest']:.4g} "
        "that could have been shown"
    )


def score_histograms(findings: Sequence[Values], *, of_records: bool) -> Drawing | None:
    """Scores of members and of non-members, one panel a model."""
    place = 1 if of_records else 0
    if any(len(finding["histograms"]) <= place for finding in findings):
        return None
    figure, several = panels(wide=4.5, high=0.4 + 1.7 * len(findings), count=len(findings))
    inside, outside = ("members", "non-members") if of_records else ("there", "not there")
    for axes, finding in zip(several, findings, strict=True):
        histogram = finding["histograms"][place]
        edges = histogram["edges"]
        axes.stairs(histogram["non_members"], edges, fill=True, color=BAR, label=outside)
        axes.stairs(histogram["members"], edges, color=ACCENT, linewidth=1.7, label=inside)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.set_title(finding["name"], fontsize=9.5, color=INK, loc="left")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    several[0].legend(frameon=False, fontsize=8.5, labelcolor=INK)
    label_axes(several[-1], "score", "")
    what = "records" if of_records else "canaries"
    name = findings[0]["histograms"][place]["name"]
    scale = f"Scores of {name}" if of_records else "How sure the model is of a canary’s label"
    return Drawing(
        title=f"Scores of {what}",
        caption=f"{scale}. The more the shapes differ, the more is given away. The outermost bins hold all beyond.",
        svg=as_svg(figure, f"scores-{what}", f"Histograms of the scores of {what}: {inside} beside {outside}"),
    )
