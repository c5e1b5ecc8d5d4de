"""Every random choice about data is a function of (seed, epoch, step), so any batch can be made again."""

import zlib

import numpy as np


def random_stream(purpose: str, *, seed: int, epoch: int = 0, step: int = 0) -> np.random.Generator:
    """The random numbers for one purpose at one moment of a run; the same arguments give the same numbers.

    >>> random_stream("crops", seed=1, epoch=2, step=3).integers(100, size=3).tolist()
    [93, 0, 82]
    """
    for name, value in (("seed", seed), ("epoch", epoch), ("step", step)):
        if not 0 <= value < 2**63:
            raise ValueError(f"{name} is a whole number from 0 to 2**63 - 1, not {value}")
    # Fixed width: SeedSequence pads with zeros, so (1, 2) and (1, 2, 0) would give the same numbers.
    key = np.array([zlib.crc32(purpose.encode()), seed, epoch, step], dtype=np.uint64)
    return np.random.default_rng(np.random.SeedSequence(key.view(np.uint32).tolist()))
