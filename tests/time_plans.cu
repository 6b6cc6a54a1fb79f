/* time_plans.cu: times every plan that a product can run by, over random shapes, as CSV: what BSRI_COST_ROWS was fitted to
   (tests/fit_plans.py), and is checked against with other seeds.

     nvcc -O2 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_BF16 \
         tests/time_plans.cu -o build/time_plans
     build/time_plans SEED COUNT [bf16|f16|f32|i8[+relu|+tf32|+tf32x3|+any|+few|+sampled]] [M,K,N,block,sparsity[,ways] ...]
     build/time_plans --estimate < TIMES.csv     (writes the lines with what is estimated now; wants no GPU)

   +sampled: sampled products instead, [M,K,N,...] of a result of M x N; ways 1: mat1's columns are contiguous, 2: mat2's.
   ways: 1: the dense operand's columns are contiguous, 2: the result's, 4: the matrix is transposed, 8: ReLU, 16: an input is
   added, 32: a schedule is attached; +any draws the first four, and few columns in every third shape, +few in all of them.
   Random-normal operands, calls back to back in CUDA graphs, plans in turn; the median of the rounds, of plans 1.6 times as
   slow as the fastest one of them. Results are compared with each other. */
struct bsri_estimate;
static void watch(const bsri_estimate *e);
#define BSRI_WATCH_ESTIMATE(e) watch(e)
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "plan_cases.h"

#include <algorithm>
#include <stdio.h>
#include <vector>

static const bsr_context *gpu, *cpu;
static cudaStream_t stream;
/* What is only read, random-normal; what is written. */
static struct arena {
    char *data;
    size_t size, used;
} inputs = {NULL, (size_t)2 << 30, 0}, others = {NULL, (size_t)2 << 30, 0};
static unsigned *wrong; /* elements of results */
static int refused;
static unsigned seen; /* of them, so far */
static const char *kind = "bf16"; /* of products: a type, and what comes with it */

static bsri_estimate offered; /* what was chosen last */
static void watch(const bsri_estimate *e) { offered = *e; }

static void check(cudaError_t e) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
    exit(1);
}
/* Not t_random(): gigabytes are filled where they are, on the GPU. */
static __global__ void fill(void *data, int dtype, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        float v = 0;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9), z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb), z ^= z >> 31;
        for (int k = 0; k < 4; k++) v += (float)((z >> 16 * k) & 0xffff) / 65536.0f - 0.5f;
        if (dtype == BSR_I8) ((int8_t *)data)[i] = (int8_t)(v * 14);
        else bsri_dev_store(data, dtype, i, v * 1.7f);
    }
}
static void *take(arena *a, size_t bytes) {
    void *p = a->data + a->used;
    a->used += (bytes + 4095) / 4096 * 4096;
    if (a->used > a->size) fprintf(stderr, "out of memory\n"), exit(1);
    return p;
}

/* How many elements of two results differ by more than rounding. */
static __global__ void compare(const void *x, const void *y, int dtype, int64_t n, unsigned *wrong) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const float a = dtype == BSR_BF16  ? __bfloat162float(((const __nv_bfloat16 *)x)[i])
                        : dtype == BSR_F16 ? __half2float(((const __half *)x)[i])
                        : dtype == BSR_F32 ? ((const float *)x)[i]
                                           : (float)((const int32_t *)x)[i];
        const float b = dtype == BSR_BF16  ? __bfloat162float(((const __nv_bfloat16 *)y)[i])
                        : dtype == BSR_F16 ? __half2float(((const __half *)y)[i])
                        : dtype == BSR_F32 ? ((const float *)y)[i]
                                           : (float)((const int32_t *)y)[i];
        if (!(fabsf(a - b) <= 0.01f * fabsf(b) + 0.01f)) atomicAdd(wrong, 1u);
    }
}

