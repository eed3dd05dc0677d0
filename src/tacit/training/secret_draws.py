"""Torch's own generators under a secret, while a private run draws masks and views from them."""

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.core.randomness import Randomness, torch_generator


def draw_in_secret(randomness: Randomness, device: torch.device) -> Callable[[], None]:
    """From here on nobody can tell what torch's generators draw, whatever they were seeded with.

    Dropout, and augmentations without a generator of their own, draw for each record in the order of the lot: one
    record more moves the draws of all after it. Where nobody knows them, each record's are as random as before, and the
    guarantee holds on average over them, hence as it stands. To somebody who knows the seed all of the lot has changed,
    by more than the noise is made for.

    Args:
        randomness: the run's source. Under a fixed seed, which voids the guarantee, nothing is done, so that torch's
            seed repeats the run.
        device: the model's. Its generator and the CPU's are meant.

    Returns:
        What puts the generators back to where they stood.
    """
    if randomness.voids_guarantee:
        return lambda: None
    places = {torch.device("cpu"), *([device] if device.type == "cuda" else [])}
    before = {place: _state(place) for place in places}
    secret = Randomness()
    for place in places:
        _set_state(place, torch_generator(secret.stream("torch", str(place)), place).get_state())

    def put_back() -> None:
        for place, state in before.items():
            _set_state(place, state)

    return put_back


def _state(place: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(place) if place.type == "cuda" else torch.get_rng_state()


def _set_state(place: torch.device, state: Tensor) -> None:
    if place.type == "cuda":
        torch.cuda.set_rng_state(state, place)
    else:
        torch.set_rng_state(state)
