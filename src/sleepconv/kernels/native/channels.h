// The three passes with vectors along the channels. Filters are repacked for that, once per pass: worth it where many
// images use them.
#pragma once
#include "shape.h"
#include "transpose.h"

namespace {

// Where filter input i = (c, tap) lies among rows ordered as (tap, c).
inline void row_order(const Shape &shape, int64_t width, int64_t *rows) {
    for (int64_t c = 0, i = 0; c < shape.in; ++c)
        for (int64_t tap = 0; tap < shape.taps; ++tap, ++i) rows[i] = (tap * shape.in + c) * width;
}

// Ask for memory that will be read soon. Asking beyond the end does no harm.
template <class T>
void prefetch(const T *from, int64_t count) {
    for (int64_t i = 0; i < count; i += int64_t(64 / sizeof(T))) __builtin_prefetch(from + i);
}

// Forward and weight gradient: a task is one output position, one group, and one share of the output channels;
// the channels are shared out only where there are too few positions to keep the threads busy.
template <class T>
struct Task {
    int64_t position, group, first, columns, width;  // output channels first .. first + columns
    static int64_t shares(const Geometry &g, int threads) {
        const Shape shape(g);
        const int64_t tiles = ceil_div(shape.out, panel_width<T>(shape.out));
        return smaller(tiles, ceil_div(2 * threads, shape.positions * g.groups));
    }
    static int64_t count(const Geometry &g, int threads) {
        return Shape(g).positions * g.groups * shares(g, threads);
    }
    Task(const Geometry &g, int threads, int64_t number) {
        const Shape shape(g);
        const int64_t parts = shares(g, threads);
        width = panel_width<T>(shape.out);
        const int64_t tiles = ceil_div(ceil_div(shape.out, width), parts);
        first = smaller(number % parts * tiles * width, shape.out);
        columns = smaller(tiles * width, shape.out - first);
        number /= parts;
        group = number % g.groups;
        position = in_strips(g, number / g.groups);
    }
};

// Pack filters[o][c][tap] as panels [column tile][tap][c][column], padded with zeros; return where the panels end.
template <class T>
T *pack_filters(const Shape &shape, const T *filters, int64_t columns, int64_t width, int64_t *rows, T *panel) {
    const int64_t tile_stride = shape.inputs * width;
    row_order(shape, width, rows);
    for (int64_t column = 0; column < columns; column += width, panel += tile_stride) {
        const int64_t count = smaller(width, columns - column);
        const T *tile_filters = filters + column * shape.inputs;
        if (count < width) memset(panel, 0, size_t(tile_stride) * sizeof(T));
        transpose<T>(
            count, shape.inputs, [=](int64_t o) { return tile_filters + o * shape.inputs; },
            [=](int64_t i) { return panel + rows[i]; });
    }
    return panel;
}

// ---- forward: y[position][b][o] = sum over taps and c of x[pixel][b][c] * w[position][o][c][tap]

template <class T>
void forward(const Geometry &g, int threads, int64_t number, const T *x, const T *w, T *y, T *scratch) {
    const Shape shape(g);
    const Task<T> task(g, threads, number);
    const int64_t inputs = shape.inputs, width = task.width, tile_stride = inputs * width;
    const T *filters = w + (task.position * g.out_channels + task.group * shape.out + task.first) * inputs;
    int64_t *rows = reinterpret_cast<int64_t *>(scratch), *pixels = rows + inputs;
    look(g, task.position, pixels);
    T *const first_panel = reinterpret_cast<T *>(pixels + shape.taps);
    T *const panels = pack_filters(shape, filters, task.columns, width, rows, first_panel);
    Segment<T> *segments = reinterpret_cast<Segment<T> *>(panels);
    int64_t count = 0;
    for (int64_t tap = 0; tap < shape.taps; ++tap) {
        if (pixels[tap] < 0) continue;
        const T *a = x + pixels[tap] * g.batch * g.in_channels + task.group * shape.in;
        segments[count++] = {a, first_panel + tap * shape.in * width};
    }
    T *out = y + task.position * g.batch * g.out_channels + task.group * shape.out + task.first;
    const Product<T> product = {segments, count, shape.in, g.in_channels, width, width, tile_stride};
    multiply<T, false>(product, g.batch, task.columns, out, g.out_channels, false);
}

// ---- weight gradient: dw[position][o][c][tap] = sum over b of x[pixel][b][c] * dy[position][b][o]

template <class T>
int64_t batch_block(const Shape &shape) {
    const int64_t row = shape.in + panel_width<T>(shape.out);
    return smaller(256, larger(32, 16384 / int64_t(row * sizeof(T))));
}

template <class T>
void pack_rows(const T *from, int64_t rows, int64_t stride, int64_t columns, int64_t width, T *to) {
    for (int64_t r = 0; r < rows; ++r, from += stride, to += width) {
        for (int64_t c = 0; c < columns; ++c) to[c] = from[c];
        for (int64_t c = columns; c < width; ++c) to[c] = 0;
    }
}

template <class T>
void weight_gradient(const Geometry &g, int threads, int64_t number, const T *x, const T *dy, T *dw, T *scratch) {
    const Shape shape(g);
    const Task<T> task(g, threads, number);
    const int64_t inputs = shape.inputs, width = task.width, block = batch_block<T>(shape);
    int64_t *rows = reinterpret_cast<int64_t *>(scratch);
    row_order(shape, width, rows);
    int64_t *pixels = rows + inputs;
    look(g, task.position, pixels);
    T *sums = reinterpret_cast<T *>(pixels + shape.taps), *packed = sums + inputs * width;  // [tap][c][column], [b][column]
    for (int64_t column = 0; column < task.columns; column += width) {
        const int64_t count = smaller(width, task.columns - column);
        const int64_t channel = task.group * shape.out + task.first + column;
        for (int64_t b = 0; b < g.batch; b += block) {
            const int64_t depth = smaller(block, g.batch - b);
            const T *panel = dy + (task.position * g.batch + b) * g.out_channels + channel;
            if (count < width) {
                pack_rows(panel, depth, g.out_channels, count, width, packed);
                panel = packed;
            }
            for (int64_t tap = 0; tap < shape.taps; ++tap) {
                T *sum = sums + tap * shape.in * width;
                if (pixels[tap] < 0) {
                    memset(sum, 0, size_t(shape.in * width) * sizeof(T));
                    continue;
                }
                const Segment<T> segment = {x + (pixels[tap] * g.batch + b) * g.in_channels + task.group * shape.in, panel};
                const Product<T> product = {&segment, 1, depth, g.in_channels, count < width ? width : g.out_channels,
                                            width, 0};
                multiply<T, true>(product, shape.in, width, sum, width, b > 0);
            }
        }
        T *filters = dw + (task.position * g.out_channels + channel) * inputs;
        const auto from = [=](int64_t i) { return sums + rows[i]; };
        const auto to = [=](int64_t o) { return filters + o * inputs; };
        if (streams(filters, inputs, shape.positions * g.out_channels * inputs))
            transpose<T, true>(inputs, count, from, to);
        else
            transpose<T>(inputs, count, from, to);
    }
    stream_fence();
}

// ---- input gradient: dx[pixel][b][c] = sum over (position, tap) that look at it, and o, of
//                      dy[position][b][o] * w[position][o][c][tap]
//
// A task is one tile of input channels of one group, a band of input lines (lines run along the last axis) and a share
// of the batch. It keeps the packed filters of those output lines that look at the current input line. Filters are
// packed again for every band they touch: few bands, where the batch is too small to make up for that.

template <class T>
struct Bands {
    int64_t width, tiles, lines, bands, shares;
    Bands(const Geometry &g, int threads) {
        const Shape shape(g);
        width = panel_width<T>(shape.in);
        tiles = ceil_div(shape.in, width) * g.groups;
        lines = g.in_size[0] * g.in_size[1];
        bands = smaller(lines, ceil_div((g.batch < 128 ? 1 : 4) * threads, tiles));
        shares = larger(1, smaller(ceil_div(threads, tiles * bands), g.batch / 16));
    }
    int64_t tasks() const { return tiles * bands * shares; }
};

// How many neighbouring places of an output axis look at one pixel, at most.
inline int64_t window(const Geometry &g, int axis) {
    return smaller(g.out_size[axis], (g.kernel[axis] - 1) * g.dilation[axis] / g.stride[axis] + 1);
}

template <class T>
struct InputGradient {
    const Geometry &g;
    const Shape shape;
    const T *dy, *w;
    T *dx;
    int64_t group, column, columns, width, first_row, rows;
    int64_t *held;         // the output line whose filters a slot holds
    Segment<T> *segments;
    T *packed;             // [slot][position in the line][tap][o][column]

