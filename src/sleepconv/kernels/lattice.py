"""The neurons of each lateral grid as strided indices, and sums over them that read the weights once."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import torch
from jaxtyping import Int64
from torch import Tensor

Index = tuple[slice, ...]


def grid_indices(grids: Int64[Tensor, "*positions"]) -> Iterator[tuple[int, list[Index]]]:
    """Yield each grid's number and the indices of its neurons: one strided index if they form a lattice.

    >>> list(grid_indices(torch.tensor([0, 1, 0])))
    [(0, [(slice(0, None, 2),)]), (1, [(slice(1, None, 2),)])]
    """
    corner = repeated_corner(grids)
    if corner is not None:
        for phases in product(*(range(s) for s in corner.shape)):
            yield int(corner[phases]), [tuple(slice(p, None, s) for p, s in zip(phases, corner.shape, strict=True))]
        return
    numbers, order = grids.flatten().sort(stable=True)
    numbers, counts = numbers.unique_consecutive(return_counts=True)
    places = torch.stack(torch.unravel_index(order, grids.shape), dim=1).split(counts.tolist())
    for number, positions in zip(numbers.tolist(), places, strict=True):
        lattice = _lattice(positions)
        yield number, [lattice] if lattice else [tuple(slice(p, p + 1) for p in place) for place in positions.tolist()]


def summed_grids(weight: Tensor, grids: Int64[Tensor, "*positions"]) -> Iterator[tuple[int, list[Index], Tensor]]:
    """Yield each grid's number, the indices of its neurons and the sum of their filters.

    Half-precision filters are summed in float32. A grid that has been yielded may be overwritten: its weights are
    not read again.
    """
    corner, indices = repeated_corner(grids), grid_indices(grids)
    if corner is not None:
        sums = _lattice_sums(weight, corner.shape)
        yield from ((grid, where, total) for (grid, where), total in zip(indices, sums, strict=True))
        return
    axes, dtype = tuple(range(grids.dim())), torch.promote_types(weight.dtype, torch.float32)
    for grid, where in indices:
        total = weight[where[0]].sum(dim=axes, dtype=dtype)
        for index in where[1:]:
            total += weight[index].sum(dim=axes, dtype=dtype)
        yield grid, where, total


def repeated_corner(grids: Tensor) -> Tensor | None:
    """Return the corner of distinct numbers that tiles ``grids``, or None if ``grids`` is not a regular lattice."""
    corner = grids
    for axis, size in enumerate(grids.shape):
        line = grids[tuple(slice(None) if a == axis else 0 for a in range(grids.dim()))].tolist()
        spacing = line.index(line[0], 1) if line[0] in line[1:] else size
        if not torch.equal(grids.narrow(axis, 0, size - spacing), grids.narrow(axis, spacing, size - spacing)):
            return None
        corner = corner.narrow(axis, 0, spacing)
    return corner if len(set(corner.flatten().tolist())) == corner.numel() else None


def _lattice(positions: Int64[Tensor, "neurons axes"]) -> Index | None:
    """Return the strided index of exactly these positions (sorted as in memory), or None if there is none."""
    first, last = positions[0].tolist(), positions[-1].tolist()
    steps = [next((p - f for p in axis if p > f), 1) for f, axis in zip(first, positions.T.tolist(), strict=True)]
    ranges = [range(f, e + 1, s) for f, e, s in zip(first, last, steps, strict=True)]
    if prod(map(len, ranges)) != len(positions) or positions.tolist() != [list(place) for place in product(*ranges)]:
        return None
    return tuple(slice(r.start, r[-1] + 1, r.step) for r in ranges)


def _lattice_sums(weight: Tensor, spacing: Sequence[int]) -> Iterator[Tensor]:
    """Yield the sum of each grid's filters, in the order of the lattice's corner.

    Rows are added before columns: this reads the weights once and in long runs, and whoever overwrites a yielded grid
    finds its weights still in the cache.
    """
    if not spacing:
        yield weight
        return
    step, dtype = spacing[0], torch.promote_types(weight.dtype, torch.float32)
    for phase in range(step):
        yield from _lattice_sums(weight[phase::step].sum(dim=0, dtype=dtype), spacing[1:])
