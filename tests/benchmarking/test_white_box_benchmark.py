"""The benchmark of white-box audits, in small."""

import json
import sys
from unittest import mock

import pytest

from tacit.benchmarking import white_box_audit


def _run(*arguments):
    with mock.patch.object(sys, "argv", ["white_box_audit", *arguments]):
        return white_box_audit.main()


@pytest.fixture
def only_gaussian(monkeypatch):
    monkeypatch.setattr(white_box_audit, "_SCHEDULES", {"gaussian": (1.0, 1)})


@pytest.mark.usefixtures("only_gaussian")
def test_rows_hold_shares_and_counts(tmp_path, capsys):
    out = tmp_path / "audit" / "white-box.json"
    assert _run("--repetitions", "2", "--canaries", "20000", "--out", str(out)) == 0
    result = json.loads(out.read_text())
    assert [row["epsilon_claimed"] for row in result["rows"]] == pytest.approx([1, 2, 4, 8], rel=1e-3)
    for row in result["rows"]:
        assert 0.5 < row["ratio_lowest"] <= row["ratio"] <= row["ratio_highest"] < 1.3
        assert 0 <= row["ratio_for_any_mechanism"] < 2
        assert 0.7 < row["ratio_limit_for_any_mechanism"] < 1
        assert row["above_allowed"] == 2
    assert result["settings"]["canaries"] == 20_000
    assert result["above"] == sum(row["above"] for row in result["rows"])
    assert "gaussian, epsilon 8: one run shows" in capsys.readouterr().err


@pytest.mark.usefixtures("only_gaussian")
def test_more_above_than_allowed_is_a_failure(monkeypatch):
    monkeypatch.setattr(white_box_audit, "plan_of", lambda mechanism, epsilon: _Understated(mechanism, epsilon))
    assert _run("--repetitions", "3", "--canaries", "20000") == 1


class _Understated:
    """A plan whose epsilon is claimed to be half of what it is."""

    def __init__(self, mechanism, epsilon):
        self._plan = _PLAN_OF(mechanism, epsilon)

    def __getattr__(self, name):
        return getattr(self._plan, name)

    def epsilon(self):
        return self._plan.epsilon() / 2


_PLAN_OF = white_box_audit.plan_of


def test_no_repetitions_are_refused(capsys):
    assert _run("--repetitions", "0") == 2
    assert "repetitions=0" in capsys.readouterr().err
