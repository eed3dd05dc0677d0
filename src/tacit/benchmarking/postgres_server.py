"""A PostgreSQL server for a while: from the installed package, in a temporary folder, on a socket there."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tacit.core.errors import UnsupportedError

_DEBIAN = Path("/usr/lib/postgresql")
_SECONDS = 60


def find_programs() -> Path | None:
    """The folder with initdb and pg_ctl: on the search path, or the newest of Debian's; None where there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = [folder for folder in _DEBIAN.glob("*/bin") if (folder / "initdb").is_file()]
    return max(versions, key=lambda folder: float(folder.parent.name), default=None)


@contextlib.contextmanager
def temporary_server() -> Iterator[str]:
    """Starts a server, gives the address of its empty database, and removes all of it in the end.

    PostgreSQL does not run as root: root starts it as the user that Debian's package makes.

    Raises:
        UnsupportedError: there is no PostgreSQL here, or it does not start.
    """
    programs = find_programs()
    if programs is None:
        raise UnsupportedError("PostgreSQL is not installed. Install Debian's package postgresql.")
    with tempfile.TemporaryDirectory(prefix="tacit-pg-") as name:
        folder = Path(name)
        prefix = _as_another_user(folder)
        data, options = str(folder / "data"), f"-k {folder} -c listen_addresses= -c max_connections=120"
        control = [str(programs / "pg_ctl"), "-D", data, "-w"]
        _call([*prefix, str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "tacit", "-E", "UTF8"], folder)
        _call([*prefix, *control, "-o", options, "-l", str(folder / "log"), "start"], folder)
        try:
            yield f"postgresql://tacit@/postgres?host={folder}"
        finally:
            _call([*prefix, *control, "-m", "immediate", "stop"], folder)


def _as_another_user(folder: Path) -> list[str]:
    if os.geteuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError as error:
        raise UnsupportedError("PostgreSQL does not run as root, and there is no user postgres. Make one.") from error
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["runuser", "-u", "postgres", "--"]


def _call(command: Sequence[str], folder: Path) -> None:
    quiet = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(command, cwd=folder, env=quiet, timeout=_SECONDS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedError(f"PostgreSQL does not run here: {done.stderr.strip().partition(chr(10))[0]}")
