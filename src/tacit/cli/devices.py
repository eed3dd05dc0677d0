"""The device that a command runs on."""

import enum
from typing import TYPE_CHECKING

from tacit.core.errors import InputError

if TYPE_CHECKING:
    import torch


class Device(enum.StrEnum):
    """Where to train."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def find_device(device: Device) -> "torch.device":
    """The device itself; with ``auto`` a GPU where there is one."""
    import torch

    if device is Device.CUDA and not torch.cuda.is_available():
        raise InputError("device='cuda': no GPU was found. Use --device cpu.")
    use_gpu = device is Device.CUDA or (device is Device.AUTO and torch.cuda.is_available())
    return torch.device("cuda" if use_gpu else "cpu")
