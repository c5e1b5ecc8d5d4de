// Forward pass and input gradient for small batches: vectors along the batch.
//
// The other passes have their vectors along the channels and repack every filter for that, which pays off only if many
// images use it. Here activations are transposed instead, to (pixel, channel, batch), and a filter is read as it lies in
// memory, one weight at a time:
//
//     target_r[b] (+)= sum over k of  w[row_r + offset_k] * values_k[b].
//
// Forward: rows are output channels, k runs over filter inputs (c, tap), values are inputs of the layer.
// Input gradient: rows are filter inputs, k runs over output channels, values are gradients of the responses.
#pragma once
#include "shape.h"
#include "transpose.h"

namespace {

template <class T>
struct Row {
    int64_t offset;
    T *target;
};

template <class T>
struct Term {
    int64_t offset;
    const T *values;
};

// The filters of the next position, of which a little is asked for in each step: they stream from memory once.
template <class T>
struct Ahead {
    const T *next;
    int64_t step;
};

template <class T, int ROWS, int VECTORS, bool ADD>
void across_tile(const T *w, const Row<T> *rows, const Term<T> *terms, int64_t count, int64_t column, Ahead<T> &ahead) {
    using V = Vector<T>;
    typename V::type sum[ROWS][VECTORS] = {};
    int64_t at[ROWS];
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r) at[r] = rows[r].offset;
    const T *next = ahead.next;
    for (int64_t k = 0; k < count; ++k, next += ahead.step) {
        __builtin_prefetch(next, 0, 2);
        const T *a = w + terms[k].offset, *values = terms[k].values + column;
        typename V::type b[VECTORS];
        SLEEPCONV_UNROLL
        for (int v = 0; v < VECTORS; ++v) b[v] = V::load(values + v * V::lanes);
        SLEEPCONV_UNROLL
        for (int r = 0; r < ROWS; ++r)
            SLEEPCONV_UNROLL
            for (int v = 0; v < VECTORS; ++v) sum[r][v] += a[at[r]] * b[v];
    }
    ahead.next = next;
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r) {
        T *target = rows[r].target + column;
        SLEEPCONV_UNROLL
        for (int v = 0; v < VECTORS; ++v, target += V::lanes)
            V::store(target, ADD ? V::load(target) + sum[r][v] : sum[r][v]);
    }
}

template <class T, int ROWS, int VECTORS, bool ADD>
void across_tile_of(int64_t height, const T *w, const Row<T> *rows, const Term<T> *terms, int64_t count,
                    int64_t column, Ahead<T> &ahead) {
    if (height == ROWS) return across_tile<T, ROWS, VECTORS, ADD>(w, rows, terms, count, column, ahead);
    if constexpr (ROWS > 1)
        across_tile_of<T, ROWS - 1, VECTORS, ADD>(height, w, rows, terms, count, column, ahead);
}

// All rows, for a batch of `columns` (a multiple of a vector's lanes), in tiles of nearly equal height.
template <class T, bool ADD>
void across(const T *w, const Row<T> *rows, int64_t height, const Term<T> *terms, int64_t count, int64_t columns,
            Ahead<T> ahead) {
    constexpr int most = SLEEPCONV_ROWS_TWO_VECTORS, lanes = Vector<T>::lanes;
    for (int64_t left = ceil_div(height, most); left > 0; --left) {
        const int64_t tile = ceil_div(height, left);
        int64_t column = 0;
        for (; column + 2 * lanes <= columns; column += 2 * lanes)
            across_tile_of<T, most, 2, ADD>(tile, w, rows, terms, count, column, ahead);
        if (column < columns) across_tile_of<T, most, 1, ADD>(tile, w, rows, terms, count, column, ahead);
        rows += tile;
        height -= tile;
    }
}

template <class T>
struct Across {
    const Geometry &g;
    const Shape shape;
    const int64_t columns;  // the batch, up to whole vectors

    explicit Across(const Geometry &geometry)
        : g(geometry), shape(geometry), columns(ceil_div(g.batch, Vector<T>::lanes) * Vector<T>::lanes) {}

    // Whether transposing the activations costs less than repacking the filters, with vectors nearly full. A few input
    // channels would leave vectors along them nearly empty; but the copies of large batches take much memory.
    bool pays(Pass pass) const {
        constexpr int64_t lanes = Vector<T>::lanes;
        if (pass == WEIGHT_GRADIENT || 4 * g.batch < 3 * columns) return false;
        if (pass == INPUT_GRADIENT && 2 * shape.in <= lanes) return g.batch <= 8 * lanes;
        return g.batch <= 4 * lanes && g.batch * (shape.in + shape.out) <= shape.inputs * shape.out &&
               (pass == FORWARD || g.batch <= shape.in);
    }

    Plan plan(Pass pass, int threads) const {
        const int64_t pixels = product(g.in_size), pointers = larger(shape.inputs, shape.out);
        const size_t lists = size_t(pointers) * (sizeof(Row<T>) + sizeof(Term<T>)) + size_t(shape.taps) * sizeof(int64_t);
        const size_t value = sizeof(T);
        const size_t x = size_t(pixels * g.in_channels * columns) * value;
        const size_t dy = size_t(shape.positions * g.out_channels * columns) * value;
        if (pass == FORWARD)
            return {{pixels, shape.positions * g.groups}, x, lists + size_t(shape.out * columns) * value};
        return {{shape.positions, bands(threads) * g.groups}, x + dy, lists};
    }

