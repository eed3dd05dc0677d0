"""Whether the records of a task fit into the memory of a device, before they are made."""

import os
from pathlib import Path

import torch

from tacit.benchmarking.memory import MIB
from tacit.benchmarking.tasks import RECORDS_A_BATCH, WORKLOADS, Size, Task, make_task
from tacit.core.errors import InputError
from tacit.gradients.pieces import out_of_memory

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # a number of bytes, or "max"


def check_room(model: str, size: Size, device: torch.device, *, longest: int = 1) -> None:
    """Refuses a batch whose records would not fit into a device's memory.

    Args:
        longest: the most that one axis of the size is going to be multiplied with.

    Raises:
        InputError: they would not.
    """
    a_batch = RECORDS_A_BATCH * WORKLOADS[model].bytes_a_record(size) * longest  # for each example of it
    room = memory_of(device)
    if a_batch * size.batch > room:
        raise InputError(
            f"batch={size.batch}: the records of {model} would take {_mib(a_batch * size.batch)}, and there are "
            f"{_mib(room)}. Choose a batch well below {room // a_batch}."
        )


def make_task_in_room(model: str, device: torch.device, precision: str, size: Size) -> Task:
    """The task, or a refusal of its batch where others have taken the memory that its records need.

    Raises:
        InputError: memory has run out.
    """
    try:
        return make_task(model, device, precision, size=size)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise InputError(
            f"batch={size.batch}: the records of {model} did not fit into the memory that is free. "
            "Choose a smaller batch."
        ) from error


def memory_of(device: torch.device) -> int:
    """The bytes of a device: a GPU's, or those of the machine that this process may have."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(whole, int(_CONTAINER_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return whole


def _mib(size: int) -> str:
    return f"{size // MIB:,} MiB"  # in whole numbers: a float may not hold it
