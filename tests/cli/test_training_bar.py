"""The bar of a training: what it says of epsilon."""

import io

import pytest
from rich.console import Console

from tacit.cli import console


@pytest.mark.parametrize(("epsilon", "said"), [(1.25, "epsilon 1.250"), (None, "without privacy")])
def test_a_bar_says_what_was_spent_or_that_nothing_bounds_it(monkeypatch, epsilon, said):
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=200))
    with console.training_bar(1) as move:
        move(0, 3, 10, epsilon)
    assert said in screen.getvalue()
    assert ("epsilon 1" in screen.getvalue()) == (epsilon is not None)
