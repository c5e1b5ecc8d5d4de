// The C interface: chooses the instruction set, shares a pass's tasks among threads.
#include "interface.h"

#include <atomic>
#include <stdlib.h>
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

enum InstructionSet { PORTABLE = 0, AVX2 = 1, AVX512 = 2 };

const Kernels *kernels(int instruction_set, int is_double) {
#if defined(__x86_64__)
    if (instruction_set == AVX512) return is_double ? &avx512_double_kernels : &avx512_float_kernels;
    if (instruction_set == AVX2) return is_double ? &avx2_double_kernels : &avx2_float_kernels;
#endif
    return is_double ? &portable_double_kernels : &portable_float_kernels;
}

struct Work {
    const Kernels *kernels;
    const Geometry *geometry;
    Pass pass;
    int threads, team;
    const void *first, *second;
    void *out;
    size_t scratch_bytes;
    int64_t tasks;
    std::atomic<int64_t> next{0};
    std::atomic<int> out_of_memory{0};
};

void take_tasks(void *data) {
    Work &work = *static_cast<Work *>(data);
    char *memory = static_cast<char *>(malloc(work.scratch_bytes + 64));
    if (!memory) {
        work.out_of_memory = 1;
        return;
    }
    char *scratch = memory + (64 - reinterpret_cast<uintptr_t>(memory) % 64);
    // Neighbouring positions look at the same inputs: a thread takes a run of them where there are plenty.
    const int64_t run = work.tasks >= 64 * work.team ? 8 : 1;
    for (int64_t task; (task = work.next.fetch_add(run)) < work.tasks;)
        for (const int64_t end = task + run < work.tasks ? task + run : work.tasks; task < end; ++task)
            work.kernels->run(*work.geometry, work.pass, work.threads, task, work.first, work.second, work.out, scratch);
    free(memory);
}

// PyTorch's own OpenMP threads do the work where its runtime has this entry point (GNU's and LLVM's on Linux do): a
// second set of threads would fight with the first, which spins for a while after each operation.
using GompParallel = void (*)(void (*)(void *), void *, unsigned, unsigned);

GompParallel gomp_parallel() {
#if defined(__linux__)
    static GompParallel found = reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return found;
#else
    return nullptr;
#endif
}

void on_all_threads(Work &work) {
    if (work.team == 1) return take_tasks(&work);
    if (GompParallel parallel = gomp_parallel()) return parallel(take_tasks, &work, unsigned(work.team), 0);
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < work.team; ++i) others.emplace_back(take_tasks, &work);
    } catch (...) {  // no more threads to be had: those that started do the work
    }
    take_tasks(&work);
    for (std::thread &other : others) other.join();
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
    work.first = first;
    work.second = second;
    work.out = out;
    work.threads = threads;
    work.tasks = work.kernels->tasks(*geometry, work.pass, threads);
    work.scratch_bytes = work.kernels->scratch_bytes(*geometry, work.pass);
    work.team = work.tasks < threads ? int(work.tasks) : threads;
    if (work.team < 1) return 0;
    on_all_threads(work);
    return work.out_of_memory && work.next < work.tasks ? 1 : 0;
}
