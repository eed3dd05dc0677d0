"""Drafts of schemas: made from headers alone, and refused until people fill them in."""

import string
import tomllib

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import InputError
from tacit.datasets import load_table, read_schema
from tacit.datasets.tables import draft_schema

NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0,;|\t\"'"), min_size=1).filter(
        lambda name: not is_number(name)
    ),
    min_size=2,
    max_size=5,
    unique=True,
)
CELLS = st.text(st.sampled_from(string.ascii_letters + string.digits + ' .-"'), max_size=12)


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def write(path, header, rows):
    lines = [",".join(header), *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@settings(deadline=None, max_examples=60)
@given(names=NAMES, data=st.data())
def test_two_files_with_one_header_have_one_draft(tmp_path_factory, names, data):
    """Whatever stands in the rows, ragged ones and open quotes among it, the draft is the same."""
    rows = st.lists(st.lists(CELLS, max_size=6), max_size=4)
    folder = tmp_path_factory.mktemp("draft")
    first = draft_schema(write(folder / "a.csv", names, data.draw(rows)))
    second = draft_schema(write(folder / "b.csv", names, data.draw(rows)))
    assert first == second
    assert first.columns == tuple(names)
    assert list(tomllib.loads(first.text)["columns"]) == names


def test_bytes_behind_the_header_are_not_even_decoded(tmp_path):
    plain, odd = tmp_path / "plain.csv", tmp_path / "odd.csv"
    plain.write_bytes(b"age,job\n1,2\n")
    odd.write_bytes(b'\xef\xbb\xbfage,"job"\r\n\xff\xfe,"\x00')
    assert draft_schema(plain) == draft_schema(odd)


def test_parquet_shows_declared_types_and_no_values(tmp_path):
    def draft(ages, jobs, wed):
        table = pa.table({"age": ages, "job": pa.array(jobs).dictionary_encode(), "wed": wed, "day": [[1]] * len(ages)})
        pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
        return draft_schema(tmp_path / "t.parquet")

    first, second = draft([17, 93], ["spy", "cook"], [True, False]), draft([1, 2, 3], ["a", "b", "c"], [True] * 3)
    assert first == second
    columns = tomllib.loads(first.text)["columns"]
    assert columns["age"] == {"type": "number", "lower": "?", "upper": "?"}
    assert columns["job"] == {"type": "category", "categories": ["?"]}
    assert columns["wed"] == {"type": "boolean"}
    assert columns["day"] == {"type": "?"}


def test_blanks_are_refused_by_name_until_they_are_filled_in(tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(
        pa.table({"age": [20, 30] * 20, "job": ["a", "b"] * 20, "wed": [True, False] * 20}), path
    )
    schema = tmp_path / "t.toml"
    text = draft_schema(path).text
    schema.write_text(text)
    with pytest.raises(InputError, match=r"columns.age.lower='\?': is left blank, and so are columns.age.upper, col"):
        read_schema(schema)
    text = text.replace('lower = "?"', "lower = 18").replace('upper = "?"', "upper = 99")
    schema.write_text(text)
    with pytest.raises(InputError, match=r"columns.job.categories=\['\?'\]: is left blank. Fill in what is publicly"):
        read_schema(schema)
    schema.write_text(text.replace('["?"]', '["a", "b"]'))
    assert load_table(path, "wed", schema).input_shape == (3,)


def test_a_long_line_of_blanks_is_cut(tmp_path):
    schema = tmp_path / "s.toml"
    schema.write_text(draft_schema(write(tmp_path / "a.csv", list("abcdefghij"), [])).text)
    with pytest.raises(InputError, match=r"columns.a.type='\?': .*columns.f.type and 4 more. Fill in") as refusal:
        read_schema(schema)
    assert "\n" not in str(refusal.value)


def test_a_row_in_the_place_of_the_header_is_not_published(tmp_path):
    path = write(tmp_path / "a.csv", ["Jane", "51"], [["Joe", "3"]])
    with pytest.raises(InputError, match=r"column 2: the first line has a number where a name should stand") as refusal:
        draft_schema(path)
    assert "51" not in str(refusal.value)
    assert "Jane" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty. It needs a header"),
        (b"\n\n", "has no header. Its first line must name the columns"),
        (b"age,age\n", "has 2 columns called 'age'"),
        (b"age;job\n", "its header is one column. The cells seem to be separated by ';': give it as the delimiter"),
        (b"a\xe9,job\n", "the header is not UTF-8"),
        ("age,job\n".encode("utf-16"), "it is UTF-16"),
        (b'age,"job\n', "is not a CSV file that can be read"),
    ],
)
def test_files_without_a_usable_header(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message) as refusal:
        draft_schema(tmp_path / "a.csv")
    assert "\n" not in str(refusal.value)


def test_delimiters(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age;job\n")
    assert tomllib.loads(draft_schema(tmp_path / "a.csv", delimiter=";").text)["delimiter"] == ";"
    (tmp_path / "a.csv").write_bytes(b"age\tjob\n")
    assert tomllib.loads(draft_schema(tmp_path / "a.csv", delimiter="\t").text)["delimiter"] == "\t"
    with pytest.raises(InputError, match="delimiter='ab': must be one character"):
        draft_schema(tmp_path / "a.csv", delimiter="ab")
