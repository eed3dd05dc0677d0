"""Events: what a mechanism did to the records, in dp-accounting's vocabulary, checked, flattened and as JSON.

One convention holds for every event and accountant here: a noise multiplier is the noise's scale over the bound C on
what **one record contributes**. The accountant applies the neighbouring relation: adding, removing or zeroing a record
moves a sum by up to C, replacing one moves it by up to 2C.

The JSON form is ``{"schema": 1, "event": {"class": "GaussianDpEvent", "noise_multiplier": 1.0}}``. Reading it looks
names up in the table below and nowhere else: nothing is imported or executed, and what is unknown is refused.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dp_accounting import DpEvent, dp_event

from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_count, check_non_negative, check_open_unit, check_positive, check_probability

SCHEMA = 1
_DEEPEST = 64


@dataclasses.dataclass(frozen=True)
class _Field:
    """How one field is checked and written, and how it is read back."""

    encode: Callable[[str, Any, int], Any]
    decode: Callable[[str, Any, int], Any]


def _plain(check: Callable[[str, Any], Any]) -> _Field:
    def apply(name: str, value: Any, _: int) -> Any:
        return check(name, value)

    return _Field(apply, apply)


def _rate(name: str, value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else check_probability(name, value)


def _natural(name: str, value: Any) -> int:
    return check_count(name, value, minimum=0)


def _many(check: Callable[[str, Any], Any]) -> Callable[[str, Any], list[Any]]:
    def apply(name: str, value: Any) -> list[Any]:
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise InputError(f"{name}={value!r}: must be a list with at least one entry.")
        return [check(f"{name}[{i}]", entry) for i, entry in enumerate(value)]

    return apply


def _one_or_many_counts(name: str, value: Any) -> int | list[int]:
    return _natural(name, value) if isinstance(value, numbers.Integral) else _many(_natural)(name, value)


def _encode_shape(name: str, value: Any, _: int) -> float | str:
    return "infinity" if value == math.inf else check_non_negative(name, value)


def _decode_shape(name: str, value: Any, _: int) -> float:
    return math.inf if value == "infinity" else check_non_negative(name, value)


def _encode_events(name: str, value: Any, depth: int) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"{name}={value!r}: must be a list of events.")
    return [_encode(f"{name}[{i}]", event, depth) for i, event in enumerate(value)]


def _decode_events(name: str, value: Any, depth: int) -> list[DpEvent]:
    if not isinstance(value, list):
        raise InputError(f"{name}={value!r}: must be a list of events.")
    return [_decode(f"{name}[{i}]", event, depth) for i, event in enumerate(value)]


def _encode_some_events(name: str, value: Any, depth: int) -> list[Any]:
    return _at_least_one(name, _encode_events(name, value, depth))


def _decode_some_events(name: str, value: Any, depth: int) -> list[DpEvent]:
    return _at_least_one(name, _decode_events(name, value, depth))


def _at_least_one(name: str, events: list[Any]) -> list[Any]:
    if not events:
        raise InputError(f"{name}=[]: must hold at least one event.")
    return events


def _encode(name: str, event: Any, depth: int) -> dict[str, Any]:
    if type(event) not in _FIELDS:
        raise InputError(f"{name}={event!r}: must be an event of dp-accounting, such as GaussianDpEvent(1.0).")
    _check_depth(name, depth)
    fields = _FIELDS[type(event)]
    written = {
        key: field.encode(f"{type(event).__name__}.{key}", getattr(event, key), depth + 1)
        for key, field in fields.items()
    }
    return {"class": type(event).__name__, **written}


def _decode(name: str, value: Any, depth: int) -> DpEvent:
    if not isinstance(value, Mapping):
        raise InputError(f"{name}={value!r}: must be an object with a class and its fields.")
    _check_depth(name, depth)
    kind = _CLASSES.get(str(value.get("class")))
    if kind is None:
        raise InputError(f"{name}.class={value.get('class')!r}: must be one of {', '.join(sorted(_CLASSES))}.")
    fields = _FIELDS[kind]
    given = value.keys() - {"class"}
    if given != fields.keys():
        wrong = ", ".join(sorted(given ^ fields.keys()))
        raise InputError(f"{kind.__name__}: unknown or missing {wrong}. Its fields are {', '.join(fields) or 'none'}.")
    return kind(**{key: field.decode(f"{kind.__name__}.{key}", value[key], depth + 1) for key, field in fields.items()})


def _check_depth(name: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError(f"{name}: events are nested more than {_DEEPEST} deep. Flatten the composition.")


_NOISE = _plain(check_non_negative)
_COUNT = _plain(_natural)
_SIZE = _plain(check_count)
_PROBABILITY = _plain(_rate)
_EVENT = _Field(_encode, _decode)

_FIELDS: Mapping[type[DpEvent], Mapping[str, _Field]] = {
    dp_event.NoOpDpEvent: {},
    dp_event.NonPrivateDpEvent: {},
    dp_event.UnsupportedDpEvent: {},
    dp_event.GaussianDpEvent: {"noise_multiplier": _NOISE},
    dp_event.LaplaceDpEvent: {"noise_multiplier": _NOISE},
    dp_event.DiscreteLaplaceDpEvent: {"noise_parameter": _plain(check_positive), "sensitivity": _SIZE},
    dp_event.RandomizedResponseDpEvent: {"noise_parameter": _PROBABILITY, "num_buckets": _SIZE},
    dp_event.MixtureOfGaussiansDpEvent: {
        "standard_deviation": _NOISE,
        "sensitivities": _plain(_many(check_non_negative)),
        "sampling_probs": _plain(_many(_rate)),
    },
    dp_event.ZCDpEvent: {"rho": _NOISE, "xi": _NOISE},
    dp_event.SelfComposedDpEvent: {"event": _EVENT, "count": _COUNT},
    dp_event.ComposedDpEvent: {"events": _Field(_encode_events, _decode_events)},
    dp_event.PoissonSampledDpEvent: {"sampling_probability": _PROBABILITY, "event": _EVENT},
    dp_event.SampledWithReplacementDpEvent: {
        "source_dataset_size": _SIZE,
        "sample_size": _SIZE,
        "event": _EVENT,
    },
    dp_event.SampledWithoutReplacementDpEvent: {
        "source_dataset_size": _SIZE,
        "sample_size": _SIZE,
        "event": _EVENT,
    },
    dp_event.SingleEpochTreeAggregationDpEvent: {
        "noise_multiplier": _NOISE,
        "step_counts": _plain(_one_or_many_counts),
    },
    dp_event.RepeatAndSelectDpEvent: {
        "event": _EVENT,
        "mean": _plain(check_positive),
        "shape": _Field(_encode_shape, _decode_shape),
    },
    dp_event.TruncatedSubsampledGaussianDpEvent: {
        "dataset_size": _SIZE,
        "sampling_probability": _PROBABILITY,
        "truncated_batch_size": _SIZE,
        "noise_multiplier": _NOISE,
    },
    SmoothReleaseDpEvent: {
        "beta": _plain(check_positive),
        "noise_multiplier": _plain(check_positive),
        "failure": _plain(check_open_unit),
    },
    WorstOfDpEvent: {"events": _Field(_encode_some_events, _decode_some_events)},
}
_CLASSES = {kind.__name__: kind for kind in _FIELDS}


def event_to_json(event: DpEvent) -> dict[str, Any]:
    """The event as plain JSON values, checked on the way. An unknown class or a bad value is an `InputError`."""
    return {"schema": SCHEMA, "event": _encode("event", event, 0)}


def event_from_json(value: Mapping[str, Any]) -> DpEvent:
    """The event that `event_to_json` wrote. An unknown version, class or field, or a bad value, is an `InputError`."""
    if not isinstance(value, Mapping) or value.keys() != {"schema", "event"}:
        raise InputError("event: must be an object with exactly the keys schema and event.")
    if value["schema"] != SCHEMA or isinstance(value["schema"], bool):
        raise InputError(f"schema={value['schema']!r}: must be {SCHEMA}. A newer tacit may have written this event.")
    return _decode("event", value["event"], 0)


def check_event(event: DpEvent) -> DpEvent:
    """The event itself, after every class and value in it was checked."""
    _encode("event", event, 0)
    return event


def dpsgd_event(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """``steps`` steps of DP-SGD with Poisson sampling; ``noise_multiplier`` is noise deviation over clipping norm."""
    step = dp_event.PoissonSampledDpEvent(
        check_probability("sampling_rate", sampling_rate),
        dp_event.GaussianDpEvent(check_non_negative("noise_multiplier", noise_multiplier)),
    )
    return dp_event.SelfComposedDpEvent(step, check_count("steps", steps, minimum=0))


def event_key(event: DpEvent) -> str:
    """A text that only equal events share; an event with abbreviated, long arrays shares it with itself only."""
    text = repr(event)
    return f"{text} at {id(event)}" if "..." in text else text


def flatten(event: DpEvent) -> list[tuple[DpEvent, int]]:
    """The events of a composition that are not compositions themselves, with how often each occurs.

    Equal events are merged. No-ops and what is done zero times vanish.
    """
    counts: dict[str, tuple[DpEvent, int]] = {}

    def visit(node: DpEvent, count: int) -> None:
        if count == 0 or isinstance(node, dp_event.NoOpDpEvent):
            return
        if isinstance(node, dp_event.SelfComposedDpEvent):
            visit(node.event, count * node.count)
        elif isinstance(node, dp_event.ComposedDpEvent):
            for part in node.events:
                visit(part, count)
        else:
            key = event_key(node)
            counts[key] = node, count + counts.get(key, (node, 0))[1]

    visit(event, 1)
    return list(counts.values())


def gaussian_noise_multiplier(event: DpEvent) -> float | None:
    r"""The one Gaussian that equals a composition of Gaussians on the same records.

    Its noise multiplier is :math:`(\sum_i \sigma_i^{-2})^{-1/2}`, infinite for an empty composition. None where
    anything else takes part.
    """
    precision = 0.0
    for leaf, count in flatten(event):
        if not isinstance(leaf, dp_event.GaussianDpEvent):
            return None
        if leaf.noise_multiplier == 0:
            return 0.0
        precision += count / leaf.noise_multiplier**2
    return math.inf if precision == 0 else precision**-0.5


@dataclasses.dataclass(frozen=True)
class SampledGaussian:
    """``count`` Gaussian mechanisms, each on its own Poisson sample; a rate of 1 is no sampling."""

    sampling_rate: float
    noise_multiplier: float
    count: int


def as_sampled_gaussian(leaf: DpEvent, count: int) -> SampledGaussian | None:
    """A leaf as a Poisson-sampled Gaussian, or None where it is something else."""
    if isinstance(leaf, dp_event.NonPrivateDpEvent):
        return SampledGaussian(1.0, 0.0, count)
    sampled = isinstance(leaf, dp_event.PoissonSampledDpEvent)
    noise = gaussian_noise_multiplier(leaf.event if sampled else leaf)
    if noise is None:
        return None
    rate = leaf.sampling_probability if sampled else 1.0
    return SampledGaussian(rate, noise, 0 if rate == 0 or noise == math.inf else count)


def sampled_gaussians(event: DpEvent, accountant: str) -> list[SampledGaussian]:
    """A composition that holds nothing but Poisson-sampled Gaussians; anything else is an `UnsupportedError`."""
    parts = []
    for leaf, count in flatten(event):
        part = as_sampled_gaussian(leaf, count)
        if part is None:
            raise UnsupportedError(
                f"accountant={accountant!r}: cannot bound {type(leaf).__name__}, only Gaussian noise with or without "
                "Poisson sampling. Use 'pld' or 'rdp'."
            )
        if part.count:
            parts.append(part)
    return parts
