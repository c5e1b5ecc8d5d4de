// Depthwise layers: every channel has its own filter, and vectors run along the channels.
//
//     y[position][b][c] = sum over taps of x[pixel][b][c] * w[position][c][tap]
//
// Filters are repacked first, to (position, block of channels, tap, channel). A task of the forward pass or the input
// gradient is one block of channels and a few images, so that what the windows share stays in the cache.
#pragma once
#include "shape.h"
#include "transpose.h"

namespace {

template <class T>
struct Tap {
    const T *values, *weights;  // of one block of channels: values[b * channels + c], weights[c]
};

template <class T, int ROWS>
void depthwise_tile(const Tap<T> *taps, int64_t count, int64_t row, int64_t channels, int64_t skip, T *out) {
    using V = Vector<T>;
    typename V::type sum[ROWS] = {};
    for (int64_t k = 0; k < count; ++k) {
        const typename V::type weights = V::load(taps[k].weights);
        const T *values = taps[k].values + row * channels;
        SLEEPCONV_UNROLL
        for (int r = 0; r < ROWS; ++r) sum[r] += V::load(values + r * channels) * weights;
    }
    out += row * channels;
    SLEEPCONV_UNROLL
    for (int r = 0; r < ROWS; ++r, out += channels) {
        if (!skip)
            V::store(out, sum[r]);
        else
            for (int64_t c = skip; c < V::lanes; ++c) out[c] = sum[r][c];
    }
}

// Sums over the batch, for a few filter taps.
template <class T, int TAPS>
void depthwise_dot_products(const T *const *values, const T *grads, int64_t batch, int64_t channels, T *out) {
    using V = Vector<T>;
    typename V::type sum[TAPS] = {};
    for (int64_t b = 0, at = 0; b < batch; ++b, at += channels) {
        const typename V::type grad = V::load(grads + at);
        SLEEPCONV_UNROLL
        for (int t = 0; t < TAPS; ++t) sum[t] += V::load(values[t] + at) * grad;
    }
    SLEEPCONV_UNROLL
    for (int t = 0; t < TAPS; ++t) V::store(out + t * V::lanes, sum[t]);
}

template <class T>
struct Depthwise {
    static constexpr int lanes = Vector<T>::lanes, some_taps = 7;
    static constexpr int64_t images = 8, many_images = 16;
    const Geometry &g;
    const Shape shape;
    const int64_t channels, blocks;

    explicit Depthwise(const Geometry &geometry)
        : g(geometry), shape(geometry), channels(g.groups), blocks(ceil_div(channels, lanes)) {}

    bool fits() const { return shape.in == 1 && shape.out == 1 && channels >= lanes; }

    // The first channel of a block. The last block overlaps the one before if the channels do not fill it.
    int64_t first_channel(int64_t block) const { return smaller(block * lanes, channels - lanes); }

    int64_t places(Pass pass) const { return product(pass == INPUT_GRADIENT ? g.in_size : g.out_size); }
    int64_t image_blocks() const { return ceil_div(g.batch, many_images); }
    // Places are shared out where blocks are too few to keep the threads busy.
    int64_t parts(Pass pass, int threads) const {
        return smaller(ceil_div(4 * threads, blocks * image_blocks()), places(pass));
    }
    T *filters_in(void *shared, Pass pass) const {
        return reinterpret_cast<T *>(static_cast<int64_t *>(shared) + places(pass) * shape.taps);
    }

    Plan plan(Pass pass, int threads) const {
        const size_t taps = size_t(shape.taps), block = lanes * sizeof(T);
        if (pass == WEIGHT_GRADIENT) return {{shape.positions, 0}, 0, taps * (2 * sizeof(void *) + block)};
        const size_t table = size_t(places(pass)) * taps * sizeof(int64_t);
        return {{larger(shape.positions, places(pass)), blocks * image_blocks() * parts(pass, threads)},
                table + size_t(shape.positions * blocks) * taps * block, taps * sizeof(Tap<T>)};
    }

