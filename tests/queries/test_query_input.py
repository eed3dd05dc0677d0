"""Queries refuse what makes no sense, on one line with the remedy."""

import math

import pytest
from query_tables import SCHEMA, table

from tacit.core import InputError, TacitError
from tacit.core.privacy import Neighbours
from tacit.datasets.tables import as_schema
from tacit.queries import Count, Histogram, Mean, Quantile, Sum, Terms, Top, Variance, Where, ask
from tacit.queries.facts import parse_bounds, schema_for
from tacit.queries.listing import build_query, parse_bins, read_list
from tacit.queries.query import Setting

TABLE = table([0.0, 1.0], "ab")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0}, "epsilon=0: must be a finite number above 0"),
        ({"epsilon": -1}, "epsilon=-1"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": 1, "delta": 1.5}, "delta=1.5: must lie strictly between 0 and 1"),
        ({"epsilon": 1, "mechanism": "gaussian"}, "delta=0.0.*Gaussian noise needs one"),
        ({"epsilon": 1, "mechanism": "laplace", "delta": 0.1}, "delta=0.1: Laplace noise needs none"),
        ({"epsilon": 1, "mechanism": "cauchy"}, "mechanism='cauchy': must be one of"),
        ({"epsilon": 1, "neighbours": Neighbours.ZERO_OUT}, "neighbours='zero-out'.*no empty value.*Take add-remove"),
    ],
)
def test_terms_that_make_no_sense(arguments, message) -> None:
    with pytest.raises(TacitError, match=message):
        Terms(**arguments)


@pytest.mark.parametrize(
    ("query", "terms", "message"),
    [
        (Mean("y"), Terms(1.0), r"column='y': is not a column of the schema. It has x, city, flag"),
        (Mean("flagg"), Terms(1.0), "The nearest are flag"),
        (Mean("city"), Terms(1.0), "column='city': is a category, and has no numbers"),
        (Quantile("city"), Terms(1.0), "column='city': is a category"),
        (Histogram("x"), Terms(1.0), "bins=None: x is a number"),
        (Histogram("city", 3), Terms(1.0), "bins=3: city is no number"),
        (Histogram("x", 10**6), Terms(1.0), "bins=1000000: must be at most"),
        (Quantile("x"), Terms(1.0, 1e-5), "delta=1e-05: a quantile is chosen with pure epsilon"),
        (Top("city"), Terms(1.0, 1e-5), "delta=1e-05: a top is chosen with pure epsilon"),
        (Top("city", count=4), Terms(1.0), "count=4: must be at most 3"),
        (Count("x"), Terms(1.0, neighbours=Neighbours.REPLACE_ONE), "the number of rows is public there"),
        (Count("x", where=Where("town", "a")), Terms(1.0), "where='town': is not a column of the schema"),
        (Count("x", where=Where("city", "d")), Terms(1.0), "where='city=d': the schema's categories do not hold 'd'"),
        (Count("x", where=Where("flag", "yes")), Terms(1.0), "flag is a boolean. Write flag=1 or =0"),
        (Count("x", where=Where("x", "high")), Terms(1.0), "x is a number, and 'high' is none"),
    ],
)
def test_queries_that_the_schema_does_not_allow(query, terms, message) -> None:
    with pytest.raises(InputError, match=message):
        ask(query, TABLE, terms)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Histogram("x", (0.0, 0.0, 1.0)), r"bins=\[0.0, 0.0, 1.0\]: must be in rising order"),
        (lambda: Histogram("x", (3.0, 1.0)), "must be in rising order"),
        (lambda: Histogram("x", (1.0,)), "must be two edges or more"),
        (lambda: Histogram("x", (0.0, math.nan)), "must be two edges or more, each a finite number"),
        (lambda: Histogram("x", 0), "bins=0: must be at least 1"),
        (lambda: Quantile("x", 1.2), "q=1.2: must lie between 0 and 1"),
        (lambda: Quantile("x", -0.1), "q=-0.1"),
        (lambda: Quantile("x", math.nan), "q=nan"),
        (lambda: Top("x", 3, 0), "count=0"),
        (lambda: Where.parse("flag"), "where='flag': must have the form column=value"),
        (lambda: parse_bins("1,two"), "bins='1,two': must be a whole number, or edges"),
        (lambda: parse_bounds("5"), "bounds='5': must be two numbers"),
        (lambda: Setting(as_schema(SCHEMA), Terms(1.0), 1.0), "confidence=1.0"),
        (lambda: schema_for(Mean("x"), None, (2.0, 1.0)), "bounds=2,1: the lower one must be below the upper one"),
        (lambda: schema_for(Mean("x"), None, (0.0, math.inf)), "bounds=0,inf: both must be finite"),
        (lambda: schema_for(Mean("x"), None, None), "column='x': a mean needs public bounds, or a schema"),
        (lambda: schema_for(Histogram("x"), None, None), "a histogram needs public edges of bins, or categories"),
        (lambda: schema_for(Count("x", where=Where("flag", "1")), None, None), "where='flag=1': needs a schema"),
        (lambda: build_query({"kind": "media", "column": "x"}), "kind='media': must be one of.*Did you mean"),
        (lambda: build_query({"kind": "mean", "column": "x", "bins": 3}), "bins=3: a mean has none"),
        (lambda: build_query({"kind": "quantile", "column": "x", "Q": 0.5}), "Q=0.5: a quantile has none"),
        (lambda: build_query({"kind": "mean"}), "column=None: say which column"),
        (lambda: build_query({"kind": "histogram", "column": "x", "bins": ["a"]}), r"bins=\['a'\]"),
        (lambda: ask(Mean("x"), table([1e300]), Terms(1.0)), "row 1: 1e\\+300 lies outside"),
        (lambda: ask(Mean("x"), table([math.nan]), Terms(1.0)), "row 1"),
        (lambda: ask(Variance("x"), table([]), Terms(1.0)), "has a header but no rows"),
    ],
)
def test_values_that_make_no_sense(make, message) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("extent", [(0.0, 5e-324), (-1e308, 1e308)])
def test_bounds_that_no_grid_fits_are_refused(extent) -> None:
    import pyarrow as pa

    from tacit.datasets.tables import Table

    extreme = Table.open(pa.table({"x": [0.0]}), schema_for(Mean("x"), None, extent))
    for query in (Sum("x"), Quantile("x")):
        with pytest.raises(InputError, match="too wide or too narrow"):
            ask(query, extreme, Terms(1.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no queries"),
        ("query = 3", "has no queries"),
        ("[[query]]\nkind = 'mean'\ncolumn = 'x'", "query 1: has no epsilon"),
        ("[[query]]\nkind = 'mean'\ncolumn = 'x'\nepsilon = 1\nepsilonn = 2", "query 1: epsilonn=2: a mean has none"),
        ("delta = 2\n[[query]]\nkind = 'mean'\ncolumn = 'x'\nepsilon = 1", "delta=2"),
        ("total = 2\n[[query]]\nkind = 'mean'\ncolumn = 'x'\nepsilon = 1", "total=2: is unknown"),
        ("[[query]", "is not a TOML file"),
    ],
)
def test_lists_that_cannot_be_read(tmp_path, text, message) -> None:
    path = tmp_path / "list.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_list(path)


def test_a_list_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read_list("nowhere.toml")
