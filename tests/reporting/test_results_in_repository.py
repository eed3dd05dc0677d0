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
