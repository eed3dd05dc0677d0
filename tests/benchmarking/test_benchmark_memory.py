"""Memory on a CPU: what steps need is told from what building needed, and processes that help are counted too."""

import mmap
import os
import platform
import subprocess
import sys

import pytest

from tacit.benchmarking import alone, engines
from tacit.benchmarking.contenders import Contender
from tacit.benchmarking.memory import MIB, read_code, reset_resident_peak, resident_below_mib, resident_mib

pytestmark = pytest.mark.skipif(not reset_resident_peak(), reason="the system does not tell")


def test_steps_are_measured_without_what_building_gave_back(monkeypatch):
    def prepare(task):
        touched(96)
        return lambda: touched(24)

    def touched(mib):
        with mmap.mmap(-1, mib * MIB) as pages:  # goes back to the system, whatever the C library keeps
            for _ in range(mib):
                pages.write(b"1" * MIB)

    hungry = {"plain": engines.CONTENDERS["plain"], "hungry": Contender("hungry", prepare)}
    monkeypatch.setattr(engines, "CONTENDERS", hungry)
    building, peak = alone._grown("logistic", "hungry", "float32", 4)
    assert building >= 90
    assert 20 <= peak < 90


def test_processes_that_help_are_counted_with_those_that_they_start():
    holder = f"held = b'1' * (64 * {MIB}); print(flush=True); input()"
    starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holder!r}])"
    before = resident_below_mib(os.getpid())
    with subprocess.Popen([sys.executable, "-c", starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert resident_below_mib(os.getpid()) - before >= 64
        process.communicate(b"\n")
    assert resident_below_mib(process.pid) == 0


def test_a_contender_that_fails_has_no_memory_to_show():
    assert alone.memory_of("logistic", "no-such-engine", "float32", 4) == alone.Memory()


def test_code_is_resident_before_anything_is_measured(tmp_path):
    """A mapped file stands for a library: once it was read, touching its pages adds nothing."""
    library, size = tmp_path / "library", 32 * MIB
    library.write_bytes(b"code" * (size // 4))
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if not read_code():  # which systems before Linux 5.14 cannot
            assert tuple(int(part) for part in platform.release().split(".")[:2]) < (5, 14)
            return
        before = resident_mib()
        assert sum(mapped[place] for place in range(0, size, 1024)) == ord("c") * size // 1024
        assert resident_mib() - before < 16
