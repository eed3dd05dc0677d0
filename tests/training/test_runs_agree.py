"""Whole runs agree, whatever computes them: one seed gives the same lots and the same noise, so the same weights.

What a single sum cannot show is seen here: memory that is overwritten between chunks or steps, a lot or a key that
belongs to another step, a mask that stays. On a GPU every way that a step may take is compared with the CPU's loop.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.clipping import Flat
from tacit.core.noise_table import NoiseTable
from tacit.core.randomness import Randomness
from tacit.plan import DPSGD
from tacit.training import Execution, Private

EXAMPLES, STEPS = 90, 14
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def loss(model, inputs, targets):
    return F.cross_entropy(model(inputs), targets, reduction="none")


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.ReLU(),
            nn.Linear(16, 5),
        )


def records(device):
    generator = torch.Generator().manual_seed(1)
    targets = torch.arange(5).repeat_interleave(EXAMPLES // 5)  # in order, so that every chunk has its own classes
    inputs = torch.randn(EXAMPLES, 1, 6, 6, generator=generator) + targets.view(-1, 1, 1, 1) / 2
    return inputs.to(device), targets.to(device)


def reader():
    """Its first layer's gradients are long enough for the noise to take their sum, and have several tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Flatten(1, 2),
            nn.Linear(6, 512),
            nn.Tanh(),
            nn.Linear(512, 512),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(3072, 5),
        )


def dropping():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(network(), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 5))


def trained(device="cpu", execution=None, momentum=0.0, loss_fn=loss, network=network):
    plan = DPSGD(
        expected_batch_size=30,
        examples=EXAMPLES,
        steps=STEPS,
        clipping=Flat(0.5),
        delta=1e-3,
        noise_multiplier=0.5,
    )
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=momentum)
    private = Private(
        model, loss_fn, optimizer, plan, execution=execution or Execution(), randomness=Randomness(unsafe_seed=11)
    )
    for lot in private.batches(records(device)):
        private.step(lot)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double().cpu()
    return weights, private.engine


@pytest.fixture(scope="module", params=[0.0, 0.9], ids=["descent", "momentum"])
def expected(request):
    weights, _ = trained(execution=Execution(engine="reference"), momentum=request.param)
    return request.param, weights


def check_same(found, weights, network=network):
    moved = torch.linalg.vector_norm(weights - torch.cat([p.detach().flatten() for p in network().parameters()]))
    assert torch.linalg.vector_norm(found - weights) < 2e-3 * moved


@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("engine", ["bookkeeping", "functional"])
def test_eager_runs(expected, engine, chunk_size):
    momentum, weights = expected
    found, _ = trained(execution=Execution(engine=engine, chunk_size=chunk_size, compile=False), momentum=momentum)
    check_same(found, weights)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_a_run_whose_memory_runs_out_on_the_way(expected, device):
    momentum, weights = expected
    large = []

    def greedy(model, inputs, targets):
        if len(inputs) > 9:
            large.append(len(inputs))
            if len(large) > 5:
                raise torch.OutOfMemoryError("no memory for so many")
        return loss(model, inputs, targets)

    found, engine = trained(device, Execution(compile=False, preflight=False), momentum, greedy)
    assert len(large) > 5
    assert "7 examples at once" in engine
    check_same(found, weights)


ON_A_GPU = [pytest.param("cuda", compiled, marks=gpu) for compiled in (False, True)]


@pytest.mark.parametrize(("device", "compiled"), [("cpu", False), *ON_A_GPU])
def test_masks_are_the_runs_own_whatever_torch_was_seeded_with(device, compiled):
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        weights, engine = trained(device, Execution(compile=compiled), network=dropping)
        assert ("CUDA graph" in engine) is compiled
        found.append(weights)
    check_same(*found, dropping)


@gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("chunk_size", [None, 32, 7])
def test_runs_on_a_gpu(expected, compiled, chunk_size):
    momentum, weights = expected
    found, engine = trained("cuda", Execution(compile=compiled, chunk_size=chunk_size), momentum)
    assert ("CUDA graph" in engine) is compiled
    check_same(found, weights)


@gpu
@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["descent", "momentum"])
def test_runs_on_a_gpu_where_the_noise_takes_the_sums(monkeypatch, momentum):
    """Of the second layer, in captured steps with a lot in one chunk; others are taken the ordinary way."""
    seen = []
    point_to = NoiseTable.point_to

    def watched(self, tensors, descent=None, sums=None):
        seen.append([] if sums is None else [each for each in sums if each is not None])
        point_to(self, tensors, descent, sums)

    monkeypatch.setattr(NoiseTable, "point_to", watched)
    weights, _ = trained(execution=Execution(strategy="keep"), momentum=momentum, network=reader)
    execution = Execution(compile=True, chunk_size=32, strategy="keep")
    found, engine = trained("cuda", execution, momentum, network=reader)
    assert "in one CUDA graph" in engine
    assert any(each.rows.shape == (32, 512 * 512) for sums in seen for each in sums)
    assert [] in seen
    check_same(found, weights, reader)