    int64_t panel_size() const { return shape.taps * shape.out * width; }

    void pack(int64_t line, T *panel) const {
        const T *filter = w + (line * shape.line * g.out_channels + group * shape.out) * shape.inputs + column * shape.taps;
        const T *end = w + shape.positions * g.out_channels * shape.inputs;
        for (int64_t j = 0; j < shape.line; ++j, panel += panel_size(), filter += g.out_channels * shape.inputs) {
            if (columns < width) memset(panel, 0, size_t(panel_size()) * sizeof(T));
            const T *from = filter;
            T *to = panel;
            for (int64_t o = 0; o < shape.out; ++o, from += shape.inputs, to += width) {
                prefetch(from + 4 * shape.inputs, columns * shape.taps);
                const auto source = [=](int64_t c) { return from + c * shape.taps; };
                const auto target = [=](int64_t tap) { return to + tap * shape.out * width; };
                if (shape.taps < Vector<T>::lanes && from + columns * shape.taps + Vector<T>::lanes <= end)
                    transpose_narrow<T>(columns, shape.taps, source, target);
                else
                    transpose<T>(columns, shape.taps, source, target);
            }
        }
    }

    // The packed filters of the output line that looks at this input line through this row of taps; null if none does.
    const T *filters_of(int64_t input_line, int64_t row, int64_t *line) const {
        const int64_t i = seeing(g, 0, input_line / g.in_size[1], row / g.kernel[1]);
        const int64_t j = seeing(g, 1, input_line % g.in_size[1], row % g.kernel[1]);
        if (i < 0 || j < 0) return nullptr;
        *line = i * g.out_size[1] + j;
        const int64_t slot = i % window(g, 0) * window(g, 1) + j % window(g, 1);
        T *filters = packed + slot * shape.line * panel_size();
        if (held[slot] != *line) pack(held[slot] = *line, filters);
        return filters;
    }

