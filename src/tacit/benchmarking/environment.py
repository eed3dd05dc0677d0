"""What a result was measured on and with."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

_PACKAGES = (
    *("tacit", "torch", "triton", "numpy", "scipy", "dp-accounting"),
    *("opacus", "fastDP", "jax", "jax-privacy"),
)


def hardware(device: torch.device) -> dict[str, Any]:
    """Processor, cores and, where it is used, the GPU."""
    found: dict[str, Any] = {
        "device": device.type,
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "gpu_mib": properties.total_memory // 2**20, "cuda": torch.version.cuda}
    return found


def versions() -> dict[str, str]:
    """Python and the packages that are installed of those that matter."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def processor() -> str:
    """The processor's name where the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def circumstances() -> dict[str, Any]:
    """What a result of this processor holds beside its figures: hardware, versions, command and date."""
    return {
        "hardware": hardware(torch.device("cpu")),
        "versions": versions(),
        "command": command(),
        "date": now(),
    }


def command() -> str:
    """The command that runs now, without the folders of this machine."""
    module = getattr(sys.modules["__main__"], "__spec__", None)  # where Python was told `-m`
    program = Path(sys.argv[0]).name if module is None else f"python -m {module.name.removesuffix('.__main__')}"
    return " ".join([program, *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])])


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
