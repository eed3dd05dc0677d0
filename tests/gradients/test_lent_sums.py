"""Sums in memory that the next launch overwrites, as a CUDA graph's are: whoever adds them up must keep them first.

A lot in several chunks whose sums were not kept would be twice its last chunk: most records would count for nothing and
the last ones for twice their bound.
"""

import pytest
import torch
from compiled_checks import BOUND, a_network, cross_entropy, images

from tacit.clipping import Flat
from tacit.gradients import clipped_grad
from tacit.gradients.capturing import Replay
from tacit.gradients.compiled_engine import CompiledEngine, _Program


class LendingEngine(CompiledEngine):
    """Eager sums in the same memory every time, which a replay holds."""

    def __call__(self, batch, mask):
        sums, norms = self._eagerly(batch, mask)
        if not self._programs:
            replay = Replay.__new__(Replay)
            replay.results = [torch.empty_like(value) for value in sums.values()]
            self._programs["only"] = _Program(compilation=None, records=(), replay=replay)
        results = self._programs["only"].replay.results
        for place, value in zip(results, sums.values(), strict=True):
            place.copy_(value)
        return dict(zip(sums, results, strict=True)), norms


def lending(**options):
    grad = clipped_grad(a_network(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping", **options)
    grad._engine = LendingEngine(grad._engine.eager)
    return grad


def eager(**options):
    return clipped_grad(a_network(), cross_entropy, clipping=Flat(BOUND), engine="reference", **options)


def check_same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_a_lot_in_chunks_is_the_sum_of_all_of_them():
    x, y = images()
    chunks = [((x[part], y[part]), None) for part in (slice(0, 2), slice(2, 4), slice(4, 6))]
    check_same(lending().accumulate(chunks), eager()(x, y).grads)


def test_no_record_of_the_last_chunk_counts_twice():
    x, y = images()
    grad = lending()
    whole = {name: value.clone() for name, value in grad.accumulate([((x[:4], y[:4]), None)]).items()}
    more = grad.accumulate([((x[:4], y[:4]), None), ((x[4:5], y[4:5]), None)])
    moved = torch.cat([(more[name] - whole[name]).flatten() for name in whole])
    assert torch.linalg.vector_norm(moved) <= BOUND * (1 + 1e-5)


@pytest.mark.parametrize("way", ["call", "accumulate"])
def test_sums_stay_what_they_are(way):
    # They become gradients, which are public once they have noise: raw sums of a later step must not show in them.
    x, y = images()
    grad = lending(chunk_size=4)
    first = grad(x, y).grads if way == "call" else grad.accumulate([((x, y), None)])
    kept = {name: value.clone() for name, value in first.items()}
    grad.accumulate([((x[:3], y[:3]), None)])
    assert all(torch.equal(first[name], kept[name]) for name in kept)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_chunks_add_up_from_a_cuda_graph():
    x, y = images()
    model = a_network().cuda()
    grad = clipped_grad(model, cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=True)
    chunks = [((x[part].cuda(), y[part].cuda()), None) for part in (slice(0, 2), slice(2, 4), slice(4, 6))]
    expected = clipped_grad(model, cross_entropy, clipping=Flat(BOUND), engine="reference")(x.cuda(), y.cuda()).grads
    for _ in range(5):  # eager, compiled, then replayed
        check_same(grad.accumulate(chunks), expected)
    assert "CUDA graph" in grad.compilation
