"""Results in files: what is written can be read, and only what belongs together is put together."""

import pytest

from tacit.benchmarking import merged, read_result, write_result
from tacit.benchmarking.results import check_writable
from tacit.core.errors import InputError


def result(**changes):
    machine = {"hardware": {"cores": 2}, "versions": {"torch": "2.13"}}
    return {"rows": [{"model": "mlp"}], **machine, "command": "a", "date": "2026-01-01", **changes}


def test_what_is_written_can_be_read(tmp_path):
    write_result(result(), tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == result()


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
