"""Every way in which a table or its schema can be wrong is one line of ``tacit train``, with row and column."""

import pytest
from command_line import run_tacit


def replace(old, new):
    return lambda text: text.replace(old, new, 1)


def after(text):
    return lambda whole: whole + text


TABLE, SCHEMA = "people.csv", "people.toml"
CASES = {
    "a missing column": (TABLE, replace("age,", "years,"), "has no column 'age'. It has years, city, employed."),
    "a category": (TABLE, after("20,Rome,1\n"), "column 'city': row 201: 'Rome' is not in the schema's categories."),
    "a number": (TABLE, after("91,Bonn,1\n"), "column 'age': row 201: '91' lies outside [18, 90]; widen the schema's"),
    "a boolean": (TABLE, after("20,Bonn,2\n"), "column 'employed': row 201: '2' must be 0, 1, false or true."),
    "NaN": (TABLE, after("nan,Bonn,1\n"), "column 'age': row 201: 'nan' is not a finite number."),
    "an empty cell": (TABLE, after(",Bonn,1\n"), "column 'age': row 201: '' is empty; every cell needs a value."),
    "words for a number": (TABLE, after("old,Bonn,1\n"), "column 'age': row 201: 'old' is not a number."),
    "an empty file": (TABLE, lambda _: "", "is empty. It needs a header and rows."),
    "a header alone": (TABLE, lambda text: text.splitlines()[0], "has a header but no rows."),
    "a ragged row": (TABLE, after("20,Bonn\n"), "row 201: has 2 cells where the header has 3. Mend the row"),
    "another delimiter": (
        TABLE,
        lambda text: text.replace(",", ";"),
        'cells seem to be separated by another character: state delimiter = ";" in the schema.',
    ),
    "bounds in the wrong order": (
        SCHEMA,
        replace("18", "99"),
        "columns.age.lower=99: must be below upper, which is 90.",
    ),
    "equal bounds": (SCHEMA, replace("18", "90"), "columns.age.lower=90: must be below upper"),
    "no bound": (SCHEMA, replace("lower = 18\n", ""), "columns.age.lower=None: must be a finite number."),
    "an unknown key": (SCHEMA, replace("lower", "lowest"), "columns.age.lowest=18: is unknown; known are type, lower"),
    "no TOML": (SCHEMA, lambda _: "age: 18", "is not a TOML file"),
    "a target that is constant": (
        TABLE,
        lambda text: text.replace(",1\n", ",0\n"),
        "target='employed': has the same value in every row for testing",
    ),
}


def refused(folder):
    done = run_tacit("train", "people.csv", "--target", "employed", "--schema", "people.toml", cwd=folder)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert not (folder / "runs").exists()
    return lines[0]


@pytest.mark.parametrize("case", CASES)
def test_each_is_one_clear_line(case, table):
    name, change, message = CASES[case]
    path = table / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert message in refused(table)


def test_encodings(table):
    path = table / "people.csv"
    text = path.read_text(encoding="utf-8")
    path.write_bytes(text.encode("utf-16"))
    assert "it is UTF-16. Save it as UTF-8." in refused(table)
    path.write_bytes(text.encode("latin-1"))
    assert r"column 'city': row 2: 'K\\xf6ln' is not UTF-8; save the file as UTF-8." in refused(table)


def test_numbers_are_clipped_where_the_schema_says_so_and_only_there(table):
    path = table / "people.csv"
    path.write_text(path.read_text(encoding="utf-8") + "2000,Bonn,1\n", encoding="utf-8")
    assert "'2000' lies outside [18, 90]" in refused(table)
    schema = table / "people.toml"
    schema.write_text(schema.read_text(encoding="utf-8").replace("upper = 90", "upper = 90\nclip = true"), "utf-8")
    done = run_tacit(
        "train", "people.csv", "--target", "employed", "--schema", "people.toml", "--steps", "2", cwd=table
    )
    assert done.returncode == 0, done.stderr


def test_a_table_without_a_schema_is_told_how_to_get_one(table):
    done = run_tacit("train", "people.csv", "--target", "employed", cwd=table)
    assert done.returncode == 2
    assert "tacit schema draft makes one to fill in" in done.stderr
