"""The bar of a training: what it says of epsilon."""

import io

import pytest
from rich.console import Console

from tacit.cli import console


@pytest.mark.parametrize(("epsilon", "said"), [(1.25, "epsilon 1.250"), (None, "without privacy")])
def test_a_bar_says_what_was_spent_or_that_nothing_bounds_it(monkeypatch, epsilon, said):
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, force_interactive=True, width=200))
    with console.training_bar(1) as move:
        move(0, 3, 10, epsilon)
    assert said in screen.getvalue()
    assert ("epsilon 1" in screen.getvalue()) == (epsilon is not None)


def test_a_bar_leaves_nothing_in_a_file(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=written))
    with console.training_bar(1) as move:
        move(0, 3, 10, 1.25)
    with console.progress_bar() as bar:
        bar.update(bar.add_task("fits", total=2), completed=1)
    assert written.getvalue() == ""
