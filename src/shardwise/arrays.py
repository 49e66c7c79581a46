"""Types of the numpy arrays that formulas take and give, one number for each policy, rank or link."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
