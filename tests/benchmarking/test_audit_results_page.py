"""The page of audits holds what the files beside it hold."""

import json
import shutil
from pathlib import Path

import pytest

from tacit.benchmarking.audit_page import main

RESULTS = Path(__file__).parents[2] / "results" / "audit"


def test_the_page_in_the_repository_is_that_of_its_results(tmp_path):
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    assert main(["--folder", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == (RESULTS / "README.md").read_text(encoding="utf-8")


def test_a_figure_that_changes_is_seen(tmp_path):
    result = json.loads((RESULTS / "white-box.json").read_text(encoding="utf-8"))
    result["rows"][0]["ratio"] = 0.12345
    (tmp_path / "white-box.json").write_text(json.dumps(result), encoding="utf-8")
    assert main(["--folder", str(tmp_path)]) == 0
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "0.123 ±" in page
    assert "Membership" not in page


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_folder_without_results_is_refused(tmp_path, name, capsys):
    assert main(["--folder", str(tmp_path / name)]) == 2
    assert "holds no results of audits. Name the folder that holds them." in capsys.readouterr().err
