"""The benchmark of linear models, in small."""

import json
import sys
from unittest import mock

import numpy as np
import pyarrow.parquet
import pytest

from tacit.benchmarking import linear
from tacit.benchmarking.linear_generated import choose_newton, measure_slopes
from tacit.benchmarking.linear_tables import _timed_fit, _write_rows


def _quiet(_text):
    """Nothing to say."""


def test_errors_on_generated_tables_fall_as_the_theory_says():
    found = measure_slopes((10_000, 40_000), (3,), 25, _quiet)
    slopes = {(row["method"], row["of"], row["n"]): row["slope"] for row in found["slopes"]}
    for method in ("functional", "sufficient"):
        assert slopes[method, "epsilon", 40_000] == pytest.approx(-2, abs=0.8)
        assert slopes[method, "n", None] == pytest.approx(-2, abs=0.8)
    assert {row["delta"] for row in found["rows"] if row["method"] == "functional"} == {0.0}


def test_settings_are_ranked_by_generated_tables_alone():
    rows = choose_newton(1, _quiet, shapes=((300, 2),))
    assert rows[0]["mean_log_ratio"] <= rows[-1]["mean_log_ratio"]
    assert all(row["worst_log_ratio"] >= row["mean_log_ratio"] >= 0 for row in rows)


def test_a_file_of_many_rows_is_written_and_fitted(tmp_path):
    _write_rows(tmp_path / "many.parquet", 70_000)
    assert pyarrow.parquet.ParquetFile(tmp_path / "many.parquet").metadata.num_rows == 70_000
    seconds, grown = _timed_fit(tmp_path / "many.parquet", "auto", 70_000)
    assert seconds > 0
    assert grown >= 0


def test_a_file_is_measured_by_the_command(tmp_path):
    stream = np.random.default_rng(0)
    lines = [f"{x},{3 * x + 0.1 * stream.standard_normal()}" for x in stream.uniform(0, 1, 300)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines]))
    columns = "".join(f'[columns.{name}]\ntype = "number"\nlower = -1\nupper = 4\n' for name in ("x", "y"))
    (tmp_path / "t.toml").write_text(columns)
    arguments = ["linear", "file", "--file", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "t.toml")]
    out = tmp_path / "out.json"
    with mock.patch.object(sys, "argv", [*arguments, "--target", "y", "--repeats", "1", "--out", str(out)]):
        assert linear.main() == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * 6 * 6
    assert all((row["delta"] == 0) == row["method"].startswith("functional") for row in rows)
    with mock.patch.object(sys, "argv", ["linear", "file"]):
        assert linear.main() == 2
