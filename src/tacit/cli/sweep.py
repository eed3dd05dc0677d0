"""``tacit sweep``: accuracy against whatever may be changed."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, err, out, print_json, print_table, training_bar
from tacit.cli.devices import Device
from tacit.cli.recipe import HeldOut, Jobs, Seeds, Settings, Where, conditions_for
from tacit.core.errors import InputError

if TYPE_CHECKING:
    from tacit.recipes import Axis, Conditions, Recipe, Selection


def _private(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Private selection")


def sweep(  # noqa: PLR0913 - one parameter for each option
    dataset: Annotated[str, typer.Argument(help="A named data set (see tacit data list), or a recipe.")],
    over: Annotated[list[str], typer.Option(help="KEY=V1,V2,…: a knob and its values; several times for a grid.")],
    settings: Settings = None,
    seeds: Seeds = 1,
    held_out: HeldOut = False,
    smaller_lots: Annotated[
        int,
        typer.Option(
            help="Lots and noise so many times smaller, to choose by with --held-out: about as many times cheaper."
        ),
    ] = 1,
    jobs: Jobs = 1,
    device: Where = Device.AUTO,
    ledger: Annotated[str | None, typer.Option(help="The ledger that pays; every model spends.")] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where the result and its figure go, or the private winner's folder.")
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Returns one winner alone, at the cost of --epsilon and --delta for the whole choice.",
            rich_help_panel="Private selection",
        ),
    ] = False,
    epsilon: Annotated[float | None, _private("What the selection as a whole may cost; 3 unless told.")] = None,
    delta: Annotated[float | None, _private("Its delta; 1e-5 unless told.")] = None,
    trials: Annotated[float | None, _private("How many trials on average; 10 unless told.")] = None,
    stopping: Annotated[
        str | None, _private("logarithmic (unless told: the least noise) or geometric (numbers that vary less).")
    ] = None,
    json: Json = False,
) -> None:
    """Trains for every value of one or more knobs: epsilon, clip, batch_size, learning_rate, noise_multiplier, …

    With --private it trains a random number of them and returns the best one alone, which is far cheaper than to
    release them all.
    """
    from tacit.ledger import Ledger
    from tacit.recipes import Selection, find_subject, read_axes, split_settings

    axes, changes = read_axes(over), split_settings("--set", settings or [])
    chosen = Selection.read(private, epsilon=epsilon, delta=delta, mean_trials=trials, stopping=stopping)
    subject = find_subject(dataset)
    account = None if ledger is None else Ledger.open(ledger).account(subject.dataset)
    conditions = dataclasses.replace(conditions_for(seeds, held_out, device, jobs), account=account)
    if chosen is None:
        _sweep(subject, axes, changes, conditions, smaller_lots, out_folder or Path("runs"), json)
    else:
        if smaller_lots != 1:
            raise InputError(f"smaller_lots={smaller_lots}: is not for --private. Leave one of them out.")
        _select(subject, axes, changes, chosen, conditions, out_folder, json)


def _sweep(
    subject: "Recipe",
    axes: "Sequence[Axis]",
    changes: dict[str, str],
    conditions: "Conditions",
    smaller_lots: int,
    out_folder: Path,
    json: bool,
) -> None:
    from tacit.recipes import folder_for_result, run_sweep, write_result
    from tacit.reporting.rendering import write_whole
    from tacit.reporting.results_figures import sweep as draw

    ways = [f"smaller-lots={smaller_lots}"] if smaller_lots > 1 else []
    ways += ["held-out"] if conditions.held_out else []
    words = [*subject.words_for(changes), *ways, "sweep", *(axis.key for axis in axes)]
    models = conditions.seeds * math.prod(len(axis.values) for axis in axes)
    with folder_for_result(out_folder):
        with training_bar(models) as move:
            result = run_sweep(subject, axes, changes, conditions, move, smaller_lots=smaller_lots)
        written = write_result(result, out_folder, words)
        figure = written.with_suffix(".svg")
        write_whole(figure, draw(written.stem, result))
    result = {**result, "figures": [str(figure)], "file": str(written)}
    if json:
        print_json(result)
        return
    _show(result)


def _select(
    subject: "Recipe",
    axes: "Sequence[Axis]",
    changes: dict[str, str],
    selection: "Selection",
    conditions: "Conditions",
    out_folder: Path | None,
    json: bool,
) -> None:
    from tacit.recipes import run_private_sweep
    from tacit.reporting import write_report
    from tacit.training import RunFolder

    folder = RunFolder.create(out_folder, f"{subject.name}-private-sweep")
    with training_bar(1) as move:
        move(0, 0, 1, selection.budget.epsilon, "selecting")  # how far it is would tell how many trials there are
        result = run_private_sweep(subject, axes, changes, selection, conditions, folder)
    result = {**result, "report": str(write_report(folder.path))}
    if json:
        print_json(result)
        return
    chosen = ", ".join(f"{axis.key}={result['winner'][axis.key]}" for axis in axes)
    out.print(f"[bold]chosen {chosen}[/bold], test accuracy {result['test_accuracy']:.4f}")
    out.print(result["statement"], markup=False)
    out.print(f"run     {result['run']}\nreport  {result['report']}", markup=False)


def _show(result: dict[str, Any]) -> None:
    keys = [axis["key"] for axis in result["over"]]
    headers = [*keys, *(key for key in result["rows"][0] if key not in keys)]
    rows = [[_cell(row[header]) for header in headers] for row in result["rows"]]
    print_table(f"{result['name']}, measured on the {result['measured_on']}", headers, rows)
    out.print("\n".join([*result["figures"], result["file"]]), markup=False)
    err.print(
        f"Releasing all of these models has epsilon {result['epsilon_together']:.4g}. To choose one, sweep "
        "with --private, which pays for the choice; or, where nothing is private, with --held-out.",
        markup=False,
    )


def _cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
