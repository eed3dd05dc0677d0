"""`Table`: rows a chunk at a time from files and frames, and columns that are computed by public rules."""

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import InputError
from tacit.datasets import load_table, read_schema
from tacit.datasets.partition import evenly_spread
from tacit.datasets.tables import Table, as_schema, reading

FACTS = {
    "columns": {
        "age": {"type": "number", "lower": 20, "upper": 60},
        "region": {"type": "category", "categories": ["north", "south", "east"]},
        "married": {"type": "boolean"},
        "income": {"type": "number", "lower": 0, "upper": 100, "clip": True},
        "adult": {"type": "boolean", "of": "age", "at_least": 30},
        "wed_adult": {"type": "boolean", "all_of": ["married", "adult"]},
    }
}
RNG = np.random.default_rng(1)
ROWS = 1000
COLUMNS = {
    "age": RNG.integers(20, 61, ROWS),
    "region": np.array(["north", "south", "east"])[RNG.integers(0, 3, ROWS)],
    "married": RNG.integers(0, 2, ROWS).astype(bool),
    "income": RNG.normal(50, 60, ROWS),
    "note": np.array(["x"] * ROWS),
}
FEATURES = ("age", "region", "married", "adult", "wed_adult")


def expected(columns=COLUMNS):
    """The slow way: one row at a time, by what the documentation says."""
    inputs, targets = [], []
    for age, region, married, income in zip(*(columns[name] for name in list(columns)[:4]), strict=True):
        where = [float(region == name) for name in ("north", "south", "east")]
        inputs.append([(age - 20) / 40, *where, float(married), float(age >= 30), float(married and age >= 30)])
        targets.append(2 * min(max(income, 0), 100) / 100 - 1)
    return np.array(inputs), np.array(targets)


def all_rows(table, features=FEATURES, target="income"):
    chunks = list(table.chunks(features, target))
    assert [chunk.offset for chunk in chunks] == np.cumsum([0, *map(len, chunks[:-1])]).tolist()
    return np.concatenate([c.inputs for c in chunks]), np.concatenate([c.targets for c in chunks]), chunks


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_ROWS", 64)
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 2000)


def csv_file(folder, name="people.csv"):
    frame = pd.DataFrame(COLUMNS)
    content = frame.to_csv(index=False).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return folder / name


def parquet_file(folder):
    pyarrow.parquet.write_table(pa.table(COLUMNS), folder / "people.parquet")
    return folder / "people.parquet"


