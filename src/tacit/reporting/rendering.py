"""What all pages share: how templates are filled, values are shown, and files are written."""

import dataclasses
import datetime
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

_SIGNIFICANT_DIGITS = 4


@dataclasses.dataclass(frozen=True)
class Headline:
    """One figure in large type, with what it is and what it is of."""

    label: str
    value: str
    detail: str = ""


def fill(template: str, values: Mapping[str, Any]) -> str:
    """A page from its template; every value is escaped, and a missing one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tacit.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)


def display(value: Any) -> str:
    """A value as a reader expects it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return f"{int(value):,}"
        return f"{value:.{_SIGNIFICANT_DIGITS}g}".replace("e-0", "e-")
    if isinstance(value, Mapping):
        # What kind of thing it is speaks for itself: "flat, bound 0.1".
        named = ((key, display(item)) for key, item in value.items())
        return ", ".join(item if key == "kind" else f"{key} {item}" for key, item in named)
    if isinstance(value, list | tuple):
        return ", ".join(display(item) for item in value)
    return str(value)


def moment(created: str) -> str:
    """A time as written by a run (ISO 8601), to the minute in UTC; anything else as it stands."""
    try:
        moment = datetime.datetime.fromisoformat(created)
    except ValueError:
        return created
    if moment.tzinfo is None:
        return created
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"


def duration(seconds: float) -> str:
    """A time as a reader expects it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def write_whole(path: Path, text: str, *, private: bool = False) -> None:
    """Write beside the file and move over it, so that no reader sees half a page.

    What is ``private`` its owner alone can read, as `tempfile` makes it.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
