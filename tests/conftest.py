"""Settings for all tests: examples are found the same way each time, and a busy machine fails nothing."""

from hypothesis import settings

settings.register_profile("tacit", deadline=None, derandomize=True)
settings.load_profile("tacit")