SOURCES = {
    "csv": csv_file,
    "csv.gz": lambda folder: csv_file(folder, "people.csv.gz"),
    "parquet": parquet_file,
    "pandas": lambda _: pd.DataFrame(COLUMNS),
    "pandas, index and categories": lambda _: pd.DataFrame(COLUMNS, index=range(7, ROWS + 7)).astype(
        {"region": "category"}
    ),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "polars, categories": lambda _: pl.DataFrame(COLUMNS).with_columns(pl.col("region").cast(pl.Categorical)),
    "arrow": lambda _: pa.table(COLUMNS),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_numbers(kind, tmp_path, small_batches):
    table = Table.open(SOURCES[kind](tmp_path), FACTS)
    inputs, targets, chunks = all_rows(table)
    assert len(chunks) > 5
    assert max(map(len, chunks)) <= 300
    assert inputs.dtype == targets.dtype == np.float64
    np.testing.assert_allclose(inputs, expected()[0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(targets, expected()[1], rtol=1e-9)
    again = all_rows(table)[0]
    np.testing.assert_array_equal(again, inputs)


def test_load_table_is_the_same_table_in_memory():
    data = load_table(pd.DataFrame(COLUMNS), "income", FACTS, features=FEATURES)
    test = evenly_spread(ROWS) < 0.2
    np.testing.assert_allclose(data.train.inputs, expected()[0][~test], atol=1e-7)
    np.testing.assert_allclose(data.test.targets, expected()[1][test], atol=1e-6)
    assert (data.name, data.source) == ("table", "DataFrame")
    kinds = (("number", 1), ("category", 3), ("boolean", 1), ("boolean", 1), ("boolean", 1))
    assert data.columns == kinds
    assert sum(width for _, width in data.columns) == data.input_shape[0] == len(data.feature_names)


@settings(deadline=None, max_examples=30)
@given(fraction=st.floats(0.01, 0.99), rows=st.integers(1, 50))
def test_chunks_are_split_as_the_whole_is(fraction, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_BATCH_ROWS", rows)
        chunks = list(Table.open(pa.table(COLUMNS), FACTS).chunks(["age"], "income"))
    masks = np.concatenate([chunk.is_test(fraction) for chunk in chunks])
    np.testing.assert_array_equal(masks, evenly_spread(ROWS) < fraction)


def test_single_columns(small_batches):
    table = Table.open(pa.table(COLUMNS), FACTS)

    def column(name, what):
        return np.concatenate([getattr(cells, what)() for cells in table.cells(name)])

    np.testing.assert_array_equal(column("income", "numbers"), np.clip(COLUMNS["income"], 0, 100))
    np.testing.assert_array_equal(column("income", "unit_interval"), np.clip(COLUMNS["income"], 0, 100) / 100)
    np.testing.assert_array_equal(column("married", "numbers"), COLUMNS["married"])
    np.testing.assert_array_equal(column("adult", "codes"), COLUMNS["age"] >= 30)
    names = np.array(["north", "south", "east"])
    np.testing.assert_array_equal(names[column("region", "codes")], COLUMNS["region"])
    assert sum(len(cells) for cells in table.cells("age")) == ROWS
    with pytest.raises(InputError, match=r"column='ages': is not a column of the schema. The nearest are age"):
        next(table.cells("ages"))
    with pytest.raises(InputError, match="column='region': is a category, and has no numbers"):
        next(table.cells("region")).numbers()
    with pytest.raises(InputError, match="column='age': is a number and has no codes"):
        next(table.cells("age")).codes()


def test_what_tells_the_target_is_no_feature_by_default():
    table = Table.open(pa.table(COLUMNS), FACTS)
    assert table.choose_features("income") == ("age", "region", "married", "adult", "wed_adult")
    assert table.choose_features("adult") == ("region", "married", "income")
    assert table.choose_features("age") == ("region", "married", "income")
    assert table.choose_features("wed_adult") == ("region", "income")
    assert table.choose_features("adult", ["age"]) == ("age",)
    assert table.feature_names(["region", "adult"]) == ("region=north", "region=south", "region=east", "adult")


def test_computed_columns_are_not_looked_for_in_the_file():
    table = Table.open(pa.table({**COLUMNS, "adult": ["nonsense"] * ROWS}), FACTS)
    adults = np.concatenate([cells.codes() for cells in table.cells("adult")])
    np.testing.assert_array_equal(adults, COLUMNS["age"] >= 30)
    with pytest.raises(InputError, match="has no column 'age'"):
        list(Table.open(pa.table({"note": [1]}), FACTS).cells("adult"))


def test_a_bad_cell_behind_a_computed_column_is_named():
    bad = {**COLUMNS, "age": [*COLUMNS["age"][:-1], 61]}
    with pytest.raises(InputError, match=r"table=Table: column 'age': row 1000: 61 lies outside \[20, 60\]"):
        list(Table.open(pa.table(bad), FACTS).cells("wed_adult"))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"of": "age"}, r"columns.x.at_least=None: must be a number above 20 and up to 60, the bounds of age"),
        ({"of": "age", "at_least": 20}, "columns.x.at_least=20: .* every row would have the same value"),
        ({"of": "age", "at_least": 61}, "columns.x.at_least=61"),
        ({"of": "age", "at_least": True}, "columns.x.at_least=True"),
        ({"at_least": 30}, "columns.x.of=None: must be a column that stands above. There are age, region, married"),
        ({"of": "Age", "at_least": 30}, "columns.x.of='Age': must be a column that stands above"),
        ({"of": "married", "at_least": 0.5}, "columns.x.of='married': must be a number"),
        ({"all_of": ["married", "x"]}, "columns.x.all_of='x': must be a column that stands above"),
        ({"all_of": ["married", "age"]}, "columns.x.all_of='age': must be a boolean"),
        ({"all_of": ["married"]}, "columns.x.all_of=.*must be a list of at least two columns, all different"),
        ({"all_of": ["married", "married"]}, ".*at least two columns, all different"),
        ({"all_of": "married"}, ".*at least two columns, all different"),
        ({"all_of": ["married", "adult"], "of": "age"}, "columns.x.all_of=.*excludes of and at_least"),
        ({"at_most": 30}, "columns.x.at_most=30: is unknown; known are type, of, at_least, all_of"),
    ],
)
def test_bad_rules_are_refused_by_key(facts, message):
    columns = {**FACTS["columns"], "x": {"type": "boolean", **facts}}
    with pytest.raises(InputError, match=f"schema: {message}"):
        as_schema({"columns": columns})


