"""The GPU programs of ``sleepconv.kernels.triton``; importing this file imports Triton.

Activations are matrices without gaps, (batch × channels), one per position. A program computes one position and one
block of the batch (or, for the weight gradient, one position and one block of its filters): a matrix product whose
inner axis runs over taps and channels together, so that three channels under nine taps fill one block of 32. What lies
outside the input is masked; a branch would keep the compiler from copying the next block to shared memory while it
multiplies the present one. Sums are kept in float32.

Sizes are given per axis, 0 to 2, the first ones being 1 in one or two dimensions: N of the input, O of the output, K of
the kernel, then stride, padding and dilation. ``w_position``, ``w_out``, ``w_in`` and ``w_tap`` are the strides of the
weight, (positions, out_channels, in_channels / groups, taps). ``batch_class`` is only there to be tuned for.
"""

import torch
import triton
from triton import language as tl
from triton.language import constexpr

# What is tried on the first call with these sizes: rows and inner length of a block, warps, stages of the pipeline. All
# fit into the 99 KB of shared memory that the smallest of the newer GPUs have.
_TRIED = [(32, 32, 4, 4), (64, 32, 4, 3), (128, 32, 8, 3), (64, 64, 4, 3)]
_INTERPRETED = [(32, 128, 4, 1)]  # few and large blocks: there each takes the same time, whatever its size
_ALL_REGISTERS = 255  # left alone, NVIDIA's assembler now and then spills a few to have more programs at a time
_KEY = ["batch_class", "GROUPS", "INS", "OUTS", "O0", "O1", "O2", "K0", "K1", "K2", "S0", "S1", "S2"]


def configurations() -> list[triton.Config]:
    """Return the configurations that are tried."""
    return [_configuration(*tried) for tried in (_INTERPRETED if triton.knobs.runtime.interpret else _TRIED)]


def _configuration(m: int, k: int, warps: int, stages: int) -> triton.Config:
    most = None if torch.version.hip else _ALL_REGISTERS
    return triton.Config({"BLOCK_M": m, "BLOCK_K": k}, num_warps=warps, num_stages=stages, maxnreg=most)


@triton.jit
def _three(index, SIZE_1: constexpr, SIZE_2: constexpr):
    """Return the position along each axis."""
    return index // (SIZE_1 * SIZE_2), index // SIZE_2 % SIZE_1, index % SIZE_2


@triton.jit
def _split(pid, blocks, BLOCK: constexpr):
    """Return the indices of this program's block along one axis, and its number along the remaining ones."""
    return pid % blocks * BLOCK + tl.arange(0, BLOCK), pid // blocks


@triton.jit
def _tap_and_channel(start, TAPS: constexpr, CHANNELS: constexpr, BLOCK: constexpr):
    """Return tap and channel of each index of a block of the inner axis.

    Where a block lies within one tap, all taps of its channels come before other channels: neighbours in memory.
    """
    if CHANNELS % BLOCK == 0:
        block = start // BLOCK
        return block % TAPS + tl.zeros((BLOCK,), tl.int32), block // TAPS * BLOCK + tl.arange(0, BLOCK)
    k = start + tl.arange(0, BLOCK)
    return k // CHANNELS, k % CHANNELS


@triton.jit
def _input_row(i, u, STRIDE: constexpr, PADDING: constexpr, DILATION: constexpr, SIZE: constexpr):
    """Return the input row that tap u sees from output row i, and whether it lies inside."""
    row = i * STRIDE + u * DILATION - PADDING
    return row, (row >= 0) & (row < SIZE)


@triton.jit
def _output_row(
    row,
    j,
    STEP: constexpr,
    STRIDE: constexpr,
    PADDING: constexpr,
    DILATION: constexpr,
    KERNEL: constexpr,
    OUT: constexpr,
):
    """Return the j-th tap that may see an input row, the output row from which it does, and whether there is one."""
    u = (row + PADDING) % STEP + j * STEP
    reach = row + PADDING - u * DILATION
    i = reach // STRIDE
    return u, i, (u < KERNEL) & (reach >= 0) & (reach % STRIDE == 0) & (i < OUT)


