"""A program in one CUDA graph: one launch for the whole of it, with as little memory held for it as can be."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tacit.gradients.batches import Index
from tacit.gradients.model_state import generator_states, preserved_generators, same_states
from tacit.gradients.open_sums import Finished
from tacit.gradients.parcel import Parcel
from tacit.gradients.tracing import Program

_SPARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)  # of a program's memory, tried in turn


class Replay:
    """A program captured in a CUDA graph: one launch for the whole of it.

    Tensors that stay are read where they are; those that move are fetched by the graph. The results lie in the
    graph's memory and are overwritten by the next call.

    Attributes:
        addresses: of the tensors that stay.
        results: those of the last call.
        finished: what ``finish`` returned, where the graph writes it.
        draws: whether the program draws from torch's generators, which stay where they are until the first call.

    Args:
        letter: some bytes that the program does not take, sent with the tensors that move.
        finish: what else the graph does to the results, given the letter's place. It is captured and not run before the
            first call.
    """

    def __init__(
        self,
        program: Program,
        staying: Sequence[Tensor],
        moving: Sequence[Tensor | Index],
        letter: bytes,
        finish: Callable[[list[Tensor], Tensor], Finished] | None,
    ) -> None:
        self.addresses = [tensor.data_ptr() for tensor in staying]
        device = staying[0].device
        self._parcel = Parcel(moving, device, letter)
        arguments = [*staying, *self._parcel.places]
        with preserved_generators():
            before = generator_states()
            needed = _warm_up(program, arguments)
            self.draws = not same_states(before, generator_states())
        self.results: list[Tensor] = []
        self.finished = Finished({}, {})

        def capture(spare: float) -> torch.cuda.CUDAGraph:
            self.results, self.finished = [], Finished({}, {})  # of a capture before, which lie in its memory
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=capturing_stream(device)):
                _set_aside(needed * (1 + spare), device)
                self._parcel.fetch()
                self.results = program(list(arguments))
                if finish is not None:
                    self.finished = finish(self.results, self._parcel.letter)
            return graph

        self._graph = captured_leanly(capture, needed)

    def holds(self, value: Tensor) -> bool:
        """Whether the next call overwrites this tensor: it is one of the results, or a view of one."""
        place = value.untyped_storage().data_ptr()
        return any(place == result.untyped_storage().data_ptr() for result in self.results)

    def __call__(self, moving: Sequence[Tensor | Index], constant: Tensor | None, letter: bytes) -> None:
        """Computes the results for these arguments; ``constant`` is one that never changes, and is copied once."""
        self._parcel.send(moving, self._graph.replay, letter, constant=constant)


def _warm_up(program: Program, arguments: Sequence[Tensor]) -> int:
    """Runs a program as a capture needs it, and says how many bytes it allocates at most; starts torch's peak anew.

    The program has run before. What it took then goes back first, and it gets its memory on the other stream as one
    block, so that whatever memory held the program holds its capture.
    """
    device = arguments[0].device
    side, current = capturing_stream(device), torch.cuda.current_stream(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    program(list(arguments))
    needed = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        _set_aside(needed * (1 + _SPARES[0]), device)
        program(list(arguments))
    current.wait_stream(side)
    torch.cuda.empty_cache()
    return needed


def captured_leanly(capture: Callable[[float], torch.cuda.CUDAGraph], needed: int) -> torch.cuda.CUDAGraph:
    """The graph that holds the least memory, of captures out of one block of ``needed`` bytes with more and more spare.

    A block is cut into tensors, which wastes some of it; what does not fit any more takes blocks of its own. A spare
    that is larger than what the best capture so far holds beyond the needed bytes cannot help.
    """
    graph, last = capture(_SPARES[0]), _SPARES[0]
    held = {last: _held_bytes(graph)}
    for spare in _SPARES[1:]:
        if needed * (1 + spare) >= min(held.values()):
            break
        graph.reset()
        found = _if_it_fits(capture, spare)
        if found is None:
            return capture(_leanest(held))
        graph, last = found, spare
        held[spare] = _held_bytes(graph)
    if last == _leanest(held):
        return graph
    graph.reset()
    return capture(_leanest(held))


def _leanest(held: dict[float, int]) -> float:
    return min(held, key=lambda spare: held[spare])


def _if_it_fits(capture: Callable[[float], torch.cuda.CUDAGraph], spare: float) -> torch.cuda.CUDAGraph | None:
    """None where memory runs out; by then nothing holds what the failed capture took, as an error would."""
    try:
        return capture(spare)
    except torch.OutOfMemoryError:
        return None


def _set_aside(size: float, device: torch.device) -> None:
    """One block that allocations are then cut from; block by block they would hold half as much again."""
    torch.empty(int(size), dtype=torch.uint8, device=device)


def _held_bytes(graph: torch.cuda.CUDAGraph) -> int:
    """How much memory a graph holds, in blocks that large tensors are cut from."""
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    pool = tuple(graph.pool())
    large = [block for block in snapshot if block["segment_type"] == "large"]
    return sum(block["total_size"] for block in large if tuple(block["segment_pool_id"]) == pool)


@functools.cache
def capturing_stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream for warming up and capturing: cuBLAS keeps a workspace for every stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