    void run(Pass pass, int threads, int phase, int64_t task, const T *first, const T *second, T *out, void *shared,
             T *scratch) const {
        if (pass == WEIGHT_GRADIENT) return differentiate_filter(task, first, second, out, scratch);
        T *filters = filters_in(shared, pass);
        int64_t *others = static_cast<int64_t *>(shared);  // [place][tap]: the pixel (backward: position) at the other end
        if (phase == 1) return apply(pass, threads, task, first, filters, others, out, scratch);
        if (task < shape.positions) pack(second + task * channels * shape.taps, filters + task * blocks * shape.taps * lanes);
        if (pass == FORWARD) look(g, task, others + task * shape.taps);
        for (int64_t tap = 0; tap < shape.taps && pass != FORWARD && task < places(pass); ++tap)
            others[task * shape.taps + tap] = position_of(g, task, tap);
    }

    void pack(const T *filters, T *to) const {
        for (int64_t block = 0; block < blocks; ++block, to += shape.taps * lanes) {
            const T *from = filters + first_channel(block) * shape.taps;
            transpose<T>(
                lanes, shape.taps, [=](int64_t c) { return from + c * shape.taps; },
                [=](int64_t tap) { return to + tap * lanes; });
        }
    }

    // Forward: at each output position, its inputs. Backward: at each input pixel, the positions that look at it.
    void apply(Pass pass, int threads, int64_t task, const T *from, const T *filters, const int64_t *others, T *to,
               T *scratch) const {
        const int64_t split = parts(pass, threads), part = task % split;
        const int64_t block = task / split % blocks, first = task / split / blocks * many_images;
        const int64_t channel = first_channel(block), page = g.batch * channels;
        Tap<T> *taps = reinterpret_cast<Tap<T> *>(scratch);
        for (int64_t place = places(pass) * part / split; place < places(pass) * (part + 1) / split; ++place) {
            int64_t count = 0;
            for (int64_t tap = 0; tap < shape.taps; ++tap) {
                const int64_t other = others[place * shape.taps + tap], position = pass == FORWARD ? place : other;
                if (other < 0) continue;
                taps[count++] = {from + other * page + channel,
                                 filters + ((position * blocks + block) * shape.taps + tap) * lanes};
            }
            T *out = to + place * page + channel;
            const int64_t end = smaller(first + many_images, g.batch), skip = block * lanes - channel;
            int64_t row = first;
            for (; row + images <= end; row += images) depthwise_tile<T, images>(taps, count, row, channels, skip, out);
            for (; row < end; ++row) depthwise_tile<T, 1>(taps, count, row, channels, skip, out);
        }
    }

    void differentiate_filter(int64_t position, const T *x, const T *dy, T *dw, T *scratch) const {
        const T **values = reinterpret_cast<const T **>(scratch);
        int64_t *taps = reinterpret_cast<int64_t *>(values + shape.taps), count = 0;
        T *sums = reinterpret_cast<T *>(taps + shape.taps);
        look(g, position, taps);
        for (int64_t tap = 0; tap < shape.taps; ++tap) {
            if (taps[tap] < 0) continue;
            values[count] = x + taps[tap] * g.batch * channels;
            taps[count++] = tap;
        }
        memset(dw + position * channels * shape.taps, 0, size_t(channels * shape.taps) * sizeof(T));
        for (int64_t block = 0, moved = 0; block < blocks; ++block) {
            const int64_t channel = first_channel(block);
            for (int64_t t = 0; t < count; ++t) values[t] += channel - moved;
            moved = channel;
            const T *grads = dy + position * g.batch * channels + channel;
            int64_t t = 0;
            for (; t + some_taps <= count; t += some_taps)
                depthwise_dot_products<T, some_taps>(values + t, grads, g.batch, channels, sums + t * lanes);
            for (; t < count; ++t)
                depthwise_dot_products<T, 1>(values + t, grads, g.batch, channels, sums + t * lanes);
            T *filters = dw + (position * channels + channel) * shape.taps;
            for (int64_t c = 0; c < lanes; ++c)
                for (int64_t k = 0; k < count; ++k) filters[c * shape.taps + taps[k]] = sums[k * lanes + c];
        }
    }
};

}  // namespace
