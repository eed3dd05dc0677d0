"""``python -m tacit.gradients.compiler_process FOLDER``: compiles a `Job` from standard input into this folder."""

import pickle
import sys
import warnings
from pathlib import Path

import torch
import torch._inductor
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.compiling import improved
from tacit.gradients.compiling_apart import Job, load_library

_TRIED = 2**30  # bytes of arguments, up to which a library is tried: records may be among them


def main(folder: str) -> None:
    """Compiles ahead of time, and tries the library once: should it crash, this process ends, not the one that trains.

    The graph is traced once more, since on its way here it lost what is known of its values.
    """
    job: Job = pickle.loads(sys.stdin.buffer.read())
    torch.set_num_threads(job.threads)
    torch.set_float32_matmul_precision(job.precision)
    torch.use_deterministic_algorithms(job.deterministic)
    inputs = tuple(torch.empty_strided(shape, stride, dtype=dtype) for shape, stride, dtype in job.layouts)
    options = job.options | {
        "aot_inductor.output_path": folder,
        "aot_inductor.compile_wrapper_opt_level": "O0",  # it only calls kernels
    }
    with torch.no_grad():
        graph = make_fx(job.graph, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
        torch._inductor.aot_compile(improved(graph), inputs, options=options)
        if sum(tensor.nbytes for tensor in inputs) <= _TRIED:
            load_library(Path(folder))([tensor.zero_() for tensor in inputs])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
