"""The witness of the sums: no noise ever falls on two different sums, whatever happened in between.

Before the noise of a step is drawn, a digest of the clipped sum is written to a file. A step that is done again must
arrive at the same digest, or it stops before its noise. The digest is made under the run's secret key, so that it says
nothing about the sum to anyone who could not subtract the noise anyway.

It outlives the process (a kill), and not always the machine (a power loss, where the last lines may be missing); there
the fingerprints of data, plan and code stand alone.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.training.fingerprint import digest_tensors

_LINE = re.compile(r"(\d{1,12}) ([0-9a-f]{32})", re.ASCII)


class Witness:
    """Digests of the sums of a run, by step.

    Args:
        path: the file; lines of it that are torn are passed over.
        randomness: the run's own, for the digests' key.
    """

    def __init__(self, path: Path, randomness: Randomness) -> None:
        self._path, self._key = path, randomness.device_key("witness")
        with self._refusal():
            self._known, torn = _read(path)
        if torn:
            self._append("\n")  # what follows must not join a line that a power loss cut short

    def forget_from(self, step: int) -> None:
        """Drops what is known of this step and all later ones, none of whose noise was drawn."""
        kept = {known: digest for known, digest in self._known.items() if known < step}
        if kept != self._known:
            with self._refusal():
                self._path.write_text("".join(_line(known, digest) for known, digest in kept.items()), encoding="ascii")
            self._known = kept

    def __call__(self, step: int, sums: Mapping[str, Tensor]) -> None:
        """Remembers the sums of a step, or compares them with those that it had before.

        Raises:
            InputError: they differ, so that the step's noise must not be drawn again.
        """
        digest = digest_tensors(sums, key=self._key)
        known = self._known.get(step)
        if known is None:
            self._append(_line(step, digest))
            self._known[step] = digest
        elif known != digest:
            raise InputError(
                f"step {step}: its sum is not what it was before the interruption, so its noise must not be used "
                "again; nothing was drawn. Something random is not under control, such as an augmentation of your own. "
                "Resume with redraw=True (--redraw), which draws fresh noise and counts the steps again."
            )

    def _append(self, line: str) -> None:
        with self._refusal():
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                if os.write(descriptor, line.encode("ascii")) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _refusal(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"checkpoint={str(self._path.parent)!r}: {self._path.name} cannot be used ({error.strerror}); no noise "
                "was drawn for this step. Make room, or take back what you may write, and resume."
            ) from error


def _line(step: int, digest: str) -> str:
    return f"{step} {digest}\n"


def _read(path: Path) -> tuple[dict[int, str], bool]:
    """What the whole lines say, and whether the last one is torn."""
    try:
        *lines, rest = path.read_text(encoding="ascii", errors="replace").split("\n")
    except FileNotFoundError:
        return {}, False
    found = [match for line in lines if (match := _LINE.fullmatch(line)) is not None]
    return {int(match[1]): match[2] for match in found}, bool(rest)
