"""``tacit recipe``: published results again."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Interrupted, Json, err, out, print_json, training_bar
from tacit.cli.devices import Device, find_device

if TYPE_CHECKING:
    from tacit.recipes import Conditions

app = typer.Typer(no_args_is_help=True)
_INDENT = " " * 4
_DEFAULT_RESULTS = Path("results")
_LISTED = ("measured", "std", "epsilon", "delta", "seeds", "measured_on", "knobs", "earlier", "file")

Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, such as epsilon=2; several times.")]
Seeds = Annotated[int, typer.Option(help="How many independent models, for a mean and a spread.")]
Jobs = Annotated[int, typer.Option(help="How many models train at a time, each in a process of its own.")]
HeldOut = Annotated[
    bool,
    typer.Option("--held-out", help="Measure on 5,000 held-out training examples: whatever is chosen is chosen so."),
]
Where = Annotated[Device, typer.Option(help="Where to train.")]
Out = Annotated[Path | None, typer.Option("--out", help="A folder for the result file, such as results.")]


@app.command("list")
def list_recipes(
    results: Annotated[
        Path | None, typer.Option(help="A folder of result files to show; results, where there is one, unless told.")
    ] = None,
    json: Json = False,
) -> None:
    """The recipes, what they are measured against and what was measured, and what --set may change."""
    import dataclasses

    from tacit.recipes import RECIPES, results_by_recipe

    found = results_by_recipe(_DEFAULT_RESULTS if results is None else results, required=results is not None)
    if json:
        recipes = [
            {
                **{"name": recipe.name, "title": recipe.title, "method": recipe.method, "source": recipe.source},
                "dataset": recipe.dataset,
                "published": [dataclasses.asdict(figure) for figure in recipe.published],
                "measured": [{key: result.get(key) for key in _LISTED} for result in found.get(recipe.name, [])],
                "knobs": dataclasses.asdict(recipe.knobs),
            }
            for recipe in RECIPES.values()
        ]
        print_json({"recipes": recipes})
        return
    for recipe in RECIPES.values():
        published = ", ".join(_figure(figure.accuracy, figure.epsilon) for figure in recipe.published)
        out.print(f"[bold]{recipe.name}[/]  {recipe.title}" + (f" (published: {published})" if published else ""))
        measured = ", ".join(map(_measured_figure, found.get(recipe.name, [])))
        knobs = ", ".join(dataclasses.asdict(recipe.knobs))
        for text in ([f"measured: {measured}"] if measured else []) + [f"--set {knobs}"]:
            out.print(textwrap.fill(text, out.width, initial_indent=_INDENT, subsequent_indent=_INDENT), style="dim")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="A name of tacit recipe list.")],
    settings: Settings = None,
    seeds: Seeds = 1,
    held_out: HeldOut = False,
    jobs: Jobs = 1,
    device: Where = Device.AUTO,
    out_folder: Out = None,
    json: Json = False,
) -> None:
    """Trains a recipe's models and compares with the published figure.

    Ctrl-C leaves the result of the seeds that had ended, in a file whose name says how many they are.
    """
    from tacit.recipes import SeedsInterrupted, find_recipe, folder_for_result, run_recipe, split_settings, write_result

    recipe, changes = find_recipe(name), split_settings("--set", settings or [])
    recipe.check(changes)
    conditions = conditions_for(seeds, held_out, device, jobs)
    stopped: SeedsInterrupted | None = None
    with folder_for_result(out_folder):
        with training_bar(seeds) as move:
            try:
                result = run_recipe(recipe, changes, conditions, move)
            except SeedsInterrupted as interruption:
                stopped, result = interruption, interruption.found
        if out_folder is not None:
            words = [*recipe.words_for(changes), *(["held-out"] if held_out else [])]
            err.print(str(write_result(result, out_folder, words)), markup=False)
    if json:
        print_json(result)
    else:
        _show(result)
    if stopped is not None:
        raise Interrupted(f"{stopped}; the result is of these")


@app.command()
def page(
    results: Annotated[Path, typer.Argument(help="The folder of result files.")] = Path("results"),
    json: Json = False,
) -> None:
    """Writes README.md and its figures from the result files of a folder."""
    from tacit.recipes import published_figures, read_results
    from tacit.reporting.results_page import write_results_page

    measured, sweeps = read_results(results)
    written, figures = write_results_page(results, measured, sweeps, published_figures())
    if json:
        print_json({"page": str(written), "figures": [str(figure) for figure in figures]})
        return
    out.print(str(written), markup=False)


def conditions_for(seeds: int, held_out: bool, device: Device, jobs: int) -> "Conditions":
    """What the options of a run ask for, on a device that is there."""
    from tacit.recipes import Conditions

    return Conditions(seeds=seeds, held_out=held_out, device=find_device(device), jobs=jobs)


def _figure(accuracy: float, epsilon: float | None, word: str = "") -> str:
    return f"{100 * accuracy:.3g} % " + ("without privacy" if epsilon is None else f"at {word}{epsilon:.3g}")


def _measured_figure(result: dict[str, Any]) -> str:
    earlier = " (with earlier settings)" if result["earlier"] else ""
    return f"{_figure(result['measured'], result['epsilon'])}{earlier}"


def _show(result: dict[str, Any]) -> None:
    spread = "" if result["std"] is None else f" ± {100 * result['std']:.2f}"
    out.print(
        f"[bold]{result['name']}: {100 * result['measured']:.2f} %[/bold]{spread} {result.get('metric', 'right')} "
        f"on the {result['measured_on']}, "
        f"{result['seeds']} seed(s), {result['seconds_a_seed']:.0f} s each"
    )
    if result["published"] is not None:
        counted = "" if result["published_epsilon"] is None else f" ({result['published_accountant']})"
        out.print(f"published: {_figure(result['published'], result['published_epsilon'], 'epsilon ')}{counted}")
    if result.get("beside"):
        beside = ", ".join(f"{name} {100 * value:.2f} %" for name, value in result["beside"].items())
        out.print(f"beside it: {beside}", markup=False)
    counted = ", ".join(f"{name} {value:.4g}" for name, value in result["epsilon_by_accountant"].items())
    if counted:
        out.print(f"epsilon at delta {result['delta']:g}: {counted}", markup=False)
    if result["epsilons"]:
        said = ", ".join(f"{name} {value:.6g}" for name, value in result["epsilons"].items())
        out.print(f"other epsilons: {said}", markup=False)
    out.print(result["statement"], markup=False)
