"""The public facts about a table: what its columns are and between which bounds their values lie.

Scaling by bounds that were looked up in the data would leak them; here they come from a TOML file that may be
published:

    test_fraction = 0.2          # optional
    delimiter = ","              # optional, for CSV files

    [columns.age]
    type = "number"
    lower = 18
    upper = 93

    [columns.income]
    type = "number"
    lower = 0
    upper = 200000
    clip = true                  # values outside are moved to the bounds; without this they are an error

    [columns.married]
    type = "boolean"             # 0 and 1, or false and true

    [columns.region]
    type = "category"
    categories = ["north", "south"]

A boolean may be computed from columns that stand above it, and is then not in the file. Each row's value comes from
that row alone, by a rule that is public too:

    [columns.adult]
    type = "boolean"
    of = "age"                   # a number
    at_least = 21                # true from here on, after clipping

    [columns.married_adult]
    type = "boolean"
    all_of = ["married", "adult"]   # booleans; true where all are: their product
"""

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from tacit.core.errors import InputError

_TEST_FRACTION = 0.2
BLANK = "?"  # what `draft_schema` leaves to be filled in
_TOP_KEYS = ("test_fraction", "delimiter", "columns")


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """A number between two public bounds; ``clip`` allows values outside, which are moved to the nearer bound."""

    name: str
    lower: float
    upper: float
    clip: bool = False


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """One of a public list of values, compared as text."""

    name: str
    categories: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """Whether a number reaches a public threshold."""

    of: str
    threshold: float

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of,)


@dataclasses.dataclass(frozen=True)
class AllOf:
    """Whether several booleans are all true: their product."""

    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class BooleanColumn:
    """No or yes: written 0 and 1 or false and true, or computed from other columns by a public ``rule``."""

    name: str
    rule: AtLeast | AllOf | None = None


Column = NumberColumn | CategoryColumn | BooleanColumn


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns in the order of the file, how much of the rows is for testing, and what separates the cells."""

    columns: Mapping[str, Column]
    test_fraction: float = _TEST_FRACTION
    delimiter: str = ","

    def read_from(self, name: str) -> tuple[str, ...]:
        """The columns of the file that a column's values come from: itself, unless it is computed from others."""
        column = self.columns[name]
        if not isinstance(column, BooleanColumn) or column.rule is None:
            return (name,)
        return tuple(dict.fromkeys(root for source in column.rule.sources for root in self.read_from(source)))


