"""Events, records and files of any content: one clear error, nothing spent, nothing executed."""

import builtins
import contextlib
import json
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.accounting import event_from_json, event_to_json
from tacit.core import Budget, InputError, LedgerError
from tacit.core.errors import TacitError
from tacit.ledger import Account, Ledger, repeated
from tacit.ledger.history import History, link
from tacit.ledger.spending import decode_event, encode_event

STEP = dp_accounting.GaussianDpEvent(10.0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["class", "schema", "event", "events", "noise_multiplier", "count", "sampling_probability"])
CLASSES = st.sampled_from(["GaussianDpEvent", "SelfComposedDpEvent", "ComposedDpEvent", "os.system", "__import__"])
EVENTS = st.recursive(
    JSON | CLASSES,
    lambda inner: st.dictionaries(KEYS, inner | CLASSES, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_executed() -> Iterator[None]:
    """Whatever would run code taken from a file fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was executed")

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in ((builtins, "eval"), (os, "system"), (subprocess, "Popen")):
            patch.setattr(holder, name, refuse)
        yield


@settings(max_examples=300, deadline=None)
@given(EVENTS)
@example({"schema": 1, "event": {"class": "GaussianDpEvent", "noise_multiplier": float("nan")}})
@example({"schema": 1, "event": {"class": "__import__('os').system('true')"}})
@example({"schema": True, "event": {"class": "NoOpDpEvent"}})
def test_an_event_is_read_or_refused(value: Any) -> None:
    with contextlib.suppress(InputError):
        event = event_from_json(value)
        assert event_from_json(event_to_json(event)) == event


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | JSON.map(json.dumps))
@example("[" * 20_000)
@example('{"schema": 1, "event": ' + '{"class": "SelfComposedDpEvent", "count": 1, "event": ' * 5_000)
@example("9" * 5_000)
def test_an_encoded_event_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(LedgerError):
        assert encode_event(decode_event(text))


RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["opened", "reserved", "drawn", "committed", "released", "settled", "other", 3, None]),
        "created": st.sampled_from(["2030-01-01T00:00:00+00:00", "", 5, None]),
        "reservation": JSON | st.integers(0, 3),
        "steps": JSON | st.integers(-2, 12),
        "event": JSON | st.just(encode_event(STEP)),
        "run": JSON,
        "note": JSON,
    },
)


def _opened() -> str:
    terms = {"dataset": "d", "epsilon": 3.0, "delta": 1e-5, "neighbours": "add-remove", "rule": "fixed-plan"}
    unit = {"unit_name": "example", "unit_max_examples": 1}
    return json.dumps({"kind": "opened", "created": "2025-01-01T00:00:00+00:00", **terms, **unit})


@settings(max_examples=300, deadline=None)
@given(st.lists(RECORDS.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=30), max_size=6))
def test_a_record_with_the_right_hash_is_replayed_or_refused(bodies: list[str]) -> None:
    """Also for a forger who links well: what is counted is never negative, and closed entries stay closed."""
    history = History()
    with contextlib.suppress(LedgerError):
        for number, body in enumerate([_opened(), *bodies]):
            history.replay(number, body, link(history.head, number, body))
    assert history.length >= 1
    assert all(count > 0 for count in history.counted.values())
    for entry in history.entries.values():
        assert 0 <= entry.steps_charged <= entry.steps_reserved
        assert entry.steps_drawn <= entry.steps_reserved


def _spent_ledger(path: Path) -> Account:
    account = Ledger.create(path, dataset="d", budget=Budget(3.0, 1e-5)).account("d")
    reservation = account.reserve(repeated(STEP), 40, run="r", neighbours=account.neighbours, unit=account.unit)
    reservation.before_noise(0)
    account._journal.database.close()
    return account


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "ledger.db"
    _spent_ledger(path)
    return path


PLACES = st.floats(0, 1, exclude_max=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=8), PLACES | st.just(1.0))
@example([(0.15519732044835122, 128)], 0.875)
def test_a_damaged_file_is_refused_or_still_says_what_was_spent(
    intact: Path, flips: list[tuple[float, int]], kept: float
) -> None:
    """Bytes changed or cut off anywhere: the 40 steps are never forgotten, and 40 more never fit."""
    damaged = bytearray(intact.read_bytes())
    for place, value in flips:
        damaged[int(place * len(damaged))] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        path.write_bytes(damaged[: int(kept * len(damaged))])
        with contextlib.suppress(TacitError):
            account = Ledger.open(path).account("d")
            assert [entry.steps_charged for entry in account.entries()] == [40]
            account.reserve(repeated(STEP), 40, run="r", neighbours=account.neighbours, unit=account.unit)
            pytest.fail("40 more steps fitted")


VALUES = st.none() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["length", "head", "dataset", "body", "hash", "number", "schema_version"]),
    st.none()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.binary(max_size=9),
)
def test_any_value_in_any_column_is_refused_or_changes_nothing(column: str, value: Any) -> None:
    table = {"length": "accounts", "head": "accounts", "dataset": "accounts", "schema_version": "tacit_ledger"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        _spent_ledger(path)
        with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error, UnicodeError):
            connection.execute(f"UPDATE {table.get(column, 'history')} SET {column} = ?", (value,))
            connection.commit()
        with contextlib.suppress(TacitError):
            assert [entry.steps_charged for entry in Ledger.open(path).account("d").entries()] == [40]
