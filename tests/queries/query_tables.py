"""Small tables for the tests of queries. Not a test file itself."""

import pyarrow as pa

from tacit.datasets.tables import Table

SCHEMA = {
    "columns": {
        "x": {"type": "number", "lower": -1, "upper": 3},
        "city": {"type": "category", "categories": ["a", "b", "c"]},
        "flag": {"type": "boolean"},
    }
}


def table(x=(), city=None, flag=None):
    """Rows by their numbers; the other columns are ``a`` and 0 unless told."""
    rows = len(x)
    return Table.open(
        pa.table(
            {
                "x": pa.array(list(map(float, x)), pa.float64()),
                "city": list(city) if city is not None else ["a"] * rows,
                "flag": list(flag) if flag is not None else [0] * rows,
            }
        ),
        SCHEMA,
    )
