"""Runs ``tacit`` by its entry point, in this process or in one of its own. Not a test file itself."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from tacit.cli import main

PROGRAM = Path(sys.executable).with_name("tacit")


def run_tacit(*arguments, cwd=None):
    """The entry point with these arguments; several times faster than a process of its own."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["tacit", *arguments]))
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        stack.enter_context(contextlib.chdir(cwd or os.getcwd()))
        try:
            main()
        except SystemExit as ended:
            status = ended.code
    return subprocess.CompletedProcess(arguments, status, stdout.getvalue(), stderr.getvalue())


def run_process(*arguments, cwd=None):
    """The installed program."""
    return subprocess.run(
        [str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        check=False,
    )


def refusal(*arguments, status=2, **options):
    """The one line that refuses these arguments, with nothing on standard output."""
    done = run_tacit(*arguments, **options)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("tacit: ")
    assert done.stdout == ""
    return done.stderr.rstrip("\n")
