"""``python -m tacit.gradients.compiler_process PARENT [FOLDER]``: compiles a `Job` from standard input.

It leaves a library in the folder, or, where none is given, the program in torch's cache. PARENT is the number of the
process that waits for it; where that ends, this one does.
"""

import os
import pickle
import sys
import threading
import time
import warnings
from pathlib import Path

import torch
import torch._inductor
import torch._inductor.inductor_prims  # its operations may be in a graph
from torch.fx.experimental.proxy_tensor import make_fx

import tacit.models.lstm_sequence  # noqa: F401 - its operations may be in a graph
from tacit.gradients.compiler_jobs import Job
from tacit.gradients.compiling import improved
from tacit.gradients.compiling_apart import has_libraries, load_library

_LOOK_EVERY = 1.0  # seconds
_TRIED = 2**30  # bytes of arguments, up to which a library is run once: records may be among them


def main(folder: str | None = None) -> None:
    """Reads the job, takes over its settings, and does it."""
    job: Job = pickle.loads(sys.stdin.buffer.read())
    job.settings.apply()
    if folder is not None:
        make_library(job, Path(folder))
        return
    if job.device.type == "cuda":
        torch.cuda.set_device(job.device)
    job.compile()


def make_library(job: Job, folder: Path) -> None:
    """Compiles ahead of time, and tries the library: should it crash, this process ends, not the one that trains.

    The graph is traced once more, since on its way here it lost what is known of its values.
    """
    inputs = tuple(torch.empty_strided(shape, stride, dtype=dtype) for shape, stride, dtype, _ in job.layouts)
    options = job.options | {
        "aot_inductor.output_path": str(folder),
        "aot_inductor.compile_wrapper_opt_level": "O0",  # it only calls kernels
        "aot_inductor.precompile_headers": has_libraries(),  # takes longer than a first program gains by it
    }
    with torch.no_grad():
        graph = make_fx(job.graph, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
        torch._inductor.aot_compile(improved(graph), inputs, options=options)
        library = load_library(folder)
        if sum(tensor.nbytes for tensor in inputs) <= _TRIED:
            library([tensor.zero_() for tensor in inputs])


def _end_with(parent: int) -> None:
    """Ends this process when nobody waits for it any more: on a GPU it would hold memory for nothing."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    main(*sys.argv[2:])
