"""``python -m tacit.benchmarking.torture``: 0 where nothing was wrong."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from tacit.benchmarking import torture
from tacit.benchmarking.environment import command, hardware, now, versions
from tacit.benchmarking.results import check_writable, write_result
from tacit.benchmarking.torture.campaign import Torture


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(torture.__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="half at boundaries, half at random times")
    parser.add_argument("--faults", type=int, default=40, help="runs with each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, which random times blur anyway")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    check_writable("out", options.out)
    torch.set_num_threads(1)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Torture(Path(folder), options.seed)
        _say(f"{options.kills - options.kills // 2} kills at boundaries")
        campaign.kill_at_boundaries(options.kills - options.kills // 2)
        _say(f"{options.kills // 2} kills at random times")
        campaign.kill_at_random_times(options.kills // 2)
        _say(f"{options.faults} runs with each fault")
        campaign.strike_with_faults(options.faults)
        found = campaign.figures()
    figures = {
        **found,
        "seconds": time.perf_counter() - started,
        "command": command().replace("__main__.py", "python -m tacit.benchmarking.torture"),
        "date": now(),
        "hardware": hardware(torch.device("cpu")),
        "versions": versions(),
    }
    if options.out is not None:
        write_result(figures, options.out)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 1 if figures["wrong"] else 0


def _say(what: str) -> None:
    sys.stderr.write(f"{what} …\n")


if __name__ == "__main__":
    sys.exit(main())
