// The choice of how a layer is computed. Included once per instruction set.
#include "across.h"
#include "channels.h"
#include "depthwise.h"
#include "grids.h"

namespace {

template <class T>
Plan plan(const Geometry &g, Pass pass, int threads) {
    if (pass == FORWARD_ON_GRIDS) return OnGrids<T>::plan(g, threads);
    const Depthwise<T> depthwise(g);
    if (depthwise.fits()) return depthwise.plan(pass, threads);
    const Across<T> across(g);
    return across.pays(pass) ? across.plan(pass, threads) : AlongChannels<T>::plan(g, pass, threads);
}

template <class T>
void run(const Geometry &g, Pass pass, int threads, int phase, int64_t task, const Buffers &buffers, void *memory) {
    const T *first = static_cast<const T *>(buffers.first), *second = static_cast<const T *>(buffers.second);
    T *out = static_cast<T *>(buffers.out), *shared = static_cast<T *>(buffers.shared);
    T *scratch = static_cast<T *>(memory);
    if (pass == FORWARD_ON_GRIDS) return OnGrids<T>::run(g, threads, task, first, second, out, scratch);
    const Depthwise<T> depthwise(g);
    if (depthwise.fits()) return depthwise.run(pass, threads, phase, task, first, second, out, shared, scratch);
    const Across<T> across(g);
    if (across.pays(pass)) return across.run(pass, threads, phase, task, first, second, out, shared, scratch);
    AlongChannels<T>::run(g, pass, threads, task, first, second, out, scratch);
}

}  // namespace

#define SLEEPCONV_JOIN(A, B) A##B
#define SLEEPCONV_NAME(ISA, SUFFIX) SLEEPCONV_JOIN(ISA, SUFFIX)
const Kernels SLEEPCONV_NAME(SLEEPCONV_ISA, _float_kernels) = {plan<float>, run<float>};
const Kernels SLEEPCONV_NAME(SLEEPCONV_ISA, _double_kernels) = {plan<double>, run<double>};
