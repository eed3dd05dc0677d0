"""``tacit pate``: teachers, votes and a student."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.console import Json, err, out, print_json, progress_bar
from tacit.cli.devices import Device, find_device

if TYPE_CHECKING:
    from tacit.core.privacy import PrivacyUnit
    from tacit.pate.experiment import PateResult
    from tacit.pate.plan import Pate
    from tacit.training.run_folder import RunFolder


def pate(  # noqa: PLR0913 - one parameter for each option
    dataset: Annotated[str, typer.Argument(help="A named data set; see tacit data list.")] = "digits",
    teachers: Annotated[int, typer.Option(help="How many teachers share the training examples.")] = 250,
    queries: Annotated[int, typer.Option(help="How many public inputs are asked for.")] = 100,
    aggregator: Annotated[
        str, typer.Option(help="lnmax, gnmax, confident-gnmax, interactive-gnmax or private-knn.")
    ] = "lnmax",
    teacher: Annotated[
        str, typer.Option(help="linear, logistic, forest or bayes (on features), or network (on inputs).")
    ] = "linear",
    gamma: Annotated[
        float | None, typer.Option(help="lnmax: Laplace noise of scale 1 / gamma; 12.5 / teachers unless told.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="All others: noise on each count; 0.16 teachers unless told.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="How many must agree for an answer: 0.8 teachers; private-knn: no test unless told."),
    ] = None,
    sigma_threshold: Annotated[
        float | None, typer.Option(help="Noise of that test; of teachers: 0.6 of their number unless told.")
    ] = None,
    check_threshold: Annotated[
        float | None,
        typer.Option(help="interactive-gnmax: how many more than the student expects; 0.4 teachers unless told."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="interactive-gnmax: of a student that teachers confirm; 0.9 unless told.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="private-knn: noise for this epsilon; 0.5 unless told.")] = None,
    sampling_rate: Annotated[float, typer.Option(help="private-knn: of records, for each test and answer.")] = 0.05,
    voters: Annotated[int | None, typer.Option(help="private-knn: how many of the nearest vote.")] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="ensemble, running-targets, self-training, fixmatch, gan or supervised; what suits unless told."
        ),
    ] = None,
    choose: Annotated[
        str, typer.Option(help="Which public inputs are asked for: representative, random or least-confident.")
    ] = "representative",
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Of questions and lessons; 2 for private-knn on images and interactive-gnmax, else 1 unless told."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The student's network; see tacit train.")] = None,
    teacher_model: Annotated[str | None, typer.Option(help="Of network teachers; see tacit train.")] = None,
    keep_teachers: Annotated[
        Path | None, typer.Option(help="A private folder for trained network teachers: a crash costs only the others.")
    ] = None,
    owners: Annotated[
        Path | None,
        typer.Option(help="A file with the owner of each training record, one a line: protects users, not records."),
    ] = None,
    public: Annotated[str, typer.Option(help="Which part of the test split is public: first or last.")] = "first",
    delta: Annotated[float, typer.Option(help="Of the guarantee.")] = 1e-5,
    publish_epsilon: Annotated[
        bool, typer.Option(help="gnmax, confident-gnmax: also an epsilon for these votes that may be published.")
    ] = False,
    ledger: Annotated[str | None, typer.Option(help="The ledger that the budget comes from.")] = None,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.AUTO,
    seed: Annotated[int, typer.Option(help="Of everything that is public.")] = 0,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run; a new one in runs/ unless told.")
    ] = None,
    json: Json = False,
) -> None:
    """Teachers on disjoint parts vote on public inputs, noise hides each of them, and a student learns the answers."""
    from tacit.core.randomness import Randomness
    from tacit.datasets import load
    from tacit.ledger import Ledger
    from tacit.pate.experiment import STAGES, run_pate
    from tacit.pate.partition import read_owners
    from tacit.pate.paying import terms_for
    from tacit.pate.settings import Choices, pate_settings
    from tacit.training.run_folder import RunFolder

    choices = Choices(
        teachers=teachers,
        queries=queries,
        aggregator=aggregator,
        student=student,
        teacher=teacher,
        gamma=gamma,
        sigma=sigma,
        threshold=threshold,
        sigma_threshold=sigma_threshold,
        check_threshold=check_threshold,
        confidence=confidence,
        epsilon=epsilon,
        sampling_rate=sampling_rate,
        voters=voters,
        choose=choose,
        rounds=rounds,
        model=model,
        teacher_model=teacher_model,
        keep_teachers=keep_teachers,
        owners=None if owners is None else read_owners(owners),
        public=public,
        delta=delta,
        publish_epsilon=publish_epsilon,
        seed=seed,
    )
    data = load(dataset).to(find_device(device))
    plan = pate_settings(data, choices)
    account = None if ledger is None else Ledger.open(ledger).account(dataset)
    terms = terms_for(plan, account, run=f"pate {dataset}")
    folder = RunFolder.create(out_folder, f"pate-{dataset}")
    with folder.dropped_if_empty(), progress_bar() as bar:
        tasks = {doing: bar.add_task(doing, total=1.0) for doing in STAGES}
        result = run_pate(
            data,
            plan,
            Randomness(),
            terms=terms,
            progress=lambda doing, share: bar.update(tasks[doing], completed=share),
        )
    pages = _write(folder, result, plan, dataset, terms.unit)
    if json:
        print_json({**result.to_dict(), "run": str(folder.path), **pages})
    else:
        _print(result)
        out.print(f"run     {folder.path}")
        out.print(f"report  {pages['page']}; for the owner of the data alone: {pages['private_page']}")


def _write(
    folder: "RunFolder", result: "PateResult", plan: "Pate", dataset: str, unit: "PrivacyUnit"
) -> dict[str, str]:
    """Leaves the student, its record and two pages: one to publish, one for the owner of the data."""
    from tacit.pate.record import private_record, public_record
    from tacit.reporting.pate_page import render_pate, write_pate_page
    from tacit.training.run_folder import command_line, hardware, now, versions

    device = next(result.model.parameters()).device
    about = {"created": now(), "command": command_line(), "versions": versions(), "hardware": hardware(device)}
    record = {**public_record(result, plan, dataset=dataset, unit=unit), **about}
    folder.write_run(record)
    folder.save_model(result.model)
    owners = {**record, "private": private_record(result, plan)}
    return {
        "page": str(write_pate_page(record, folder.path / "report.html", public=True)),
        "private_page": str(folder.write_private("private.html", render_pate(owners).encode())),
    }


def _print(result: "PateResult") -> None:
    answers = result.answers
    out.print(f"{len(answers.rows)} of {len(answers.asked)} questions answered, right {result.aggregator_accuracy:.4f}")
    if answers.out_of_budget:
        out.print("the budget ended the questions; the student learned from what was answered")
    if result.poll.unsafe_excluded:
        names = ", ".join(map(str, result.poll.unsafe_excluded))
        err.print(f"teachers that could not be trained, and count for the first class (private): {names}")
    out.print(f"student accuracy {result.student_accuracy:.4f}, {result.seconds:.1f} s")
    guarantee = f"delta {result.delta:g}, {result.neighbours.value}"
    out.print(f"epsilon {result.epsilon_data_independent:.3f} whatever the votes ({guarantee})")
    if result.epsilon_released is not None:
        released = result.epsilon_released
        out.print(
            f"epsilon {released.epsilon:.3f} for these votes, with noise: may be published "
            f"(too small with a chance of {released.failure:g})"
        )
    if result.epsilon is not None:
        out.print(f"epsilon {result.epsilon.unsafe_value:.3f} for these votes: private, not to be published")
