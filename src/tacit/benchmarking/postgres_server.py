"""A PostgreSQL server for a while: from the installed package, in a temporary folder, on a socket there."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
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


class Server:
    """A server of its own: one database, no port, in a folder that goes with it.

    Attributes:
        address: of its database.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.address = f"postgresql://tacit@/postgres?host={folder}"
        self._programs, self._folder, self._data = programs, folder, folder / "data"
        self._prefix = _as_another_user(folder)

    def initialise(self) -> None:
        """Make the database."""
        self._call("initdb", "-A", "trust", "-U", "tacit", "-E", "UTF8")

    def start(self) -> None:
        """Start it, and wait until it answers; after a crash it first recovers."""
        options = f"-k {self._folder} -c listen_addresses= -c max_connections=120"
        self._call("pg_ctl", "-w", "-o", options, "-l", str(self._folder / "log"), "start")

    def stop(self) -> None:
        """Stop it at once."""
        self._call("pg_ctl", "-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """End all of its processes with SIGKILL, as a crash would, and wait until they are gone."""
        end = time.monotonic() + _SECONDS
        while processes := self._processes():
            if time.monotonic() > end:
                raise UnsupportedError("PostgreSQL cannot be killed here.")
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)
        for lock in (self._data / "postmaster.pid", *self._folder.glob(".s.PGSQL.*.lock")):
            lock.unlink()  # it names a process that is dead, but still there until somebody waits for it

    def processor_seconds(self) -> float:
        """What all of its processes have used, those that have ended included."""
        ticks = sum(sum(map(int, _facts(process)[11:15])) for process in self._processes())
        return ticks / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> list[int]:
        """Those that work in its data folder, as each of its processes does."""
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and (folder / "cwd").readlink() == self._data:
                    found.append(int(folder.name))
        return found

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._prefix, str(self._programs / program), "-D", str(self._data), *arguments]
        _call(command, self._folder)


@contextlib.contextmanager
def temporary_server() -> Iterator[Server]:
    """Starts a server with an empty database, and removes all of it in the end.

    PostgreSQL does not run as root: root starts it as the user that Debian's package makes.

    Raises:
        UnsupportedError: there is no PostgreSQL here, or it does not start.
    """
    programs = find_programs()
    if programs is None:
        raise UnsupportedError("PostgreSQL is not installed. Install Debian's package postgresql.")
    with tempfile.TemporaryDirectory(prefix="tacit-pg-") as name:
        server = Server(programs, Path(name))
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _facts(process: int) -> list[str]:
    """The numbers of /proc/PID/stat after the name; none where the process has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


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