struct plan {
    bsr_plan p;
    bsri_estimate e;
    cudaGraphExec_t run;
    std::vector<float> us;
};
/* A copy of so many bytes. */
static void *on_gpu(const void *from, size_t bytes) {
    void *to = take(&others, bytes);
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return to;
}
static void must(bsr_status status) {
    if (status != BSR_OK) fprintf(stderr, "%s\n", bsr_status_name(status)), exit(1);
}
/* A product or a sampled product, and how it is called. */
struct problem : plan_problem {
    bsr_exec ex;
    explicit problem(const plan_shape &shape) : plan_problem(plan_problem_of(kind, shape)), ex(BSR_ZERO) {
        ex.stream = stream, ex.flags = plan_flags(kind);
    }
    void *out() const { return sampled ? a.values : c.data; }
    bsr_status call(const bsr_context *ctx) const { return plan_call(ctx, this, &ex); }
};
/* A view that is built here, copied. */
template <class F> static const void *view_of(uint64_t bytes, F build) {
    std::vector<char> made(bytes + 64);
    char *at = made.data() + (64 - (uintptr_t)made.data() % 64) % 64;
    must(build(at));
    return on_gpu(at, bytes);
}
/* A random pattern's index arrays, and views of them. */
static void index_arrays(problem &p) {
    std::vector<int32_t> crow((size_t)(p.rows / p.x.b) + 1), col((size_t)p.nnz + 1);
    const void *index = NULL, *schedule = NULL;
    const int group = (int)std::max<int64_t>(1, 128 / p.x.b); /* block rows that share a tile */
    uint64_t bytes = 0;
    p.a.crow_indices = crow.data(), p.a.col_indices = col.data();
    must(bsr_random_pattern(cpu, plan_state, p.x.s, &p.a, NULL));
    if (p.trans) {
        must(bsr_transposed_index_size(cpu, &p.a, &bytes, NULL));
        index = view_of(bytes, [&](void *at) { return bsr_build_transposed_index(cpu, &p.a, at, bytes, NULL); });
    }
    if (p.x.ways & PLAN_SCHEDULE) {
        must(bsr_schedule_size(cpu, &p.a, group, p.trans, &bytes, NULL));
        schedule = view_of(bytes, [&](void *at) { return bsr_build_schedule(cpu, &p.a, group, p.trans, at, bytes, NULL); });
    }
    p.a.transposed_index = index, p.a.schedule = schedule;
    p.a.crow_indices = on_gpu(crow.data(), crow.size() * 4), p.a.col_indices = on_gpu(col.data(), col.size() * 4);
}
static float elapsed(cudaGraphExec_t run, int calls) {
    static cudaEvent_t a, b;
    float ms;
    if (!a) check(cudaEventCreate(&a)), check(cudaEventCreate(&b));
    check(cudaEventRecord(a, stream));
    check(cudaGraphLaunch(run, stream));
    check(cudaEventRecord(b, stream));
    check(cudaEventSynchronize(b));
    check(cudaEventElapsedTime(&ms, a, b));
    return ms * 1000 / (float)calls;
}
template <class F> static cudaGraphExec_t graph_of(F call, int calls) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) call();
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&run, graph, 0));
    check(cudaGraphDestroy(graph));
    return run;
}