@triton.autotune(configurations(), key=_KEY)
@triton.jit
def forward(
    x, weight, y, batch, batch_class, w_position, w_out, w_in, w_tap,
    GROUPS: constexpr, INS: constexpr, OUTS: constexpr,
    N0: constexpr, N1: constexpr, N2: constexpr, O0: constexpr, O1: constexpr, O2: constexpr,
    K0: constexpr, K1: constexpr, K2: constexpr, S0: constexpr, S1: constexpr, S2: constexpr,
    P0: constexpr, P1: constexpr, P2: constexpr, D0: constexpr, D1: constexpr, D2: constexpr,
    PRECISION: constexpr, BLOCK_N: constexpr, BLOCK_M: constexpr, BLOCK_K: constexpr,
):  # fmt: skip
    """Compute y[i] = Σ_u x[i·stride + u·dilation − padding] · w[i, :, :, u]ᵀ for a block of images and of channels."""
    b, pid = _split(tl.program_id(0), tl.cdiv(batch, BLOCK_M), BLOCK_M)
    o, pid = _split(pid, tl.cdiv(OUTS, BLOCK_N), BLOCK_N)
    group, position = pid % GROUPS, pid // GROUPS
    i0, i1, i2 = _three(position, O1, O2)
    w_filters = weight + position.to(tl.int64) * w_position + (group * OUTS + o)[None, :] * w_out
    images = x + b[:, None] * (GROUPS * INS) + group * INS
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K0 * K1 * K2 * INS, BLOCK_K):
        tap, c = _tap_and_channel(start, K0 * K1 * K2, INS, BLOCK_K)
        u0, u1, u2 = _three(tap, K1, K2)
        r0, inside0 = _input_row(i0, u0, S0, P0, D0, N0)
        r1, inside1 = _input_row(i1, u1, S1, P1, D1, N1)
        r2, inside2 = _input_row(i2, u2, S2, P2, D2, N2)
        inside = inside0 & inside1 & inside2 & (tap < K0 * K1 * K2)
        pixel = ((r0 * N1 + r1) * N2 + r2).to(tl.int64) * (batch * (GROUPS * INS))
        seen = tl.load(images + (pixel + c)[None, :], mask=(b < batch)[:, None] & inside[None, :], other=0.0)
        taps = tl.load(
            w_filters + (c * w_in + tap * w_tap)[:, None], mask=inside[:, None] & (o < OUTS)[None, :], other=0.0
        )
        total = tl.dot(seen, taps, total, input_precision=PRECISION)
    rows = y + (position.to(tl.int64) * batch + b)[:, None] * (GROUPS * OUTS) + (group * OUTS + o)[None, :]
    tl.store(rows, total.to(y.dtype.element_ty), mask=(b < batch)[:, None] & (o < OUTS)[None, :])


@triton.autotune(configurations(), key=_KEY)
@triton.jit
def input_gradient(
    grad, weight, dx, batch, batch_class, w_position, w_out, w_in, w_tap,
    GROUPS: constexpr, INS: constexpr, OUTS: constexpr,
    N0: constexpr, N1: constexpr, N2: constexpr, O0: constexpr, O1: constexpr, O2: constexpr,
    K0: constexpr, K1: constexpr, K2: constexpr, S0: constexpr, S1: constexpr, S2: constexpr,
    P0: constexpr, P1: constexpr, P2: constexpr, D0: constexpr, D1: constexpr, D2: constexpr,
    PRECISION: constexpr, BLOCK_N: constexpr, BLOCK_M: constexpr, BLOCK_K: constexpr,
):  # fmt: skip
    """Compute dx[q] = Σ dy[i] · w[i, :, :, u] over all i and u with i·stride + u·dilation − padding = q.

    Without dilation, only every stride-th tap can see a pixel; the others are left out of the loop.
    """
    T0: constexpr = S0 if D0 == 1 else 1
    T1: constexpr = S1 if D1 == 1 else 1
    T2: constexpr = S2 if D2 == 1 else 1
    J0: constexpr = (K0 + T0 - 1) // T0
    J1: constexpr = (K1 + T1 - 1) // T1
    J2: constexpr = (K2 + T2 - 1) // T2
    b, pid = _split(tl.program_id(0), tl.cdiv(batch, BLOCK_M), BLOCK_M)
    c, pid = _split(pid, tl.cdiv(INS, BLOCK_N), BLOCK_N)
    group, pixel = pid % GROUPS, pid // GROUPS
    q0, q1, q2 = _three(pixel, N1, N2)
    images = grad + b[:, None] * (GROUPS * OUTS) + group * OUTS
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, J0 * J1 * J2 * OUTS, BLOCK_K):
        j, o = _tap_and_channel(start, J0 * J1 * J2, OUTS, BLOCK_K)
        j0, j1, j2 = _three(j, J1, J2)
        u0, i0, sees0 = _output_row(q0, j0, T0, S0, P0, D0, K0, O0)
        u1, i1, sees1 = _output_row(q1, j1, T1, S1, P1, D1, K1, O1)
        u2, i2, sees2 = _output_row(q2, j2, T2, S2, P2, D2, K2, O2)
        sees = sees0 & sees1 & sees2 & (j < J0 * J1 * J2)
        position, tap = ((i0 * O1 + i1) * O2 + i2).to(tl.int64), (u0 * K1 + u1) * K2 + u2
        grads = images + (position * (batch * (GROUPS * OUTS)) + o)[None, :]
        taps = weight + (position * w_position + (group * OUTS + o) * w_out + tap * w_tap)[:, None] + c[None, :] * w_in
        total = tl.dot(
            tl.load(grads, mask=(b < batch)[:, None] & sees[None, :], other=0.0),
            tl.load(taps, mask=sees[:, None] & (c < INS)[None, :], other=0.0),
            total,
            input_precision=PRECISION,
        )
    rows = dx + (pixel.to(tl.int64) * batch + b)[:, None] * (GROUPS * INS) + (group * INS + c)[None, :]
    tl.store(rows, total.to(dx.dtype.element_ty), mask=(b < batch)[:, None] & (c < INS)[None, :])


