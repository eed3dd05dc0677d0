"""Tables by a public schema: what the numbers become, and every way in which a file can be wrong."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import InputError
from tacit.datasets import load_table, read_schema
from tacit.datasets.partition import evenly_spread

SCHEMA = """
[columns.age]
type = "number"
lower = 20
upper = 60

[columns.region]
type = "category"
categories = ["north", "south", "east"]

[columns.married]
type = "boolean"

[columns.income]
type = "number"
lower = 0
upper = 100
clip = true
"""
HEADER = "age,region,married,income,note"
ROWS = [
    "20,north,0,0,a",
    "60,south,1,50,b",
    "40,east,true,250,c",
    " 30 , north ,False,-7,d",
    "25,south,TRUE,100,e",
    "50,east,0,75,f",
    "35.5,north,1,1e1,g",
    "20,north,0,20,h",
]


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


def write_csv(folder, rows=ROWS, header=HEADER, name="people.csv"):
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def in_order(data):
    """Inputs and targets as the rows stood in the file."""
    test = evenly_spread(len(data.train) + len(data.test)) < 0.2
    inputs = torch.zeros(len(test), *data.input_shape)
    targets = torch.zeros(len(test), dtype=data.train.targets.dtype)
    for chosen, split in ((~test, data.train), (test, data.test)):
        inputs[torch.from_numpy(chosen)], targets[torch.from_numpy(chosen)] = split.inputs, split.targets
    return inputs, targets


def repeated(times=5):
    return ROWS * times


def test_a_regression(tmp_path, schema):
    data = load_table(write_csv(tmp_path, repeated()), "income", schema)
    assert (data.task, data.classes, data.target_bounds) == ("regression", 1, (0.0, 100.0))
    assert data.feature_names == ("age", "region=north", "region=south", "region=east", "married")
    assert data.input_shape == (5,)
    assert data.name == "people.csv"
    inputs, targets = in_order(data)
    expected = [
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, 1],
        [0.5, 0, 0, 1, 1],
        [0.25, 1, 0, 0, 0],
        [0.125, 0, 1, 0, 1],
        [0.75, 0, 0, 1, 0],
        [0.3875, 1, 0, 0, 1],
        [0, 1, 0, 0, 0],
    ]
    torch.testing.assert_close(inputs[:8], torch.tensor(expected))
    torch.testing.assert_close(targets[:8], torch.tensor([-1, 0, 1, -1, 1, 0.5, -0.8, -0.6]))
    assert inputs.dtype == targets.dtype == torch.float32


def test_classifications(tmp_path, schema):
    path = write_csv(tmp_path, repeated())
    regions = load_table(path, "region", schema)
    assert (regions.task, regions.classes, regions.class_names) == ("classification", 3, ("north", "south", "east"))
    assert regions.target_bounds is None
    assert in_order(regions)[1][:8].tolist() == [0, 1, 2, 0, 1, 2, 0, 0]
    assert regions.train.targets.dtype == torch.int64
    married = load_table(path, "married", schema)
    assert (married.classes, married.class_names) == (2, ("false", "true"))
    assert in_order(married)[1][:8].tolist() == [0, 1, 1, 0, 1, 0, 1, 0]


def test_features_can_be_chosen(tmp_path, schema):
    data = load_table(write_csv(tmp_path, repeated()), "income", schema, features=["married", "age"])
    assert data.feature_names == ("married", "age")
    assert data.train.inputs.shape[1] == 2


@pytest.mark.parametrize("ending", [".parquet", ".pq"])
def test_parquet_gives_the_same(tmp_path, schema, ending):
    columns = {
        "age": pa.array([20, 60, 40, 30] * 10, pa.int32()),
        "region": pa.array(["north", "south", "east", "north"] * 10).dictionary_encode(),
        "married": pa.array([False, True, True, False] * 10),
        "income": pa.array([0.0, 50.0, 250.0, -7.0] * 10),
        "note": pa.array([None] * 40, pa.string()),
    }
    path = tmp_path / f"people{ending}"
    pyarrow.parquet.write_table(pa.table(columns), path)
    data = load_table(path, "income", schema)
    text = load_table(write_csv(tmp_path, ROWS[:4] * 10), "income", schema)
    assert torch.equal(data.train.inputs, text.train.inputs)
    assert torch.equal(data.test.targets, text.test.targets)


def test_whole_numbers_stored_as_floats_are_categories_too(tmp_path):
    (tmp_path / "s.toml").write_text(
        '[columns.code]\ntype = "category"\ncategories = [1, 2]\n[columns.x]\ntype = "boolean"\n'
    )
    table = pa.table({"code": pa.array([1.0, 2.0] * 20), "x": pa.array([0.0, 1.0, 1.0, 0.0] * 10)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    data = load_table(tmp_path / "t.parquet", "code", tmp_path / "s.toml")
    assert data.class_names == ("1", "2")
    pyarrow.parquet.write_table(pa.table({"code": [1.0, 1.5], "x": [0.0, 1.0]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column 'code': row 2: 1.5 is not a whole number"):
        load_table(tmp_path / "t.parquet", "code", tmp_path / "s.toml")


def test_gzipped_quoted_and_otherwise_delimited_files(tmp_path, schema):
    plain = load_table(write_csv(tmp_path, repeated()), "income", schema)
    packed = tmp_path / "p.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "people.csv").read_bytes()))
    assert torch.equal(load_table(packed, "income", schema).train.inputs, plain.train.inputs)
    other = write_csv(
        tmp_path, [row.replace(",", ";") for row in repeated()], HEADER.replace(",", ";"), name="semicolon.csv"
    )
    with pytest.raises(InputError, match=r"has no column 'age'. .*state delimiter = \";\" in the schema"):
        load_table(other, "income", schema)
    schema.write_text('delimiter = ";"\n' + SCHEMA)
    assert torch.equal(load_table(other, "income", schema).train.inputs, plain.train.inputs)
    quoted = tmp_path / "quoted.csv"
    quoted.write_text(other.read_text() + '"20";"north";0;5;"two\nlines; and more"\n')
    data = load_table(quoted, "income", schema)
    assert len(data.train) + len(data.test) == 41


def test_many_batches_keep_rows_and_row_numbers(tmp_path, schema, monkeypatch):
    monkeypatch.setattr("tacit.datasets.tables.reading._BLOCK_BYTES", 200)
    path = write_csv(tmp_path, repeated(20))
    inputs, _ = in_order(load_table(path, "income", schema))
    assert torch.equal(inputs, inputs[:8].repeat(20, 1))
    with pytest.raises(InputError, match="column 'region': row 161: 'west' is not in the schema's categories"):
        load_table(write_csv(tmp_path, [*repeated(20), "20,west,0,0,a"]), "income", schema)
    with pytest.raises(InputError, match="row 161: has 3 cells where the header has 5"):
        load_table(write_csv(tmp_path, [*repeated(20), "20,west,0"]), "income", schema)


@settings(deadline=None, max_examples=25)
@given(changed=st.integers(0, 39), value=st.sampled_from(["20,north,0,0,x", "60,east,1,99,y"]))
def test_the_split_depends_on_no_value(tmp_path_factory, changed, value):
    folder = tmp_path_factory.mktemp("split")
    (folder / "schema.toml").write_text(SCHEMA)
    rows = repeated()
    before = load_table(write_csv(folder, rows), "income", folder / "schema.toml")
    rows[changed] = value
    after = load_table(write_csv(folder, rows), "income", folder / "schema.toml")
    assert len(before.test) == len(after.test)
    moved = (before.train.inputs != after.train.inputs).any(1).sum() + (before.test.inputs != after.test.inputs).any(
        1
    ).sum()
    assert moved <= 1


def test_the_test_fraction_is_the_callers_then_the_schemas(tmp_path, schema):
    path = write_csv(tmp_path, repeated(50))
    share = {}
    for name, text, given_fraction in (
        ("default", "", None),
        ("schema", "test_fraction = 0.5\n", None),
        ("call", "", 0.7),
    ):
        schema.write_text(text + SCHEMA)
        data = load_table(path, "income", schema, test_fraction=given_fraction)
        share[name] = len(data.test) / 400
    assert share == pytest.approx({"default": 0.2, "schema": 0.5, "call": 0.7}, abs=0.06)
    with pytest.raises(InputError, match=r"test_fraction=1.5"):
        load_table(path, "income", schema, test_fraction=1.5)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("19.9,north,0,0,a", r"column 'age': row 41: '19.9' lies outside \[20, 60\]; widen .* or set clip = true"),
        ("61,north,0,0,a", "column 'age': row 41: '61' lies outside"),
        ("old,north,0,0,a", "column 'age': row 41: 'old' is not a number"),
        ("nan,north,0,0,a", "column 'age': row 41: 'nan' is not a finite number"),
        (",north,0,0,a", "column 'age': row 41: '' is empty"),
        ("  ,north,0,0,a", "column 'age': row 41: '  ' is empty"),
        ("20,west,0,0,a", "column 'region': row 41: 'west' is not in the schema's categories"),
        ("20,North,0,0,a", "column 'region': row 41: 'North' is not in"),
        ("20,,0,0,a", "column 'region': row 41: '' is empty"),
        ("20,north,2,0,a", "column 'married': row 41: '2' must be 0, 1, false or true"),
        ("20,north,,0,a", "column 'married': row 41: '' is empty"),
        ("20,north,0,inf,a", "column 'income': row 41: 'inf' is not a finite number"),
        ("20,north,0,1e999,a", "column 'income': row 41: '1e999' is not a finite number"),
        ("20,north,0,,a", "column 'income': row 41: '' is empty"),
        ("20,north,0", "row 41: has 3 cells where the header has 5"),
        ("20,north,0,0,a,b", "row 41: has 6 cells where the header has 5"),
    ],
)
def test_a_bad_row_is_named(tmp_path, schema, row, message):
    path = write_csv(tmp_path, [*repeated(), row, *ROWS])
    with pytest.raises(InputError, match=message) as refusal:
        load_table(path, "income", schema)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_a_cell_that_is_not_utf_8_is_named(tmp_path, schema):
    path = write_csv(tmp_path, repeated())
    path.write_bytes(path.read_bytes() + b"20,n\xe9rd,0,0,a\n")
    with pytest.raises(InputError, match=r"column 'region': row 41: 'n\\\\xe9rd' is not UTF-8; save the file as UTF-8"):
        load_table(path, "income", schema)


def test_nulls_and_foreign_types_in_parquet_are_named(tmp_path, schema):
    good = {"age": [20, 30], "region": ["north", "east"], "married": [0, 1], "income": [1.0, 2.0]}
    cases = [
        ({"age": [20, None]}, "column 'age': row 2: None is empty"),
        ({"income": [1.0, float("nan")]}, "column 'income': row 2: nan is not a finite number"),
        ({"region": ["north", None]}, "column 'region': row 2: None is empty"),
        ({"married": [0, 3]}, "column 'married': row 2: 3 must be 0, 1"),
        ({"age": [True, False]}, "column 'age': values of type bool are not numbers"),
        ({"region": [[1], [2]]}, "column 'region': values of type list.* cannot be categories"),
    ]
    for change, message in cases:
        pyarrow.parquet.write_table(pa.table(good | change), tmp_path / "t.parquet")
        with pytest.raises(InputError, match=message):
            load_table(tmp_path / "t.parquet", "income", schema)


def test_missing_columns_come_with_the_nearest_names(tmp_path, schema):
    path = write_csv(tmp_path, repeated(), header="Age,region,married,income,note")
    with pytest.raises(InputError, match=r"has no column 'age'. The nearest are Age"):
        load_table(path, "income", schema)
    path = write_csv(tmp_path, repeated())
    with pytest.raises(InputError, match=r"target='incom': is not a column of the schema. The nearest are income"):
        load_table(path, "incom", schema)
    with pytest.raises(InputError, match=r"target='zzz': .*It has age, region, married, income"):
        load_table(path, "zzz", schema)
    with pytest.raises(InputError, match=r"features='ages': is not a column of the schema. The nearest are age"):
        load_table(path, "income", schema, features=["ages"])
    for features in ([], ["age", "age"], ["age", "income"]):
        with pytest.raises(InputError, match="must be at least one column, each once, and not the target"):
            load_table(path, "income", schema, features=features)
    with pytest.raises(InputError, match="has 2 columns called 'age'"):
        load_table(write_csv(tmp_path, repeated(), header="age,age,region,married,income"), "income", schema)


def test_files_that_are_no_tables(tmp_path, schema):
    def refuse(name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message) as refusal:
            load_table(tmp_path / name, "income", schema)
        assert "\n" not in str(refusal.value)

    refuse("empty.csv", b"", "is empty. It needs a header and rows")
    refuse("header.csv", HEADER.encode() + b"\n", "has a header but no rows")
    refuse("wide.csv", "\n".join([HEADER, *ROWS]).encode("utf-16"), "it is UTF-16. Save it as UTF-8")
    refuse("latin.csv", b"age,r\xe9gion\n1,2\n", "the header is not UTF-8. Save it as UTF-8")
    refuse("table.xlsx", b"PK", r"must end in one of .csv, .csv.gz, .parquet, .pq")
    refuse("broken.parquet", b"PAR1 and nothing more", "is not a Parquet file that can be read")
    refuse(
        "short.csv.gz", gzip.compress("\n".join([HEADER, *ROWS]).encode())[:-9], "is not a CSV file that can be read"
    )
    with pytest.raises(InputError, match="cannot be read \\(No such file or directory\\)"):
        load_table(tmp_path / "absent.csv", "income", schema)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot be read \\(Is a directory\\)"):
        load_table(tmp_path / "folder.csv", "income", schema)


def test_a_target_that_never_varies_and_a_table_too_short_to_split(tmp_path, schema):
    with pytest.raises(InputError, match="target='married': has the same value in every row"):
        load_table(write_csv(tmp_path, [ROWS[0]] * 40), "married", schema)
    with pytest.raises(InputError, match=r"its 2 rows leave a split empty at test_fraction=0.2"):
        load_table(write_csv(tmp_path, ROWS[:2]), "married", schema)


@settings(deadline=None, max_examples=25)
@given(answers=st.lists(st.booleans(), min_size=40, max_size=40), constant=st.booleans())
def test_whether_a_target_is_refused_turns_on_no_training_row(tmp_path_factory, answers, constant):
    """If all but one training row were alike, a refusal would tell that one person's answer."""
    folder = tmp_path_factory.mktemp("constant")
    (folder / "schema.toml").write_text(SCHEMA)
    test = np.flatnonzero(evenly_spread(40) < 0.2)
    answers = list(answers)
    for place, row in enumerate(test):
        answers[row] = True if constant else place % 2 == 0
    path = write_csv(folder, [f"20,north,{int(answer)},1,x" for answer in answers])
    if not constant:
        assert len(load_table(path, "married", folder / "schema.toml").test) == len(test)
        return
    with pytest.raises(InputError, match="has the same value in every row for testing"):
        load_table(path, "married", folder / "schema.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no columns. Describe each in a table"),
        ("[columns]", "has no columns"),
        ("this is not toml", "is not a TOML file"),
        ("test_frac = 0.2\n" + SCHEMA, "test_frac=0.2: is unknown; known are .*Did you mean test_fraction"),
        ("test_fraction = 0\n" + SCHEMA, "test_fraction=0: must lie strictly between 0 and 1"),
        ('delimiter = ";;"\n' + SCHEMA, "delimiter=';;': must be one character"),
        ("[columns.a]\nlower = 1", 'columns.a.type=None: must be "number", "category" or "boolean"'),
        ('[columns.a]\ntype = "float"', "columns.a.type='float'"),
        ("columns.a = 3", r"columns.a=3: must be a table. Write \[columns.a\]"),
        ('[columns.a]\ntype = "number"\nlower = 1', "columns.a.upper=None: must be a finite number"),
        ('[columns.a]\ntype = "number"\nlower = true\nupper = 2', "columns.a.lower=True"),
        ('[columns.a]\ntype = "number"\nlower = 0\nupper = inf', "columns.a.upper=inf: must be a finite"),
        ('[columns.a]\ntype = "number"\nlower = 2\nupper = 2', "columns.a.lower=2: must be below upper, which is 2"),
        ('[columns.a]\ntype = "number"\nlower = -1e308\nupper = 1e308', "columns.a.upper=.*: is too far above lower"),
        ('[columns.a]\ntype = "number"\nlower = 2\nupper = 3\nclip = 1', "columns.a.clip=1: must be true or false"),
        ('[columns.a]\ntype = "number"\nlowr = 2\nupper = 3', "columns.a.lowr=2: is unknown.*Did you mean lower"),
        ('[columns.a]\ntype = "boolean"\nlower = 2', "columns.a.lower=2: is unknown; known are type"),
        ('[columns.a]\ntype = "category"', "columns.a.categories=None: must be a list"),
        ('[columns.a]\ntype = "category"\ncategories = [1.5, 2]', "must be a list of texts or whole numbers"),
        ('[columns.a]\ntype = "category"\ncategories = ["x"]', "must be at least two, all different"),
        ('[columns.a]\ntype = "category"\ncategories = ["1", 1]', "must be at least two, all different"),
    ],
)
def test_bad_schemas_are_refused_with_file_and_key(tmp_path, text, message):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(InputError, match=message) as refusal:
        read_schema(tmp_path / "bad.toml")
    assert "bad.toml" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_schema_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_schema(tmp_path / "absent.toml")


def test_the_example_schema_reads_its_table(tmp_path):
    example = Path(__file__).parents[2] / "docs" / "examples" / "fulton.toml"
    schema = read_schema(example)
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        cells = {name: str(int(rng.integers(0, 2))) for name in schema.columns}
        cells |= {"age": str(rng.integers(18, 94)), "educ": str(rng.integers(1, 17)), "income": "-5000"}
        cells["income"] = str(rng.integers(-10_000, 717_000))
        lines.append("13," + ",".join(cells.values()))
    path = write_csv(tmp_path, lines, header="state," + ",".join(schema.columns))
    data = load_table(path, "income", example)
    assert data.input_shape == (14,)
    assert data.train.targets.abs().max() <= 1
