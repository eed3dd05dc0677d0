"""The page of a benchmark: one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.reporting.benchmark_figures import growth_lines, memory_bars, time_bars
from tacit.reporting.rendering import Headline, display, fill, moment, write_whole

Row = Mapping[str, Any]
_OURS = "tacit"


def write_benchmark_page(result: Mapping[str, Any], path: Path | str) -> Path:
    """Write the page of a result of ``tacit bench step``, and say where it is.

    Raises:
        InputError: the rows are not those of a step benchmark, or the file cannot be written.
    """
    page = Path(path)
    html = render_benchmark(result)
    try:
        write_whole(page, html)
    except OSError as error:
        raise InputError(f"page={str(page)!r}: cannot be written ({error.strerror}). Choose another file.") from error
    return page


def render_benchmark(result: Mapping[str, Any]) -> str:
    """The page of a result as text."""
    rows: Sequence[Row] = result["rows"]
    if not all({"model", "engine", "precision", "ms"} <= row.keys() for row in rows):
        raise InputError("result: its rows are not those of a step. Give a file of tacit bench step.")
    groups = list(_grouped(rows, "model", "precision").values())
    growth = _grouped(result.get("growth", ()), "model", "precision", "axis").values()
    drawings = [
        *(drawing for group in groups for drawing in (time_bars(group), memory_bars(group)) if drawing is not None),
        *(drawing for group in growth if (drawing := growth_lines(group)) is not None),
    ]
    hardware = result.get("hardware", {})
    return fill(
        "benchmark.html",
        {
            "machine": hardware.get("gpu") or hardware.get("processor") or "an unnamed machine",
            "headlines": _headlines(groups),
            "drawings": drawings,
            "rows": [_cells(row) for row in rows],
            "batches": [_batch_cells(row) for row in result.get("largest_batch", ())],
            "limit": display(result.get("memory_limit_mib", "")),
            "provenance": [
                ("Measured", moment(str(result.get("date", "")))),
                ("Command", str(result.get("command", ""))),
                ("Hardware", display(hardware)),
                ("Versions", display(result.get("versions", {}))),
            ],
        },
    )


def _grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _headlines(groups: Sequence[Sequence[Row]]) -> list[Headline]:
    """What privacy costs on each model: tacit's step over the fastest plain one."""
    found = []
    for group in groups:
        ours = next((row for row in group if row["engine"] == _OURS and row["ratio_fastest"] is not None), None)
        if ours is not None:
            label = f"{ours['model']}, {ours['precision']}"
            eager = "–" if ours["ratio"] is None else f"{ours['ratio']:.2f}×"
            detail = f"of the fastest plain step; {eager} plain eager"
            found.append(Headline(label, f"{ours['ratio_fastest']:.2f}×", detail))
    return found


def _cells(row: Row) -> list[str]:
    spread = "–" if not row.get("spread_ms") else " to ".join(_shown(value) for value in row["spread_ms"])
    status = row["status"] if not row.get("reason") else f"{row['status']}: {row['reason']}"
    numbers = (_shown(row[key]) for key in ("ratio", "ratio_fastest", "peak_mib"))
    return [
        row["model"],
        row["precision"],
        row["engine"],
        f"{row['batch']:,}",
        _shown(row["ms"]),
        spread,
        *numbers,
        status,
    ]


def _batch_cells(row: Row) -> list[str]:
    batch = "–" if row["batch"] is None else f"{row['batch']:,}"
    return [row["model"], row["precision"], row["engine"], batch, _shown(row["ratio"]), row.get("reason") or ""]


def _shown(value: float | None) -> str:
    return "–" if value is None else display(float(value))
