"""The page of a linear fit: one HTML file that needs nothing else, beside the model that may be published."""

import errno
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.reporting.linear_figures import coefficients, error_against_epsilon, predictions, split_expectation
from tacit.reporting.rendering import Headline, fill, write_whole

Values = Mapping[str, Any]


_MODEL, _PAGE = "model.json", "evaluation.html"


def prepare_linear_folder(folder: Path | str) -> Path:
    """The folder, made where it is missing and tried: before anything is spent on what would be written there."""
    path = Path(folder)
    with _named_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        for name in (_MODEL, _PAGE):
            if (path / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
        with tempfile.TemporaryFile(dir=path):
            pass
    return path


def write_linear_model(folder: Path, release: Values) -> Path:
    """Write ``model.json``, which may be published, and say where it is."""
    model = folder / _MODEL
    with _named_errors(folder):
        write_whole(model, to_json(dict(release), indent=2))
    return model


def write_linear_page(folder: Path, values: Values) -> Path:
    """Write ``evaluation.html``, which may not be published and its owner alone can read, and say where it is.

    Args:
        folder: of `prepare_linear_folder`.
        values: of `tacit.linear.evaluation`.
    """
    page = folder / _PAGE
    with _named_errors(folder):
        write_whole(page, render_linear(values), private=True)
    return page


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"out={str(folder)!r}: cannot be written ({error.strerror}). Choose another folder."
        ) from error


def render_linear(values: Values) -> str:
    """The page as text."""
    release = values["release"]
    drawings = [predictions(values), error_against_epsilon(values), coefficients(values)]
    if values["split"] is not None:
        drawings.append(split_expectation(values["split"]))
    return fill(
        "linear.html",
        {
            "target": release["target"],
            "table": values["table"],
            "guarantee": release["statement"],
            "headlines": _headlines(values),
            "drawings": drawings,
            "rows": [_cells(row) for row in values["curves"]],
            "score": "accuracy" if "test_accuracy" in values else "mean squared error",
        },
    )


def _headlines(values: Values) -> list[Headline]:
    accuracy = "test_accuracy" in values
    name = "test_accuracy" if accuracy else "test_mse"
    low, high = values[f"{name}_quartiles"]
    label = "Test accuracy" if accuracy else "Test mean squared error"
    draws = f"median of {values['repeats']} draws, quartiles {low:.4f} to {high:.4f}"
    return [
        Headline(label, f"{values[name]:.4f}", draws if values["repeats"] > 1 else "one draw of the noise"),
        Headline("Without privacy", f"{values['plain']:.4f}", "the same model"),
        Headline("Constant", f"{values['constant']:.4f}", "the commonest class" if accuracy else "the mean"),
        Headline("Epsilon", "infinite" if values["epsilon"] is None else f"{values['epsilon']:g}", _guarantee(values)),
        Headline("Method", values["method"], f"{len(values['release']['features'])} features and an intercept"),
    ]


def _guarantee(values: Values) -> str:
    if values["epsilon"] is None:
        return "a fixed seed: nothing is guaranteed"
    delta = "pure, delta 0" if values["delta"] == 0 else f"delta {values['delta']:g}"
    return f"{delta}, {values['neighbours']}"


def _cells(row: Values) -> list[str]:
    low, high = row["quartiles"]
    guarantee = "pure" if row["delta"] == 0 else f"delta {row['delta']:g}"
    return [row["method"], guarantee, f"{row['epsilon']:g}", f"{row['median']:.4f}", f"{low:.4f} to {high:.4f}"]
