// The forward pass of a layer that has one filter per lateral grid: a task packs the filters of one grid and one group
// once and applies them to a share of the grid's lines of neurons. All grids read all inputs, so a large batch goes in
// blocks whose inputs stay in the cache.
//
//     y[position][b][o] = sum over taps and c of x[pixel][b][c] * w[position modulo spacing][o][c][tap]
#pragma once
#include "channels.h"

namespace {

struct GridTask {
    int64_t grid, group, corner[3], lines[2], first, end;  // lines first .. end of the grid's lines[0] x lines[1]
    int64_t image, images;                                 // images image .. image + images
    static int64_t grids(const Geometry &g) { return product(g.spacing); }
    static int64_t shares(const Geometry &g, int threads) {
        const int64_t lines = ceil_div(g.out_size[0], g.spacing[0]) * ceil_div(g.out_size[1], g.spacing[1]);
        return smaller(lines, ceil_div(8 * threads, grids(g) * g.groups));
    }
    static int64_t blocks(const Geometry &g) {
        const int64_t inputs = g.in_channels * product(g.in_size);
        return ceil_div(g.batch, larger(16, (int64_t(1) << 19) / inputs));
    }
    static int64_t tasks(const Geometry &g, int threads) {
        return blocks(g) * grids(g) * g.groups * shares(g, threads);
    }
    GridTask(const Geometry &g, int threads, int64_t number) {
        const int64_t parts = shares(g, threads), part = number % parts;
        group = number / parts % g.groups;
        grid = number / parts / g.groups % grids(g);
        const int64_t block = number / parts / g.groups / grids(g);
        image = g.batch * block / blocks(g);
        images = g.batch * (block + 1) / blocks(g) - image;
        int64_t left = grid;
        for (int axis = 2; axis >= 0; --axis) {
            corner[axis] = left % g.spacing[axis];
            left /= g.spacing[axis];
        }
        for (int axis = 0; axis < 2; ++axis)
            lines[axis] = ceil_div(g.out_size[axis] - corner[axis], g.spacing[axis]);
        first = lines[0] * lines[1] * part / parts;
        end = lines[0] * lines[1] * (part + 1) / parts;
    }
};

// Whether two neurons of one line have the same taps in the padding.
inline bool same_taps(const Geometry &g, int64_t one, int64_t other) {
    for (int64_t v = 0; v < g.kernel[2]; ++v) {
        const int64_t shift = v * g.dilation[2] - g.padding[2];
        const int64_t a = one * g.stride[2] + shift, b = other * g.stride[2] + shift;
        if ((a >= 0 && a < g.in_size[2]) != (b >= 0 && b < g.in_size[2])) return false;
    }
    return true;
}

template <class T>
void forward_on_grid(const Geometry &g, int threads, int64_t number, const T *x, const T *w, T *y, T *scratch) {
    const Shape shape(g);
    const GridTask task(g, threads, number);
    const int64_t inputs = shape.inputs, width = panel_width<T>(shape.out), tile_stride = inputs * width;
    int64_t *rows = reinterpret_cast<int64_t *>(scratch), *pixels = rows + inputs;
    T *const panels = reinterpret_cast<T *>(pixels + shape.taps);
    Segment<T> *segments = reinterpret_cast<Segment<T> *>(
        pack_filters(shape, w + (task.grid * g.out_channels + task.group * shape.out) * inputs, shape.out, width, rows,
                     panels));
    const int64_t step = g.spacing[2];
    for (int64_t line = task.first; line < task.end; ++line) {
        const int64_t depth = task.corner[0] + line / task.lines[1] * g.spacing[0];
        const int64_t height = task.corner[1] + line % task.lines[1] * g.spacing[1];
        const int64_t start = (depth * g.out_size[1] + height) * shape.line;
        for (int64_t j = task.corner[2], next; j < shape.line; j = next) {
            // A single image has one row per neuron: neurons that see the same taps make one product.
            for (next = j + step; g.batch == 1 && next < shape.line && same_taps(g, j, next);) next += step;
            look(g, start + j, pixels);
            int64_t count = 0;
            for (int64_t tap = 0; tap < shape.taps; ++tap) {
                if (pixels[tap] < 0) continue;
                const T *a = x + (pixels[tap] * g.batch + task.image) * g.in_channels + task.group * shape.in;
                segments[count++] = {a, panels + tap * shape.in * width};
            }
            const bool one = g.batch == 1;
            const Product<T> sum = {
                segments, count, shape.in, g.in_channels * (one ? step * g.stride[2] : 1), width, width, tile_stride};
            multiply<T, false>(sum, one ? (next - j) / step : task.images, shape.out,
                               y + ((start + j) * g.batch + task.image) * g.out_channels + task.group * shape.out,
                               g.out_channels * (one ? step : 1), false);
        }
    }
}

template <class T>
struct OnGrids {
    static Plan plan(const Geometry &g, int threads) {
        const Shape shape(g);
        const int64_t width = panel_width<T>(shape.out);
        const int64_t numbers = shape.inputs * width * ceil_div(shape.out, width);
        const size_t scratch = size_t(numbers) * sizeof(T) + size_t(shape.taps) * sizeof(Segment<T>) +
                               size_t(shape.inputs + shape.taps) * sizeof(int64_t);
        return {{GridTask::tasks(g, threads), 0}, 0, scratch};
    }

    static void run(const Geometry &g, int threads, int64_t task, const T *x, const T *w, T *y, T *scratch) {
        forward_on_grid(g, threads, task, x, w, y, scratch);
    }
};

}  // namespace
