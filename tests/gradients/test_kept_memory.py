"""Freed memory stays, and is found again without being fetched from the system."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy
from tacit.gradients.kept_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

def step():
    blocks = [numpy.ones(6 * 2**20) for _ in range(3)]  # 48 MiB each
    return sum(float(block[0]) for block in blocks)

before = resident()
step()
print(resident() - before)
"""


def mebibytes_kept(choice):
    done = subprocess.run([sys.executable, "-c", SCRIPT, choice], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="speaks to glibc alone")
def test_the_memory_of_a_step_stays_for_the_next_one():
    assert mebibytes_kept("keep") > 100
    assert mebibytes_kept("drop") < 50


def test_another_c_library_is_left_alone(monkeypatch):
    from tacit.gradients.kept_memory import keep_freed_memory

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    keep_freed_memory.cache_clear()
    keep_freed_memory()
    keep_freed_memory.cache_clear()
