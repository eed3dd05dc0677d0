"""What all figures share: a bare canvas, and inline SVG that takes its colours and its font from the page around it."""

import dataclasses
import io
import re
from html import escape

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

# Drawn in colours that stand for nothing else, then handed to the page's style sheet, which knows light and
# dark.
INK, MUTED, RULE, ACCENT, BAR = "#010101", "#020202", "#030303", "#040404", "#050505"
_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    ACCENT: "var(--accent)",
    BAR: "var(--bar)",
}
_SHADES = {INK: "#1a1a1a", MUTED: "#595959", RULE: "#d9d9d9", ACCENT: "#0072b2", BAR: "#9aa5b1"}
WIDE, HIGH = 4.5, 2.8
# Told apart with any sight (Okabe and Ito, 2008), for figures with several lines in a file of their own.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#1a1a1a")


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure with the words for those who do not see it."""

    title: str
    caption: str
    svg: Markup


def canvas(*, wide: float = WIDE, high: float = HIGH) -> tuple[Figure, Axes]:
    """A figure of one set of axes in the page's manner, in inches."""
    figure, (axes,) = panels(wide=wide, high=high, count=1)
    return figure, axes


def panels(*, wide: float, high: float, count: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure of several sets of axes, one below the other."""
    figure = Figure(figsize=(wide, high), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    dressed = [_dress(figure.add_subplot(count, 1, number + 1)) for number in range(count)]
    return figure, dressed


def _dress(axes: Axes) -> Axes:
    axes.patch.set_alpha(0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.grid(visible=True, color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=RULE, labelcolor=MUTED, labelsize=9, length=0, which="both")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return axes


def label_axes(axes: Axes, horizontal: str, vertical: str) -> None:
    """Names for both axes."""
    axes.set_xlabel(horizontal, color=MUTED, fontsize=9.5)
    axes.set_ylabel(vertical, color=MUTED, fontsize=9.5)


def as_svg(figure: Figure, name: str, description: str) -> Markup:
    """The figure as an element of the page: no prologue, no metadata, no size of its own, colours by name."""
    text = _drawn(figure)
    wide, high = figure.get_size_inches() * 72
    opening = f'<svg viewBox="0 0 {wide:g} {high:g}" role="img" aria-label="{escape(description)}">'
    text = re.sub(r"<svg[^>]*>", lambda _: opening, text, count=1)
    # Identifiers are shared by a whole page, and each figure must keep its own.
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font: ([^;\"]*?)([\d.]+)px [^;\"]*", r"font: \1\2px var(--sans)", text)
    return Markup(text)


def as_svg_file(figure: Figure, description: str) -> str:
    """The figure as a file that stands alone, on white, in any page that shows it as an image."""
    figure.patch.set(alpha=1, facecolor="white")
    text = _drawn(figure)
    for colour, shade in _SHADES.items():
        text = text.replace(colour, shade)
    text = re.sub(r"font: ([^;\"]*?)([\d.]+)px [^;\"]*", r"font: \1\2px sans-serif", text)
    title = f"<title>{escape(description)}</title>"
    return re.sub(r"(<svg[^>]*>)", lambda found: f"{found[1]}\n {title}", text, count=1)


def _drawn(figure: Figure) -> str:
    """The same bytes for the same figure, on any machine: no date, and markers, clips and hatches named by numbers.

    matplotlib names them by a digest of all their digits, of which the last, never shown, differ between processors.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    numbers: dict[str, str] = {}
    return re.sub(
        r'((?:\bid="|href="#|url\(#)\w*?)([0-9a-f]{10})(?=["\)])',
        lambda found: found[1] + numbers.setdefault(found[2], str(len(numbers) + 1)),
        text,
    )


def label_shares(axes: Axes) -> None:
    """Shares from 0 to 1 up the axis in percent, with as many digits as tell its ticks apart."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
