"""Memory that ran out, in one line: it is no fault of tacit, and a traceback says less."""

import sys

_GIB = 2**30
_LIBRARIES = ("cuDNN error", "CUBLAS_STATUS", "CUDNN_STATUS")
_FEWER = "train fewer models at a time (--jobs of recipes and sweeps)"
_FULL = 0.02  # of a GPU: with less than this share free, its libraries find no room


def shortage(error: RuntimeError | MemoryError) -> str | None:
    """What ran out and what helps, or None where the error is another one.

    The allocator has an error of its own; a context that cannot be made, and Triton, say so in words alone.
    cuDNN and cuBLAS need memory of their own. Where another program has taken it they fail without saying so, with an
    internal error for instance; on a GPU that is full, that counts too.
    """
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return f"the machine ran out of memory. End what else runs, or {_FEWER}."
    if "torch" not in sys.modules:
        return None
    import torch

    free, total = _memory_of_gpu()
    said = isinstance(error, torch.OutOfMemoryError) or ("CUDA" in str(error) and "out of memory" in str(error))
    blamed = any(library in str(error) for library in _LIBRARIES) and free < _FULL * total
    if not (said or blamed):
        return None
    seen = f" ({free / _GIB:.1f} of its {total / _GIB:.1f} GiB are free)" if total else ""
    return (
        f"the GPU ran out of memory{seen}. End what else runs on it, which nvidia-smi lists, {_FEWER}, or use "
        "--device cpu."
    )


def _memory_of_gpu() -> tuple[int, int]:
    """Bytes that are free and bytes in all; 0 and 0 where this process has not used a GPU or cannot ask."""
    import torch

    try:
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return torch.cuda.mem_get_info() if used else (0, 0)
    except RuntimeError:
        return 0, 0
