"""Torch's own generators under a secret, while a private step draws masks and views from them."""

import contextlib
import threading
from collections.abc import Iterator

import torch

from tacit.core.torch_generators import set_key

_ONE_AT_A_TIME = threading.RLock()  # all threads of a process share torch's generators


@contextlib.contextmanager
def drawing_in_secret(key: bytes, device: torch.device) -> Iterator[None]:
    """While it lasts, what torch's generators draw is decided by this key, whatever they were seeded with.

    Dropout, and augmentations without a generator of their own, draw for each record in the order of the lot: one
    record more moves the draws of all after it. Where nobody knows them, each record's are as random as before, and the
    guarantee holds on average over them, hence as it stands. To somebody who knows the seed all of the lot has changed,
    by more than the noise is made for. With a key for each step, masks of a step that is done again are the same, and
    masks of a run are gone with its key.

    Afterwards the generators go on from where they stood. Steps of other threads wait.

    Args:
        key: 256 bits of the run's randomness, for this step alone.
        device: the model's. Its generator and the CPU's are meant.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    with _ONE_AT_A_TIME:
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                set_key(generator, key)
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
