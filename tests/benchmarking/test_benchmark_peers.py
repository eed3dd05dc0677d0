"""Peers, where they are installed: their steps run on a tiny model, and their twins compute the same."""

import numpy as np
import pytest
import torch

from tacit.benchmarking.engines import CONTENDERS
from tacit.benchmarking.measuring import runs_once
from tacit.benchmarking.peers import jax_twins
from tacit.benchmarking.tasks import Size, make_task

CPU = torch.device("cpu")


@pytest.mark.parametrize("engine", [name for name, contender in CONTENDERS.items() if contender.needs])
def test_installed_peers_run(engine):
    pytest.importorskip(CONTENDERS[engine].needs)
    lane = runs_once(make_task("mlp", CPU, size=Size(4, width=8, depth=1)), CONTENDERS[engine])
    assert (lane.status, lane.reason) == ("ok", None)


@pytest.mark.parametrize(
    ("name", "size"),
    [("gpt", Size(2, width=64, depth=1, sequence=8, outputs=32)), ("vit", Size(2, width=64, depth=1))],
    ids=["gpt", "vit"],
)
def test_ghost_clipping_runs_on_models_with_positions(name, size):
    """It takes the indices of an embedding as rows of memory: positions must not be a view of one row."""
    pytest.importorskip("opacus")
    lane = runs_once(make_task(name, CPU, size=size), CONTENDERS["opacus-ghost"])
    assert (lane.status, lane.reason) == ("ok", None)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_jax_twin_is_the_same_function(name):
    jax = pytest.importorskip("jax")
    task = make_task(name, CPU, size=Size(4, width=8, depth=2))
    model = task.plain_model()
    weights = [parameter.detach().numpy() for parameter in model.parameters()]
    twin = jax_twins._TWINS[name](jax, weights, task.batch[0].numpy())
    np.testing.assert_allclose(np.asarray(twin), model(task.batch[0]).detach().numpy(), rtol=1e-4, atol=1e-5)
