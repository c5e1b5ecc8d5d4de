// The passes of a locally connected layer, each as tasks that write disjoint parts of the result.
// Included once per instruction set.
#include "interface.h"
#include "transpose.h"

namespace {

inline int64_t product(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

struct Shape {
    int64_t in, out, taps, positions, line;  // channels of a group; filter taps; output positions; output line length
    explicit Shape(const Geometry &g)
        : in(g.in_channels / g.groups), out(g.out_channels / g.groups), taps(product(g.kernel)),
          positions(product(g.out_size)), line(g.out_size[2]) {}
};

// The input pixel that filter tap `tap` of output position `position` looks at; -1 in the padding.
inline int64_t pixel_of(const Geometry &g, int64_t position, int64_t tap) {
    int64_t pixel = 0, step = 1;
    for (int axis = 2; axis >= 0; --axis) {
        const int64_t at = position % g.out_size[axis] * g.stride[axis] - g.padding[axis] +
                           tap % g.kernel[axis] * g.dilation[axis];
        if (at < 0 || at >= g.in_size[axis]) return -1;
        pixel += at * step;
        step *= g.in_size[axis];
        position /= g.out_size[axis];
        tap /= g.kernel[axis];
    }
    return pixel;
}

// Where filter input i = (c, tap) lies among rows ordered as (tap, c).
inline void row_order(const Shape &shape, int64_t width, int64_t *rows) {
    for (int64_t c = 0, i = 0; c < shape.in; ++c)
        for (int64_t tap = 0; tap < shape.taps; ++tap, ++i) rows[i] = (tap * shape.in + c) * width;
}

// Ask for memory that will be read soon. Filters stream through once per pass, in pieces too short for the processor to
// foresee; with small batches the arithmetic would wait for them. Asking beyond the end does no harm.
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
    Task(const Geometry &g, int threads, int64_t number) {
        const Shape shape(g);
        const int64_t parts = shares(g, threads);
        width = panel_width<T>(shape.out);
        const int64_t tiles = ceil_div(ceil_div(shape.out, width), parts);
        first = smaller(number % parts * tiles * width, shape.out);
        columns = smaller(tiles * width, shape.out - first);
        number /= parts;
        group = number % g.groups;
        position = number / g.groups;
    }
};

// Pack filters[o][c][tap] as panels [column tile][tap][c][column], padded with zeros; return where the panels end.
template <class T>
T *pack_filters(const Shape &shape, const T *filters, int64_t columns, int64_t width, int64_t *rows, T *panel) {
    const int64_t inputs = shape.in * shape.taps, tile_stride = inputs * width;
    row_order(shape, width, rows);
    for (int64_t column = 0; column < columns; column += width, panel += tile_stride) {
        const int64_t count = smaller(width, columns - column);
        const T *tile_filters = filters + column * inputs;
        if (count < width) memset(panel, 0, size_t(tile_stride) * sizeof(T));
        transpose<T>(
            count, inputs, [=](int64_t o) { return tile_filters + o * inputs; },
            [=](int64_t i) { return panel + rows[i]; });
    }
    return panel;
}

// ---- forward: y[position][b][o] = sum over taps and c of x[pixel][b][c] * w[position][o][c][tap]

template <class T>
void forward(const Geometry &g, int threads, int64_t number, const T *x, const T *w, T *y, T *scratch) {
    const Shape shape(g);
    const Task<T> task(g, threads, number);
    const int64_t inputs = shape.in * shape.taps, width = task.width, tile_stride = inputs * width;
    const T *filters = w + (task.position * g.out_channels + task.group * shape.out + task.first) * inputs;
    int64_t *rows = reinterpret_cast<int64_t *>(scratch);
    T *const first_panel = reinterpret_cast<T *>(rows + inputs);
    T *const panels = pack_filters(shape, filters, task.columns, width, rows, first_panel);
    Segment<T> *segments = reinterpret_cast<Segment<T> *>(panels);
    int64_t count = 0;
    for (int64_t tap = 0; tap < shape.taps; ++tap) {
        const int64_t pixel = pixel_of(g, task.position, tap);
        if (pixel < 0) continue;
        const T *a = x + pixel * g.batch * g.in_channels + task.group * shape.in;
        segments[count++] = {a, first_panel + tap * shape.in * width};
    }
    T *out = y + task.position * g.batch * g.out_channels + task.group * shape.out + task.first;
    multiply<T, false>(g.batch, task.columns, width, shape.in, segments, count, g.in_channels, tile_stride, out,
                       g.out_channels, false);
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
        memcpy(to, from, size_t(columns) * sizeof(T));
        memset(to + columns, 0, size_t(width - columns) * sizeof(T));
    }
}

