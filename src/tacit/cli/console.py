"""What all commands share: results on standard output, prose and progress on standard error."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tacit.core.plain import to_json

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Delta = Annotated[float, typer.Option(help="The delta of the guarantee, well below 1 / number of examples.")]


_TRAINING = "training"


class Move(Protocol):
    """Moves a progress bar."""

    def __call__(self, model: int, step: int, steps: int, epsilon: float | None, doing: str = _TRAINING, /) -> None: ...


class Interrupted(Exception):  # noqa: N818 - named as what it is
    """Ctrl-C during a command that has something to say about it."""


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    typer.echo(to_json(values))


def print_table(title: str, headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table on standard output; numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on standard error, of rich's columns unless told; it leaves nothing there when it ends.

    Nor in a file or a pipe, where rich would leave an empty line, above what may be the one line of an error.
    """
    return Progress(*columns, console=err, transient=True, disable=not err.is_interactive)


@contextmanager
def training_bar(models: int) -> Iterator[Move]:
    """A progress bar with epsilon so far and the time left; yields the function that moves it.

    The function takes the model's number, the steps done, how many steps it takes, epsilon so far or None without a
    guarantee, and what goes on if it is not training: that leaves the bar where it is.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.fields[step]}/{task.fields[steps]}"),
        TextColumn("{task.fields[spent]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with progress_bar(*columns) as bar:
        task = bar.add_task(_TRAINING, total=models, step=0, steps="…", spent=_spent(0.0))

        def move(model: int, step: int, steps: int, epsilon: float | None, doing: str = _TRAINING) -> None:
            trains = doing == _TRAINING
            name = f"{doing} model {model + 1} of {models}" if trains and models > 1 else doing
            done = model + step / steps if trains else model
            bar.update(task, description=name, completed=done, step=step, steps=steps, spent=_spent(epsilon))

        yield move


def _spent(epsilon: float | None) -> str:
    return "without privacy" if epsilon is None else f"epsilon {epsilon:.3f}"
