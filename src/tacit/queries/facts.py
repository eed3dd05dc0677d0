"""The public facts that a query needs, from a schema or from bounds that are given with it."""

import dataclasses
import math
from pathlib import Path

from tacit.core.errors import InputError
from tacit.datasets.tables.schema import NumberColumn, Schema, as_schema
from tacit.queries.choosing import Top
from tacit.queries.counting import Count, Histogram
from tacit.queries.query import Query
from tacit.queries.rows import find_column

Bounds = tuple[float, float]


def schema_for(query: Query, schema: str | Path | None, bounds: Bounds | None) -> Schema:
    """The schema of a query's table.

    With ``bounds`` the column is a number between them, and values outside are moved to the nearer one, whatever the
    schema says. Without a schema the outer edges of bins are bounds too. A count without a condition reads no cell, and
    needs to know nothing about its column.
    """
    known = None if schema is None else as_schema(schema)
    if bounds is not None:
        return _with_bounds(known, query.column, bounds)
    if known is not None:
        return known
    if query.where is not None:
        raise InputError(f"where={str(query.where)!r}: needs a schema that describes {query.where.column}.")
    if isinstance(query, Histogram | Top) and isinstance(query.bins, tuple):
        return _with_bounds(None, query.column, (query.bins[0], query.bins[-1]))
    if isinstance(query, Count):
        return _with_bounds(None, query.column, (0.0, 1.0))
    needed = "edges of bins, or categories in a schema" if isinstance(query, Histogram | Top) else "bounds, or a schema"
    raise InputError(
        f"column={query.column!r}: a {query.kind} needs public {needed}. They must not be looked up in the data."
    )


def parse_bounds(text: str) -> Bounds:
    """``lower,upper``."""
    try:
        lower, upper = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"bounds={text!r}: must be two numbers with a comma between them, such as 0,100.") from None
    return lower, upper


def _with_bounds(schema: Schema | None, column: str, bounds: Bounds) -> Schema:
    lower, upper = bounds
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise InputError(f"bounds={lower:g},{upper:g}: both must be finite numbers.")
    if lower >= upper:
        raise InputError(f"bounds={lower:g},{upper:g}: the lower one must be below the upper one.")
    described = NumberColumn(column, lower, upper, clip=True)
    if schema is None:
        return Schema({column: described})
    if not isinstance(find_column(schema, column), NumberColumn):
        raise InputError(f"bounds={lower:g},{upper:g}: {column} is no number in the schema. Leave them out.")
    return dataclasses.replace(schema, columns={**schema.columns, column: described})