    void compute_line(int64_t input_line) const {
        const int64_t tap_rows = g.kernel[0] * g.kernel[1];
        for (int64_t q = 0; q < g.in_size[2]; ++q) {
            int64_t count = 0, line = 0;
            for (int64_t row = 0; row < tap_rows; ++row) {
                const T *filters = filters_of(input_line, row, &line);
                if (!filters) continue;
                for (int64_t v = 0; v < g.kernel[2]; ++v) {
                    const int64_t j = seeing(g, 2, q, v), tap = row * g.kernel[2] + v;
                    if (j < 0) continue;
                    const int64_t position = line * shape.line + j;
                    segments[count++] = {
                        dy + (position * g.batch + first_row) * g.out_channels + group * shape.out,
                        filters + j * panel_size() + tap * shape.out * width};
                }
            }
            const int64_t pixel = input_line * g.in_size[2] + q;
            T *to = dx + (pixel * g.batch + first_row) * g.in_channels + group * shape.in + column;
            const Product<T> product = {segments, count, shape.out, g.out_channels, width, width, 0};
            multiply<T, false>(product, rows, columns, to, g.in_channels, false);
        }
    }
};

template <class T>
void input_gradient(const Geometry &g, int threads, int64_t number, const T *dy, const T *w, T *dx, T *scratch) {
    const Shape shape(g);
    const Bands<T> split(g, threads);
    const int64_t share = number % split.shares, band = number / split.shares % split.bands;
    const int64_t tile = number / (split.shares * split.bands), group_tiles = split.tiles / g.groups;
    const int64_t column = tile % group_tiles * split.width, slots = window(g, 0) * window(g, 1);
    const int64_t first_row = g.batch * share / split.shares, end_row = g.batch * (share + 1) / split.shares;
    int64_t *held = reinterpret_cast<int64_t *>(scratch);
    for (int64_t slot = 0; slot < slots; ++slot) held[slot] = -1;
    Segment<T> *segments = reinterpret_cast<Segment<T> *>(held + slots);
    const InputGradient<T> gradient = {
        g, shape, dy, w, dx, tile / group_tiles, column, smaller(split.width, shape.in - column), split.width,
        first_row, end_row - first_row, held, segments, reinterpret_cast<T *>(segments + shape.taps)};
    for (int64_t line = split.lines * band / split.bands; line < split.lines * (band + 1) / split.bands; ++line)
        gradient.compute_line(line);
}

template <class T>
struct AlongChannels {
    static Plan plan(const Geometry &g, Pass pass, int threads) {
        const Shape shape(g);
        const int64_t in_width = panel_width<T>(shape.in), out_width = panel_width<T>(shape.out);
        const int64_t slots = window(g, 0) * window(g, 1);
        int64_t numbers = 0;
        if (pass == FORWARD) numbers = shape.inputs * out_width * ceil_div(shape.out, out_width);
        if (pass == WEIGHT_GRADIENT) numbers = (shape.inputs + batch_block<T>(shape)) * out_width;
        if (pass == INPUT_GRADIENT) numbers = slots * shape.line * shape.taps * shape.out * in_width;
        const size_t scratch = size_t(numbers) * sizeof(T) + size_t(shape.taps) * sizeof(Segment<T>) +
                               size_t(larger(shape.inputs + shape.taps, slots)) * sizeof(int64_t);
        return {{pass == INPUT_GRADIENT ? Bands<T>(g, threads).tasks() : Task<T>::count(g, threads), 0}, 0, scratch};
    }

    static void run(const Geometry &g, Pass pass, int threads, int64_t task, const T *first, const T *second, T *out,
                    T *scratch) {
        if (pass == FORWARD) forward(g, threads, task, first, second, out, scratch);
        if (pass == INPUT_GRADIENT) input_gradient(g, threads, task, first, second, out, scratch);
        if (pass == WEIGHT_GRADIENT) weight_gradient(g, threads, task, first, second, out, scratch);
    }
};

}  // namespace
