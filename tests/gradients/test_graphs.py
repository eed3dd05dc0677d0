"""What passes ask of a graph, where no pass shows it by itself."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule

from tacit.gradients.graphs import on_gpu


@pytest.mark.parametrize(("device", "expected"), [("cuda", True), ("cpu", False)])
def test_a_graph_knows_where_it_runs(device: str, expected: bool) -> None:
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    graph.placeholder("number")
    graph.output(given)
    with FakeTensorMode():
        given.meta["val"] = torch.empty(2, device=device)
    assert on_gpu(GraphModule({}, graph)) is expected