def as_schema(given: "Schema | Mapping[str, Any] | str | Path") -> Schema:
    """A schema from its TOML file, from the same keys in a dictionary, or as it is."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, Mapping):
        return _Reader("schema").schema(given)
    return read_schema(given)


def read_schema(path: str | Path) -> Schema:
    """The schema that a TOML file holds. Anything it does not know is refused: a misspelt bound must not be lost."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"schema={str(path)!r}: cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"schema={str(path)!r}: is not a TOML file: {error}.") from error
    return _Reader(str(path)).schema(content)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Turns the TOML values into a schema; every error names the file and the key."""

    path: str

    def error(self, key: str, value: object, rule: str) -> InputError:
        return InputError(f"{self.path}: {key}={value!r}: {rule}")

    def schema(self, content: Mapping[str, Any]) -> Schema:
        self.only_keys("", content, _TOP_KEYS)
        columns = content.get("columns")
        if not isinstance(columns, dict) or not columns:
            raise InputError(f"{self.path}: has no columns. Describe each in a table [columns.NAME].")
        fraction = content.get("test_fraction", _TEST_FRACTION)
        if not _is_number(fraction) or not 0 < fraction < 1:
            raise self.error("test_fraction", fraction, "must lie strictly between 0 and 1.")
        delimiter = content.get("delimiter", ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise self.error("delimiter", delimiter, 'must be one character, such as "," or ";".')
        self.no_blanks(columns)
        described: dict[str, Column] = {}
        for name, facts in columns.items():
            described[name] = self.column(name, facts, described)
        return Schema(described, float(fraction), delimiter)

    def no_blanks(self, columns: Mapping[str, Any]) -> None:
        blanks = [
            (f"columns.{name}.{key}", value)
            for name, facts in columns.items()
            if isinstance(facts, dict)
            for key, value in facts.items()
            if value in (BLANK, [BLANK])
        ]
        if blanks:
            others = f", and so are {', '.join(key for key, _ in blanks[1:6])}" if blanks[1:] else ""
            more = f" and {len(blanks) - 6} more" if blanks[6:] else ""
            raise self.error(
                *blanks[0],
                f"is left blank{others}{more}. Fill in what is publicly known, or remove the column.",
            )

    def column(self, name: str, facts: object, above: Mapping[str, Column]) -> Column:
        key = f"columns.{name}"
        if not isinstance(facts, dict):
            raise self.error(key, facts, f'must be a table. Write [{key}] and below it type = "number".')
        kind = facts.get("type")
        if kind == "number":
            self.only_keys(f"{key}.", facts, ("type", "lower", "upper", "clip"))
            return self.number(name, key, facts)
        if kind == "category":
            self.only_keys(f"{key}.", facts, ("type", "categories"))
            return CategoryColumn(name, self.categories(key, facts))
        if kind == "boolean":
            self.only_keys(f"{key}.", facts, ("type", "of", "at_least", "all_of"))
            return BooleanColumn(name, self.rule(key, facts, above))
        raise self.error(f"{key}.type", kind, 'must be "number", "category" or "boolean".')

    def number(self, name: str, key: str, facts: Mapping[str, Any]) -> NumberColumn:
        bounds = []
        for end in ("lower", "upper"):
            if not _is_number(facts.get(end)) or not math.isfinite(facts[end]):
                raise self.error(
                    f"{key}.{end}", facts.get(end), "must be a finite number. State the bound that is publicly known."
                )
            bounds.append(float(facts[end]))
        lower, upper = bounds
        if lower >= upper:
            raise self.error(f"{key}.lower", facts["lower"], f"must be below upper, which is {facts['upper']!r}.")
        if not math.isfinite(upper - lower):
            raise self.error(f"{key}.upper", facts["upper"], "is too far above lower: the width must be finite.")
        clip = facts.get("clip", False)
        if not isinstance(clip, bool):
            raise self.error(f"{key}.clip", clip, "must be true or false.")
        return NumberColumn(name, lower, upper, clip)

    def categories(self, key: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
        given = facts.get("categories")
        if not isinstance(given, list) or not all(isinstance(value, (str, int)) for value in given):
            raise self.error(f"{key}.categories", given, "must be a list of texts or whole numbers.")
        values = tuple(str(value).lower() if isinstance(value, bool) else str(value).strip() for value in given)
        if len(values) < 2 or len(set(values)) < len(values):
            raise self.error(f"{key}.categories", given, "must be at least two, all different.")
        return values

    def rule(self, key: str, facts: Mapping[str, Any], above: Mapping[str, Column]) -> AtLeast | AllOf | None:
        if "all_of" in facts and ("of" in facts or "at_least" in facts):
            raise self.error(f"{key}.all_of", facts["all_of"], "excludes of and at_least. Make it two columns.")
        if "all_of" in facts:
            return self.all_of(f"{key}.all_of", facts["all_of"], above)
        if "of" in facts or "at_least" in facts:
            return self.at_least(key, facts, above)
        return None

    def at_least(self, key: str, facts: Mapping[str, Any], above: Mapping[str, Column]) -> AtLeast:
        source = self.source(f"{key}.of", facts.get("of"), above)
        if not isinstance(source, NumberColumn):
            raise self.error(f"{key}.of", source.name, "must be a number.")
        threshold = facts.get("at_least")
        if not _is_number(threshold) or not source.lower < threshold <= source.upper:
            raise self.error(
                f"{key}.at_least",
                threshold,
                f"must be a number above {source.lower:g} and up to {source.upper:g}, the bounds of {source.name}: "
                "elsewhere every row would have the same value.",
            )
        return AtLeast(source.name, float(threshold))

    def all_of(self, key: str, names: object, above: Mapping[str, Column]) -> AllOf:
        if not isinstance(names, list) or len(names) < 2 or len(set(map(str, names))) < len(names):
            raise self.error(key, names, "must be a list of at least two columns, all different.")
        sources = [self.source(key, name, above) for name in names]
        for source in sources:
            if not isinstance(source, BooleanColumn):
                raise self.error(key, source.name, "must be a boolean.")
        return AllOf(tuple(source.name for source in sources))

    def source(self, key: str, name: object, above: Mapping[str, Column]) -> Column:
        if not isinstance(name, str) or name not in above:
            raise self.error(key, name, f"must be a column that stands above. There are {', '.join(above) or 'none'}.")
        return above[name]

    def only_keys(self, prefix: str, found: Mapping[str, Any], allowed: Collection[str]) -> None:
        for name, value in found.items():
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise self.error(prefix + name, value, f"is unknown; known are {', '.join(allowed)}.{hint}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
