"""What the repository says was measured is what its result files hold."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tacit.recipes import published_figures, read_results
from tacit.reporting import results_figures
from tacit.reporting.results_page import write_results_page

ROOT = Path(__file__).parents[2]


def test_the_results_page_is_that_of_its_files(tmp_path, monkeypatch):
    """After new results: tacit recipe page results."""
    for drawing in ("frontier", "over_epochs", "deltas", "sweep", "accountants"):  # the text depends on none of them
        monkeypatch.setattr(results_figures, drawing, lambda *_: "")
    for path in (ROOT / "results").glob("*.json"):
        shutil.copy(path, tmp_path)
    page, figures = write_results_page(tmp_path, *read_results(tmp_path), published_figures())
    assert page.read_text(encoding="utf-8") == (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert {figure.name for figure in figures} == {path.name for path in (ROOT / "results" / "figures").iterdir()}


@pytest.mark.parametrize("dataset", ["cifar10-jpeg", "fashion-mnist", "mnist"])
def test_no_label_of_a_frontier_leaves_the_figure(dataset, monkeypatch):
    figures, (measured, _) = [], read_results(ROOT / "results")
    monkeypatch.setattr(results_figures, "as_svg_file", lambda figure, *_: figures.append(figure) or "")
    for drawing in ("over_epochs", "deltas", "sweep", "accountants"):
        monkeypatch.setattr(results_figures, drawing, lambda *_: "")
    monkeypatch.setattr("tacit.reporting.results_page.write_whole", lambda *_: None)
    rows = [row for row in measured if row["dataset"] == dataset]
    claims = [claim for claim in published_figures() if claim["dataset"] == dataset]
    write_results_page(ROOT / "results", rows, [], claims)
    (figure,) = figures
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width


def recipes_of_the_readme():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return [(line, found[1]) for line in lines if (found := re.search(r"\(results/([\w.-]+\.json)\)", line))]


@pytest.mark.parametrize(("line", "file"), recipes_of_the_readme(), ids=[file for _, file in recipes_of_the_readme()])
def test_the_readme_has_the_figures_of_the_file_that_it_names(line, file):
    result = json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))
    command = re.search("`(.*?)`", line)[1]
    assert result["command"].startswith(command)
    assert f"{100 * result['measured']:.2f} ± {100 * result['std']:.2f} %" in line
    assert result["date"][:10] in line


def test_the_readme_names_results_of_recipes():
    assert len(recipes_of_the_readme()) >= 3
