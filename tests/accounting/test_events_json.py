"""The JSON form of events: every class goes there and back, and nothing unknown gets in."""

import inspect
import json
import math
import sys
from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import check_event, dpsgd_event, event_from_json, event_to_json
from tacit.accounting.events import as_sampled_gaussian, flatten, gaussian_noise_multiplier
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core import InputError

GAUSSIAN = dp_event.GaussianDpEvent(1.5)
EXAMPLES = [
    dp_event.NoOpDpEvent(),
    dp_event.NonPrivateDpEvent(),
    dp_event.UnsupportedDpEvent(),
    GAUSSIAN,
    dp_event.LaplaceDpEvent(0.5),
    dp_event.DiscreteLaplaceDpEvent(0.2, 3),
    dp_event.RandomizedResponseDpEvent(0.3, 4),
    dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1]),
    dp_event.ZCDpEvent(0.1, 0.2),
    dp_event.SelfComposedDpEvent(GAUSSIAN, 0),
    dp_event.ComposedDpEvent([GAUSSIAN, dp_event.NoOpDpEvent()]),
    dp_event.PoissonSampledDpEvent(0.01, GAUSSIAN),
    dp_event.SampledWithReplacementDpEvent(10, 20, GAUSSIAN),
    dp_event.SampledWithoutReplacementDpEvent(10, 3, GAUSSIAN),
    dp_event.SingleEpochTreeAggregationDpEvent(2.0, 8),
    dp_event.SingleEpochTreeAggregationDpEvent(2.0, [8, 3]),
    dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 3.0, math.inf),
    SmoothReleaseDpEvent(0.01, 5.0, 0.05),
    WorstOfDpEvent([GAUSSIAN, dp_event.LaplaceDpEvent(2.0)]),
    dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.0),
]


def test_there_is_an_example_of_every_class_of_dp_accounting_and_of_our_own() -> None:
    every = {
        kind
        for _, kind in inspect.getmembers(sys.modules[dp_event.__name__], inspect.isclass)
        if issubclass(kind, DpEvent) and kind is not DpEvent
    }
    assert {type(event) for event in EXAMPLES} == every | {SmoothReleaseDpEvent, WorstOfDpEvent}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_there_and_back_through_text(event: DpEvent) -> None:
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event
    assert event_to_json(event)["schema"] == 1
    assert check_event(event) is event


def leaves() -> st.SearchStrategy[DpEvent]:
    noise, rate = st.floats(0, 1e6), st.floats(0, 1)
    return st.one_of(
        st.just(dp_event.NoOpDpEvent()),
        st.builds(dp_event.GaussianDpEvent, noise),
        st.builds(dp_event.LaplaceDpEvent, noise),
        st.builds(dp_event.ZCDpEvent, noise, noise),
        st.builds(dp_event.RandomizedResponseDpEvent, rate, st.integers(1, 100)),
        st.builds(dp_event.TruncatedSubsampledGaussianDpEvent, st.integers(1), rate, st.integers(1), noise),
    )


def events() -> st.SearchStrategy[DpEvent]:
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.builds(dp_event.SelfComposedDpEvent, inner, st.integers(0, 10**12)),
            st.builds(dp_event.ComposedDpEvent, st.lists(inner, max_size=4)),
            st.builds(dp_event.PoissonSampledDpEvent, st.floats(0, 1), inner),
            st.builds(dp_event.RepeatAndSelectDpEvent, inner, st.floats(1, 100), st.floats(0, allow_nan=False)),
        ),
        max_leaves=8,
    )


@given(events())
def test_any_event_there_and_back(event: DpEvent) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event), allow_nan=False))) == event


@given(events())
def test_flattening_keeps_every_leaf_and_count(event: DpEvent) -> None:
    def count(node: DpEvent, times: int) -> int:
        if isinstance(node, dp_event.SelfComposedDpEvent):
            return count(node.event, times * node.count)
        if isinstance(node, dp_event.ComposedDpEvent):
            return sum(count(part, times) for part in node.events)
        return 0 if isinstance(node, dp_event.NoOpDpEvent) else times

    flat = flatten(event)
    assert sum(times for _, times in flat) == count(event, 1)
    assert len({repr(leaf) for leaf, _ in flat}) == len(flat)


