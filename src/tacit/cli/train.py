"""``tacit train``: one private model, from a named data set or a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Interrupted, Json, err, out, print_json, training_bar
from tacit.cli.devices import Device, find_device
from tacit.core.errors import InputError
from tacit.core.validation import check_count

if TYPE_CHECKING:
    from tacit.auditing.canaries import Planting
    from tacit.datasets import DataSet
    from tacit.ledger import Account
    from tacit.plan import DPSGD
    from tacit.training import Checkpoint, Experiment, Settings


def _option(text: str, panel: str) -> Any:
    return typer.Option(help=text, rich_help_panel=panel)


def _training(text: str) -> Any:
    return _option(text, "Training (the defaults suit the data set)")


def _privacy(text: str) -> Any:
    return _option(text, "Privacy")


def _table(text: str) -> Any:
    return _option(text, "Tables")


def _auditing(text: str) -> Any:
    return _option(text, "Auditing (read by tacit audit RUN)")


def _running(text: str) -> Any:
    return _option(text, "Running")


def train(  # noqa: PLR0913 - one parameter for each option
    dataset: Annotated[str, typer.Argument(help="A named data set (see tacit data list) or a CSV or Parquet file.")] = (
        "digits"
    ),
    epsilon: Annotated[float | None, _privacy("The budget; 3 unless told. The noise is found for it.")] = None,
    delta: Annotated[float | None, _privacy("1e-5 unless told, less where there are over 10,000 examples.")] = None,
    noise_multiplier: Annotated[float | None, _privacy("Or the noise, to find epsilon.")] = None,
    sampler: Annotated[
        str | None, _privacy("poisson, truncated-poisson, fixed-size or shuffled; each is accounted as what it is.")
    ] = None,
    ledger: Annotated[str | None, _privacy("The ledger that the budget comes from.")] = None,
    model: Annotated[str | None, _training("linear, mlp, table-mlp, tanh-cnn or wrn-16-4.")] = None,
    steps: Annotated[int | None, _training("How many steps; or")] = None,
    epochs: Annotated[float | None, _training("how many passes over the data.")] = None,
    batch_size: Annotated[int | None, _training("The expected number of examples in a step.")] = None,
    clip: Annotated[float | None, _training("The norm that one example's gradient is clipped to.")] = None,
    clipping: Annotated[
        str | None,
        _training("flat, per-layer, automatic, tanh (a filter, then --clip) or tanh-alone (with all that it moves)."),
    ] = None,
    tanh_range: Annotated[float | None, _training("c of the filter c tanh(g / k).")] = None,
    tanh_expansion: Annotated[float | None, _training("Its k.")] = None,
    optimizer: Annotated[str | None, _training("sgd, momentum, adam or rmsprop.")] = None,
    learning_rate: Annotated[float | None, _training("Of the optimizer.")] = None,
    schedule: Annotated[str | None, _training("constant, linear or cosine.")] = None,
    average: Annotated[float | None, _training("Decay of the average of the weights.")] = None,
    target: Annotated[str | None, _table("The column to predict.")] = None,
    schema: Annotated[Path | None, _table("A TOML file with the public bounds and categories.")] = None,
    features: Annotated[str | None, _table("Only these columns, separated by commas.")] = None,
    engine: Annotated[str, _running("auto, bookkeeping, functional or reference.")] = "auto",
    chunk_size: Annotated[int | None, _running("How many examples are worked on at once.")] = None,
    device: Annotated[Device, _running("Where to train.")] = Device.AUTO,
    seeds: Annotated[int, _running("Trains this many independent models; each of them spends.")] = 1,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run's folder.", rich_help_panel="Running")
    ] = None,
    checkpoint: Annotated[
        Path | None, _running("A folder to save the run in while it trains; it holds a secret key until the end.")
    ] = None,
    checkpoint_every: Annotated[int | None, _running("Steps between two saves; about 64 a run unless told.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Goes on with the run in --checkpoint.", rich_help_panel="Running")
    ] = False,
    redraw: Annotated[
        bool,
        typer.Option(
            "--redraw",
            help="With --resume: steps that cannot be replayed are drawn again and counted again in the ledger.",
            rich_help_panel="Running",
        ),
    ] = False,
    canaries: Annotated[
        int | None, _auditing("Gives the places of this many examples to canaries, each there by a fair coin.")
    ] = None,
    canary_kind: Annotated[
        str | None, _auditing("adversarial (unless told), blank or mislabelled, which are people's own inputs.")
    ] = None,
    unsafe_no_noise: Annotated[
        bool,
        typer.Option(
            "--unsafe-no-noise",
            help="Allows --noise-multiplier 0: no privacy at all.",
            rich_help_panel="Running",
            show_default=False,
        ),
    ] = False,
    fast_randomness: Annotated[
        bool,
        typer.Option(
            "--fast-randomness",
            help="Noise from Philox, which is not cryptographic; the statement says so. Faster on GPUs alone.",
            rich_help_panel="Running",
            show_default=False,
        ),
    ] = False,
    unsafe_seed: Annotated[int | None, _running("Fixes noise and sampling: voids the guarantee.")] = None,
    json: Json = False,
) -> None:
    """Trains a private model and leaves a run folder with model, record and report."""
    from tacit.training import Execution, Experiment, RunFolder, default_settings

    data = _load(dataset, target, schema, features)
    settings = default_settings(data, model).changed(
        **{"model": model, "steps": steps, "epochs": epochs, "batch_size": batch_size, "sampler": sampler},
        **{"clip": clip, "clipping": clipping, "average": average},
        **{"tanh_range": tanh_range, "tanh_expansion": tanh_expansion},
        **{"optimizer": optimizer, "learning_rate": learning_rate, "schedule": schedule},
    )
    plan = _plan(settings, len(data.train), epsilon, delta, noise_multiplier, unsafe_no_noise)
    planting = _planting(data, plan, canaries, canary_kind, unsafe_seed, out_folder, goes_on=resume)
    experiment = Experiment(
        dataset=data if planting is None else planting.plant(data),
        settings=settings,
        plan=plan,
        seeds=check_count("seeds", seeds),
        account=_account(ledger, data.name),
        execution=Execution(engine=engine, chunk_size=chunk_size),
        device=find_device(device),
        unsafe_seed=unsafe_seed,
        fast_randomness=fast_randomness,
        checkpoint=_checkpoint(checkpoint, checkpoint_every, resume, redraw, planting),
        canaries=None if planting is None else planting.facts(),
        private_files={
            **({} if planting is None else {planting.FILE_NAME: planting.to_bytes()}),
            **_origin(dataset, target, schema, features),
        },
        folder=RunFolder.create(out_folder, data.name, goes_on=resume),  # last: no folder if anything above is wrong
    )
    record, page = _run(experiment)
    _show(record, page, json)


def _run(experiment: "Experiment") -> tuple[dict[str, Any], Path]:
    """Runs it under a progress bar and writes the report, also where it stops early."""
    from tacit.reporting import write_report
    from tacit.training import TrainingInterrupted

    folder = experiment.folder.path
    try:
        with training_bar(experiment.seeds) as move:
            record = experiment.run(lambda model, step, spent: move(model, step, experiment.plan.steps, spent))
    except TrainingInterrupted as stopped:
        write_report(folder)
        raise Interrupted(f"{stopped}; what was spent is counted, and {folder} holds the rest") from None
    return record, write_report(folder)


def _plan(
    settings: "Settings",
    examples: int,
    epsilon: float | None,
    delta: float | None,
    noise_multiplier: float | None,
    unsafe_no_noise: bool,
) -> "DPSGD":
    from tacit.plan import DEFAULT_EPSILON, DPSGD, default_delta

    return DPSGD(
        expected_batch_size=settings.batch_size,
        examples=examples,
        steps=settings.steps_for(examples),
        clipping=settings.clipping_rule(),
        delta=default_delta(examples) if delta is None else delta,
        epsilon=DEFAULT_EPSILON if epsilon is None and noise_multiplier is None else epsilon,
        noise_multiplier=noise_multiplier,
        sampler=settings.sampler,
        unsafe_no_noise=unsafe_no_noise,
    )


def _planting(
    data: "DataSet",
    plan: "DPSGD",
    canaries: int | None,
    kind: str | None,
    unsafe_seed: int | None,
    folder: Path | None,
    goes_on: bool,
) -> "Planting | None":
    """The canaries of a new run, or those of the run in the folder that goes on."""
    from tacit.auditing.canaries import DEFAULT_KIND, plant, planting_of
    from tacit.core.randomness import Randomness

    if goes_on:
        return planting_of(folder, canaries, kind)
    if canaries is None:
        if kind is not None:
            raise InputError(f"canary_kind={kind!r}: needs --canaries, the number of them. Give both, or none.")
        return None
    randomness = Randomness(unsafe_seed=unsafe_seed)
    return plant(data, canaries, kind or DEFAULT_KIND, randomness, neighbours=plan.neighbours)[1]


def _checkpoint(
    folder: Path | None, every: int | None, resume: bool, redraw: bool, planting: "Planting | None"
) -> "Checkpoint | None":
    from tacit.training import Checkpoint

    if folder is not None:
        canaries = "none" if planting is None else planting.mark()
        return Checkpoint(folder, every=every, resume=resume, redraw=redraw, canaries=canaries)
    for name, given in (("resume", resume), ("redraw", redraw), ("checkpoint-every", every is not None)):
        if given:
            raise InputError(f"{name}: needs --checkpoint, the folder that the run is saved in. Name it.")
    return None


def _account(ledger: str | None, dataset: str) -> "Account | None":
    if ledger is None:
        return None
    from tacit.ledger import Ledger

    return Ledger.open(ledger).account(dataset)


def _load(dataset: str, target: str | None, schema: Path | None, features: str | None) -> "DataSet":
    from tacit.datasets import is_table, load, load_table

    if not is_table(dataset):
        for name, value in (("target", target), ("schema", schema), ("features", features)):
            if value is not None:
                raise InputError(f"{name}={str(value)!r}: is for tables, and {dataset!r} is a named set. Leave it out.")
        return load(dataset)
    if target is None or schema is None:
        raise InputError(
            f"dataset={dataset!r}: a table needs --target, the column to predict, and --schema, a TOML file with the "
            "public bounds and categories of its columns. tacit schema draft makes one to fill in."
        )
    return load_table(dataset, target, schema, features=None if features is None else features.split(","))


def _origin(dataset: str, target: str | None, schema: Path | None, features: str | None) -> dict[str, bytes]:
    """For the owner of a table: where its rows are, for an audit."""
    from tacit.datasets.tables.origin import TableOrigin

    if target is None or schema is None:
        return {}
    chosen = None if features is None else features.split(",")
    return {TableOrigin.FILE_NAME: TableOrigin.of(dataset, target, schema, features=chosen).to_bytes()}


def _show(record: dict[str, Any], page: Path, as_json: bool) -> None:
    metrics, statement, plan = record["metrics"], record["statement"], record["plan"]
    accuracy = "test_accuracy" in metrics
    if as_json:
        print_json(
            {
                "test_accuracy": metrics.get("test_accuracy"),
                "test_accuracy_std": metrics.get("test_accuracy_std"),
                **({} if accuracy else {"test_mse": metrics["test_mse"], "test_mse_std": metrics["test_mse_std"]}),
                "epsilon": statement["epsilon"],
                "delta": statement["delta"],
                "noise_multiplier": plan["noise_multiplier"],
                "steps": record["steps_done"],
                "seconds": metrics["seconds"],
                "seeds": len(record["seeds"]),
                "private": record["private"],
                "model": record["model"],
                "run": str(page.parent),
                "report": str(page),
                "statement": statement["sentence"],
            }
        )
        return
    name = "test accuracy" if accuracy else "test mean squared error"
    key = "test_accuracy" if accuracy else "test_mse"
    spread = f" ± {metrics[key + '_std']:.4f} over {len(record['seeds'])} models" if len(record["seeds"]) > 1 else ""
    out.print(
        f"[bold]{name} {metrics[key]:.4f}[/bold]{spread}, {record['steps_done']} steps in {metrics['seconds']:.1f} s"
    )
    out.print(statement["sentence"], markup=False)
    err.print(f"gradients by {plan['engine']}", markup=False)
    out.print(f"run     {page.parent}\nreport  {page}", markup=False)
