"""Settings for all tests: examples and noise are the same each time, and a busy machine fails nothing."""

import collections
import hashlib
import os
import secrets
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

os.environ["COLUMNS"] = "200"  # before any console is made, so that tables are as wide whichever test comes first

settings.register_profile("tacit", deadline=None, derandomize=True)
settings.load_profile("tacit")

_HERE = os.getpid()
_keys_drawn: collections.Counter[str] = collections.Counter()


def _key_of_the_test(size: int = 32) -> bytes:
    """In place of the system's entropy: the next key of the test that runs, of which no two are equal.

    What a test draws is then the same each time, so that none fails once in a hundred runs. A process that a test
    forks has keys of its own. Programs that a test starts see nothing of this.
    """
    owner = os.environ.get("PYTEST_CURRENT_TEST", "collection") + (f" in {os.getpid()}" if os.getpid() != _HERE else "")
    _keys_drawn[owner] += 1
    return hashlib.shake_256(f"{owner} {_keys_drawn[owner]}".encode()).digest(size)


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(secrets, "token_bytes", _key_of_the_test)
    config.add_cleanup(patch.undo)


@pytest.fixture(autouse=True)
def _same_draws_of_torch() -> None:
    """Torch's own generator starts each test alike, whichever ran before it in the same process."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_arithmetic() -> Iterator[None]:
    """Undoes what torch does where a processor has no bfloat16: the first product in it turns oneDNN off for good.

    Float32 products then round in another way, and a run that another process began cannot be replayed to the bit.
    """
    enabled = torch.backends.mkldnn.enabled
    yield
    if torch.backends.mkldnn.enabled != enabled:
        torch.backends.mkldnn.set_flags(enabled)
