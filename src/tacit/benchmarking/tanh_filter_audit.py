"""The tanh filter's promise, tested: the epsilon that its paper claims beside lower bounds from attacks.

``python -m tacit.benchmarking.tanh_filter_audit --out results/audit/tanh-filter.json``

The paper's setting on MNIST: its network of 26,010 numbers, noise of standard deviation 1.1 on the sum of a lot, a
sampling rate of 256 in 60,000, 15 epochs, delta 1e-5, and a sensitivity that is taken for 1. Attacked are the filter
alone, as published, and the sound variant, whose filtered gradients are clipped to norm 1
(`tacit.auditing.tanh_filter` says how). Every row has

- ``epsilon_lower``, the bound at its ``confidence``, and ``largest``, the most that as many draws could have shown;
- ``epsilon_claimed``, by the paper's account, with RDP as there;
- ``epsilon_true``, tacit's account of what really ran: for c sqrt(n), or for the norm bound;
- for real records, the median and the largest of the norms that were taken for 1.

What was found: for the filter as published, every one of these attacks shows more than is claimed. One record with a
gradient that is large in every number is told from none nearly without error, so that the bound is about the largest
that the draws allow. It takes no such record, though. Digits with wrong labels, as people's mistakes are, have filtered
gradients far longer than 1 once the weights are trained. With its own label a digit that the network knows gives little
away, as the paper hopes, but those that it finds hard are enough to exceed the claim. The sound variant stays below its
account in all of this, as does the filter's true one, which is worthless.

What it does not show: the weights are held at values that were trained on the test split, without privacy, so that they
say nothing of the records in question, and no other records take part. A guarantee must hold there as well; how much a
run on all of MNIST gives away of one digit to somebody who sees the last weights alone is another question.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.accounting import tanh_filter_statements
from tacit.auditing.lower_bounds import LowerBound
from tacit.auditing.tanh_filter import TanhRun, records_in_one_run, worst_case_run, worst_case_step
from tacit.auditing.watching import contributions
from tacit.benchmarking import environment
from tacit.benchmarking.commands import print_line
from tacit.benchmarking.results import check_writable, write_result
from tacit.clipping import Tanh
from tacit.core.errors import TacitError
from tacit.datasets import Split, load
from tacit.recipes.first_course_cnn import count_parameters, tutorial_cnn

PUBLISHED, SOUND = "published", "sound"
RULES = {PUBLISHED: Tanh(), SOUND: Tanh(bound=1.0)}
_TRAINING_STEPS, _TRAINING_LOT, _LEARNING_RATE = 300, 128, 0.25


@dataclasses.dataclass(frozen=True)
class Effort:
    """How hard it is tried: steps and runs on either side of a worst case, and records in one run."""

    draws: int = 4000
    runs: int = 20_000
    records: int = 500


def worst_cases(effort: Effort, numbers: int) -> Iterator[dict[str, Any]]:
    """Rows of the worst-case gradient, in one step and in whole runs."""
    for setting, rule in RULES.items():
        run = TanhRun(rule, numbers)
        yield _row("worst-case gradient, one step", setting, run.one_step(), worst_case_step(run, effort.draws))
        yield _row("worst-case gradient, whole runs", setting, run, worst_case_run(run, effort.runs))


def real_records(effort: Effort, model: nn.Module, train: Split, classes: int) -> Iterator[dict[str, Any]]:
    """Rows of real records in one run, with their own labels and with wrong ones."""
    inputs, targets = train.inputs[: effort.records], train.targets[: effort.records]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    for labels, values in (("own", targets), ("wrong", (targets + 1) % classes)):
        for setting, rule in RULES.items():
            run = TanhRun(rule, numbers)
            bound = records_in_one_run(run, model, _loss, (inputs, values))
            norms = np.linalg.norm(contributions(model, _loss, rule, (inputs, values)), axis=1)
            row = _row(f"records of MNIST with {labels} labels, one run", setting, run, bound)
            yield {**row, "median_norm": float(np.median(norms)), "largest_norm": float(norms.max())}


def _row(experiment: str, setting: str, run: TanhRun, bound: LowerBound) -> dict[str, Any]:
    said = tanh_filter_statements(
        sampling_rate=run.batch_size / run.examples,
        noise_std=run.noise_std,
        steps=run.steps,
        delta=run.delta,
        numbers=run.numbers,
        c=run.rule.c,
        bound=run.rule.bound or 1.0,
    )
    true = said.actual if setting == PUBLISHED else said.sound
    return {
        "experiment": experiment,
        "setting": setting,
        "epsilon_lower": bound.epsilon,
        "largest": bound.largest,
        "confidence": bound.confidence,
        "delta": bound.delta,
        "epsilon_claimed": said.claimed.epsilon,
        "epsilon_true": true.epsilon,
        "exceeds_claim": bound.epsilon > said.claimed.epsilon,
        "exceeds_true": bound.epsilon > true.epsilon,
        "method": bound.method,
    }


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets, reduction="none")


def trained_on_others(test: Split, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The paper's network with ordinary weights, from records that are not attacked."""
    torch.manual_seed(0)
    model = tutorial_cnn(shape, classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
    for _ in range(_TRAINING_STEPS):
        inputs, targets = test[torch.randint(len(test), (_TRAINING_LOT,))]
        optimizer.zero_grad()
        _loss(model, inputs, targets).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def audit(effort: Effort) -> dict[str, Any]:
    """All rows, with what they were measured on."""
    started = time.perf_counter()
    rows = list(worst_cases(effort, count_parameters((1, 28, 28))))
    if effort.records:
        data = load("mnist")
        model = trained_on_others(data.test, data.input_shape, data.classes)
        rows += real_records(effort, model, data.train, data.classes)
    return {
        "audit": "tanh filter",
        "source": "Amian, Improving the Algorithm of Deep Learning with Differential Privacy, 2021",
        "effort": dataclasses.asdict(effort),
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "command": environment.command(),
        "date": environment.now(),
        "hardware": environment.hardware(torch.device("cpu")),
        "versions": environment.versions(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    usual = Effort()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=usual.draws, help="steps on either side of the worst case")
    parser.add_argument("--runs", type=int, default=usual.runs, help="whole runs on either side of the worst case")
    parser.add_argument("--records", type=int, default=usual.records, help="of MNIST, in one run; 0 leaves them out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    try:
        check_writable("out", options.out)
        figures = audit(Effort(options.draws, options.runs, options.records))
    except TacitError as error:
        print_line(str(error))
        return 2
    if options.out is None:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        write_result(figures, options.out)
        print_line(str(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
