"""``tacit audit``: attacks a run's model, or plain and private models of a data set side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, err, out, print_json, print_table
from tacit.cli.devices import Device, find_device
from tacit.core.errors import InputError

if TYPE_CHECKING:
    from tacit.auditing.experiment import AuditExperiment
    from tacit.datasets import DataSet
    from tacit.training import RunFolder

_HELP = "A folder that tacit train --canaries left, or a named data set."


def _option(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Data sets (a run has its own)")


def audit(  # noqa: PLR0913 - one parameter for each option
    subject: Annotated[str, typer.Argument(metavar="RUN_OR_DATASET", help=_HELP)],
    confidence: Annotated[float, typer.Option(help="Of the lower bound and of all intervals.")] = 0.95,
    out_folder: Annotated[Path | None, typer.Option("--out", help="For record and page; a run's own folder.")] = None,
    epsilon: Annotated[float | None, _option("What private models claim; 3 unless told.")] = None,
    delta: Annotated[float | None, _option("Of the claim; 1e-5 unless told, less for over 10,000 examples.")] = None,
    canaries: Annotated[int | None, _option("An eighth of the examples, and 1,000 at most, unless told.")] = None,
    canary_kind: Annotated[str | None, _option("adversarial (unless told), blank or mislabelled.")] = None,
    shadows: Annotated[int | None, _option("Shadow models of each target; 16 unless told.")] = None,
    model: Annotated[str | None, _option("The network; what tacit train takes unless told.")] = None,
    steps: Annotated[int | None, _option("Of a private model; what tacit train takes unless told.")] = None,
    plain_epochs: Annotated[int | None, _option("Of a plain model; 60 unless told.")] = None,
    device: Annotated[Device | None, _option("Where to train; a GPU where there is one.")] = None,
    unsafe_seed: Annotated[int | None, _option("Fixes noise and coins, to see an experiment again.")] = None,
    json: Json = False,
) -> None:
    """Tries to break a model, and says what came out, to the owner of the data.

    A run: its canaries are scored under the released model, which bounds epsilon from below, and its records are
    attacked. A data set: the whole experiment, with plain and private models side by side.
    """
    from tacit.auditing.experiment import AuditExperiment, AuditSettings
    from tacit.core.randomness import Randomness
    from tacit.datasets import CATALOGUE
    from tacit.training import RunFolder

    path = Path(subject)
    if (path / "run.json").exists() or (path.is_dir() and subject not in CATALOGUE):
        own = {"epsilon": epsilon, "delta": delta, "canaries": canaries, "canary_kind": canary_kind, "model": model}
        own |= {"shadows": shadows, "steps": steps, "plain_epochs": plain_epochs, "device": device}
        _refuse({**own, "unsafe_seed": unsafe_seed}, subject)
        look = _prepared(path, confidence)
        folder = RunFolder.create(out_folder or path, path.name, goes_on=out_folder is None)
        record = look()
    else:
        data = _data_set(subject)
        settings = AuditSettings.for_data(
            data,
            epsilon=epsilon,
            delta=delta,
            model=model,
            steps=steps,
            canaries=canaries,
            canary_kind=canary_kind,
            shadows=shadows,
            plain_epochs=plain_epochs,
            confidence=confidence,
        )
        randomness = Randomness(unsafe_seed=unsafe_seed)
        experiment = AuditExperiment.prepare(data, settings, randomness, find_device(device or Device.AUTO))
        folder = RunFolder.create(out_folder, f"audit-{subject}")  # last: no folder if anything above is wrong
        record = _run(experiment, subject)
    _show(record, folder, json)


def _refuse(options: dict[str, Any], subject: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}={value!r}: {subject!r} is a run, which has its own. Leave it out.")


def _data_set(name: str) -> "DataSet":
    from tacit.datasets import CATALOGUE, is_table, load

    if is_table(name):
        raise InputError(
            f"dataset={name!r}: is a table. Train on it with tacit train --canaries M, and audit the run's folder."
        )
    if name not in CATALOGUE:
        raise InputError(
            f"dataset={name!r}: is neither a run's folder nor one of {', '.join(CATALOGUE)}. Give one of them."
        )
    return load(name)


def _prepared(path: Path, confidence: float) -> Callable[[], dict[str, Any]]:
    """The audit of a run, to be called once its folder can be written; all that it needs was read and checked."""
    from tacit.auditing.canaries import read_planting
    from tacit.auditing.findings import Claim
    from tacit.auditing.lower_bounds.bound import check_confidence
    from tacit.auditing.released import audit_released, records_at_hand, released_model
    from tacit.reporting.record import read_run

    check_confidence(confidence)
    planting = read_planting(path)  # first: folders of other commands have a run.json too
    run = read_run(path)
    model = released_model(path / "model.safetensors", run.model, planting.shape)
    claim = Claim.of_statement(run.guarantee.epsilon, run.guarantee.delta)
    data = records_at_hand(run.dataset, planting)
    about = {"subject": run.name, "dataset": run.dataset, "model": run.model, "run": str(path)}

    def look() -> dict[str, Any]:
        found = audit_released(model, planting, claim, data, confidence=confidence)
        values = {**found.to_dict(), **about, **_origin("cpu"), "statement": run.guarantee.sentence}
        return {**values, "findings": [found.drawn()]}

    return look


def _run(experiment: "AuditExperiment", name: str) -> dict[str, Any]:
    from rich.progress import Progress

    from tacit.auditing.experiment import STAGES

    settings = experiment.settings
    with Progress(console=err, transient=True) as bar:
        tasks = {doing: bar.add_task(doing, total=1.0) for doing in STAGES}
        bar.update(tasks[STAGES[0]], description=f"{STAGES[0]}, epsilon {settings.epsilon:g} each")
        result = experiment.run(lambda doing, share: bar.update(tasks[doing], completed=share))
    about = {"subject": name, "dataset": name, "model": settings.training.model, "run": None}
    return {
        **result.to_dict(),
        **about,
        **_origin(experiment.pool.inputs.device.type),
        "statement": str(experiment.plan.statement()),
        "findings": [result.private.drawn(), result.plain.drawn()],
    }


def _origin(device: str) -> dict[str, Any]:
    import torch

    from tacit.training.run_folder import command_line, hardware, now, versions

    return {
        "created": now(),
        "command": command_line(),
        "versions": versions(),
        "hardware": hardware(torch.device(device)),
    }


def _show(record: dict[str, Any], folder: "RunFolder", as_json: bool) -> None:
    from tacit.core.plain import to_json
    from tacit.reporting.audit_page import render_audit

    values = {name: value for name, value in record.items() if name != "findings"}
    page = folder.write_private("private-audit.html", render_audit(record).encode())
    folder.write_private("private-audit.json", to_json(values, indent=2).encode())
    if as_json:
        print_json({**values, "page": str(page)})
        return
    rows = [(finding["name"], *_cells(finding)) for finding in record["findings"]]
    if "white_box" in record:
        bound = record["white_box"]
        shown = f">= {bound['epsilon']:.3g}", f"{bound['largest']:.3g}"
        rows.append(("plan, white box", f"{record['epsilon_claimed']:.4g}", *shown, "", "", ""))
    headers = ("model", "claimed epsilon", "audited epsilon", "could have shown", "AUC", "TPR at 1 % FPR", "at 0.1 %")
    print_table(f"Audit of {record['subject']}, {100 * record['confidence']:g} % confidence", headers, rows)
    if record["refuted"]:
        out.print("[bold red]The claim is refuted.[/bold red]")
    if record["attacks"] or "epsilon_lower" in record["private"]:
        out.print("This is for the owner of the data: it was computed from records that no budget paid for.")
    else:
        out.print("The bound may be published: it was computed from the released model and from nobody's record.")
    out.print(f"report  {page}", markup=False)


def _cells(finding: dict[str, Any]) -> list[str]:
    claimed, rates = finding["epsilon_claimed"], finding["tpr_at_fpr"] or {}
    shares = [f"{100 * rates[rate]:.3g} %" if rates else "" for rate in ("0.01", "0.001")]
    area = "" if finding["auc"] is None else f"{finding['auc']:.3f}"
    return [
        "none" if claimed is None else f"{claimed:.4g}",
        f">= {finding['epsilon_lower']:.3g}",
        f"{finding['epsilon_largest']:.3g}",
        area,
        *shares,
    ]
