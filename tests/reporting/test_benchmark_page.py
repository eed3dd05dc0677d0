"""The page of a benchmark: what the rows say, escaped, and nothing that needs another file."""

import re

import pytest

from tacit.core.errors import InputError
from tacit.reporting.benchmark_page import render_benchmark, write_benchmark_page


def row(engine, ms, **changes):
    return {
        "model": "mlp",
        "engine": engine,
        "kind": "plain" if engine.startswith("plain") else "private",
        "precision": "tf32",
        "batch": 4096,
        "ms": ms,
        "ratio": None if ms is None else ms / 2,
        "ratio_fastest": ms,
        "peak_mib": None if ms is None else 100 * ms,
        "spread_ms": None if ms is None else [ms, ms],
        "status": "ok" if ms is not None else "refused",
        "reason": None if ms is not None else "cannot <b>run</b>",
        **changes,
    }


@pytest.fixture
def result():
    growth = {
        "model": "mlp",
        "precision": "tf32",
        "axis": "width",
        "sizes": [500, 1000, 2000],
        "ms": [1.0, 2.0, None],
        "exponent": 1.0,
    }
    return {
        "rows": [row("plain", 2.0), row("plain-graph", 1.0), row("tacit", 1.25), row("opacus-hooks", None)],
        "growth": [{**growth, "engine": "tacit"}, {**growth, "engine": "plain", "ms": [None] * 3, "exponent": None}],
        "memory_limit_mib": 16384,
        "largest_batch": [
            {"model": "mlp", "precision": "tf32", "engine": "tacit", "batch": 12345, "ratio": 0.9, "reason": None},
            {"model": "mlp", "precision": "tf32", "engine": "ghost", "batch": None, "ratio": None, "reason": "fails"},
        ],
        "hardware": {"device": "cuda", "gpu": "NVIDIA H200", "processor": "a processor"},
        "versions": {"torch": "2.13.0"},
        "command": "tacit bench step <script>",
        "date": "2026-01-02T03:04:05+00:00",
    }


def test_the_page_holds_rows_figures_and_provenance(result):
    page = render_benchmark(result)
    for part in (
        *("NVIDIA H200", "torch 2.13.0", "2026-01-02 03:04 UTC", "1.25×", "mlp, tf32: time", "mlp, tf32: memory"),
        *("growth with width", "tacit 1.00", "16,384 MiB", "12,345", "opacus-hooks"),
    ):
        assert part in page
    assert page.count("<svg") == 3


def test_what_others_wrote_is_escaped(result):
    page = render_benchmark(result)
    assert "<b>run" not in page
    assert "<script>" not in page


def test_the_page_needs_nothing_else(result):
    page = render_benchmark(result)
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "@import" not in page


def test_identifiers_of_figures_do_not_meet(result):
    identifiers = re.findall(r'\bid="([^"]+)"', render_benchmark(result))
    assert len(identifiers) == len(set(identifiers))


def test_a_result_in_which_nothing_ran_still_has_a_page(result):
    page = render_benchmark({"rows": [row("tacit", None)]})
    assert "<svg" not in page
    assert "refused" in page


def test_rows_of_another_kind_are_refused():
    with pytest.raises(InputError, match="tacit bench step"):
        render_benchmark({"rows": [{"contender": "tacit pld"}]})


def test_a_page_that_cannot_be_written_is_an_error_of_one_line(result, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_benchmark_page(result, tmp_path / "no" / "such" / "page.html")
