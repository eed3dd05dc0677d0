"""``tacit data``: named data sets and where they come from."""

from typing import Annotated

import typer

from tacit.cli.console import Json, out, print_json, print_table

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_sets(json: Json = False) -> None:
    """The data sets that tacit knows by name."""
    from tacit.datasets import CATALOGUE

    if json:
        sets = [{"name": info.name, "sha256": info.sha256, "homepage": info.homepage} for info in CATALOGUE.values()]
        print_json({"sets": sets})
        return
    rows = ((info.name, info.homepage) for info in CATALOGUE.values())
    print_table("data sets", ("name", "comes from"), rows)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name of tacit data list.")],
    download: Annotated[bool, typer.Option(help="Whether to download what is not on this machine.")] = True,
    json: Json = False,
) -> None:
    """Finds or downloads a data set, and checks every file's SHA-256."""
    from tacit.datasets import describe, locate_or_fetch

    path = locate_or_fetch(name, download=download)
    info = describe(name)
    if json:
        print_json({"name": info.name, "path": str(path), "sha256": info.sha256})
        return
    out.print(f"{info.name}  {path}\nsha256  {info.sha256}", markup=False)
