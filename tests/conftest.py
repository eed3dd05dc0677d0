"""Settings for all tests: examples are found the same way each time, and a busy machine fails nothing."""

import os

from hypothesis import settings

os.environ["COLUMNS"] = "200"  # before any console is made, so that tables are as wide whichever test comes first

settings.register_profile("tacit", deadline=None, derandomize=True)
settings.load_profile("tacit")