def envelope(**event: Any) -> dict[str, Any]:
    return {"schema": 1, "event": event}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"schema": 2, "event": {"class": "NoOpDpEvent"}}, "schema=2: must be 1"),
        ({"schema": True, "event": {"class": "NoOpDpEvent"}}, "schema=True: must be 1"),
        ({"schema": "1", "event": {"class": "NoOpDpEvent"}}, "schema='1': must be 1"),
        ({"event": {"class": "NoOpDpEvent"}}, "exactly the keys schema and event"),
        ({"schema": 1, "event": {}, "more": 1}, "exactly the keys schema and event"),
        ([], "exactly the keys schema and event"),
        ({"schema": 1, "event": 3}, "event=3: must be an object"),
        (envelope(), "event.class=None: must be one of"),
        (envelope(**{"class": "os.system"}), "event.class='os.system': must be one of"),
        (envelope(**{"class": "DpEvent"}), "event.class='DpEvent': must be one of"),
        (envelope(**{"class": ["NoOpDpEvent"]}), "must be one of"),
        (envelope(**{"class": "GaussianDpEvent"}), "GaussianDpEvent: unknown or missing noise_multiplier"),
        (
            envelope(**{"class": "GaussianDpEvent", "noise_multiplier": 1, "seed": 2}),
            "GaussianDpEvent: unknown or missing seed. Its fields are noise_multiplier",
        ),
        (
            envelope(**{"class": "GaussianDpEvent", "noise_multiplier": -1.0}),
            "GaussianDpEvent.noise_multiplier=-1.0: must be a finite number of at least 0",
        ),
        (
            envelope(**{"class": "GaussianDpEvent", "noise_multiplier": math.nan}),
            "GaussianDpEvent.noise_multiplier=nan: must be a number",
        ),
        (
            envelope(**{"class": "GaussianDpEvent", "noise_multiplier": "1"}),
            "GaussianDpEvent.noise_multiplier='1': must be a number",
        ),
        (
            envelope(**{"class": "SelfComposedDpEvent", "event": {"class": "NoOpDpEvent"}, "count": -1}),
            "SelfComposedDpEvent.count=-1: must be at least 0",
        ),
        (
            envelope(**{"class": "SelfComposedDpEvent", "event": {"class": "NoOpDpEvent"}, "count": 1.5}),
            "SelfComposedDpEvent.count=1.5: must be a whole number",
        ),
        (
            envelope(**{"class": "PoissonSampledDpEvent", "sampling_probability": 1.1, "event": {}}),
            "PoissonSampledDpEvent.sampling_probability=1.1: must be above 0 and at most 1",
        ),
        (envelope(**{"class": "ComposedDpEvent", "events": "no"}), "ComposedDpEvent.events='no': must be a list"),
        (
            envelope(**{"class": "DiscreteLaplaceDpEvent", "noise_parameter": 0, "sensitivity": 1}),
            "DiscreteLaplaceDpEvent.noise_parameter=0: must be a finite number above 0",
        ),
    ],
)
def test_what_is_unknown_or_wrong_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        event_from_json(value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_nesting_is_refused_before_it_overflows() -> None:
    value: dict[str, Any] = {"class": "NoOpDpEvent"}
    event: DpEvent = dp_event.NoOpDpEvent()
    for _ in range(100):
        value = {"class": "SelfComposedDpEvent", "event": value, "count": 1}
        event = dp_event.SelfComposedDpEvent(event, 1)
    with pytest.raises(InputError, match="nested more than 64 deep"):
        event_from_json({"schema": 1, "event": value})
    with pytest.raises(InputError, match="nested more than 64 deep"):
        event_to_json(event)


def test_only_known_classes_are_written() -> None:
    class Home(DpEvent):
        """An event that dp-accounting does not know."""

    for unknown in (Home(), "GaussianDpEvent", None, dp_event.SelfComposedDpEvent(Home(), 2)):
        with pytest.raises(InputError, match="must be an event of dp-accounting"):
            event_to_json(unknown)


def test_dpsgd_event_is_checked() -> None:
    assert dpsgd_event(0.1, 2.0, 3) == dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 3
    )
    for arguments, message in (
        ((0.0, 1.0, 1), r"sampling_rate=0\.0: must be above 0"),
        ((0.1, -1.0, 1), r"noise_multiplier=-1\.0: must be a finite number of at least 0"),
        ((0.1, 1.0, -1), "steps=-1: must be at least 0"),
        ((0.1, 1.0, 2.5), r"steps=2\.5: must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            dpsgd_event(*arguments)


def test_gaussians_on_the_same_records_are_one() -> None:
    composed = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(2.0), 3), GAUSSIAN])
    assert gaussian_noise_multiplier(composed) == pytest.approx((3 / 4 + 1 / 2.25) ** -0.5)
    assert gaussian_noise_multiplier(dp_event.NoOpDpEvent()) == math.inf
    assert gaussian_noise_multiplier(dp_event.LaplaceDpEvent(1.0)) is None
    sampled = as_sampled_gaussian(dp_event.PoissonSampledDpEvent(0.2, composed), 7)
    assert sampled is not None
    assert (sampled.sampling_rate, sampled.count) == (0.2, 7)
