"""``tacit audit``: attacks a run's model, or plain and private models of a data set side by side."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, out, print_json, print_table, progress_bar
from tacit.cli.devices import Device, find_device
from tacit.core.errors import InputError

if TYPE_CHECKING:
    import torch

    from tacit.auditing.experiment import AuditExperiment
    from tacit.auditing.references import References
    from tacit.auditing.run_folders import ReleasedRun
    from tacit.core.randomness import Randomness
    from tacit.datasets import DataSet
    from tacit.training import RunFolder

_HELP = "A folder that tacit train, tacit pate or tacit linear --out left, or a named data set."

_RATE_HEADERS = ("TPR at 1 % FPR", "at 0.1 %")


def _option(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Data sets (a run has its own)")


def _shadow_option(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Shadow models")


def audit(  # noqa: PLR0913 - one parameter for each option
    subject: Annotated[str, typer.Argument(metavar="RUN_OR_DATASET", help=_HELP)],
    confidence: Annotated[float, typer.Option(help="Of the lower bound and of all intervals.")] = 0.95,
    out_folder: Annotated[Path | None, typer.Option("--out", help="For record and page; a run's own folder.")] = None,
    epsilon: Annotated[float | None, _option("What private models claim; 3 unless told.")] = None,
    delta: Annotated[float | None, _option("Of the claim; 1e-5 unless told, less for over 10,000 examples.")] = None,
    records: Annotated[
        int | None, _option("How many examples, drawn at random; 10,000 at most, 5,000 of large inputs, unless told.")
    ] = None,
    canaries: Annotated[int | None, _option("An eighth of the examples, and 1,000 at most, unless told.")] = None,
    canary_kind: Annotated[str | None, _option("adversarial (unless told), blank or mislabelled.")] = None,
    table: Annotated[Path | None, typer.Option(help="A run's table, if it was moved since.")] = None,
    shadows: Annotated[
        int | None, _shadow_option("How many the auditor trains; 16 unless told. 0 for a run: the loss attack alone.")
    ] = None,
    model: Annotated[
        str | None, _shadow_option("Their network, for a data set that of all models; what trains fast unless told.")
    ] = None,
    steps: Annotated[int | None, _option("Of a private model; what tacit train takes unless told.")] = None,
    plain_epochs: Annotated[int | None, _option("Of a plain model; 60 unless told.")] = None,
    device: Annotated[Device, _shadow_option("Where to train.")] = Device.AUTO,
    unsafe_seed: Annotated[int | None, _shadow_option("Fixes noise and coins, to see an audit again.")] = None,
    json: Json = False,
) -> None:
    """Tries to break a model, and says what came out, to the owner of the data.

    A run: its canaries are scored under the released model, which bounds epsilon from below, and its records are
    attacked, with models that the auditor trains beside it. A data set: the whole experiment, with plain and private
    models side by side.
    """
    from tacit.auditing.experiment import AuditExperiment, AuditSettings
    from tacit.auditing.lower_bounds.bound import check_confidence
    from tacit.auditing.references import References
    from tacit.auditing.run_folders import read_released
    from tacit.core.randomness import Randomness
    from tacit.datasets import CATALOGUE
    from tacit.training import RunFolder

    path = Path(subject)
    if (path / "run.json").exists() or (path.is_dir() and subject not in CATALOGUE):
        own = {"epsilon": epsilon, "delta": delta, "canaries": canaries, "canary_kind": canary_kind}
        _refuse({**own, "records": records, "steps": steps, "plain_epochs": plain_epochs}, subject)
        run = read_released(path, table=table)
        references = References.suiting(run.records, run.network, count=shadows, network=model)
        check_confidence(confidence)
        source, where = Randomness(unsafe_seed=unsafe_seed), find_device(device)
        folder = RunFolder.create(out_folder or path, path.name, goes_on=out_folder is None)
        work = functools.partial(_attack, run, references, confidence, source, where)
    else:
        data = _data_set(subject, table)
        settings = AuditSettings.for_data(
            data,
            epsilon=epsilon,
            delta=delta,
            model=model,
            steps=steps,
            canaries=canaries,
            canary_kind=canary_kind,
            records=records,
            shadows=shadows,
            plain_epochs=plain_epochs,
            confidence=confidence,
        )
        randomness = Randomness(unsafe_seed=unsafe_seed)
        experiment = AuditExperiment.prepare(data, settings, randomness, find_device(device))
        folder = RunFolder.create(out_folder, f"audit-{subject}")  # last: no folder if anything above is wrong
        work = functools.partial(_run, experiment, subject)
    with folder.dropped_if_empty():
        record = work()
    _show(record, folder, json)


def _refuse(options: dict[str, Any], subject: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}={value!r}: {subject!r} is a run, which has its own. Leave it out.")


def _data_set(name: str, table: Path | None) -> "DataSet":
    from tacit.datasets import CATALOGUE, is_table, load

    if table is not None:
        raise InputError(f"table={str(table)!r}: is for the folder of a run, and {name!r} is none. Leave it out.")
    if is_table(name):
        raise InputError(
            f"dataset={name!r}: is a table. Train on it with tacit train --canaries M, and audit the run's folder."
        )
    if name not in CATALOGUE:
        raise InputError(
            f"dataset={name!r}: is neither a run's folder nor one of {', '.join(CATALOGUE)}. Give one of them."
        )
    return load(name)


def _attack(
    run: "ReleasedRun", references: "References", confidence: float, randomness: "Randomness", device: "torch.device"
) -> dict[str, Any]:
    from tacit.auditing.released import audit_released

    with progress_bar() as bar:
        task = bar.add_task("shadow models", total=1.0, visible=references.count > 0)
        found = audit_released(
            run,
            references,
            confidence=confidence,
            randomness=randomness,
            device=device,
            progress=lambda share: bar.update(task, completed=share),
        )
    about = {"subject": run.name, "dataset": run.dataset, "model": run.network, "run": str(run.folder)}
    return {
        **found.to_dict(),
        **about,
        **_origin(device.type),
        "statement": run.sentence,
        "shadows": references.count,
        "shadow_model": references.network if references.count else None,
        "findings": [found.drawn()],
    }


def _run(experiment: "AuditExperiment", name: str) -> dict[str, Any]:
    from tacit.auditing.experiment import STAGES

    settings = experiment.settings
    with progress_bar() as bar:
        tasks = {doing: bar.add_task(doing, total=1.0) for doing in STAGES}
        bar.update(tasks[STAGES[0]], description=f"{STAGES[0]}, epsilon {settings.epsilon:g} each")
        result = experiment.run(lambda doing, share: bar.update(tasks[doing], completed=share))
    about = {"subject": name, "dataset": name, "model": settings.training.model, "run": None}
    return {
        **result.to_dict(),
        "shadows": settings.shadows,
        "shadow_model": settings.training.model,
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
    _print_models(record)
    _print_attacks(record)
    if record["refuted"]:
        out.print("[bold red]The claim is refuted.[/bold red]", end=" ")
        out.print(f"A true claim is accused in at most {100 - 100 * record['confidence']:.3g} of 100 audits.")
    if record["canaries"] is None:
        out.print("No canaries were planted, so that epsilon was not bounded; tacit train --canaries M plants them.")
    if record["attacks"] or "epsilon_lower" in record["private"]:
        out.print("This is for the owner of the data: it was computed from records that no budget paid for.")
    else:
        out.print("Records were not at hand, and none was attacked. ", end="")
        out.print("The bound may be published: it was computed from the released model and from nobody's record.")
    out.print(f"report  {page}", markup=False)


def _print_models(record: dict[str, Any]) -> None:
    rows = [(finding["name"], *_cells(finding)) for finding in record["findings"]]
    if "white_box" in record:
        bound = record["white_box"]
        shown = f">= {bound['epsilon']:.3g}", f"{bound['largest']:.3g}"
        rows.append(("plan, white box", f"{record['epsilon_claimed']:.4g}", *shown, "", "", ""))
    headers = ("model", "claimed epsilon", "audited epsilon", "could have shown", "AUC", *_RATE_HEADERS)
    print_table(f"Audit of {record['subject']}, {100 * record['confidence']:g} % confidence", headers, rows)


def _print_attacks(record: dict[str, Any]) -> None:
    """Of one model all attacks on records, of which the first stands in the other table too."""
    if len(record["findings"]) > 1 or len(record["attacks"]) < 2:
        return
    first = record["attacks"][0]
    print_table(
        f"Attacks on {first['members']:,} members and {first['non_members']:,} non-members",
        ("attack", "AUC", *_RATE_HEADERS),
        [
            (each["name"], f"{each['auc']['value']:.3f}", *map(_rate, each["tpr_at_fpr"][:2]))
            for each in record["attacks"]
        ],
    )


def _cells(finding: dict[str, Any]) -> list[str]:
    claimed, tested = finding["epsilon_claimed"], finding["canaries"] is not None
    rates = finding["attacks"][0]["tpr_at_fpr"][:2] if finding["attacks"] else []
    return [
        "none" if claimed is None else f"{claimed:.4g}",
        f">= {finding['epsilon_lower']:.3g}" if tested else "not tested",
        f"{finding['epsilon_largest']:.3g}" if tested else "",
        "" if finding["auc"] is None else f"{finding['auc']:.3f}",
        *(map(_rate, rates) if rates else ("", "")),
    ]


def _rate(point: dict[str, Any]) -> str:
    return f"{100 * point['tpr']['value']:.3g} %" if point["enough_non_members"] else "too few"