@triton.autotune(configurations(), key=_KEY)
@triton.jit
def weight_gradient(
    x, grad, dw, batch, batch_class, w_position, w_out, w_in, w_tap,
    GROUPS: constexpr, INS: constexpr, OUTS: constexpr,
    N0: constexpr, N1: constexpr, N2: constexpr, O0: constexpr, O1: constexpr, O2: constexpr,
    K0: constexpr, K1: constexpr, K2: constexpr, S0: constexpr, S1: constexpr, S2: constexpr,
    P0: constexpr, P1: constexpr, P2: constexpr, D0: constexpr, D1: constexpr, D2: constexpr,
    PRECISION: constexpr, BLOCK_N: constexpr, BLOCK_M: constexpr, BLOCK_K: constexpr,
):  # fmt: skip
    """Compute dw[i, :, :, u] = dy[i]ᵀ · x[i·stride + u·dilation − padding] for a block of taps and of channels.

    Here the inner axis of the product is the batch, and the blocks of M are those of taps and input channels.
    """
    k, pid = _split(tl.program_id(0), tl.cdiv(K0 * K1 * K2 * INS, BLOCK_M), BLOCK_M)
    o, pid = _split(pid, tl.cdiv(OUTS, BLOCK_N), BLOCK_N)
    group, position = pid % GROUPS, pid // GROUPS
    i0, i1, i2 = _three(position, O1, O2)
    tap, c = k // INS, k % INS
    u0, u1, u2 = _three(tap, K1, K2)
    r0, inside0 = _input_row(i0, u0, S0, P0, D0, N0)
    r1, inside1 = _input_row(i1, u1, S1, P1, D1, N1)
    r2, inside2 = _input_row(i2, u2, S2, P2, D2, N2)
    inside = inside0 & inside1 & inside2 & (tap < K0 * K1 * K2)
    pixel = ((r0 * N1 + r1) * N2 + r2).to(tl.int64) * (batch * (GROUPS * INS))
    images = x + (pixel + group * INS + c)[:, None]
    grads = grad + position.to(tl.int64) * (batch * (GROUPS * OUTS)) + (group * OUTS + o)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, batch, BLOCK_K):
        b = start + tl.arange(0, BLOCK_K)
        seen = tl.load(images + b[None, :] * (GROUPS * INS), mask=inside[:, None] & (b < batch)[None, :], other=0.0)
        errors = tl.load(
            grads + b[:, None] * (GROUPS * OUTS), mask=(b < batch)[:, None] & (o < OUTS)[None, :], other=0.0
        )
        total = tl.dot(seen, errors, total, input_precision=PRECISION)
    filters = dw + position.to(tl.int64) * w_position + (group * OUTS + o)[None, :] * w_out
    places = filters + (c * w_in + tap * w_tap)[:, None]
    tl.store(places, total.to(dw.dtype.element_ty), mask=(tap < K0 * K1 * K2)[:, None] & (o < OUTS)[None, :])


@triton.jit
def share(
    weight, size,
    A0: constexpr, A1: constexpr, A2: constexpr, G0: constexpr, G1: constexpr, G2: constexpr,
    NEURONS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    """Replace a block of every filter of one grid by its mean; neurons of a grid lie G apart among A, per axis."""
    f, grid = _split(tl.program_id(0), tl.cdiv(size, BLOCK), BLOCK)
    g0, g1, g2 = _three(grid, G1, G2)
    m1 = (A1 - g1 + G1 - 1) // G1
    m2 = (A2 - g2 + G2 - 1) // G2
    neurons = (A0 - g0 + G0 - 1) // G0 * m1 * m2
    total = tl.zeros((NEURONS, BLOCK), tl.float32)
    for start in range(0, neurons, NEURONS):
        n = start + tl.arange(0, NEURONS)
        position = (((g0 + n // (m1 * m2) * G0) * A1 + g1 + n // m2 % m1 * G1) * A2 + g2 + n % m2 * G2).to(tl.int64)
        there = (n < neurons)[:, None] & (f < size)[None, :]
        total += tl.load(weight + (position * size)[:, None] + f[None, :], mask=there, other=0.0).to(tl.float32)
    mean = (tl.sum(total, axis=0) / neurons).to(weight.dtype.element_ty)[None, :]
    for start in range(0, neurons, NEURONS):
        n = start + tl.arange(0, NEURONS)
        position = (((g0 + n // (m1 * m2) * G0) * A1 + g1 + n // m2 % m1 * G1) * A2 + g2 + n % m2 * G2).to(tl.int64)
        there = (n < neurons)[:, None] & (f < size)[None, :]
        tl.store(weight + (position * size)[:, None] + f[None, :], tl.broadcast_to(mean, (NEURONS, BLOCK)), mask=there)
