// What the three instruction-set builds and the thread driver agree on. No PyTorch, no standard library.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Activations lie as (depth, height, width, batch, channel), weights as (position, out, in / groups, tap).
// One- and two-dimensional layers have leading axes of size 1.
struct Geometry {
    int64_t batch, in_channels, out_channels, groups;
    int64_t in_size[3], out_size[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t spacing[3];  // of the lateral grids, where each has one filter
};

enum Pass { FORWARD = 0, INPUT_GRADIENT = 1, WEIGHT_GRADIENT = 2, FORWARD_ON_GRIDS = 3 };

// A pass is one phase after the other, each a number of independent tasks. All tasks see the shared memory; each
// thread has its own scratch memory.
constexpr int PHASES = 2;
struct Plan {
    int64_t tasks[PHASES];
    size_t shared_bytes, scratch_bytes;
};

// `first` and `second` are (x, weight) in the forward passes, (grad_output, weight) for the input gradient and
// (x, grad_output) for the weight gradient.
struct Buffers {
    const void *first, *second;
    void *out, *shared;
};

struct Kernels {
    Plan (*plan)(const Geometry &, Pass, int threads);
    void (*run)(const Geometry &, Pass, int threads, int phase, int64_t task, const Buffers &, void *scratch);
};

#define SLEEPCONV_DECLARE(ISA)                 \
    extern const Kernels ISA##_float_kernels;  \
    extern const Kernels ISA##_double_kernels;
SLEEPCONV_DECLARE(portable)
SLEEPCONV_DECLARE(avx2)
SLEEPCONV_DECLARE(avx512)