def test_a_rule_in_a_file_reads_as_in_a_dictionary(tmp_path):
    (tmp_path / "s.toml").write_text(
        '[columns.age]\ntype = "number"\nlower = 20\nupper = 60\n\n'
        '[columns.adult]\ntype = "boolean"\nof = "age"\nat_least = 30\n'
    )
    schema = read_schema(tmp_path / "s.toml")
    assert schema.columns["adult"] == as_schema(FACTS).columns["adult"]
    assert as_schema(schema) is schema
    assert as_schema(tmp_path / "s.toml") == schema


def test_frames_that_cannot_be_read_are_refused():
    with pytest.raises(InputError, match="table=dict: must be the path of a CSV or Parquet file, a pandas or polars"):
        Table.open({"age": [1]}, FACTS)
    with pytest.raises(InputError, match="table=LazyFrame: must be"):
        Table.open(pl.DataFrame(COLUMNS).lazy(), FACTS)
    mixed = pd.DataFrame({**COLUMNS, "age": [*COLUMNS["age"][:-1], "old"]})
    with pytest.raises(InputError, match=r"table=DataFrame: .*'old'") as refusal:
        load_table(mixed, "income", FACTS)
    assert "\n" not in str(refusal.value)
    odd = pd.DataFrame({**COLUMNS, "note": [*range(ROWS - 1), "text"]})
    assert len(load_table(odd, "income", FACTS).train)
    with pytest.raises(InputError, match="table=DataFrame: has a header but no rows"):
        load_table(pd.DataFrame(COLUMNS).iloc[:0], "income", FACTS)
    for frame in (pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS)):
        with pytest.raises(InputError, match=r"table=DataFrame: has no column 'region'. The nearest are reg10n"):
            load_table(frame.rename(**renaming(frame)), "income", FACTS)


def renaming(frame):
    return {"columns": {"region": "reg10n"}} if isinstance(frame, pd.DataFrame) else {"mapping": {"region": "reg10n"}}


@pytest.mark.parametrize("library", [pd, pl])
def test_missing_cells_in_frames_are_named(library):
    frame = library.DataFrame({**COLUMNS, "income": [None if row == 6 else 1.0 for row in range(ROWS)]})
    with pytest.raises(InputError, match="table=DataFrame: column 'income': row 7: None is empty"):
        load_table(frame, "income", FACTS)
    frame = pl.DataFrame({**COLUMNS, "income": [float("nan") if row == 6 else 1.0 for row in range(ROWS)]})
    with pytest.raises(InputError, match="column 'income': row 7: nan is not a finite number"):
        load_table(frame, "income", FACTS)
