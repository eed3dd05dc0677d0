"""``tacit bench``: tacit beside plain training and its peers, in one run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from tacit.cli.console import Json, out, print_json, print_table, progress_bar

app = typer.Typer(no_args_is_help=True)

_Names = Annotated[str | None, typer.Option(help="Separated by commas; those that suit the device unless told.")]
_Page = Annotated[Path | None, typer.Option(help="Also draw a page, an HTML file that needs nothing else.")]
_Out = Annotated[Path | None, typer.Option("--out", help="Also write the result as JSON.")]


@app.command()
def step(  # noqa: PLR0913 - one parameter for each option
    models: _Names = None,
    engines: _Names = None,
    precision: Annotated[str | None, typer.Option(help="float32, tf32 or bfloat16; several by commas.")] = None,
    device: Annotated[str, typer.Option(help="cpu (small models), cuda or auto.")] = "auto",
    rounds: Annotated[int | None, typer.Option(help="How often every contender has its turn.")] = None,
    batch: Annotated[int | None, typer.Option(help="The batch size, in the place of each model's own.")] = None,
    seconds: Annotated[float | None, typer.Option(help="After this, rounds are dropped; 30 on a CPU.")] = None,
    memory_limit: Annotated[int | None, typer.Option(help="MiB of the GPU to fit the largest batch into.")] = None,
    growth: Annotated[bool, typer.Option("--growth", help="Also fit how time grows with each size.")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="On a CPU, also measure memory, in processes apart.")
    ] = False,
    out_file: _Out = None,
    page: _Page = None,
    json: Json = False,
) -> None:
    """The time and memory of one training step, plain and private, interleaved."""
    from tacit.benchmarking import StepSettings, benchmark_step
    from tacit.benchmarking.results import check_writable
    from tacit.benchmarking.step import names

    settings = StepSettings(
        models=names("models", models),
        engines=names("engines", engines),
        precisions=names("precision", precision),
        device=device,
        rounds=rounds,
        batch=batch,
        seconds=seconds,
        memory_limit=memory_limit,
        growth=growth,
        memory=memory,
    )
    check_writable("out", out_file)
    check_writable("page", page)
    with _bar() as progress:
        result = benchmark_step(settings, progress)
    _finish(result, out_file, page, json, _show_steps)


@app.command()
def accounting(
    rounds: Annotated[int, typer.Option(help="How often every contender has its turn.")] = 3,
    out_file: _Out = None,
    json: Json = False,
) -> None:
    """The time to calibrate DP-SGD's noise, by tacit and by its peers, interleaved."""
    from tacit.benchmarking import benchmark_accounting
    from tacit.benchmarking.results import check_writable

    check_writable("out", out_file)
    with _bar() as progress:
        result = benchmark_accounting(rounds, progress)
    _finish(result, out_file, None, json, _show_accounting)


@app.command()
def pate(
    dataset: Annotated[str, typer.Option(help="A named data set; see tacit data list.")] = "mnist",
    teachers: Annotated[int, typer.Option(help="How many teachers share the training examples.")] = 250,
    kinds: Annotated[str | None, typer.Option(help="linear or network; both unless told.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    rounds: Annotated[int, typer.Option(help="How often every contender has its turn.")] = 3,
    sample: Annotated[int, typer.Option(help="How many to train one after the other; all are inferred.")] = 10,
    out_file: _Out = None,
    json: Json = False,
) -> None:
    """The time to train PATE's teachers, together and one after the other, interleaved."""
    from tacit.benchmarking import PateSettings, benchmark_pate
    from tacit.benchmarking.results import check_writable
    from tacit.benchmarking.step import names

    settings = PateSettings(dataset, teachers, names("kinds", kinds), device, rounds, sample)
    check_writable("out", out_file)
    with _bar() as progress:
        result = benchmark_pate(settings, progress)
    _finish(result, out_file, None, json, _show_pate)


@app.command("page")
def draw_page(
    results: Annotated[list[Path], typer.Argument(help="Files that tacit bench step --out wrote, on one machine.")],
    page: Annotated[Path | None, typer.Option("--out", help="The page; beside the first unless told.")] = None,
    json: Json = False,
) -> None:
    """Draws the page of results that were measured before, perhaps on another machine."""
    from tacit.benchmarking import merged, read_result
    from tacit.reporting.benchmark_page import write_benchmark_page

    whole = merged([read_result(result) for result in results])
    written = write_benchmark_page(whole, page or results[0].with_suffix(".html"))
    if json:
        print_json({"page": str(written)})
        return
    out.print(str(written), markup=False)


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def _finish(
    result: dict[str, Any],
    out_file: Path | None,
    page: Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
) -> None:
    from tacit.benchmarking import write_result

    if page is not None:
        from tacit.reporting.benchmark_page import write_benchmark_page

        result = {**result, "page": str(write_benchmark_page(result, page))}
    if out_file is not None:
        write_result(result, out_file)
    if as_json:
        print_json(result)
    else:
        show(result)


def _show_steps(result: dict[str, Any]) -> None:
    headers = ("model", "engine", "precision", "batch", "ms", "to plain", "to fastest plain", "MiB", "status")
    rows = [
        (
            *(row["model"], row["engine"], row["precision"], str(row["batch"])),
            *(_number(row[key]) for key in ("ms", "ratio", "ratio_fastest", "peak_mib")),
            row["status"] if row["reason"] is None else f"{row['status']}: {row['reason']}",
        )
        for row in result["rows"]
    ]
    print_table(f"One training step on {_machine(result)}", headers, rows)


def _show_accounting(result: dict[str, Any]) -> None:
    headers = ("contender", "epsilon", "noise", "epsilon by tacit pld", "seconds", "times tacit pld")
    keys = ("epsilon", "noise_multiplier", "epsilon_by_pld", "seconds", "ratio")
    rows = [(row["contender"], *(_number(row[key]) for key in keys)) for row in result["rows"]]
    print_table(f"Calibration on {_machine(result)}", headers, rows)


def _show_pate(result: dict[str, Any]) -> None:
    headers = ("teachers", "contender", "seconds", "times together", "measured", "agreement")
    rows = [
        (
            *(f"{row['teachers']} {row['model']}", row["contender"], _number(row["seconds"]), _number(row["ratio"])),
            f"{row['measured_teachers']} teachers, {row['measured_steps']} of {row['steps']} steps",
            _number(row["agreement"]),
        )
        for row in result["rows"]
    ]
    print_table(f"Teachers on {_machine(result)}", headers, rows)


def _machine(result: dict[str, Any]) -> str:
    hardware = result["hardware"]
    return f"{hardware.get('gpu') or hardware['processor']}, {result['date']}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
