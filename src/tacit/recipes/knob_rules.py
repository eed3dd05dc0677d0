"""What a knob may be, by its name: the same in every recipe, so that a wrong value is refused under the name it was
given by, before anything is loaded or trained."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative, check_open_unit, check_positive, check_probability

Check = Callable[[str, Any], Any]
"""Of a knob's name and value; raises an `InputError` that names both."""


def _from_zero(name: str, value: int) -> int:
    return check_count(name, value, minimum=0)


def _zero_to_one(name: str, value: float) -> float:
    if check_non_negative(name, value) > 1:
        raise InputError(f"{name}={value!r}: must be at most 1.")
    return value


def _below_one(name: str, value: float) -> float:
    if check_non_negative(name, value) >= 1:
        raise InputError(f"{name}={value!r}: must be below 1. Take a number such as 0.9.")
    return value


def _decay(name: str, value: float) -> float:
    return check_open_unit(name, value, remedy="Take a number such as 0.99, or none where the recipe has no average.")


_COUNTS = (
    *("batch_size", "steps", "examples", "length", "multiplicity", "filters", "channels", "hidden", "depth", "width"),
    *(
        "dimensions",
        "directions",
        "public_steps",
        "teachers",
        "teacher_steps",
        "queries",
        "voters",
        "rounds",
        "networks",
    ),
    "ensemble_steps",
)
_COUNTS_FROM_ZERO = ("mixtures", "readout_steps", "perceptrons")
_POSITIVE = (
    *("epsilon", "epochs", "learning_rate", "readout_rate", "clip", "bound", "c", "k", "gain"),
    *("noise_multiplier", "noise", "pca_noise", "preparation_noise", "gamma", "sigma", "threshold", "sigma_threshold"),
)

PRIVACY = ("epsilon", "delta", "clip", "bound", "noise_multiplier", "noise", "pca_noise", "preparation_noise")

RULES: Mapping[str, Check] = {
    **dict.fromkeys(_COUNTS, check_count),
    **dict.fromkeys(_COUNTS_FROM_ZERO, _from_zero),
    **dict.fromkeys(_POSITIVE, check_positive),
    "average": _decay,
    "delta": check_open_unit,
    "momentum": _below_one,
    "sampling_rate": check_probability,
    "whitening": _zero_to_one,
}
"""Every number that a recipe of the catalogue lets one change has its rule here."""


def check_knobs(knobs: Any) -> None:
    """Raises an `InputError` for the first knob whose value its name does not allow; None is left open."""
    for field in dataclasses.fields(knobs):
        value, rule = getattr(knobs, field.name), RULES.get(field.name)
        if value is not None and rule is not None:
            rule(field.name, value)


def check_unchanged(knobs: Any, names: Iterable[str], reason: str) -> None:
    """Raises an `InputError` for a knob that was set to something else though it means nothing, for this reason."""
    defaults = {field.name: field.default for field in dataclasses.fields(knobs)}
    for name in names:
        if getattr(knobs, name) != defaults[name]:
            raise InputError(f"{name}={getattr(knobs, name)!r}: {reason}. Leave it out.")


def shown_knobs(knobs: Any, *, private: bool) -> dict[str, Any]:
    """As a result shows them: without privacy, those that would bound or hide something are None."""
    return {
        name: value if private or name not in PRIVACY else None for name, value in dataclasses.asdict(knobs).items()
    }


def check_whitened(whitening: float) -> float:
    """Whitening of channels, which the recipes that have it cannot do without: their plan pays for it in any case."""
    remedy = "There is no setting without whitening; with a number such as 0.01 features stay nearly as they are."
    return check_probability("whitening", whitening, remedy=remedy)


def check_lot(batch_size: int, examples: int) -> int:
    """A lot that is no larger than the training set."""
    if batch_size > examples:
        raise InputError(f"batch_size={batch_size}: must be at most the {examples} examples. Take a smaller batch.")
    return batch_size
