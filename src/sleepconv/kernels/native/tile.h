// The one arithmetic kernel of all three passes: a register tile of a small matrix product,
//
//     out[row][column] (+)= sum over segments s and depth k of  a_s[row][k] * panel_s[k][column],
//
// with vectors along the columns. `a` is read by rows, or transposed (a_s[k][row]) for the weight gradient.
// Panels are packed so that the columns of one tile lie side by side, padded with zeros.
#pragma once
#include <stdint.h>
#include <string.h>

#include <utility>

#if defined(__clang__)
#define SLEEPCONV_UNROLL _Pragma("unroll")
#else
#define SLEEPCONV_UNROLL _Pragma("GCC unroll 32")
#endif

namespace {

template <class T>
struct Vector {
    static constexpr int lanes = SLEEPCONV_VECTOR_BYTES / int(sizeof(T));
    typedef T type __attribute__((vector_size(SLEEPCONV_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
    static type load(const T *from) { return *reinterpret_cast<const type *>(from); }
    static void store(T *to, type value) { *reinterpret_cast<type *>(to) = value; }
};

template <class T>
struct Segment {
    const T *a, *panel;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The columns of one tile: two vectors, or one where one holds them all.
template <class T>
int64_t panel_width(int64_t columns) {
    return columns > Vector<T>::lanes ? 2 * Vector<T>::lanes : Vector<T>::lanes;
}

template <class T>
struct Operands {
    const Segment<T> *segments;
    int64_t count, depth;
    int64_t a_stride, panel_stride;  // from one row (transposed: one k) to the next; from one k to the next
    int64_t a_offset, panel_offset;  // of this tile within every segment
};

// Keep the compiler from computing with a value in advance: it would keep the address of every row in memory.
template <class P>
inline __attribute__((always_inline)) void opaque(P &value) {
#if defined(__GNUC__)
    asm volatile("" : "+r"(value));
#endif
}

// Rows of numbers: one pointer to every fourth row, from which an instruction reaches the others by itself.
template <class T, int ROWS>
struct Rows {
    static constexpr int groups = (ROWS + 3) / 4;
    const char *group[groups];
    int64_t stride, thrice;

    Rows(const T *first, int64_t row_stride) : stride(row_stride * int64_t(sizeof(T))), thrice(3 * stride) {
        SLEEPCONV_UNROLL
        for (int i = 0; i < groups; ++i) group[i] = reinterpret_cast<const char *>(first) + 4 * i * stride;
    }
    T at(int row, int k) const {
        const char *from = group[row / 4] + (row % 4 == 3 ? thrice : row % 4 * stride);
        return reinterpret_cast<const T *>(from)[k];
    }
    void advance(int k) {
        SLEEPCONV_UNROLL
        for (int i = 0; i < groups; ++i) {
            group[i] += k * sizeof(T);
            opaque(group[i]);
        }
        opaque(stride);
        opaque(thrice);
    }
};

// The same for numbers of which each row has the next: a transposed matrix.
template <class T>
struct Columns {
    const T *first;
    T at(int row, int) const { return first[row]; }
};

// A few steps along the depth.
template <class T, int ROWS, int VECTORS, int STEPS, class A>
inline __attribute__((always_inline)) void steps(const A &a, const T *panel, int64_t panel_stride,
                                                 typename Vector<T>::type (*sum)[VECTORS]) {
    using V = Vector<T>;
    typename V::type b[STEPS][VECTORS];
    SLEEPCONV_UNROLL
    for (int k = 0; k < STEPS; ++k)
        SLEEPCONV_UNROLL
        for (int v = 0; v < VECTORS; ++v) b[k][v] = V::load(panel + k * panel_stride + v * V::lanes);
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r)
        SLEEPCONV_UNROLL
        for (int k = 0; k < STEPS; ++k)
            SLEEPCONV_UNROLL
            for (int v = 0; v < VECTORS; ++v) sum[r][v] += a.at(r, k) * b[k][v];
}

template <class T, int ROWS, int VECTORS, bool TRANSPOSED>
void tile(const Operands<T> &in, T *out, int64_t out_stride, bool add, int64_t columns) {
    using V = Vector<T>;
    const bool whole = columns >= VECTORS * V::lanes;
    typename V::type sum[ROWS][VECTORS];
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r)
        SLEEPCONV_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            typename V::type start = {};
            sum[r][v] = add && whole ? V::load(out + r * out_stride + v * V::lanes) : start;
        }
    constexpr int STEP = VECTORS == 1 ? SLEEPCONV_STEP_ONE_VECTOR : SLEEPCONV_STEP_TWO_VECTORS;
    for (int64_t s = 0; s < in.count; ++s) {
        const T *a = in.segments[s].a + in.a_offset, *panel = in.segments[s].panel + in.panel_offset;
        if constexpr (TRANSPOSED) {
            for (int64_t k = 0; k < in.depth; ++k, a += in.a_stride, panel += in.panel_stride) {
                __builtin_prefetch(a + 8 * in.a_stride);
                steps<T, ROWS, VECTORS, 1>(Columns<T>{a}, panel, 0, sum);
            }
        } else {
            const T *soon = s + 1 < in.count ? in.segments[s + 1].a + in.a_offset
                                             : in.segments[0].a + in.a_offset + ROWS * in.a_stride;
            Rows<T, ROWS> rows(a, in.a_stride);
            for (int64_t k = 0; k < in.depth;) {
                const T *line = soon + k;
                SLEEPCONV_UNROLL
                for (int r = 0; r < ROWS; ++r, line += in.a_stride) {
                    __builtin_prefetch(line);
                    opaque(line);
                }
                const int64_t end = smaller(in.depth, k + int64_t(64 / sizeof(T)));
                for (; k + STEP <= end; k += STEP, panel += STEP * in.panel_stride) {
                    steps<T, ROWS, VECTORS, STEP>(rows, panel, in.panel_stride, sum);
                    rows.advance(STEP);
                }
                for (; k < end; ++k, panel += in.panel_stride) {
                    steps<T, ROWS, VECTORS, 1>(rows, panel, 0, sum);
                    rows.advance(1);
                }
            }
        }
    }
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r) {
        T *row = out + r * out_stride;
        if (whole) {
            SLEEPCONV_UNROLL
            for (int v = 0; v < VECTORS; ++v) V::store(row + v * V::lanes, sum[r][v]);
        } else {
            T partial[VECTORS * V::lanes];
            SLEEPCONV_UNROLL
            for (int v = 0; v < VECTORS; ++v) V::store(partial + v * V::lanes, sum[r][v]);
            for (int64_t c = 0; c < columns; ++c) row[c] = add ? row[c] + partial[c] : partial[c];
        }
    }
}

template <class T, int ROWS, int VECTORS, bool TRANSPOSED>
void tile_of(int64_t rows, const Operands<T> &in, T *out, int64_t out_stride, bool add, int64_t columns) {
    if (rows == ROWS) return tile<T, ROWS, VECTORS, TRANSPOSED>(in, out, out_stride, add, columns);
    if constexpr (ROWS > 1) tile_of<T, ROWS - 1, VECTORS, TRANSPOSED>(rows, in, out, out_stride, add, columns);
}

// All rows of one column tile, in row tiles of nearly equal height.
template <class T, int MAX_ROWS, int VECTORS, bool TRANSPOSED>
void column_tile(int64_t rows, Operands<T> in, T *out, int64_t out_stride, bool add, int64_t columns) {
    for (int64_t left = ceil_div(rows, MAX_ROWS); left > 0; --left) {
        const int64_t height = ceil_div(rows, left);
        tile_of<T, MAX_ROWS, VECTORS, TRANSPOSED>(height, in, out, out_stride, add, columns);
        in.a_offset += height * (TRANSPOSED ? 1 : in.a_stride);
        out += height * out_stride;
        rows -= height;
    }
}

// The whole product. Rows go in blocks and segments in chunks, so that a block of `a` stays in the second-level
// cache and a chunk of a panel in the first.
template <class T>
struct Product {
    const Segment<T> *segments;
    int64_t count, depth, a_stride;
    int64_t panel_stride, width, tile_stride;  // columns of one tile; from one column tile's panel to the next one's
};

template <class T, bool TRANSPOSED>
void multiply(const Product<T> &p, int64_t rows, int64_t columns, T *out, int64_t out_stride, bool add) {
    const int64_t row_block = 144;  // whole tiles of 12 and of 16 rows
    const int64_t chunk = larger(1, 24576 / int64_t(p.depth * p.width * sizeof(T)));
    for (int64_t row = 0; row < rows; row += row_block) {
        const int64_t height = smaller(row_block, rows - row);
        int64_t s = 0;
        do {
            Operands<T> in = {p.segments + s, smaller(chunk, p.count - s), p.depth, p.a_stride, p.panel_stride,
                              row * (TRANSPOSED ? 1 : p.a_stride), 0};
            for (int64_t column = 0; column < columns; column += p.width, in.panel_offset += p.tile_stride) {
                T *to = out + row * out_stride + column;
                const int64_t left = columns - column;
                if (left > Vector<T>::lanes)
                    column_tile<T, SLEEPCONV_ROWS_TWO_VECTORS, 2, TRANSPOSED>(height, in, to, out_stride, add || s, left);
                else
                    column_tile<T, SLEEPCONV_ROWS_ONE_VECTOR, 1, TRANSPOSED>(height, in, to, out_stride, add || s, left);
            }
            s += chunk;
        } while (s < p.count);
    }
}

}  // namespace
