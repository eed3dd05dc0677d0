"""The figures of an audit's page."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tacit.reporting.canvas import ACCENT, BAR, INK, MUTED, RULE, WIDE, Drawing, as_svg, canvas, label_axes, panels

Values = Mapping[str, Any]
_DASHES, _DOTS = (0, (4, 3)), (0, (1, 2))
_LEAST_RATE = 1e-4
_STYLES: Sequence[tuple[str, float, Any]] = (  # the first model is the one that makes a claim, the first attack counts
    *((ACCENT, 2.0, "solid"), (INK, 1.4, "solid"), (INK, 1.2, _DASHES)),
    *((BAR, 1.8, "solid"), (MUTED, 1.2, _DASHES), (MUTED, 1.2, "solid")),
)


def canary_curves(findings: Sequence[Values]) -> Drawing | None:
    """How well each model tells which canaries were there, under the ceiling of the claim."""
    if any(finding["canary_scores"] is None for finding in findings):
        return None
    lines = [_Line(each["name"], each["canary_scores"]["tpr"], each["canary_auc"]["value"]) for each in findings]
    return _roc("Which canaries were trained on", "roc-canaries", [("", findings[0], lines)], of_records=False)


def record_curves(findings: Sequence[Values]) -> Drawing | None:
    """Attacks on records: the one that counts on every model, or on a single model all of them."""
    if any(not finding["attack_scores"] for finding in findings):
        return None
    if len(findings) == 1:
        panel = ("", findings[0], _attack_lines(findings[0]))
        return _roc("Which records were trained on", "roc-records", [panel], of_records=True)
    lines = [_Line(each["name"], each["attack_scores"][0]["tpr"], each["auc"]) for each in findings]
    title = f"Which records were trained on, by {findings[0]['attack_scores'][0]['name']}"
    return _roc(title, "roc-records", [("", findings[0], lines)], of_records=True)


def attack_curves(findings: Sequence[Values]) -> Drawing | None:
    """All attacks on records, one panel a model, where there are several of both."""
    if len(findings) == 1 or any(len(finding["attack_scores"]) < 2 for finding in findings):
        return None
    shown = [(each["name"], each, _attack_lines(each)) for each in findings]
    return _roc("Every attack on records", "roc-attacks", shown, of_records=True)


@dataclasses.dataclass(frozen=True)
class _Line:
    """True positive rates, and the area under them."""

    name: str
    tpr: Sequence[float]
    area: float


def _attack_lines(finding: Values) -> list[_Line]:
    drawn = zip(finding["attack_scores"], finding["attacks"], strict=True)
    return [_Line(scores["name"], scores["tpr"], attack["auc"]["value"]) for scores, attack in drawn]


def _roc(title: str, name: str, shown: Sequence[tuple[str, Values, Sequence[_Line]]], *, of_records: bool) -> Drawing:
    """True against false positive rates on logarithmic axes, under a claim's ceiling where it holds."""
    figure, several = panels(wide=WIDE, high=3.6 * len(shown), count=len(shown))
    for axes, (label, finding, lines) in zip(several, shown, strict=True):
        _draw(axes, finding, lines, ceiling=_has_ceiling(finding, of_records=of_records))
        _rates(axes)
        axes.set_title(label, fontsize=9.5, color=INK, loc="left")
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="lower right")
        label_axes(axes, "false positive rate" if axes is several[-1] else "", "true positive rate")
    areas = "; ".join(f"{label}: {_areas(lines)}" if label else _areas(lines) for label, _, lines in shown)
    words = f"Area under the curve: {areas}; 0.5 is guessing. {_ceiling_words(shown[0][1], of_records=of_records)}"
    return Drawing(title=title, caption=words, svg=as_svg(figure, name, f"ROC curve on logarithmic axes. {words}"))


def _draw(axes: Axes, finding: Values, lines: Sequence[_Line], *, ceiling: bool) -> None:
    rates = finding["fpr"]
    axes.plot(rates, rates, color=MUTED, linewidth=0.9, linestyle=_DOTS, label="guessing")
    for line, (colour, width, dashes) in zip(lines, _STYLES, strict=False):
        look = {"color": colour, "linewidth": width, "linestyle": dashes}
        axes.plot(rates, line.tpr, label=line.name, drawstyle="steps-post", **look)
    if ceiling:
        axes.plot(rates, finding["ceiling"], color=ACCENT, linewidth=1.2, linestyle=_DASHES, label="ceiling")
        axes.fill_between(rates, finding["ceiling"], 1.0, color=RULE, alpha=0.5, linewidth=0)


def _areas(lines: Sequence[_Line]) -> str:
    return ", ".join(f"{line.name} {line.area:.3f}" for line in lines)


def _has_ceiling(finding: Values, *, of_records: bool) -> bool:
    """A claim bounds an attack on those that joined by coins: canaries do, and records where a coin was thrown."""
    return finding["epsilon_claimed"] is not None and (finding["by_coins"] or not of_records)


def _ceiling_words(finding: Values, *, of_records: bool) -> str:
    if _has_ceiling(finding, of_records=of_records):
        return f"Dashed: the ceiling of epsilon {finding['epsilon_claimed']:.4g}, which no attack is above on average."
    if finding["epsilon_claimed"] is None:
        return "Without a claim there is no ceiling."
    return (
        "Members were trained on and non-members were not, but no coin dealt them: there is no ceiling, and these "
        "curves refute nothing."
    )


def _rates(axes: Axes) -> None:
    for scale, axis in ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis)):
        scale("log")
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g} %"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(_LEAST_RATE, 1.0)
    axes.set_ylim(_LEAST_RATE, 1.05)


def epsilon_ranges(findings: Sequence[Values]) -> Drawing | None:
    """For every model a bar up to the audited lower bound, a tick at the claim, and the most that could be shown."""
    if any(finding["canaries"] is None for finding in findings):
        return None
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
    scored = [scores for each in findings if (scores := _scored(each, of_records=of_records)) is not None]
    if len(scored) < len(findings):
        return None
    figure, several = panels(wide=WIDE, high=0.4 + 1.7 * len(findings), count=len(findings))
    inside, outside = ("members", "non-members") if of_records else ("there", "not there")
    for axes, finding, scores in zip(several, findings, scored, strict=True):
        histogram = scores["histogram"]
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
    scale = f"Scores of {scored[0]['name']}" if of_records else "How sure the model is of a canary’s label"
    return Drawing(
        title=f"Scores of {what}",
        caption=f"{scale}. The more the shapes differ, the more is given away. The outermost bins hold all beyond.",
        svg=as_svg(figure, f"scores-{what}", f"Histograms of the scores of {what}: {inside} beside {outside}"),
    )


def _scored(finding: Values, *, of_records: bool) -> Values | None:
    """Of canaries, or of the attack on records that counts; None where there are none."""
    found: Values | None = next(iter(finding["attack_scores"]), None) if of_records else finding["canary_scores"]
    return found