/* All plans that differ. */
static std::vector<plan> plans_of(problem &x) {
    std::vector<plan> plans;
    bsr_plan asked, got = BSR_ZERO;
    for (int i = 0; i < PLAN_ASKED; i++) {
        bool known = false;
        asked = plan_asked(i), x.ex.plan = &asked, x.ex.query = &got;
        if (x.call(gpu) != BSR_OK) continue;
        for (plan &o : plans) known |= plan_same(&o.p, &got) != 0;
        if (!known) plans.push_back({got, offered, NULL, {}});
    }
    x.ex.query = NULL;
    return plans;
}
static void print_line(const plan_shape &x, const plan &y, float us, int chosen) {
    const bsri_traits &t = y.e.traits;
    printf("%s,%d,%d,%d,%d,%g,%d,%d,%d,%d,%d,%d,%d,%.3f,%d", kind, (int)x.m, (int)x.k, (int)x.n, (int)x.b, x.s, x.ways,
           y.p.kernel, y.p.instance, y.p.tile_rows, y.p.tile_cols, y.p.split, y.p.order, us, chosen);
    printf(",%.1f,%d,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%g,%g,%.6g\n", y.e.ns, y.e.kind, t.waves, t.tile, t.fused, t.slices,
           t.piece, t.along, t.own, t.area, t.crooked, t.busy, t.memory);
}
static void time_shape(const plan_shape &x) {
    problem p(x);
    const size_t size = bsr_dtype_size(p.dtype), bytes = (size_t)p.written * bsr_dtype_size(p.result);
    const double flop = 2.0 * (double)p.nnz * (double)(x.b * x.b) * (double)(p.sampled ? x.k : x.n);
    const double rate = p.dtype == BSR_F32 ? 3e13 : 2e14;
    const int calls = (int)std::max(2.0, std::min(24.0, 200e-6 / (flop / rate + 5e-6)));
    bsr_plan chosen = BSR_ZERO;
    void *const to = take(&others, bytes), *const values = p.sampled ? to : take(&inputs, (size_t)(p.nnz * x.b * x.b) * size);
    void *const b = take(&inputs, (size_t)((p.sampled ? x.m : x.n) * x.k) * size), *first = NULL;
    plan_operands(&p, values, b, p.sampled ? take(&inputs, (size_t)(x.k * x.n) * size) : to,
                  x.ways & PLAN_INPUT ? take(&inputs, bytes) : NULL);
    index_arrays(p);
    p.ex.query = &chosen;
    if (p.call(gpu) != BSR_OK) {
        fprintf(stderr, "%d x %d x %d, blocks of %d: refused\n", (int)x.m, (int)x.k, (int)x.n, (int)x.b);
        inputs.used = others.used = 0, refused++;
        return;
    }
    std::vector<plan> plans = plans_of(p);
    if (bytes < 64 << 20) first = take(&others, bytes); /* the result of the first plan, which others are compared with */
    for (plan &y : plans) {
        p.ex.plan = &y.p;
        check(cudaMemsetAsync(p.out(), 255, bytes, stream));
        if (p.call(gpu) != BSR_OK) fprintf(stderr, "refused\n"), exit(1);
        if (first && &y == &plans[0]) check(cudaMemcpyAsync(first, p.out(), bytes, cudaMemcpyDeviceToDevice, stream));
        if (first) compare<<<1024, 256, 0, stream>>>(p.out(), first, p.result, p.written, wrong);
        y.run = graph_of([&] { return p.call(gpu); }, calls);
    }
    for (int round = 0; round < 6; round++) {
        float best = INFINITY;
        for (const plan &y : plans)
            if (round > 1) best = std::min(best, y.us[0]);
        for (plan &y : plans) {
            if (y.run && round > 1 && y.us[0] > 1.6f * best) check(cudaGraphExecDestroy(y.run)), y.run = NULL; /* far from it */
            if (!y.run) continue;
            const float us = elapsed(y.run, calls);
            if (round) y.us.push_back(us);
        }
    }
    for (plan &y : plans) {
        if (y.run) check(cudaGraphExecDestroy(y.run));
        std::sort(y.us.begin(), y.us.end());
        print_line(x, y, y.us[y.us.size() / 2], plan_same(&y.p, &chosen));
    }
    fflush(stdout);
    inputs.used = others.used = 0;
    if (*wrong != seen)
        fprintf(stderr, "%u elements of results differ between plans: %s %d,%d,%d,%d,%g,%d\n", *wrong - seen, kind, (int)x.m,
                (int)x.k, (int)x.n, (int)x.b, x.s, x.ways);
    seen = *wrong;
}

