"""Features that public inputs decide, and labels that spread along them."""

import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import tacit.pate
from tacit.core.errors import InputError
from tacit.datasets.blocks import in_blocks
from tacit.models import build
from tacit.pate.learned_features import LearnedFeatures
from tacit.pate.propagation import Propagation
from tacit.pate.public_features import PublicFeatures


def normal(rows: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator) * torch.linspace(3, 0.5, width) + 1


def test_features_are_whitened_directions_of_the_public_rows():
    public, private = normal(400, 6, 0), normal(50, 6, 1)
    values, vectors = np.linalg.eigh(np.cov(public.double().numpy(), rowvar=False))
    directions = vectors[:, ::-1][:, :4] * values[::-1][:4] ** -0.35
    rows = (private.double().numpy() - public.double().numpy().mean(0)) @ directions
    rows *= 2 / np.linalg.norm(rows, axis=1, keepdims=True)
    found = PublicFeatures.learn(public, directions=4)(private).double().numpy()
    assert np.allclose(np.abs(found), np.abs(rows), atol=1e-4)  # a direction's sign is nobody's choice


def test_every_row_is_mapped_by_itself():
    features = PublicFeatures.learn(normal(100, 6, 0))
    private = normal(30, 6, 1)
    alone = torch.cat([features(row[None]) for row in private])
    assert torch.equal(features(private), alone)
    assert features(private[:0]).shape == (0, 6)


@pytest.mark.parametrize("count", [2, 3, 1025, 1026])
def test_one_record_more_moves_no_digit_of_the_others(count):
    """Also where one row is left over, for which libraries multiply in another way than for many."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(count, 1, 28, 28, generator=generator)
    features = PublicFeatures.learn(torch.rand(150, 784, generator=generator), directions=100)
    learned = LearnedFeatures(build("norm-cnn", (1, 28, 28), 10), inputs[:20])
    whole, fewer = features(inputs), features(inputs[1:])
    assert torch.equal(whole[1:], fewer)
    assert torch.equal(learned(inputs, whole)[1:], learned(inputs[1:], fewer))


def test_blocks_of_one_size_are_all_that_a_map_sees():
    seen = []

    def doubled(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        return 2 * rows

    rows = torch.arange(21.0).view(7, 3)
    assert torch.equal(in_blocks(doubled, rows, 4), 2 * rows)
    assert seen == [4, 4]


def test_every_module_can_be_imported_first():
    """In a fresh interpreter: an order that happens to work hides an import in a circle."""
    names = [module.name for module in pkgutil.walk_packages(tacit.pate.__path__, "tacit.pate.")]
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    for known in [known for known in sys.modules if known.startswith('tacit.pate')]:\n"
        "        del sys.modules[known]\n"
        "    importlib.import_module(name)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "tacit.pate.learned_features" in names


def test_no_public_inputs_are_refused():
    with pytest.raises(InputError, match="public=0"):
        PublicFeatures.learn(torch.zeros(0, 3))


def clusters(seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """Three directions with some spread, so that near means of one class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 300)
    rows = np.eye(3)[labels] + 0.25 * rng.normal(size=(300, 3))
    return torch.from_numpy(rows), labels


def slow_spreading(how: Propagation, features: np.ndarray, rows: list[int], labels: list[int]) -> np.ndarray:
    count = len(features)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    weights = np.zeros((count, count))
    for one in range(count):
        cosines = unit @ unit[one]
        cosines[one] = -np.inf
        nearest = np.argsort(-cosines)[: how.links]
        weights[one, nearest] = np.exp((cosines[nearest] - cosines[nearest[0]]) / how.width)
    weights = weights + weights.T
    roots = np.sqrt(weights.sum(1))
    matrix = weights / roots[:, None] / roots
    start = np.zeros((count, 3))
    for row, label in zip(rows, labels, strict=True):
        start[row, label] += 1
    counts = start.sum(0)
    start = start / counts
    reached = np.linalg.solve(np.eye(count) - how.spread * matrix, (1 - how.spread) * start)
    reached *= (counts + 1) / (counts.sum() + 3) / reached.sum(0)
    return np.asarray(reached / reached.sum(1, keepdims=True))


def test_labels_spread_to_the_fixed_point():
    features, truth = clusters(0)
    rows = [int(np.flatnonzero(truth == label)[place]) for label in range(3) for place in range(2)]
    how = Propagation(links=5, spread=0.8, rounds=150)
    found = how.spread_labels(features, np.array(rows), truth[rows], 3)
    assert np.allclose(found, slow_spreading(how, features.numpy(), rows, truth[rows].tolist()), atol=1e-6)
    assert (found.argmax(1) == truth).mean() > 0.95


def test_a_wrong_answer_is_outvoted():
    features, truth = clusters(1)
    rows = np.arange(60)
    labels = truth[rows].copy()
    labels[:3] = (labels[:3] + 1) % 3
    found = Propagation(links=10).spread_labels(features, rows, labels, 3)
    assert (found[:3].argmax(1) == truth[:3]).all()


def test_where_no_label_reaches_all_classes_are_alike():
    features = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [0.01, 1.0]])
    found = Propagation(links=1).spread_labels(features, np.array([0]), np.array([2]), 3)
    assert found[:2].argmax(1).tolist() == [2, 2]
    assert np.allclose(found[2:], 1 / 3)


def test_no_answers_are_refused():
    nothing = np.zeros(0, dtype=np.int64)
    with pytest.raises(InputError, match="no question was answered"):
        Propagation().spread_labels(torch.eye(3), nothing, nothing, 3)
