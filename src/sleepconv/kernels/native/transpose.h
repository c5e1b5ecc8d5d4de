// Transposition between scattered rows, for packing: to[j][i] = from[i][j].
#pragma once
#include "tile.h"

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SLEEPCONV_SHUFFLE 1
#endif
#endif

namespace {

// Write past the caches. A large result that is not read again soon need not be fetched into them first.
template <class T>
inline void stream(T *to, typename Vector<T>::type value) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    typedef float floats __attribute__((vector_size(SLEEPCONV_VECTOR_BYTES)));
#if SLEEPCONV_VECTOR_BYTES == 64
    __builtin_ia32_movntps512(reinterpret_cast<float *>(to), (floats)value);
#elif SLEEPCONV_VECTOR_BYTES == 32
    __builtin_ia32_movntps256(reinterpret_cast<float *>(to), (floats)value);
#else
    __builtin_ia32_movntps(reinterpret_cast<float *>(to), (floats)value);
#endif
#else
    Vector<T>::store(to, value);
#endif
}

inline void stream_fence() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    __builtin_ia32_sfence();
#endif
}

// Whether `count` numbers, in rows of this length, can and should be streamed.
template <class T>
inline bool streams(const T *to, int64_t row, int64_t count) {
    return reinterpret_cast<uintptr_t>(to) % 64 == 0 && row * sizeof(T) % 64 == 0 && count * sizeof(T) >= (4 << 20);
}

#if defined(SLEEPCONV_SHUFFLE)
// One butterfly: exchange the off-diagonal blocks of size HALF between rows a and b.
template <int HALF, class V, size_t... LANE>
inline __attribute__((always_inline)) void exchange(V &a, V &b, std::index_sequence<LANE...>) {
    constexpr size_t n = sizeof...(LANE);
    const V low = __builtin_shufflevector(a, b, (LANE & HALF ? n + LANE - HALF : LANE)...);
    b = __builtin_shufflevector(a, b, (LANE & HALF ? n + LANE : LANE + HALF)...);
    a = low;
}

template <class T, int HALF>
inline __attribute__((always_inline)) void butterflies(typename Vector<T>::type *rows) {
    constexpr int n = Vector<T>::lanes;
    if constexpr (HALF >= 1) {
        SLEEPCONV_UNROLL
        for (int i = 0; i < n; ++i)
            if (!(i & HALF)) exchange<HALF>(rows[i], rows[i + HALF], std::make_index_sequence<n>());
        butterflies<T, HALF / 2>(rows);
    }
}
#endif

// As many rows as a vector has lanes, from row i and column j on, and `columns` columns, at most as many. (Rows are read
// to the end of a vector.)
template <class T, bool STREAM, class From, class To>
inline __attribute__((always_inline)) void transpose_square(int64_t i, int64_t j, int64_t columns, From from, To to) {
    constexpr int n = Vector<T>::lanes;
#if defined(SLEEPCONV_SHUFFLE)
    typename Vector<T>::type rows[n];
    SLEEPCONV_UNROLL
    for (int l = 0; l < n; ++l) rows[l] = Vector<T>::load(from(i + l) + j);
    butterflies<T, n / 2>(rows);
    SLEEPCONV_UNROLL
    for (int l = 0; l < n; ++l)
        if (l < columns) STREAM ? stream<T>(to(j + l) + i, rows[l]) : Vector<T>::store(to(j + l) + i, rows[l]);
#else
    for (int l = 0; l < n; ++l)
        for (int m = 0; m < columns; ++m) to(j + m)[i + l] = from(i + l)[j + m];
#endif
}

// Any size. `from(i)` and `to(j)` give the address of the first element of source row i and target row j.
template <class T, bool STREAM = false, class From, class To>
inline __attribute__((always_inline)) void transpose(int64_t rows, int64_t columns, From from, To to) {
    constexpr int n = Vector<T>::lanes;
    const int64_t whole_rows = rows / n * n, whole_columns = columns / n * n;
    for (int64_t i = 0; i < whole_rows; i += n)
        for (int64_t j = 0; j < whole_columns; j += n) transpose_square<T, STREAM>(i, j, n, from, to);
    for (int64_t j = 0; j < columns; ++j) {
        T *target = to(j);
        for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) target[i] = from(i)[j];
    }
}

// The same with fewer columns than a vector has lanes, where rows may be read beyond their end.
template <class T, class From, class To>
inline __attribute__((always_inline)) void transpose_narrow(int64_t rows, int64_t columns, From from, To to) {
    constexpr int n = Vector<T>::lanes;
    int64_t i = 0;
    if (2 * columns > n)
        for (; i + n <= rows; i += n) transpose_square<T, false>(i, 0, columns, from, to);
    for (; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to(j)[i] = from(i)[j];
}

}  // namespace
