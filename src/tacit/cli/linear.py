"""``tacit linear``: regression or classification of a table by a linear model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, out, print_json, progress_bar

if TYPE_CHECKING:
    from tacit.datasets.tables.origin import TableOrigin
    from tacit.linear.experiment import LinearResult
    from tacit.linear.guarantee import Guarantee

_CURVE_REPEATS = 5


def linear(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file.")],
    target: Annotated[str, typer.Option(help="The column to predict: a number, a boolean or a category.")],
    schema: Annotated[Path, typer.Option(help="A TOML file with the public bounds and categories.")],
    method: Annotated[str, typer.Option(help="auto, functional, adassp, sufficient or newton.")] = "auto",
    epsilon: Annotated[float, typer.Option(help="The budget.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option(help="0 for a pure guarantee, which only functional has; 1e-6 for others.")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Of the rows, for testing; the schema's by default.")] = (
        None
    ),
    repeats: Annotated[int, typer.Option(help="Scores are the median over this many draws of the noise.")] = 1,
    split: Annotated[
        float | None, typer.Option(help="functional, sufficient: the second moments' share of the budget.")
    ] = None,
    neighbours: Annotated[str, typer.Option(help="add-remove, replace-one or zero-out.")] = "add-remove",
    examples: Annotated[
        int | None, typer.Option(help="About how many rows, if that is public; known but for add-remove.")
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Rows for testing by numpy's shuffle, to compare with a study that did so.")
    ] = None,
    ledger: Annotated[str | None, typer.Option(help="The ledger that the budget comes from.")] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A folder for model.json and a page with curves.")
    ] = None,
    unsafe_seed: Annotated[int | None, typer.Option(help="Fixes the noise: voids the guarantee.")] = None,
    json: Json = False,
) -> None:
    """Fits a private linear model to a table. The coefficients may be published; scores are for the data's holder."""
    from tacit.core.privacy import Neighbours, PrivacyUnit
    from tacit.core.validation import check_choice, check_open_unit
    from tacit.datasets.tables import Table
    from tacit.datasets.tables.origin import TableOrigin
    from tacit.ledger import Ledger
    from tacit.linear.choosing import default_delta
    from tacit.linear.experiment import run_linear
    from tacit.linear.guarantee import Guarantee, Terms
    from tacit.linear.tables import Task
    from tacit.reporting.linear_page import prepare_linear_folder

    relation = Neighbours(check_choice("--neighbours", neighbours, [each.value for each in Neighbours]))
    table = Table.open(file, schema)
    account = None if ledger is None else Ledger.open(ledger).account(table.name)
    unit = PrivacyUnit() if account is None else account.unit
    guarantee = Guarantee(epsilon, default_delta(method) if delta is None else delta, relation, unit)
    task = Task.of(
        table,
        target,
        None if features is None else features.split(","),
        test_fraction=check_open_unit(
            "test_fraction", table.schema.test_fraction if test_fraction is None else test_fraction
        ),
        split_seed=split_seed,
    )
    origin = None
    if out_folder is not None and split_seed is None:  # of a shuffle tacit audit knows nothing
        origin = TableOrigin.of(file, target, schema, features=task.features, test_fraction=task.test_fraction)
    folder = None if out_folder is None else prepare_linear_folder(out_folder)
    with progress_bar() as bar:
        fits = bar.add_task(f"fits, epsilon {epsilon:g}", total=repeats)
        result = run_linear(
            task,
            guarantee,
            method=method,
            split=split,
            examples=examples,
            repeats=repeats,
            terms=Terms(account, run=f"linear {table.name} {target}"),
            unsafe_seed=unsafe_seed,
            progress=lambda done: bar.update(fits, completed=done),
        )
    _show(result, {} if folder is None else _written(folder, result, guarantee, examples, origin), json)


def _written(
    folder: Path, result: "LinearResult", guarantee: "Guarantee", examples: int | None, origin: "TableOrigin | None"
) -> dict[str, str]:
    """The model at once, since it was paid for; then the page with its curves, under a progress bar."""
    from tacit.datasets.tables.origin import TableOrigin
    from tacit.linear.evaluation import evaluation
    from tacit.reporting.linear_page import write_linear_model, write_linear_page
    from tacit.training.run_folder import RunFolder

    (folder / TableOrigin.FILE_NAME).unlink(missing_ok=True)  # of an earlier fit
    model = write_linear_model(folder, result.release())
    if origin is not None:
        RunFolder(folder).write_private(origin.FILE_NAME, origin.to_bytes())
    with progress_bar() as bar:
        task = bar.add_task("curves", total=None)
        values = evaluation(
            result,
            guarantee,
            curve_repeats=_CURVE_REPEATS,
            examples=examples,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    return {"page": str(write_linear_page(folder, values)), "model": str(model)}


def _show(result: "LinearResult", where: dict[str, str], as_json: bool) -> None:
    values: dict[str, Any] = result.to_dict()
    if as_json:
        print_json({**values, **where})
        return
    accuracy = bool(result.task.classes)
    score = values["test_accuracy" if accuracy else "test_mse"]
    name = "accuracy" if accuracy else "mean squared error"
    spread = f", median of {values['repeats']} draws of the noise" if values["repeats"] > 1 else ""
    out.print(f"[bold]test {name} {score:.4f}[/bold] by {values['method']}{spread}")
    out.print(f"without privacy {values['plain']:.4f}, constant {values['constant']:.4f}", markup=False)
    out.print("These three figures were not paid for: keep them with the data.", markup=False)
    out.print(values["statement"], markup=False)
    for label, path in where.items():
        out.print(f"{label:8s}{path}", markup=False)