template <class T>
void weight_gradient(const Geometry &g, int threads, int64_t number, const T *x, const T *dy, T *dw, T *scratch) {
    const Shape shape(g);
    const Task<T> task(g, threads, number);
    const int64_t inputs = shape.in * shape.taps, width = task.width, block = batch_block<T>(shape);
    int64_t *rows = reinterpret_cast<int64_t *>(scratch);
    row_order(shape, width, rows);
    T *sums = reinterpret_cast<T *>(rows + inputs), *panel = sums + inputs * width;  // [tap][c][column], [b][column]
    for (int64_t column = 0; column < task.columns; column += width) {
        const int64_t count = smaller(width, task.columns - column);
        const int64_t channel = task.group * shape.out + task.first + column;
        memset(sums, 0, size_t(inputs * width) * sizeof(T));
        for (int64_t b = 0; b < g.batch; b += block) {
            const int64_t depth = smaller(block, g.batch - b);
            pack_rows(dy + (task.position * g.batch + b) * g.out_channels + channel, depth, g.out_channels, count,
                      width, panel);
            for (int64_t tap = 0; tap < shape.taps; ++tap) {
                const int64_t pixel = pixel_of(g, task.position, tap);
                if (pixel < 0) continue;
                const Segment<T> segment = {x + (pixel * g.batch + b) * g.in_channels + task.group * shape.in, panel};
                multiply<T, true>(shape.in, width, width, depth, &segment, 1, g.in_channels, 0,
                                  sums + tap * shape.in * width, width, true);
            }
        }
        T *filters = dw + (task.position * g.out_channels + channel) * inputs;
        transpose<T>(
            inputs, count, [=](int64_t i) { return sums + rows[i]; },
            [=](int64_t o) { return filters + o * inputs; });
    }
}

// ---- input gradient: dx[pixel][b][c] = sum over (position, tap) that look at it, and o, of
//                      dy[position][b][o] * w[position][o][c][tap]
//
// A task is one tile of input channels of one group, a band of input lines (lines run along the last axis) and a share
// of the batch. It walks along the output lines that touch the band and keeps the packed filters of those positions
// that can still reach the current pixel. Filters are packed again for every band they touch: few bands, where the
// batch is too small to make up for that.

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

// How many neighbouring positions of an output line look at one pixel, at most.
inline int64_t window(const Geometry &g) {
    return smaller(g.out_size[2], (g.kernel[2] - 1) * g.dilation[2] / g.stride[2] + 1);
}

template <class T>
struct InputGradient {
    const Geometry &g;
    const Shape shape;
    const T *dy, *w;
    T *dx, *packed;  // packed: [position % window][tap][o][column]
    int64_t group, column, columns, width, first_line, end_line, first_row, rows;

    int64_t slot_stride() const { return shape.taps * shape.out * width; }

    void pack(int64_t line, int64_t j) const {
        const int64_t inputs = shape.in * shape.taps;
        const T *filter = w + ((line * shape.line + j) * g.out_channels + group * shape.out) * inputs;
        filter += column * shape.taps;
        T *panel = packed + j % window(g) * slot_stride();
        if (columns < width) memset(panel, 0, size_t(slot_stride()) * sizeof(T));
        for (int64_t o = 0; o < shape.out; ++o, filter += inputs, panel += width) {
            prefetch(filter + 4 * inputs, columns * shape.taps);
            transpose<T>(
                columns, shape.taps, [=](int64_t c) { return filter + c * shape.taps; },
                [=](int64_t tap) { return panel + tap * shape.out * width; });
        }
    }

    // Add what output line `line` sends to pixel q of an input line through the filters' row `row` of taps.
    void add_to_pixel(int64_t line, int64_t row, int64_t input_line, int64_t q, Segment<T> *segments) const {
        int64_t count = 0;
        for (int64_t v = 0; v < g.kernel[2]; ++v) {
            const int64_t reach = q + g.padding[2] - v * g.dilation[2], j = reach / g.stride[2];
            if (reach < 0 || reach % g.stride[2] || j >= shape.line) continue;
            const T *a = dy + ((line * shape.line + j) * g.batch + first_row) * g.out_channels + group * shape.out;
            const int64_t tap = row * g.kernel[2] + v;
            segments[count++] = {a, packed + j % window(g) * slot_stride() + tap * shape.out * width};
        }
        if (!count) return;
        multiply<T, false>(rows, columns, width, shape.out, segments, count, g.out_channels, 0,
                           pixel(input_line * g.in_size[2] + q), g.in_channels, true);
    }

    // The input line that row `row` of the taps of output line `line` looks at; -1 outside the band.
    int64_t input_line_of(int64_t line, int64_t row) const {
        const int64_t out[2] = {line / g.out_size[1], line % g.out_size[1]};
        const int64_t tap[2] = {row / g.kernel[1], row % g.kernel[1]};
        int64_t at[2];
        for (int axis = 0; axis < 2; ++axis) {
            at[axis] = out[axis] * g.stride[axis] - g.padding[axis] + tap[axis] * g.dilation[axis];
            if (at[axis] < 0 || at[axis] >= g.in_size[axis]) return -1;
        }
        const int64_t input_line = at[0] * g.in_size[1] + at[1];
        return input_line < first_line || input_line >= end_line ? -1 : input_line;
    }

