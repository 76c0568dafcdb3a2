"""Names for the kinds of arrays and arguments that cross the house's doors."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float64Array: TypeAlias = NDArray[np.float64]
"""Any float64 array; the docstring beside it says shape and unit."""

IntArray: TypeAlias = NDArray[np.intp]
"""Row numbers."""

AnyArray: TypeAlias = NDArray[Any]
"""An array whose dtype is not promised."""

LayerSelection: TypeAlias = Literal["all"] | Sequence[int | str]
"""Which attention modules are redrawn: all of them, or positions or module names."""

NumberOfDraws: TypeAlias = int | Literal["auto"] | None
"""Multinomial trials per attention row; None is the exact softmax."""
