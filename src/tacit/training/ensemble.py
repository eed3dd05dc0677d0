"""Many small networks of one kind trained at once: their parameters stacked, one computation for all of them.

A network's loss depends on its own parameters alone, so the gradient of the sum of all losses holds every network's
own gradient, and an optimizer that works number by number updates each as if it were alone. PATE's teachers and an
audit's shadow models are trained so.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from tacit.core.validation import check_count, check_positive
from tacit.training.threads import threads_for

State = dict[str, Tensor]
"""Parameters and buffers by name, each with a first dimension that counts networks."""
Progress = Callable[[float], None]
"""Told the share that is done, from 0 to 1."""


@dataclasses.dataclass(frozen=True)
class Fitting:
    """How a network is fitted: a public number of steps, whatever the sizes of the parts.

    Attributes:
        steps: of AdamW, each on ``batch_size`` records of the network's own part, drawn with replacement.
        batch_size: of a step.
        learning_rate: at the start; it falls to zero by a cosine.
        weight_decay: decoupled, on all parameters.
    """

    steps: int = 160
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)


class Stack:
    """Networks of one kind as one: the parameters of each along a first dimension.

    A network's first weights and the order of its records depend on its seed and its part alone, never on another
    part: in PATE one person changes one network, which is what its guarantee rests on.

    Args:
        build: makes a network, with first weights from torch's generator, which is seeded here and put back.
        seeds: one for each network.
    """

    def __init__(self, build: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device) -> None:
        self._seeds = list(seeds)
        networks = [seeded(build, seed) for seed in seeds]
        parameters, buffers = stack_module_state(networks)
        self._skeleton = networks[0].to("meta")
        self.parameters: State = {
            name: value.detach().to(device).requires_grad_(True) for name, value in parameters.items()
        }
        self.buffers: State = {name: value.to(device) for name, value in buffers.items()}

    def outputs(self, inputs: Tensor, *, shared: bool) -> Tensor:
        """``[networks, rows, …]`` from rows that all share, ``[rows, …]``, or from a batch of each network's own."""

        def run(parameters: State, buffers: State, rows: Tensor) -> Tensor:
            found: Tensor = functional_call(self._skeleton, (parameters, buffers), (rows,))
            return found

        places = (0, 0, None if shared else 0)
        result: Tensor = vmap(run, places, randomness="different")(self.parameters, self.buffers, inputs)
        return result

    def fit(self, inputs: Tensor, targets: Tensor, parts: Sequence[Tensor], how: Fitting, progress: Progress) -> None:
        """Trains every network on its own part: ``parts[k]`` are the rows of network k."""
        drawn = [_drawn(part, seed, how) for part, seed in zip(parts, self._seeds, strict=True)]
        rows = torch.stack(drawn, dim=1).to(inputs.device)  # [steps, networks, batch]
        optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=how.learning_rate, weight_decay=how.weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps)
        self._skeleton.train()
        with threads_for(self._skeleton, how.batch_size, copies=len(parts)):
            for step in range(how.steps):
                outputs = self.outputs(inputs[rows[step]], shared=False)
                loss = F.cross_entropy(outputs.flatten(0, 1), targets[rows[step]].flatten(), reduction="sum")
                optimizer.zero_grad()
                (loss / how.batch_size).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                progress((step + 1) / how.steps)
        self._skeleton.eval()

    def predictions(self, inputs: Tensor, *, rows_at_once: int = 1000) -> Tensor:
        """``[networks, rows]``: the class that each network chooses."""
        return torch.cat([answers.argmax(2) for answers in self._evaluated(inputs, rows_at_once)], dim=1)

    def answers(self, inputs: Tensor, *, rows_at_once: int = 1000) -> Tensor:
        """``[networks, rows, classes]``: what each network says, in evaluation mode."""
        return torch.cat(list(self._evaluated(inputs, rows_at_once)), dim=1)

    @torch.no_grad()
    def _evaluated(self, inputs: Tensor, rows_at_once: int) -> Iterator[Tensor]:
        self._skeleton.eval()
        for rows in torch.split(inputs, rows_at_once):
            yield self.outputs(rows, shared=True)

    def finite(self) -> Tensor:
        """Whether all numbers of each network are finite, ``[networks]``."""
        return torch.stack([value.detach().flatten(1).isfinite().all(1) for value in self.parameters.values()]).all(0)

    def state(self, number: int) -> State:
        """One network's parameters and buffers, on the CPU."""
        return {name: value[number].detach().cpu() for name, value in {**self.parameters, **self.buffers}.items()}

    def load(self, number: int, state: State) -> None:
        """Puts one network's parameters and buffers in their place."""
        with torch.no_grad():
            for name, value in {**self.parameters, **self.buffers}.items():
                value[number] = state[name].to(value.device)


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network with first weights that belong to the seed; torch's generator is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _drawn(part: Tensor, seed: int, how: Fitting) -> Tensor:
    """The rows of every step, ``[steps, batch]``."""
    generator = torch.Generator().manual_seed(seed)
    return part[torch.randint(len(part), (how.steps, how.batch_size), generator=generator)]
