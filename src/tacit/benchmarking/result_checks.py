"""What a page can draw: every part of a file of ``tacit bench step``, looked at once, where the file is read."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from tacit.core.errors import InputError

_LEAST, _MOST = 1e-12, 1e12  # of what is drawn: the ends of an axis are powers of their ratio
_LARGEST_NUMBER = 1e300  # that a float holds, products with it included
_SHOWN = 60  # letters of a wrong value
REMEDY = "Give a file that tacit bench step --out wrote."


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What a value has to be, in words and as a check; ``optional`` where null will do."""

    words: str
    holds: Callable[[Any], bool]
    optional: bool = False

    def takes(self, value: object) -> bool:
        return (self.optional and value is None) or self.holds(value)


def _or_null(kind: _Kind) -> _Kind:
    return _Kind(f"{kind.words} or null", kind.holds, optional=True)


def _list_of(kind: _Kind) -> _Kind:
    return _Kind(
        f"a list, each of it {kind.words}", lambda value: isinstance(value, list) and all(map(kind.takes, value))
    )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER  # nor NaN


_TEXT = _Kind("text", lambda value: isinstance(value, str))
_NAME = _Kind("a name", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w .+-]{1,80}", value)))
_NUMBER = _Kind("a number", _is_number)
_COUNT = _Kind("a whole number above 0", lambda value: type(value) is int and 0 < value <= _MOST)
_COST = _Kind("a number above 0", lambda value: _is_number(value) and _LEAST <= value <= _MOST)
_MEMORY = _Kind("a number of MiB", lambda value: _is_number(value) and (value == 0 or _LEAST <= abs(value) <= _MOST))

_NAMES = {"model": _NAME, "precision": _NAME, "engine": _NAME}
_ROW = {
    **_NAMES,
    "kind": _NAME,
    "batch": _COUNT,
    "ms": _or_null(_COST),
    "ratio": _or_null(_NUMBER),
    "ratio_fastest": _or_null(_NUMBER),
    "peak_mib": _or_null(_MEMORY),
    "spread_ms": _or_null(_list_of(_NUMBER)),
    "status": _TEXT,
    "reason": _or_null(_TEXT),
}
_GROWTH = {
    **_NAMES,
    "axis": _NAME,
    "sizes": _list_of(_COUNT),
    "ms": _list_of(_or_null(_COST)),
    "exponent": _or_null(_NUMBER),
}
_LARGEST_BATCH = {**_NAMES, "batch": _or_null(_COUNT), "ratio": _or_null(_NUMBER), "reason": _or_null(_TEXT)}
_TABLES = {"rows": _ROW, "growth": _GROWTH, "largest_batch": _LARGEST_BATCH}
_DESCRIPTIONS = ("hardware", "versions")


def check_step_result(name: str, found: object) -> dict[str, Any]:
    """The result, if all of it can be merged with others and drawn.

    Args:
        name: of the file, in messages.

    Raises:
        InputError: it is no result of ``tacit bench step``; says what is wrong in it.
    """
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        raise _wrong(name, "holds no rows")
    for key in _DESCRIPTIONS:
        if not isinstance(found.get(key, {}), dict):
            raise _wrong(name, f"{key}={_short(found[key])} must hold names with values")
    for key, kinds in _TABLES.items():
        _check_table(name, key, found.get(key, []), kinds)
    for place, row in enumerate(found.get("growth", ())):
        _check_points(name, f"growth[{place}]", row)
    return found


def _check_table(name: str, key: str, rows: object, kinds: Mapping[str, _Kind]) -> None:
    if not isinstance(rows, list):
        raise _wrong(name, f"{key}={_short(rows)} must be a list")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise _wrong(name, f"{key}[{place}]={_short(row)} must hold names with values")
        for field, kind in kinds.items():
            if field not in row:
                raise _wrong(name, f"{key}[{place}] has no {field}")
            if not kind.takes(row[field]):
                raise _wrong(name, f"{key}[{place}].{field}={_short(row[field])} must be {kind.words}")


def _check_points(name: str, place: str, row: Mapping[str, Any]) -> None:
    """A line has a time at each size, and two at least where it has an exponent."""
    if len(row["sizes"]) != len(row["ms"]):
        raise _wrong(name, f"{place}.ms={_short(row['ms'])} must be as many as sizes")
    if row["exponent"] is not None and sum(ms is not None for ms in row["ms"]) < 2:
        raise _wrong(name, f"{place}.exponent={_short(row['exponent'])} must be null without two times")


def _wrong(name: str, what: str) -> InputError:
    return InputError(f"result={name!r}: {what}. {REMEDY}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
