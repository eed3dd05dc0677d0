"""The kind of array that audits compute with."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
