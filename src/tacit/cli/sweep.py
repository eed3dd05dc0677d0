"""``tacit sweep``: accuracy against whatever may be changed."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import Json, err, out, print_json, print_table, training_bar
from tacit.cli.devices import Device
from tacit.cli.recipe import HeldOut, Seeds, Settings, Where, conditions_for


def sweep(
    dataset: Annotated[str, typer.Argument(help="A named data set (see tacit data list), or a recipe.")],
    over: Annotated[list[str], typer.Option(help="KEY=V1,V2,…: a knob and its values; several times for a grid.")],
    settings: Settings = None,
    seeds: Seeds = 1,
    held_out: HeldOut = False,
    device: Where = Device.AUTO,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the result and its figure go.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Trains for every value of one or more knobs: epsilon, clip, batch_size, learning_rate, noise_multiplier, …"""
    from tacit.recipes import find_subject, read_axes, run_sweep, split_settings, write_result
    from tacit.reporting.results_figures import sweep as draw

    axes, changes = read_axes(over), split_settings("--set", settings or [])
    subject = find_subject(dataset)
    conditions = conditions_for(seeds, held_out, device)
    with training_bar(seeds * math.prod(len(axis.values) for axis in axes)) as move:
        result = run_sweep(subject, axes, changes, conditions, move)
    words = [*(f"{key}={value}" for key, value in changes.items()), "sweep", *(axis.key for axis in axes)]
    written = write_result(result, out_folder, words)
    figure = written.with_suffix(".svg")
    figure.write_text(draw(written.stem, result), encoding="utf-8")
    result = {**result, "figures": [str(figure)], "file": str(written)}
    if json:
        print_json(result)
        return
    _show(result)


def _show(result: dict[str, Any]) -> None:
    keys = [axis["key"] for axis in result["over"]]
    headers = [*keys, *(key for key in result["rows"][0] if key not in keys)]
    rows = [[_cell(row[header]) for header in headers] for row in result["rows"]]
    print_table(f"{result['name']}, measured on the {result['measured_on']}", headers, rows)
    out.print("\n".join([*result["figures"], result["file"]]), markup=False)
    err.print(
        f"Releasing all of these models has epsilon {result['epsilon_together']:.4g}. To choose among them, sweep with "
        "--held-out and measure the one that was chosen on the test set.",
        markup=False,
    )


def _cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
