"""What the tests of `tacit.training.processes` do in other processes, which find it by name. Not a test file itself."""

import os
import signal
import time

import torch

from tacit.core.errors import InputError


class TwoPartsError(Exception):
    """Cannot be made again from what `Exception` keeps of it."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def threads(_):
    """How many torch may use."""
    return torch.get_num_threads()


def end(task):
    """Is ended from outside, fails in one of two ways, or takes a minute and leaves a file behind."""
    how, file = task
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        raise InputError("steps=0: must be at least 1.")
    if how == "fails oddly":
        raise TwoPartsError("one", "two")
    time.sleep(60)
    file.touch()
