// Sizes that all passes need, and which input a filter tap looks at.
#pragma once
#include "interface.h"
#include "tile.h"

namespace {

inline int64_t product(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

struct Shape {
    int64_t in, out, taps, inputs, positions, line;  // channels of a group; filter taps, inputs of a filter (c, tap);
                                                     // output positions; length of an output line
    explicit Shape(const Geometry &g)
        : in(g.in_channels / g.groups), out(g.out_channels / g.groups), taps(product(g.kernel)), inputs(in * taps),
          positions(product(g.out_size)), line(g.out_size[2]) {}
};

// The place along one axis that a filter tap looks at; -1 in the padding.
inline int64_t seen(const Geometry &g, int axis, int64_t position, int64_t tap) {
    const int64_t at = position * g.stride[axis] - g.padding[axis] + tap * g.dilation[axis];
    return at < 0 || at >= g.in_size[axis] ? -1 : at;
}

// The place along one axis whose filter looks at a pixel through this tap; -1 if there is none.
inline int64_t seeing(const Geometry &g, int axis, int64_t pixel, int64_t tap) {
    const int64_t reach = pixel + g.padding[axis] - tap * g.dilation[axis];
    if (reach < 0 || reach % g.stride[axis]) return -1;
    return reach / g.stride[axis] < g.out_size[axis] ? reach / g.stride[axis] : -1;
}

// The input pixels that the filter taps of an output position look at; -1 in the padding.
inline void look(const Geometry &g, int64_t position, int64_t *pixels) {
    const int64_t k = position % g.out_size[2], line = position / g.out_size[2];
    const int64_t j = line % g.out_size[1], i = line / g.out_size[1];
    for (int64_t u = 0; u < g.kernel[0]; ++u) {
        const int64_t depth = seen(g, 0, i, u);
        for (int64_t v = 0; v < g.kernel[1]; ++v) {
            const int64_t height = seen(g, 1, j, v), first = (depth * g.in_size[1] + height) * g.in_size[2];
            for (int64_t t = 0; t < g.kernel[2]; ++t) {
                const int64_t width = seen(g, 2, k, t);
                *pixels++ = depth < 0 || height < 0 || width < 0 ? -1 : first + width;
            }
        }
    }
}

// The output position that looks at pixel `pixel` through tap `tap`; -1 if there is none.
inline int64_t position_of(const Geometry &g, int64_t pixel, int64_t tap) {
    int64_t position = 0, step = 1;
    for (int axis = 2; axis >= 0; --axis) {
        const int64_t at = seeing(g, axis, pixel % g.in_size[axis], tap % g.kernel[axis]);
        if (at < 0) return -1;
        position += at * step;
        step *= g.out_size[axis];
        pixel /= g.in_size[axis];
        tap /= g.kernel[axis];
    }
    return position;
}

// Neighbouring positions, of several lines, one after the other: they look at the same inputs.
inline int64_t in_strips(const Geometry &g, int64_t number) {
    const int64_t strip = 4, line = g.out_size[2], lines = g.out_size[0] * g.out_size[1];
    const int64_t first = number / (strip * line) * strip, height = smaller(strip, lines - first);
    const int64_t rest = number % (strip * line);
    return (first + rest % height) * line + rest / height;
}

}  // namespace
