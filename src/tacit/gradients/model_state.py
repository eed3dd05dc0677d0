"""What a check borrows from a model and gives back: its modes, its weights, and the generators that it draws from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def preserved_generators() -> Iterator[None]:
    """torch's generators are as before afterwards, on every device."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


def generator_states() -> list[Tensor]:
    """Where torch's generators stand."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states += torch.cuda.get_rng_state_all()
    return states


def set_generator_states(states: Sequence[Tensor]) -> None:
    """Back to where `generator_states` found them."""
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(states[1:])


def seed_generators(seed: int) -> None:
    """torch's generators start from this seed, those whose states `generator_states` reads.

    ``torch.manual_seed`` also seeds kinds of devices that are not there. For each it keeps the stack that it was called
    from, which takes longer than a pass of a small model.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def same_states(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
    """Equal states before and after a pass mean that it drew nothing."""
    return all(torch.equal(*pair) for pair in zip(before, after, strict=True))


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode for a while.

    The flags are set one by one: ``model.eval()`` may be overridden to do more, which could not be taken back.
    """
    modes = {module: module.training for module in model.modules()}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def stirred(parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Every parameter a little off its value for a while, then restored bit by bit.

    A layer that starts at zero lets no gradient through, and what lies before it would look free of mixing until it has
    moved. Draws from torch's generators.

    Autocast keeps what it cast of a parameter as long as its outermost block lasts, whatever becomes of the parameter,
    so it has to forget that on the way in and out.
    """
    saved = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        torch.clear_autocast_cache()
        for name, parameter in parameters.items():
            scale = 0.1 * saved[name].float().square().mean().sqrt() + 0.02 if parameter.numel() else 0.0
            parameter.data.add_((scale * torch.randn_like(parameter, dtype=torch.float32)).to(parameter.dtype))
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data.copy_(saved[name])
        torch.clear_autocast_cache()


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 numbers in float32 for a while: what is compared should not differ by how it was rounded.

    Where the precision was set by torch's newer interface it stays as it is, since torch refuses to mix the two.
    """
    try:
        matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    except RuntimeError:
        yield
        return
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution
