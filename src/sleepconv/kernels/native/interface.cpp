// The C interface: chooses the instruction set, shares a pass's tasks among threads.
#include "interface.h"

#include <atomic>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

constexpr int64_t SHARE_BLOCK = 4096;

enum InstructionSet { PORTABLE = 0, AVX2 = 1, AVX512 = 2 };

const Kernels *kernels(int instruction_set, int is_double) {
#if defined(__x86_64__)
    if (instruction_set == AVX512) return is_double ? &avx512_double_kernels : &avx512_float_kernels;
    if (instruction_set == AVX2) return is_double ? &avx2_double_kernels : &avx2_float_kernels;
#endif
    return is_double ? &portable_double_kernels : &portable_float_kernels;
}

// Memory whose start is aligned to a cache line; null if there is none.
struct Aligned {
    void *memory;
    explicit Aligned(size_t bytes) : memory(malloc(bytes + 64)) {}
    ~Aligned() { free(memory); }
    Aligned(const Aligned &) = delete;
    char *start() const {
        char *first = static_cast<char *>(memory);
        return first ? first + (64 - reinterpret_cast<uintptr_t>(first) % 64) : nullptr;
    }
};

// Tasks, in as many bands as there are threads. A thread begins with its own band, so that it finds in its cache what it
// wrote in the phase or layer before; then it takes tasks from the bands of others.
struct Bands {
    static constexpr int MAX_BANDS = 64;
    struct alignas(64) Band {
        std::atomic<int64_t> next;
        int64_t end;
    };
    Band bands[MAX_BANDS];
    int count;
    int64_t run;

    Bands(int64_t tasks, int team) : count(team < MAX_BANDS ? team : MAX_BANDS) {
        // Neighbouring positions look at the same inputs: a thread takes a run of them where there are plenty.
        const int64_t each = tasks / (16 * int64_t(team));
        run = each < 1 ? 1 : each < 32 ? each : 32;
        for (int64_t i = 0; i < count; ++i) {
            bands[i].next = tasks * i / count;
            bands[i].end = tasks * (i + 1) / count;
        }
    }

    template <class Function>
    void take(int thread, Function do_task) {
        for (int i = 0; i < count; ++i) {
            Band &band = bands[(thread + i) % count];
            int64_t first;
            while ((first = band.next.fetch_add(run)) < band.end) {
                const int64_t end = first + run < band.end ? first + run : band.end;
                for (int64_t task = first; task < end; ++task) do_task(task);
            }
        }
    }

    bool done() const {
        for (int i = 0; i < count; ++i)
            if (bands[i].next < bands[i].end) return false;
        return true;
    }
};

struct Work {
    const Kernels *kernels;
    const Geometry *geometry;
    Pass pass;
    int threads, phase;
    Buffers buffers;
    Plan plan;
    Bands *bands;
    std::atomic<int> out_of_memory{0};
};

void take_tasks(void *data, int thread) {
    Work &work = *static_cast<Work *>(data);
    const Aligned scratch(work.plan.scratch_bytes);
    if (!scratch.memory) {
        work.out_of_memory = 1;
        return;
    }
    work.bands->take(thread, [&](int64_t task) {
        work.kernels->run(*work.geometry, work.pass, work.threads, work.phase, task, work.buffers, scratch.start());
    });
}

// PyTorch's own OpenMP threads do the work where its runtime has this entry point (GNU's and LLVM's on Linux do): a
// second set of threads would fight with the first, which spins for a while after each operation.
using GompParallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
using ThreadNumber = int (*)();

template <class Pointer>
Pointer find_symbol([[maybe_unused]] const char *name) {
#if defined(__linux__)
    return reinterpret_cast<Pointer>(dlsym(RTLD_DEFAULT, name));
#else
    return nullptr;
#endif
}

struct Job {
    void (*function)(void *, int);
    void *data;
};

void do_job(void *job) {
    static const ThreadNumber number = find_symbol<ThreadNumber>("omp_get_thread_num");
    static_cast<Job *>(job)->function(static_cast<Job *>(job)->data, number ? number() : 0);
}

void on_all_threads(void (*function)(void *, int), void *data, int threads) {
    static const GompParallel parallel = find_symbol<GompParallel>("GOMP_parallel");
    if (threads == 1) return function(data, 0);
    if (parallel) {
        Job job = {function, data};
        return parallel(do_job, &job, unsigned(threads), 0);
    }
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < threads; ++i) others.emplace_back(function, data, i);
    } catch (...) {  // no more threads to be had: those that started do the work
    }
    function(data, 0);
    for (std::thread &other : others) other.join();
}

// A block of filter weights of one grid: add up its neurons' weights, then give all of them the mean. The sum is in
// double precision, in which equal weights have exactly themselves as their mean.
template <class T>
void share_block(T *weight, int64_t filter, const int64_t *neurons, int64_t count, int64_t first, int64_t length) {
    double sum[SHARE_BLOCK] = {};
    for (int64_t n = 0; n < count; ++n) {
        const T *from = weight + neurons[n] * filter + first;
        for (int64_t i = 0; i < length; ++i) sum[i] += from[i];
    }
    T mean[SHARE_BLOCK];
    for (int64_t i = 0; i < length; ++i) mean[i] = T(sum[i] / double(count));
    for (int64_t n = 0; n < count; ++n) memcpy(weight + neurons[n] * filter + first, mean, size_t(length) * sizeof(T));
}

struct Sharing {
    void *weight;
    int is_double;
    int64_t filter, grids;
    const int64_t *neurons, *starts;  // the neurons sorted by grid; where each grid starts among them
    Bands *bands;

    int64_t blocks() const { return (filter + SHARE_BLOCK - 1) / SHARE_BLOCK; }
};

void take_blocks(void *data, int thread) {
    Sharing &work = *static_cast<Sharing *>(data);
    const int64_t blocks = work.blocks();
    work.bands->take(thread, [&](int64_t task) {
        const int64_t grid = task / blocks, first = task % blocks * SHARE_BLOCK;
        const int64_t *neurons = work.neurons + work.starts[grid];
        const int64_t count = work.starts[grid + 1] - work.starts[grid];
        const int64_t length = work.filter - first < SHARE_BLOCK ? work.filter - first : SHARE_BLOCK;
        if (work.is_double)
            share_block(static_cast<double *>(work.weight), work.filter, neurons, count, first, length);
        else
            share_block(static_cast<float *>(work.weight), work.filter, neurons, count, first, length);
    });
}

}  // namespace

// The best instruction set that this processor and its operating system support.
EXPORT int sleepconv_instruction_set() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AVX2;
#endif
    return PORTABLE;
}

// 0: done; 1: no memory for the scratch space; 2: an instruction set that this processor does not have.
EXPORT int sleepconv_run(const Geometry *geometry, int pass, int is_double, int instruction_set, int threads,
                         const void *first, const void *second, void *out) {
    if (instruction_set < PORTABLE || instruction_set > sleepconv_instruction_set()) return 2;
    Work work;
    work.kernels = kernels(instruction_set, is_double);
    work.geometry = geometry;
    work.pass = Pass(pass);
    work.threads = threads;
    work.plan = work.kernels->plan(*geometry, work.pass, threads);
    const Aligned shared(work.plan.shared_bytes);
    if (!shared.memory) return 1;
    work.buffers = {first, second, out, shared.start()};
    for (work.phase = 0; work.phase < PHASES; ++work.phase) {
        const int64_t tasks = work.plan.tasks[work.phase];
        const int team = tasks < threads ? int(tasks) : threads;
        if (team < 1) continue;
        Bands bands(tasks, team);
        work.bands = &bands;
        on_all_threads(take_tasks, &work, team);
        if (work.out_of_memory && !bands.done()) return 1;
    }
    return 0;
}

// Every filter of a grid becomes their mean, in place.
EXPORT void sleepconv_share(void *weight, int is_double, int64_t filter, int64_t grids, const int64_t *neurons,
                            const int64_t *starts, int threads) {
    Sharing work;
    work.weight = weight;
    work.is_double = is_double;
    work.filter = filter;
    work.grids = grids;
    work.neurons = neurons;
    work.starts = starts;
    const int64_t tasks = grids * work.blocks();
    const int team = tasks < threads ? int(tasks) : threads;
    if (team < 1) return;
    Bands bands(tasks, team);
    work.bands = &bands;
    on_all_threads(take_blocks, &work, team);
}