    void run(Pass pass, int threads, int phase, int64_t task, const T *first, const T *w, T *out, T *shared,
             T *scratch) const {
        const int64_t channels = pass == FORWARD ? g.in_channels : g.out_channels;
        if (phase == 0)
            turn(first + task * g.batch * channels, channels, shared + task * channels * columns);
        else if (pass == FORWARD)
            respond(task / g.groups, task % g.groups, shared, w, out, scratch);
        else
            send_back(task / g.groups, task % g.groups, threads, shared, w, out, scratch);
    }

    // (batch, channel) to (channel, batch), and a part of the channels back.
    void turn(const T *from, int64_t channels, T *to) const {
        const int64_t width = columns;
        for (int64_t c = 0; c < channels && columns > g.batch; ++c)
            memset(to + c * columns + g.batch, 0, size_t(columns - g.batch) * sizeof(T));
        transpose<T>(
            g.batch, channels, [=](int64_t b) { return from + b * channels; }, [=](int64_t c) { return to + c * width; });
    }
    void turn_back(const T *from, int64_t count, int64_t channels, T *to) const {
        const int64_t width = columns;
        transpose<T>(
            count, g.batch, [=](int64_t c) { return from + c * width; }, [=](int64_t b) { return to + b * channels; });
    }

    Ahead<T> ahead(const T *filters, int64_t height, int64_t count) const {
        const int64_t steps = ceil_div(height, SLEEPCONV_ROWS_TWO_VECTORS) * ceil_div(columns, 2 * Vector<T>::lanes);
        const int64_t size = shape.out * shape.inputs;
        return {filters + size, ceil_div(size, larger(1, steps * count))};
    }

    void respond(int64_t position, int64_t group, const T *x, const T *w, T *y, T *scratch) const {
        Row<T> *rows = reinterpret_cast<Row<T> *>(scratch);
        Term<T> *terms = reinterpret_cast<Term<T> *>(rows + larger(shape.inputs, shape.out));
        T *sums = reinterpret_cast<T *>(terms + larger(shape.inputs, shape.out));
        for (int64_t o = 0; o < shape.out; ++o) rows[o] = {o * shape.inputs, sums + o * columns};
        int64_t count = 0, *pixels = reinterpret_cast<int64_t *>(sums + shape.out * columns);
        look(g, position, pixels);
        for (int64_t tap = 0; tap < shape.taps; ++tap) {
            const int64_t pixel = pixels[tap];
            if (pixel < 0) continue;
            const T *values = x + (pixel * g.in_channels + group * shape.in) * columns;
            for (int64_t c = 0; c < shape.in; ++c) terms[count++] = {c * shape.taps + tap, values + c * columns};
        }
        const T *filters = w + (position * g.out_channels + group * shape.out) * shape.inputs;
        across<T, false>(filters, rows, shape.out, terms, count, columns, ahead(filters, shape.out, count));
        turn_back(sums, shape.out, g.out_channels, y + position * g.batch * g.out_channels + group * shape.out);
    }

    // A task is a band of input lines: it alone adds to their pixels.
    int64_t bands(int threads) const { return smaller(g.in_size[0] * g.in_size[1], threads); }

    void send_back(int64_t band, int64_t group, int threads, const T *dy, const T *w, T *dx, T *scratch) const {
        const int64_t lines = g.in_size[0] * g.in_size[1];
        const int64_t first = lines * band / bands(threads) * g.in_size[2];
        const int64_t end = lines * (band + 1) / bands(threads) * g.in_size[2];
        T *const sums = const_cast<T *>(dy) + shape.positions * g.out_channels * columns;  // dx, transposed
        for (int64_t pixel = first; pixel < end; ++pixel)
            memset(sums + (pixel * g.in_channels + group * shape.in) * columns, 0,
                   size_t(shape.in * columns) * sizeof(T));
        for (int64_t position = 0; position < shape.positions; ++position)
            send_back_from(position, group, first, end, dy, w, sums, scratch);
        for (int64_t pixel = first; pixel < end; ++pixel)
            turn_back(sums + (pixel * g.in_channels + group * shape.in) * columns, shape.in, g.in_channels,
                      dx + pixel * g.batch * g.in_channels + group * shape.in);
    }

    void send_back_from(int64_t position, int64_t group, int64_t first, int64_t end, const T *dy, const T *w, T *sums,
                        T *scratch) const {
        Row<T> *rows = reinterpret_cast<Row<T> *>(scratch);
        Term<T> *terms = reinterpret_cast<Term<T> *>(rows + larger(shape.inputs, shape.out));
        int64_t reached = 0, *pixels = reinterpret_cast<int64_t *>(terms + larger(shape.inputs, shape.out));
        look(g, position, pixels);
        for (int64_t tap = 0; tap < shape.taps; ++tap) {
            const int64_t pixel = pixels[tap];
            if (pixel < first || pixel >= end) continue;
            rows[reached++] = {tap, sums + (pixel * g.in_channels + group * shape.in) * columns};
        }
        if (!reached) return;
        const int64_t height = reached * shape.in;
        for (int64_t r = reached; r < height; ++r)
            rows[r] = {rows[r - reached].offset + shape.taps, rows[r - reached].target + columns};
        const T *values = dy + (position * g.out_channels + group * shape.out) * columns;
        for (int64_t o = 0; o < shape.out; ++o) terms[o] = {o * shape.inputs, values + o * columns};
        const T *filters = w + (position * g.out_channels + group * shape.out) * shape.inputs;
        across<T, true>(filters, rows, height, terms, shape.out, columns, ahead(filters, height, shape.out));
    }
};

}  // namespace
