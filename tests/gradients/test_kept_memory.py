"""Freed memory stays, and is found again without being fetched from the system."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
import sys
import torch
from tacit.gradients.kept_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def step():
    blocks = [torch.ones(12 * 2**20) for _ in range(3)]
    return sum(float(block[0]) for block in blocks)

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_fetched(choice):
    done = subprocess.run([sys.executable, "-c", SCRIPT, choice], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="speaks to glibc alone")
def test_a_step_finds_the_pages_of_the_step_before():
    assert pages_fetched("keep") < 1000
    assert pages_fetched("drop") > 20 * pages_fetched("keep")


def test_another_c_library_is_left_alone(monkeypatch):
    from tacit.gradients.kept_memory import keep_freed_memory

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    keep_freed_memory.cache_clear()
    keep_freed_memory()
    keep_freed_memory.cache_clear()
