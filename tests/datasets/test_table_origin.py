"""Where a run's rows came from: the same rows are found again, and others refused."""

import json
import shutil

import pytest
import torch

from tacit.core.errors import InputError
from tacit.datasets import load_table
from tacit.datasets.tables.origin import TableOrigin, read_origin

SCHEMA = """
[columns.age]
type = "number"
lower = 0
upper = 100

[columns.city]
type = "category"
categories = ["Bonn", "Köln"]

[columns.employed]
type = "boolean"
"""


@pytest.fixture
def files(tmp_path):
    rows = [f"{i % 90},{('Bonn', 'Köln')[i % 2]},{i % 3 == 0:d}" for i in range(100)]
    (tmp_path / "people.csv").write_text("\n".join(["age,city,employed", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "people.toml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


def origin(files, **options):
    return TableOrigin.of(files / "people.csv", "employed", files / "people.toml", **options)


@pytest.mark.parametrize("options", [{}, {"features": ["age"], "test_fraction": 0.4}])
def test_the_same_rows_come_back(files, options, tmp_path):
    written = origin(files, **options)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / TableOrigin.FILE_NAME).write_bytes(written.to_bytes())
    (files / "people.toml").unlink()  # its text was kept
    again = read_origin(folder)
    assert again == written
    found = again.load()
    (files / "people.toml").write_text(SCHEMA, encoding="utf-8")
    expected = load_table(files / "people.csv", "employed", files / "people.toml", **options)
    for split in ("train", "test"):
        for part in ("inputs", "targets"):
            assert torch.equal(getattr(getattr(found, split), part), getattr(getattr(expected, split), part))
    assert found.columns == expected.columns


def test_a_table_may_move_but_not_change(files):
    written = origin(files)
    moved = files / "elsewhere.csv"
    shutil.move(files / "people.csv", moved)
    with pytest.raises(InputError, match=r"people.csv': cannot be read .*--table"):
        written.load()
    assert len(written.load(moved).train) == 80
    moved.write_text(moved.read_text(encoding="utf-8") + "20,Bonn,1\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not the file that the run read"):
        written.load(moved)


def test_a_folder_without_the_note_says_nothing(tmp_path):
    assert read_origin(tmp_path) is None


@pytest.mark.parametrize(
    "changes",
    [{"version": 2}, {"file": 3}, {"schema": "= ="}, {"features": [1]}, {"features": 3}, {"test_fraction": "much"}],
)
def test_a_note_that_was_tampered_with_is_refused(files, changes):
    path = files / TableOrigin.FILE_NAME
    path.write_text(json.dumps({**json.loads(origin(files).to_bytes()), **changes}), encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        read_origin(files)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        read_origin(files)
