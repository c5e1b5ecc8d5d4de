"""Memory that is written again once nobody uses it: fresh pages cost more than the arithmetic on them."""

import math
import threading
import weakref

import numpy as np


class Buffers:
    """Float arrays for batches. Memory is given out again when no array or tensor on it is left.

    Each time it is lent as a new array that does not own it. Whatever is made of that array, a view or a tensor, keeps
    it alive, so the memory is free when the array is gone: weak references tell, whatever counts Python keeps.

    >>> buffers = Buffers()
    >>> first = buffers.take((2, 3))
    >>> second = buffers.take((2, 3))  # the first is still in use
    >>> np.shares_memory(first, second)
    False
    """

    def __init__(self, keep: int = 5) -> None:
        self.keep = keep
        self._lent: list[tuple[np.ndarray, weakref.ref[np.ndarray]]] = []
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of this shape with undefined content."""
        values = math.prod(shape)
        with self._lock:
            free = [memory for memory, user in self._lent if user() is None and len(memory) >= values]
            memory = free[0] if free else np.empty(values, dtype=np.float32)
            # Through a memoryview: NumPy lets a view of a view keep the owner alive instead of the array between them.
            lent = np.frombuffer(memory.data, dtype=np.float32, count=values)
            others = [pair for pair in self._lent if pair[0] is not memory]
            self._lent = [(memory, weakref.ref(lent)), *others][: self.keep]
            return lent.reshape(shape)
