"""C++ sources as machine code for this processor.

Compiling takes a second or so and is done anew in each process, so that nothing on a disk has to be trusted or to fit
the processor.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tacit.core.errors import UnsupportedError

# Nothing here may trade accuracy for speed: noise needs differences of nearly equal numbers as they are.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC", "-Wno-psabi")
_SECONDS = 120.0


def load(source: Path, *, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The functions of ``source``, which may include what stands beside this file. Their calls hold no lock of Python.

    Raises whatever the compiler does, and `UnsupportedError` where there is none.
    """
    compilers = (os.environ.get("CXX"), "g++", "clang++")
    compiler = next((path for name in compilers if name and (path := shutil.which(name))), None)
    if compiler is None:
        raise UnsupportedError(f"{source.name}: no C++ compiler was found. Install g++, or name one in CXX.")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"{source.stem}.so"
        command = [compiler, *_FLAGS, *flags, f"-I{Path(__file__).parent}", str(source), "-o", str(library)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        return ctypes.CDLL(str(library))
