"""Figures as text: the same bytes wherever they are drawn."""

import re

import pytest

from tacit.reporting.canvas import as_svg, as_svg_file, panels

REFERENCE = r'(?:href="#|url\(#)([^")]+)'


def drawn(shift: float = 0.0) -> str:
    """Two panels, so that there are two clips, points of two kinds and a hatch."""
    figure, (above, below) = panels(wide=3, high=4)
    above.plot([0, 1, 2], [0, 1, 4], marker="o")
    above.plot([0, 1, 2], [0.5, 2, 2], marker="x")
    below.bar([0, 1, 2], [4, 1, 0], hatch="//")
    figure.set_layout_engine("none")
    below.set_position((0.1 + shift, 0.1, 0.8, 0.3))
    return as_svg_file(figure, "two panels")


def test_digits_that_nobody_sees_change_nothing():
    """They differ between processors, and a page that is made again would be another."""
    assert drawn() == drawn(shift=1e-12)
    assert drawn() != drawn(shift=1e-3)


def test_what_differs_has_a_number_of_its_own():
    text = drawn()
    used = set(re.findall(REFERENCE, text))
    assert {name.rstrip("0123456789") for name in used} == {"m", "p", "h"}
    assert used <= set(re.findall(r'\bid="([^"]+)"', text))
    clips = dict(re.findall(r'<clipPath id="(p\d+)">(.*?)</clipPath>', text, flags=re.DOTALL))
    assert len(clips) == len(set(clips.values())) == 2


@pytest.mark.parametrize("value", ["facade0123", "p0123456789"])
def test_words_that_look_like_such_a_name_stay(value):
    figure, (axes,) = panels(wide=3, high=2, count=1)
    axes.set_title(value)
    assert f">{value}<" in as_svg(figure, "figure", "words")
