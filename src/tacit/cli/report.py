"""``tacit report``: a self-contained page for a run."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, out, print_json


def report(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    json: Json = False,
) -> None:
    """Writes report.html from a run's record, with figures, and says where it is."""
    from tacit.reporting import write_report

    page = write_report(run)
    if json:
        print_json({"page": str(page)})
        return
    out.print(str(page), markup=False)
