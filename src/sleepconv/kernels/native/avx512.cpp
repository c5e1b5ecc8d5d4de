// AVX-512: thirty-two registers of 64 bytes, up to twenty-four of which accumulate.
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")
#endif
#define SLEEPCONV_ISA avx512
#define SLEEPCONV_VECTOR_BYTES 64
#define SLEEPCONV_ROWS_ONE_VECTOR 16
#define SLEEPCONV_ROWS_TWO_VECTORS 12
#define SLEEPCONV_STEP_ONE_VECTOR 4
#define SLEEPCONV_STEP_TWO_VECTORS 2
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
