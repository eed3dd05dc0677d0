"""What the tests of `tacit.training.processes` do in other processes, which find it by name. Not a test file itself."""

import os
import signal
import time

from tacit.core.errors import InputError


def end(how):
    """Is ended from outside, fails, or takes a minute."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        raise InputError("steps=0: must be at least 1.")
    time.sleep(60)
