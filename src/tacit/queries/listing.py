"""Queries from plain values: the options of a command, or the entries of a TOML file.

    delta = 1e-6                 # what the whole list is composed at; optional

    [[query]]
    kind = "histogram"           # count, histogram, sum, mean, variance, quantile or top
    column = "age"
    bins = [18, 30, 45, 60, 93]  # or a number of bins of equal width
    epsilon = 0.2

    [[query]]
    kind = "mean"
    column = "income"
    where = "employed=1"
    epsilon = 0.5
    delta = 1e-7                 # Gaussian noise

Further keys: ``q`` of a quantile, ``count`` of a top, ``mechanism``.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit
from tacit.queries.choosing import Quantile, Top
from tacit.queries.counting import Bins, Count, Histogram
from tacit.queries.moments import Mean, Variance
from tacit.queries.query import Query
from tacit.queries.rows import Where
from tacit.queries.sums import Sum

COMPOSED_AT = 1e-6
_PRICE_KEYS = ("epsilon", "delta", "mechanism")
_COMMON_KEYS = ("kind", "column", "where")
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {"histogram": ("bins",), "quantile": ("q",), "top": ("bins", "count")}
_PLAIN: Mapping[str, Callable[..., Query]] = {
    "count": Count,
    "histogram": Histogram,
    "sum": Sum,
    "mean": Mean,
    "variance": Variance,
    "quantile": Quantile,
    "top": Top,
}
KINDS = tuple(_PLAIN)


@dataclasses.dataclass(frozen=True)
class Priced:
    """A query with what it may cost."""

    query: Query
    epsilon: float
    delta: float
    mechanism: str


@dataclasses.dataclass(frozen=True)
class Listed:
    """All queries of a file, and the delta that they are composed at."""

    queries: tuple[Priced, ...]
    delta: float


def build_query(facts: Mapping[str, Any]) -> Query:
    """A query from its kind, its column and whatever else it takes; keys that it does not take are refused."""
    kind = str(facts.get("kind"))
    if kind not in _PLAIN:
        raise InputError(f"kind={kind!r}: must be one of {', '.join(KINDS)}.{_near(kind, KINDS)}")
    own = _OWN_KEYS.get(kind, ())
    for key, value in facts.items():
        if key not in (*_COMMON_KEYS, *own):
            raise InputError(f"{key}={value!r}: a {kind} has none.{_near(key, (*_COMMON_KEYS, *own, *_PRICE_KEYS))}")
    column = facts.get("column")
    if not isinstance(column, str) or not column:
        raise InputError(f"column={column!r}: say which column the {kind} is of.")
    where = facts.get("where")
    if where is not None and not isinstance(where, str):
        raise InputError(f"where={where!r}: must be a text of the form column=value, such as employed=1.")
    given = {key: _bins(facts[key]) if key == "bins" else facts[key] for key in own if key in facts}
    return _PLAIN[kind](column, where=None if where is None else Where.parse(where), **given)


def listed_alone(kind: str, options: Mapping[str, Any], price: Mapping[str, Any]) -> Listed:
    """A list of one query, from the options of a command, of which those that were not given are None."""
    facts = {key: value for key, value in options.items() if value is not None}
    if "bins" in facts:
        facts["bins"] = parse_bins(facts["bins"])
    query = build_query({"kind": kind} | facts)
    if price["epsilon"] is None:
        raise InputError("epsilon=None: say what the answer may cost, such as --epsilon 0.5.")
    priced = Priced(query, price["epsilon"], price["delta"] or 0.0, price["mechanism"] or "")
    return Listed((priced,), COMPOSED_AT)


def read_list(path: str | Path, delta: float | None = None) -> Listed:
    """The queries of a TOML file, see the module; ``delta`` stands in the place of the file's."""
    name = f"queries={str(path)!r}"
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: is not a TOML file: {error}.") from error
    entries = content.get("query")
    for key, value in content.items():
        if key not in ("query", "delta"):
            raise InputError(f"{name}: {key}={value!r}: is unknown; known are query and delta.")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{name}: has no queries. Write each below a line [[query]].")
    return Listed(
        tuple(_priced(f"{name}: query {number}", entry) for number, entry in enumerate(entries, start=1)),
        check_open_unit("delta", content.get("delta", COMPOSED_AT) if delta is None else delta),
    )


def parse_bins(text: str) -> Bins:
    """``10`` for so many bins of equal width; ``0,18,65`` for their edges."""
    try:
        return int(text) if "," not in text else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"bins={text!r}: must be a whole number, or edges with commas between them.") from None


def _priced(name: str, entry: Mapping[str, Any]) -> Priced:
    try:
        query = build_query({key: value for key, value in entry.items() if key not in _PRICE_KEYS})
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    if "epsilon" not in entry:
        raise InputError(f"{name}: has no epsilon. Say what it may cost.")
    return Priced(query, entry["epsilon"], entry.get("delta", 0.0), entry.get("mechanism", ""))


def _bins(value: Any) -> Bins:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    numbers = isinstance(value, list | tuple) and all(
        isinstance(edge, int | float) and not isinstance(edge, bool) for edge in value
    )
    if not numbers:
        raise InputError(f"bins={value!r}: must be a whole number, or a list of edges.")
    return tuple(float(edge) for edge in value)


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
