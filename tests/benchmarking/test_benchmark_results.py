"""Results in files: what is written can be read, and only what belongs together is put together."""

import json
from pathlib import Path

import pytest

from tacit.benchmarking import merged, read_result, write_result
from tacit.benchmarking.results import check_writable
from tacit.core.errors import InputError


def result(**changes):
    machine = {"hardware": {"cores": 2}, "versions": {"torch": "2.13"}}
    return {"rows": [{"model": "mlp"}], **machine, "command": "a", "date": "2026-01-01", **changes}


NAMES = {"model": "mlp", "precision": "tf32", "engine": "tacit"}
ROW = {
    **NAMES,
    **{"kind": "private", "batch": 8, "ms": 1.5, "ratio": 1.0, "ratio_fastest": None, "peak_mib": 3},
    **{"spread_ms": [1.0, 2.0], "status": "ok", "reason": None},
}
GROWTH = {**NAMES, "axis": "width", "sizes": [1, 2, 4], "ms": [1.0, None, 2.0], "exponent": 0.5}
LARGEST = {**NAMES, "batch": None, "ratio": None, "reason": "fails"}
WHOLE = result(rows=[ROW], growth=[GROWTH], largest_batch=[LARGEST])


def without(row, key):
    return {name: value for name, value in row.items() if name != key}


def test_what_is_written_can_be_read(tmp_path):
    write_result(WHOLE, tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == WHOLE


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"rows": None}, "holds no rows"),
        ({"rows": [1]}, "rows[0]=1 must hold names"),
        ({"rows": [ROW, without(ROW, "ratio_fastest")]}, "rows[1] has no ratio_fastest"),
        ({"rows": [{**ROW, "ms": "fast"}]}, "rows[0].ms='fast' must be a number above 0 or null"),
        ({"rows": [{**ROW, "ms": 0}]}, "rows[0].ms=0 must be a number above 0 or null"),
        ({"rows": [{**ROW, "ms": float("nan")}]}, "rows[0].ms=nan must be a number"),
        ({"rows": [{**ROW, "ratio": 10**400}]}, "rows[0].ratio=1000"),
        ({"rows": [{**ROW, "batch": True}]}, "rows[0].batch=True must be a whole number above 0"),
        ({"rows": [{**ROW, "engine": "$\\frac$"}]}, "must be a name"),
        ({"rows": [{**ROW, "spread_ms": 3}]}, "rows[0].spread_ms=3 must be a list"),
        ({"rows": [{**ROW, "reason": "\ud800"}]}, "is no JSON"),
        ({"growth": 3}, "growth=3 must be a list"),
        ({"growth": None}, "growth=None must be a list"),
        ({"growth": [without(GROWTH, "axis")]}, "growth[0] has no axis"),
        ({"growth": [{**GROWTH, "ms": [1.0]}]}, "growth[0].ms=[1.0] must be as many as sizes"),
        ({"growth": [{**GROWTH, "ms": [None, None, 1.0]}]}, "growth[0].exponent=0.5 must be null"),
        ({"largest_batch": [{**LARGEST, "batch": "8"}]}, "largest_batch[0].batch='8' must be a whole number"),
        ({"hardware": "a GPU"}, "hardware='a GPU' must hold names"),
    ],
)
def test_what_no_page_can_show_is_refused_where_it_is_read(changes, wrong, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**WHOLE, **changes}), encoding="utf-8")
    with pytest.raises(InputError) as refusal:
        read_result(path)
    for part in (f"result={str(path)!r}: ", wrong, "tacit bench step --out"):
        assert part in str(refusal.value)


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "nothing"], ids=["a list", "deep", "no JSON"])
def test_what_is_no_result_at_all_is_refused(text, tmp_path):
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="tacit bench step --out"):
        read_result(tmp_path / "r.json")


def test_every_record_of_the_repository_can_be_read():
    folder = Path(__file__).parents[2] / "benchmarks" / "results"
    assert all(read_result(path)["rows"] for path in folder.glob("*.json"))


def test_results_of_one_machine_become_one():
    second = result(rows=[{"model": "cnn"}], growth=[{"axis": "width"}], command="b", date="2026-01-02")
    third = result(rows=[], growth=[{"axis": "depth"}], largest_batch=[{"batch": 1}], memory_limit_mib=5, command="c")
    whole = merged([result(), second, third])
    assert whole["rows"] == [{"model": "mlp"}, {"model": "cnn"}]
    assert whole["growth"] == [{"axis": "width"}, {"axis": "depth"}]
    assert (whole["largest_batch"], whole["memory_limit_mib"]) == ([{"batch": 1}], 5)
    assert (whole["command"], whole["date"]) == ("a; b; c", "2026-01-02")


def test_a_contender_has_its_row_from_the_run_with_most_of_them():
    """What a run for growth says of three contenders does not stand beside what seven had in turn."""

    def rows(run, engines, batch=8):
        return [{"model": "mlp", "precision": "tf32", "batch": batch, "engine": name, "ms": run} for name in engines]

    runs = [rows(1, "ab"), rows(2, "abc") + rows(2, "a", batch=16), rows(3, "ad"), rows(4, "abc")]
    found = merged([result(rows=each) for each in runs])["rows"]
    assert [(row["engine"], row["batch"], row["ms"]) for row in found] == [
        ("a", 8, 2), ("b", 8, 2), ("c", 8, 2), ("a", 16, 2), ("d", 8, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("changes", [{"hardware": {"cores": 3}}, {"versions": {"torch": "2.8"}}])
def test_results_of_different_machines_are_not_compared(changes):
    with pytest.raises(InputError, match=f"differ in {next(iter(changes))}"):
        merged([result(), result(**changes)])


def test_checking_a_file_makes_its_folder_and_keeps_what_it_holds(tmp_path):
    path = tmp_path / "folder" / "r.json"
    check_writable("out", path)
    assert path.parent.is_dir()
    assert not path.exists()
    path.write_text("old", encoding="utf-8")
    check_writable("out", path)
    assert path.read_text(encoding="utf-8") == "old"
    check_writable("out", None)
