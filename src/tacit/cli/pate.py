"""``tacit pate``: teachers, votes and a student."""

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.console import Json, err, out, print_json
from tacit.cli.devices import Device, find_device

if TYPE_CHECKING:
    import torch

    from tacit.datasets import DataSet
    from tacit.pate.aggregation import Aggregator

_AGGREGATORS = ("lnmax", "gnmax", "confident-gnmax")
_STUDENTS = ("fixmatch", "supervised")


def pate(  # noqa: PLR0913 - one parameter for each option
    dataset: Annotated[str, typer.Argument(help="A named data set; see tacit data list.")] = "digits",
    teachers: Annotated[int, typer.Option(help="How many teachers share the training examples.")] = 250,
    queries: Annotated[int, typer.Option(help="How many public inputs are asked for.")] = 100,
    aggregator: Annotated[str, typer.Option(help="lnmax, gnmax or confident-gnmax.")] = "lnmax",
    gamma: Annotated[
        float | None, typer.Option(help="lnmax: Laplace noise of scale 1 / gamma; 12.5 / teachers unless told.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="gnmax, confident-gnmax: noise on each count; 0.16 teachers unless told.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="confident-gnmax: how many must agree; 0.8 teachers unless told.")
    ] = None,
    sigma_threshold: Annotated[
        float | None, typer.Option(help="confident-gnmax: noise of that test; 0.6 teachers unless told.")
    ] = None,
    student: Annotated[str, typer.Option(help="fixmatch (also from inputs without an answer) or supervised.")] = (
        "fixmatch"
    ),
    model: Annotated[str | None, typer.Option(help="The network of teachers and student; see tacit train.")] = None,
    delta: Annotated[float, typer.Option(help="Of the guarantee.")] = 1e-5,
    ledger: Annotated[str | None, typer.Option(help="The ledger that the budget comes from.")] = None,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.AUTO,
    seed: Annotated[int, typer.Option(help="Of everything that is public.")] = 0,
    json: Json = False,
) -> None:
    """Teachers on disjoint parts vote on public inputs, noise hides each of them, and a student learns the answers."""
    from rich.progress import Progress

    from tacit.core.privacy import Neighbours
    from tacit.core.randomness import Randomness
    from tacit.core.validation import check_choice
    from tacit.datasets import load
    from tacit.ledger import Ledger
    from tacit.models import build, default_model
    from tacit.pate.answering import Terms
    from tacit.pate.experiment import Pate, run_pate
    from tacit.pate.students import FixMatch, Supervised

    check_choice("--student", student, _STUDENTS)
    chosen = _aggregator(aggregator, teachers, gamma, sigma, threshold, sigma_threshold)
    data = _on(load(dataset), find_device(device))
    account = None if ledger is None else Ledger.open(ledger).account(dataset)
    name = model or ("mlp" if min(data.input_shape[1:], default=0) < 24 else default_model(data.input_shape))
    where = data.train.inputs.device

    plan = Pate(
        teachers=teachers,
        queries=queries,
        aggregator=chosen,
        student=FixMatch() if student == "fixmatch" else Supervised(),
        build_teacher=lambda: build(name, data.input_shape, data.classes),
        build_student=lambda: build(name, data.input_shape, data.classes).to(where),
        delta=delta,
        seed=seed,
    )
    with Progress(console=err, transient=True) as bar:
        tasks = {doing: bar.add_task(doing, total=1.0) for doing in ("teachers", "student")}
        result = run_pate(
            data,
            plan,
            Randomness(),
            terms=Terms(account, Neighbours.REPLACE_ONE, run=f"pate {dataset}"),
            progress=lambda doing, share: bar.update(tasks[doing], completed=share),
        )
    if json:
        print_json(result.to_dict())
        return
    answered = f"{len(result.answers.rows)} of {len(result.answers.asked)} questions answered"
    out.print(f"{answered}, {100 * result.aggregator_accuracy:.1f} % of them right", markup=False)
    out.print(f"student: {100 * result.student_accuracy:.2f} % on examples that nobody saw", markup=False)
    out.print(
        f"epsilon {result.epsilon.unsafe_value:.3f} at delta {delta:g} for these votes, which is private itself; "
        f"{result.epsilon_data_independent:.3f} whatever the votes",
        markup=False,
    )


def _aggregator(
    name: str,
    teachers: int,
    gamma: float | None,
    sigma: float | None,
    threshold: float | None,
    sigma_threshold: float | None,
) -> "Aggregator":
    """The aggregator; what is not given is what was published for 250 teachers, for as many as there are."""
    from tacit.core.validation import check_choice, check_count
    from tacit.pate import ConfidentGNMax, GNMax, LNMax

    check_choice("--aggregator", name, _AGGREGATORS)
    check_count("--teachers", teachers)
    sigma = 0.16 * teachers if sigma is None else sigma
    if name == "lnmax":
        return LNMax(12.5 / teachers if gamma is None else gamma)
    if name == "gnmax":
        return GNMax(sigma)
    return ConfidentGNMax(
        0.8 * teachers if threshold is None else threshold,
        0.6 * teachers if sigma_threshold is None else sigma_threshold,
        sigma,
    )


def _on(data: "DataSet", device: "torch.device") -> "DataSet":
    """The data on the device."""
    import dataclasses

    from tacit.datasets import Split

    train, test = (Split(split.inputs.to(device), split.targets.to(device)) for split in (data.train, data.test))
    return dataclasses.replace(data, train=train, test=test)
