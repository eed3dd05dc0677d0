"""Knobs: frozen dataclasses of numbers and names, changed by ``KEY=VALUE`` on the command line."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.core.errors import InputError
from tacit.core.validation import check_positive
from tacit.recipes.knob_rules import PRIVACY, check_knobs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHORT = {"lr": "learning_rate", "noise": "noise_multiplier", "lot": "batch_size", "lot_size": "batch_size"}
Level = TypeVar("Level")
Record = TypeVar("Record", bound="DataclassInstance")
_READERS: Mapping[type, Callable[[str], Any]] = {float: float, int: int, str: str}
_MUST_BE: Mapping[type, str] = {
    float: "a number. Take a number such as 2",
    int: "a whole number. Take a whole number such as 10",
}


def split_setting(option: str, text: str) -> tuple[str, str]:
    """``KEY=VALUE`` as two parts."""
    key, sign, value = text.partition("=")
    if not (key and sign and value):
        raise InputError(f"{option} {text}: must have the form KEY=VALUE, such as epsilon=2.")
    return key, value


def split_settings(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Several of them by key, each at most once."""
    pairs = [split_setting(option, text) for text in texts]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"{option} {key}: was given {keys.count(key)} times. Give it once.")
    return dict(pairs)


def full_name(key: str) -> str:
    """A knob's own name for what the command line may call it."""
    name = key.replace("-", "_")
    return _SHORT.get(name, name)


def changed(knobs: Any, settings: Mapping[str, str]) -> Any:
    """The knobs with other values, read as what each of them is; ``none`` where a knob may be left open.

    Raises:
        InputError: no such knob, one that is set by two of its names, or a value that is not for it (`knob_rules`).
    """
    hints = typing.get_type_hints(type(knobs))
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for given, text in settings.items():
        name = _own_name(knobs, given)
        if name not in hints:
            raise InputError(f"{given}={text}: is no knob. Those there are: {', '.join(hints)}.")
        if name in said:
            raise InputError(f"{given}={text}: is the same knob as {said[name]}. Give it once.")
        values[name], said[name] = _read(given, text, hints[name]), f"{given}={settings[given]}"
    altered = dataclasses.replace(knobs, **values)
    check_knobs(altered)
    return altered


def in_words(knobs: Any, settings: Mapping[str, str]) -> list[str]:
    """What ``--set`` says as ``knob=value``: the same words in whatever order, and by whatever names, it was said."""
    altered, said = changed(knobs, settings), {_own_name(knobs, given) for given in settings}
    values = [(field.name, getattr(altered, field.name)) for field in dataclasses.fields(knobs) if field.name in said]
    return [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values]


def _own_name(knobs: Any, given: str) -> str:
    """A knob may have a name that is short for another recipe's."""
    name = given.replace("-", "_")
    return name if any(field.name == name for field in dataclasses.fields(knobs)) else full_name(given)


def refuse_privacy(settings: Mapping[str, str]) -> None:
    """Raises an `InputError` where something was set that a run without privacy has not."""
    for key, value in settings.items():
        if full_name(key) in PRIVACY:
            raise InputError(f"{key}={value}: means nothing in a setting without privacy. Leave it out.")


def with_given(level: Record, knobs: Any) -> Record:
    """The level, with what the knobs of the same names say where they are not left open."""
    given = {field.name: getattr(knobs, field.name, None) for field in dataclasses.fields(level)}
    return dataclasses.replace(level, **{name: value for name, value in given.items() if value is not None})


def nearest(levels: Mapping[float, Level], epsilon: float) -> Level:
    """What was chosen for this epsilon, or for the nearest one by ratio."""
    check_positive("epsilon", epsilon)
    return levels[min(levels, key=lambda known: abs(math.log(known / epsilon)))]


def _read(name: str, text: str, hint: Any) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if types.NoneType in kinds and text.lower() == "none":
        return None
    kind = next(kind for kind in kinds if kind is not types.NoneType)
    try:
        return _READERS[kind](text)
    except ValueError:
        open_too = ", or none" if types.NoneType in kinds else ""
        raise InputError(f"{name}={text}: must be {_MUST_BE[kind]}{open_too}.") from None
