// AVX2 with FMA: sixteen registers of 32 bytes, twelve of which accumulate.
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define SLEEPCONV_ISA avx2
#define SLEEPCONV_VECTOR_BYTES 32
#define SLEEPCONV_ROWS_ONE_VECTOR 12
#define SLEEPCONV_ROWS_TWO_VECTORS 6
#define SLEEPCONV_STEP_ONE_VECTOR 2
#define SLEEPCONV_STEP_TWO_VECTORS 1
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
