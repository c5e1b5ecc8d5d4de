// Code for any processor: vectors of 16 bytes, which every compiler lowers to what is there.
#define SLEEPCONV_ISA portable
#define SLEEPCONV_VECTOR_BYTES 16
#define SLEEPCONV_ROWS_ONE_VECTOR 8
#define SLEEPCONV_ROWS_TWO_VECTORS 4
#define SLEEPCONV_STEP_ONE_VECTOR 2
#define SLEEPCONV_STEP_TWO_VECTORS 1
#include "kernels.h"
