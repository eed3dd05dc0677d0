"""Small private runs for the judges, each with what some bug needs to show itself. Not a test file itself."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.auditing.judges import Subject
from tacit.clipping import Flat, PerLayer
from tacit.plan import DPSGD
from tacit.training import Execution

RECORDS, FEATURES, HIDDEN, CLASSES, WORDS = 12, 12, 24, 4, 40


def plan(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "expected_batch_size": RECORDS // 2,
        "examples": RECORDS,
        "steps": 28,
        "clipping": Flat(0.5),
        "delta": 1e-5,
        "noise_multiplier": 1.5,
        **changes,
    }
    return DPSGD(**arguments)


def execution(**changes: Any) -> Execution:
    return Execution(preflight=False, **changes)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Ten times the usual one, so that clipping has something to do."""
    return 10 * F.cross_entropy(model(x), y, reduction="none")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()


def vectors(count: int = RECORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (count,), generator=generator)


def sentences() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, WORDS, (RECORDS, 5), generator=generator), torch.randint(
        0, CLASSES, (RECORDS,), generator=generator
    )


def bag_of_words() -> nn.Module:
    """Its words all pull the same way, so that the gradients of equal ones add up."""
    torch.manual_seed(0)
    return nn.Sequential(_MeanEmbedding(), nn.Linear(6, CLASSES)).double()


class _MeanEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 6)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).mean(1)


class _Tied(nn.Module):
    """One table turns words into vectors and vectors into words again."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 6)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.table(ids).mean(1), self.table.weight)


def tied() -> nn.Module:
    torch.manual_seed(0)
    return _Tied().double()


def usual() -> Subject:
    return Subject(network, loss, vectors(), plan(), execution())


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "usual": usual,
    "in chunks": lambda: Subject(network, loss, vectors(), plan(), execution(chunk_size=3)),
    "in padded chunks": lambda: Subject(network, loss, vectors(), plan(), execution(chunk_size=3, pad_chunks=True)),
    "functional": lambda: Subject(network, loss, vectors(), plan(), execution(engine="functional")),
    "per layer": lambda: Subject(
        network, loss, vectors(), plan(clipping=PerLayer(0.5)), execution(engine="functional")
    ),
    "words": lambda: Subject(bag_of_words, loss, sentences(), plan(), execution()),
    "tied": lambda: Subject(tied, loss, sentences(), plan(), execution()),
    # Hardly any lot holds a record.
    "sparse": lambda: Subject(network, loss, vectors(2), plan(examples=10_000, expected_batch_size=1), execution()),
    "more records than declared": lambda: Subject(network, loss, vectors(2 * RECORDS), plan(), execution()),
    "shuffled": lambda: Subject(network, loss, vectors(), plan(sampler="shuffled"), execution()),
}