static CUresult no_map(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                       const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return CUDA_SUCCESS;
}
/* The lines of an older run with the estimates of this build, as on an H200; nothing is launched or read. */
static int estimate_lines(void) {
    char line[600], name[32];
    char *const data = (char *)(uintptr_t)(INT64_C(1) << 40);
    bsr_context h200 = *cpu;
    h200.backend = BSR_BACKEND_CUDA, h200.sm_count = 132, h200.cc_major = 9, h200.cc_minor = 0, h200.smem_optin = 232448;
    h200.tier = 3, h200.tensor_map = (void *)no_map, kind = name;
    while (fgets(line, sizeof line, stdin)) {
        plan_shape x = BSR_ZERO;
        bsr_plan got = BSR_ZERO, asked = BSR_ZERO, own = BSR_ZERO;
        float us;
        int chosen, instance;
        if (sscanf(line, "%31[^,],%ld,%ld,%ld,%ld,%lf,%d,%d,%d,%d,%d,%d,%d,%f,%d", name, &x.m, &x.k, &x.n, &x.b, &x.s, &x.ways,
                   &asked.kernel, &instance, &asked.tile_rows, &asked.tile_cols, &asked.split, &asked.order, &us, &chosen) != 15)
            continue;
        problem p(x);
        plan_operands(&p, data + (INT64_C(1) << 39), data, data + (INT64_C(1) << 38), data + (INT64_C(1) << 37));
        p.a.crow_indices = p.a.col_indices = data;
        if (p.trans) p.a.transposed_index = data;
        if (x.ways & PLAN_SCHEDULE) p.a.schedule = data;
        p.ex.query = &own;
        if (p.call(&h200) != BSR_OK) {
            fprintf(stderr, "refused: %s", line);
            continue;
        }
        p.ex.query = &got, p.ex.plan = &asked;
        /* a family has ten numbers; within it they move when instances are joined */
        if (p.call(&h200) == BSR_OK && got.instance / 10 == instance / 10 && got.tile_rows == asked.tile_rows &&
            got.tile_cols == asked.tile_cols)
            print_line(x, {got, offered, NULL, {}}, us, plan_same(&got, &own));
        else fprintf(stderr, "runs no more: %s", line);
    }
    return 0;
}

int main(int argc, char **argv) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *made[2];
    const int seed = argc > 1 ? atoi(argv[1]) : 1, count = argc > 2 ? atoi(argv[2]) : 0;
    const int dtype = plan_dtype(argc > 3 ? kind = argv[3] : kind);
    int i;
    d.backend = BSR_BACKEND_CPU;
    must(bsr_create(&d, &made[0], NULL));
    cpu = made[0];
    if (argc > 1 && !strcmp(argv[1], "--estimate")) return estimate_lines();
    d.backend = BSR_BACKEND_CUDA;
    must(bsr_create(&d, &made[1], NULL));
    gpu = made[1];
    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&inputs.data, inputs.size));
    check(cudaMalloc(&others.data, others.size));
    check(cudaMallocManaged(&wrong, sizeof *wrong));
    *wrong = 0;
    fill<<<2048, 256>>>(inputs.data, dtype, (int64_t)(inputs.size / bsr_dtype_size(dtype)));
    check(cudaDeviceSynchronize());
    for (i = 4; i < argc; i++) {
        long long m, k, n, b;
        plan_shape x = BSR_ZERO;
        double s;
        int drawn = plan_ways(kind);
        if (sscanf(argv[i], "%lld,%lld,%lld,%lld,%lf,%d", &m, &k, &n, &b, &s, &drawn) < 5) return 1;
        x.m = m, x.k = k, x.n = n, x.b = b, x.s = s, x.ways = drawn, plan_state = 1;
        time_shape(x);
    }
    for (i = 0; i < count; i++) time_shape(plan_random(kind, seed, i));
    check(cudaDeviceSynchronize());
    if (refused) fprintf(stderr, "%d shapes refused\n", refused);
    return *wrong || refused;
}