    void add_line(int64_t line, Segment<T> *segments) const {
        const int64_t tap_rows = g.kernel[0] * g.kernel[1];
        bool touches = false;
        for (int64_t row = 0; row < tap_rows; ++row) touches |= input_line_of(line, row) >= 0;
        if (!touches) return;
        for (int64_t q = 0, ready = 0; q < g.in_size[2]; ++q) {
            const int64_t last = smaller((q + g.padding[2]) / g.stride[2], shape.line - 1);
            while (ready <= last) pack(line, ready++);
            for (int64_t row = 0; row < tap_rows; ++row) {
                const int64_t input_line = input_line_of(line, row);
                if (input_line >= 0) add_to_pixel(line, row, input_line, q, segments);
            }
        }
    }

    T *pixel(int64_t number) const {
        return dx + (number * g.batch + first_row) * g.in_channels + group * shape.in + column;
    }

    void clear() const {
        for (int64_t number = first_line * g.in_size[2]; number < end_line * g.in_size[2]; ++number)
            for (int64_t row = 0; row < rows; ++row)
                memset(pixel(number) + row * g.in_channels, 0, size_t(columns) * sizeof(T));
    }
};

template <class T>
void input_gradient(const Geometry &g, int threads, int64_t number, const T *dy, const T *w, T *dx, T *scratch) {
    const Shape shape(g);
    const Bands<T> split(g, threads);
    const int64_t share = number % split.shares, band = number / split.shares % split.bands;
    const int64_t tile = number / (split.shares * split.bands), group_tiles = split.tiles / g.groups;
    const int64_t column = tile % group_tiles * split.width;
    const int64_t first_row = g.batch * share / split.shares, end_row = g.batch * (share + 1) / split.shares;
    const InputGradient<T> gradient = {
        g, shape, dy, w, dx, scratch, tile / group_tiles, column, smaller(split.width, shape.in - column), split.width,
        split.lines * band / split.bands, split.lines * (band + 1) / split.bands, first_row, end_row - first_row};
    Segment<T> *segments = reinterpret_cast<Segment<T> *>(scratch + window(g) * gradient.slot_stride());
    gradient.clear();
    for (int64_t line = 0; line < g.out_size[0] * g.out_size[1]; ++line) gradient.add_line(line, segments);
}

}  // namespace

#include "grids.h"

namespace {

// ---- what the thread driver calls

template <class T>
int64_t tasks(const Geometry &g, Pass pass, int threads) {
    if (pass == INPUT_GRADIENT) return Bands<T>(g, threads).tasks();
    if (pass == FORWARD_ON_GRIDS) return GridTask::tasks(g, threads);
    return Shape(g).positions * g.groups * Task<T>::shares(g, threads);
}

template <class T>
size_t scratch_bytes(const Geometry &g, Pass pass) {
    const Shape shape(g);
    const int64_t in_width = panel_width<T>(shape.in), out_width = panel_width<T>(shape.out);
    const int64_t inputs = shape.in * shape.taps;
    int64_t numbers = 0;
    if (pass == FORWARD || pass == FORWARD_ON_GRIDS) numbers = inputs * out_width * ceil_div(shape.out, out_width);
    if (pass == WEIGHT_GRADIENT) numbers = (inputs + batch_block<T>(shape)) * out_width;
    if (pass == INPUT_GRADIENT) numbers = window(g) * shape.taps * shape.out * in_width;
    return size_t(numbers) * sizeof(T) + size_t(shape.taps) * sizeof(Segment<T>) + size_t(inputs) * sizeof(int64_t);
}

template <class T>
void run(const Geometry &g, Pass pass, int threads, int64_t task, const void *first, const void *second, void *out,
         void *scratch) {
    const T *a = static_cast<const T *>(first), *b = static_cast<const T *>(second);
    T *c = static_cast<T *>(out), *space = static_cast<T *>(scratch);
    if (pass == FORWARD) forward(g, threads, task, a, b, c, space);
    if (pass == FORWARD_ON_GRIDS) forward_on_grid(g, threads, task, a, b, c, space);
    if (pass == INPUT_GRADIENT) input_gradient(g, threads, task, a, b, c, space);
    if (pass == WEIGHT_GRADIENT) weight_gradient(g, threads, task, a, b, c, space);
}

}  // namespace

#define SLEEPCONV_JOIN(A, B) A##B
#define SLEEPCONV_NAME(ISA, SUFFIX) SLEEPCONV_JOIN(ISA, SUFFIX)
const Kernels SLEEPCONV_NAME(SLEEPCONV_ISA, _float_kernels) = {tasks<float>, scratch_bytes<float>, run<float>};
const Kernels SLEEPCONV_NAME(SLEEPCONV_ISA, _double_kernels) = {tasks<double>, scratch_bytes<double>, run<double>};
