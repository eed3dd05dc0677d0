"""``tacit schema draft`` by its entry point, as a new user would go from a file to a model."""

import json
import tomllib

from command_line import run_tacit

HEADER = "age,region,employed"
SECRET = "Zanzibar"


def table(folder, rows=200):
    lines = [f"{20 + row % 40},{'north' if row % 3 else 'south'},{int(row % 5 > 1)}" for row in range(rows)]
    (folder / "people.csv").write_text("\n".join([HEADER, *lines, f"77,{SECRET},1"]) + "\n")


def test_the_draft_is_shown_or_written(tmp_path):
    table(tmp_path)
    shown = run_tacit("schema", "draft", "people.csv", cwd=tmp_path)
    assert shown.returncode == 0
    assert list(tomllib.loads(shown.stdout)["columns"]) == ["age", "region", "employed"]
    assert SECRET not in shown.stdout + shown.stderr
    assert "77" not in shown.stdout
    done = run_tacit("schema", "draft", "people.csv", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"schema": shown.stdout, "columns": ["age", "region", "employed"]}
    done = run_tacit("schema", "draft", "people.csv", "--out", "people.toml", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"schema": "people.toml", "columns": ["age", "region", "employed"]}
    assert (tmp_path / "people.toml").read_text() == shown.stdout


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    table(tmp_path)
    (tmp_path / "people.toml").write_text("mine")
    done = run_tacit("schema", "draft", "people.csv", "--out", "people.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "out='people.toml': cannot be written (File exists)" in done.stderr
    assert (tmp_path / "people.toml").read_text() == "mine"


def test_from_a_file_to_a_model(tmp_path):
    table(tmp_path)
    train = ("train", "people.csv", "--target", "employed", "--schema", "people.toml", "--steps", "3", "--json")
    run_tacit("schema", "draft", "people.csv", "--out", "people.toml", cwd=tmp_path)
    refused = run_tacit(*train, cwd=tmp_path)
    assert refused.returncode == 2
    assert "people.toml: columns.age.type='?': is left blank, and so are columns.region.type" in refused.stderr
    (tmp_path / "people.toml").write_text(
        '[columns.age]\ntype = "number"\nlower = 18\nupper = 93\n'
        f'[columns.region]\ntype = "category"\ncategories = ["north", "south", "{SECRET}"]\n'
        '[columns.employed]\ntype = "boolean"\n'
    )
    trained = run_tacit(*train, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert result["model"] == "table-mlp"
    assert 0 <= result["test_accuracy"] <= 1


def test_bad_files(tmp_path):
    for arguments, part in (
        (("nothing.csv",), "file='nothing.csv': cannot be read (No such file or directory)"),
        (("table.xlsx",), "file='table.xlsx': must end in one of .csv"),
    ):
        done = run_tacit("schema", "draft", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"tacit: {part}")
        assert len(done.stderr.strip().splitlines()) == 1
