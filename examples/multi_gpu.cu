/* One node's GPUs at once, by NCCL: the rows of a product, the heads of an attention, the experts of a mixture. One thread drives
   all of them; each has a context, a stream that computes and one that communicates. Checked against the first GPU alone.
     make build/gpu/examples/multi_gpu && build/gpu/examples/multi_gpu [GPUs, a power of two]
   Wants NCCL (Debian: apt install libnccl-dev; PyPI: nvidia-nccl-cu12 or -cu13). Over more than one node a program has a process
   for each GPU and ncclCommInitRank in place of ncclCommInitAll; what is sent, and when, stays.
   A product's rows are dealt to the GPUs, and so are the rows of its right side, which is the output of a layer that was dealt
   alike: each GPU gathers the others' rows in panels of columns, and multiplies one panel while the next arrives. Heads need
   nothing of each other; outputs are gathered. Tokens go to their experts and come back, between two GPUs at a time, while those
   that came before are multiplied. */
#define BSRSPARSE_ONLY_PRODUCT
#define BSRSPARSE_ONLY_ATTENTION
#define BSRSPARSE_ONLY_BF16
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

#include <nccl.h>
#include <vector>

#define CUDA(call) cuda(call, #call)
#define NCCL(call) nccl(call, #call)
static void cuda(cudaError_t e, const char *what) {
    if (e != cudaSuccess) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e)), exit(1);
}
static void nccl(ncclResult_t e, const char *what) {
    if (e != ncclSuccess) fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(e)), exit(1);
}

typedef uint16_t bf16; /* its bits */
enum { MOST = 16, PANELS = 4, REPEATS = 10 };
struct gpu {
    cudaStream_t work, net;
    cudaEvent_t arrived[PANELS], done, begun, ended;
    ncclComm_t comm;
    bsr_context *ctx;
} gpu[MOST];
static int gpus;
static bsr_context *host; /* makes patterns */

static void use(int g) { CUDA(cudaSetDevice(g)); }
static void run(bsr_status status, const bsr_error *error, const char *what) { /* as require(), without waiting for the GPU */
    char line[320];
    if (status != BSR_OK) bsr_error_string(error, line, sizeof line), fprintf(stderr, "%s: %s\n", what, line), exit(1);
}
#define RUN(call, error) run(call, error, #call)

/* `count` elements on GPU g: of `from` on the host, else all NaN. */
template <class T> static T *place(int g, const T *from, size_t count) {
    T *p;
    use(g), CUDA(cudaMalloc(&p, count * sizeof(T)));
    if (from) CUDA(cudaMemcpy(p, from, count * sizeof(T), cudaMemcpyHostToDevice));
    else CUDA(cudaMemset(p, 255, count * sizeof(T)));
    return p;
}
static std::vector<bf16> normal(size_t count, double scale, uint64_t seed) {
    std::vector<bf16> x(count);
    for (bf16 &v : x) {
        const float f = (float)(scale * random_normal(&seed));
        uint32_t bits;
        memcpy(&bits, &f, 4), v = (bf16)(bits >> 16);
    }
    return x;
}
static double number(bf16 v) {
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return (double)f;
}
/* The largest difference of what lies at a and at b on any GPUs, as a share of the largest element of b. */
static double differ(const bf16 *a, const bf16 *b, size_t count) {
    std::vector<bf16> x(count), y(count);
    double most = 0, worst = 0;
    CUDA(cudaMemcpy(x.data(), a, 2 * count, cudaMemcpyDefault)), CUDA(cudaMemcpy(y.data(), b, 2 * count, cudaMemcpyDefault));
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs(number(y[i])));
        worst = worse(worst, fabs(number(x[i]) - number(y[i])));
    }
    return worst / most;
}
static void wait_all(void) {
    for (int g = 0; g < gpus; g++) use(g), CUDA(cudaDeviceSynchronize());
}
/* Seconds that f, called REPEATS times, takes all GPUs, after one call that warms up. */
template <class F> static double timed(const F &f) {
    f(), wait_all();
    const double start = seconds();
    for (int i = 0; i < REPEATS; i++) f();
    wait_all();
    return (seconds() - start) / REPEATS;
}
/* What `net` has queued so far is waited for by `work`, and the other way round. */
static void follow(cudaStream_t after, cudaStream_t before, cudaEvent_t e) {
    CUDA(cudaEventRecord(e, before)), CUDA(cudaStreamWaitEvent(after, e, 0));
}

/* A matrix's arrays on the host, and block rows first to first + count - 1 of it on GPU g. */
struct matrix {
    int64_t rows, cols, block;
    std::vector<int32_t> crow, col;
    std::vector<bf16> values;
};
static matrix make_matrix(int64_t rows, int64_t cols, int64_t block, double sparsity, uint64_t seed) {
    matrix m = {rows, cols, block, std::vector<int32_t>((size_t)(rows / block) + 1), {}, {}};
    const int64_t all = rows / block * (cols / block);
    const size_t nnz = (size_t)((double)all * (1 - sparsity) + 0.5);
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    exec.error = &error, m.col.resize(nnz), m.values = normal(nnz * (size_t)(block * block), 1, seed);
    bsr_matrix view =
        bsr_matrix_make(rows, cols, block, block, (int64_t)nnz, m.crow.data(), m.col.data(), BSR_I32, m.values.data(), BSR_BF16);
    RUN(bsr_random_pattern(host, seed, sparsity, &view, &exec), &error);
    return m;
}
static bsr_matrix place_rows(int g, const matrix &m, int64_t first, int64_t count) {
    const size_t from = (size_t)m.crow[(size_t)first], nnz = (size_t)m.crow[(size_t)(first + count)] - from;
    const size_t size = (size_t)(m.block * m.block);
    std::vector<int32_t> crow(m.crow.begin() + first, m.crow.begin() + first + count + 1);
    for (int32_t &c : crow) c -= (int32_t)from;
    return bsr_matrix_make(count * m.block, m.cols, m.block, m.block, (int64_t)nnz, place(g, crow.data(), crow.size()),
                           place(g, m.col.data() + from, nnz), BSR_I32, place(g, m.values.data() + from * size, nnz * size),
                           BSR_BF16);
}
static void release_matrix(int g, const bsr_matrix &m) {
    use(g), CUDA(cudaFree(m.crow_indices)), CUDA(cudaFree(m.col_indices));
    if (m.values) CUDA(cudaFree(m.values));
}
static bool report(const char *what, double alone, double all, double overlapped, double difference) {
    printf("%-10s one GPU %7.3f ms, %d %7.3f ms", what, 1e3 * alone, gpus, 1e3 * all);
    if (overlapped > 0) printf(", overlapped %7.3f ms (%.2f times one)", 1e3 * overlapped, alone / overlapped);
    printf(", largest difference %.1e\n", difference);
    return difference < 0.01; /* two roundings to bf16 at most, of elements no larger than the largest */
}

/* y = A x: GPU g has the g-th part of A's rows and of x's, and makes that part of y's. x lies in panels of columns. */
static bool rows_of_a_product(void) {
    const int64_t rows = 8192, cols = 8192, block = 64, n = 4096, wide = n / PANELS, panel = cols * wide, own = panel / gpus;
    const matrix m = make_matrix(rows, cols, block, .8, 1);
    const std::vector<bf16> x = normal((size_t)(cols * n), 1, 2);
    bsr_matrix whole = place_rows(0, m, 0, rows / block), a[MOST];
    bf16 *in[MOST], *out[MOST], *want = place<bf16>(0, NULL, (size_t)(rows * n)), *given = place(0, x.data(), x.size());
    double worst = 0;
    for (int g = 0; g < gpus; g++) {
        a[g] = place_rows(g, m, g * (rows / block / gpus), rows / block / gpus);
        in[g] = place<bf16>(g, NULL, x.size()), out[g] = place<bf16>(g, NULL, (size_t)(rows / gpus * n));
        for (int64_t p = 0; p < PANELS; p++) /* only its own rows */
            CUDA(cudaMemcpy(in[g] + p * panel + g * own, &x[(size_t)(p * panel + g * own)], 2 * (size_t)own, cudaMemcpyDefault));
    }
    const auto product = [&](int g, const bsr_matrix &of, const bf16 *from, bf16 *to, int64_t p) {
        const bsr_dense b = bsr_dense_row_major(from + p * panel, BSR_BF16, cols, wide);
        const bsr_dense y = bsr_dense_strided(to + p * wide, BSR_BF16, of.rows, wide, n, 1);
        bsr_error error;
        bsr_exec exec = BSR_ZERO;
        exec.error = &error, exec.stream = gpu[g].work;
        use(g), RUN(bsr_dense_mm(gpu[g].ctx, 0, &of, &b, &y, &exec), &error);
    };
    const auto gather = [&](int64_t p) {
        NCCL(ncclGroupStart());
        for (int g = 0; g < gpus; g++) {
            bf16 *to = in[g] + p * panel;
            NCCL(ncclAllGather(to + g * own, to, (size_t)own, ncclBfloat16, gpu[g].comm, gpu[g].net));
        }
        NCCL(ncclGroupEnd());
        for (int g = 0; g < gpus; g++) use(g), CUDA(cudaEventRecord(gpu[g].arrived[p], gpu[g].net));
    };
    const auto step = [&](bool overlap) {
        for (int g = 0; g < gpus; g++) use(g), follow(gpu[g].net, gpu[g].work, gpu[g].done); /* panels are read no more */
        for (int64_t p = 0; p < PANELS; p++) gather(p);
        for (int64_t p = 0; p < PANELS; p++)
            for (int g = 0; g < gpus; g++) {
                use(g), CUDA(cudaStreamWaitEvent(gpu[g].work, gpu[g].arrived[overlap ? p : PANELS - 1], 0));
                product(g, a[g], in[g], out[g], p);
            }
    };
    const double alone = timed([&] { for (int64_t p = 0; p < PANELS; p++) product(0, whole, given, want, p); });
    const double after = timed([&] { step(false); }), overlapped = timed([&] { step(true); });
    for (int g = 0; g < gpus; g++)
        worst = worse(worst, differ(out[g], want + g * (rows / gpus * n), (size_t)(rows / gpus * n)));
    for (int g = 0; g < gpus; g++) release_matrix(g, a[g]), CUDA(cudaFree(in[g])), CUDA(cudaFree(out[g]));
    release_matrix(0, whole), CUDA(cudaFree(want)), CUDA(cudaFree(given));
    return report("rows", alone, after, overlapped, worst);
}

/* Each GPU has its share of the heads; all get all outputs. */
static bool heads_of_an_attention(void) {
    const int64_t heads = 32, length = 4096, wide = 128, block = 64, own = heads / gpus, size = length * wide;
    const matrix m = make_matrix(length, length, block, .8, 3); /* one mask for all heads */
    const std::vector<bf16> x = normal((size_t)(3 * heads * size), 1, 4);
    bf16 *in[MOST], *out[MOST], *given = place(0, x.data(), x.size()), *want = place<bf16>(0, NULL, (size_t)(heads * size));
    bsr_matrix mask[MOST];
    double worst = 0;
    for (int g = 0; g < gpus; g++) {
        mask[g] = place_rows(g, m, 0, length / block), use(g), CUDA(cudaFree(mask[g].values)), mask[g].values = NULL;
        in[g] = place<bf16>(g, NULL, (size_t)(3 * own * size)), out[g] = place<bf16>(g, NULL, (size_t)(heads * size));
        for (int64_t i = 0; i < 3; i++) /* q, k, v */
            CUDA(cudaMemcpy(in[g] + i * own * size, &x[(size_t)((i * heads + g * own) * size)], 2 * (size_t)(own * size),
                            cudaMemcpyDefault));
    }
    const auto attend = [&](int g, const bf16 *from, int64_t count, bf16 *to) {
        const bsr_dense q = bsr_dense_batched(bsr_dense_row_major(from, BSR_BF16, length, wide), count, size);
        bsr_dense k = q, v = q, o = q;
        bsr_error error;
        bsr_exec exec = BSR_ZERO;
        k.data = (bf16 *)q.data + count * size, v.data = (bf16 *)q.data + 2 * count * size, o.data = to;
        exec.error = &error, exec.stream = gpu[g].work;
        use(g), RUN(bsr_attention(gpu[g].ctx, 0, &q, &k, &v, &mask[g], NULL, &o, NULL, &exec), &error);
    };
    const auto all = [&] {
        for (int g = 0; g < gpus; g++)
            attend(g, in[g], own, out[g] + g * own * size), use(g), follow(gpu[g].net, gpu[g].work, gpu[g].done);
        NCCL(ncclGroupStart());
        for (int g = 0; g < gpus; g++)
            NCCL(ncclAllGather(out[g] + g * own * size, out[g], (size_t)(own * size), ncclBfloat16, gpu[g].comm, gpu[g].net));
        NCCL(ncclGroupEnd());
        for (int g = 0; g < gpus; g++) use(g), follow(gpu[g].work, gpu[g].net, gpu[g].arrived[0]);
    };
    const double alone = timed([&] { attend(0, given, heads, want); }), together = timed(all);
    for (int g = 0; g < gpus; g++) worst = worse(worst, differ(out[g], want, (size_t)(heads * size)));
    for (int g = 0; g < gpus; g++) release_matrix(g, mask[g]), CUDA(cudaFree(in[g])), CUDA(cudaFree(out[g]));
    CUDA(cudaFree(given)), CUDA(cudaFree(want));
    return report("heads", alone, together, 0, worst);
}

/* y = W_e x for the tokens of expert e. Each GPU has its share of the experts, and the tokens of its part of the batch, sorted by
   expert: as many for each (what is beyond is dropped, what lacks is padding). */
static bool experts_of_a_mixture(void) {
    const int64_t experts = 16, own = experts / gpus, wide = 2048, block = 64, tokens = 8192 / gpus, each = tokens / experts;
    const int64_t lot = own * each * wide; /* what one GPU sends to another, and gets back */
    const matrix m = make_matrix(experts * wide, wide, block, .75, 5); /* all experts, one below the other */
    const std::vector<bf16> x = normal((size_t)(gpus * tokens * wide), 1, 6);
    bsr_matrix w[MOST], whole = place_rows(0, m, 0, experts * wide / block);
    bf16 *in[MOST], *here[MOST], *made[MOST], *back[MOST];
    bf16 *given = place(0, x.data(), x.size()), *want = place<bf16>(0, NULL, x.size());
    double worst = 0;
    for (int g = 0; g < gpus; g++) {
        bf16 **const buffer[] = {&in[g], &here[g], &made[g], &back[g]};
        w[g] = place_rows(g, m, g * own * (wide / block), own * (wide / block));
        for (bf16 **b : buffer)
            *b = place(g, b == &in[g] ? (const bf16 *)&x[(size_t)(g * tokens * wide)] : NULL, (size_t)(tokens * wide));
    }
    /* Items: the expert's rows of the matrix (a batch whose items' crow_indices count on), its tokens as columns. */
    const auto product = [&](int g, const bsr_matrix &of, int64_t count, const bf16 *from, bf16 *to) {
        bsr_matrix a = of;
        a.rows = wide, a = bsr_matrix_batched(a, count, wide / block, 0, 0), a.flags |= BSR_MATRIX_RAGGED;
        const bsr_dense b = bsr_dense_batched(bsr_dense_col_major(from, BSR_BF16, wide, each), count, each * wide);
        bsr_dense y = b;
        bsr_error error;
        bsr_exec exec = BSR_ZERO;
        y.data = to, exec.error = &error, exec.stream = gpu[g].work;
        use(g), RUN(bsr_dense_mm(gpu[g].ctx, 0, &a, &b, &y, &exec), &error);
    };
    /* Step s: GPU g sends to g + s and gets from g - s, so that each link carries one lot at a time. */
    const auto exchange = [&](int s, bf16 *const *from, bf16 *const *to) {
        NCCL(ncclGroupStart());
        for (int g = 0; g < gpus; g++) {
            const int next = (g + s) % gpus, last = (g - s + gpus) % gpus;
            NCCL(ncclSend(from[g] + next * lot, (size_t)lot, ncclBfloat16, next, gpu[g].comm, gpu[g].net));
            NCCL(ncclRecv(to[g] + last * lot, (size_t)lot, ncclBfloat16, last, gpu[g].comm, gpu[g].net));
        }
        NCCL(ncclGroupEnd());
    };
    const auto step = [&](bool overlap) {
        for (int g = 0; g < gpus; g++) use(g), follow(gpu[g].net, gpu[g].work, gpu[g].done);
        for (int s = 0; s < gpus; s++) {
            exchange(s, in, here);
            for (int g = 0; g < gpus && (overlap || s == gpus - 1); g++) {
                use(g), follow(gpu[g].work, gpu[g].net, gpu[g].arrived[0]);
                for (int t = overlap ? s : 0; t <= s; t++) {
                    const int64_t at = (g - t + gpus) % gpus * lot;
                    product(g, w[g], own, here[g] + at, made[g] + at);
                }
            }
        }
        for (int g = 0; g < gpus; g++) use(g), follow(gpu[g].net, gpu[g].work, gpu[g].done);
        for (int s = 0; s < gpus; s++) exchange(s, made, back);
        for (int g = 0; g < gpus; g++) use(g), follow(gpu[g].work, gpu[g].net, gpu[g].arrived[0]);
    };
    const double alone = timed([&] {
        for (int g = 0; g < gpus; g++) product(0, whole, experts, given + g * tokens * wide, want + g * tokens * wide);
    });
    const double after = timed([&] { step(false); }), overlapped = timed([&] { step(true); });
    for (int g = 0; g < gpus; g++) worst = worse(worst, differ(back[g], want + g * tokens * wide, (size_t)(tokens * wide)));
    for (int g = 0; g < gpus; g++) {
        release_matrix(g, w[g]);
        for (bf16 *b : {in[g], here[g], made[g], back[g]}) CUDA(cudaFree(b));
    }
    release_matrix(0, whole), CUDA(cudaFree(given)), CUDA(cudaFree(want));
    return report("experts", alone, after, overlapped, worst);
}

int main(int argc, char **argv) {
    int there = 0, devices[MOST];
    ncclComm_t comms[MOST];
    bsr_context_desc desc = BSR_ZERO;
    bsr_error error;
    bool good = true;
    if (cudaGetDeviceCount(&there) != cudaSuccess || !there) return printf("no GPU here: nothing is run\n"), 77;
    const int wanted = argc > 1 ? atoi(argv[1]) : there;
    for (gpus = 1; 2 * gpus <= wanted && 2 * gpus <= there && 2 * gpus <= MOST;) gpus *= 2;
    for (int g = 0; g < gpus; g++) devices[g] = g;
    NCCL(ncclCommInitAll(comms, gpus, devices));
    desc.backend = BSR_BACKEND_CPU;
    RUN(bsr_create(&desc, &host, &error), &error);
    for (int g = 0; g < gpus; g++) {
        struct gpu &at = gpu[g];
        use(g), at.comm = comms[g];
        CUDA(cudaStreamCreateWithFlags(&at.work, cudaStreamNonBlocking));
        CUDA(cudaStreamCreateWithFlags(&at.net, cudaStreamNonBlocking));
        for (cudaEvent_t &e : at.arrived) CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&at.done, cudaEventDisableTiming));
        desc.backend = BSR_BACKEND_CUDA, desc.device = g + 1;
        RUN(bsr_create(&desc, &at.ctx, &error), &error);
    }
    printf("%d of %d GPUs\n", gpus, there);
    good &= rows_of_a_product();
    good &= heads_of_an_attention();
    good &= experts_of_a_mixture();
    for (int g = 0; g < gpus; g++) {
        use(g), NCCL(ncclCommDestroy(gpu[g].comm)), bsr_destroy(gpu[g].ctx);
        CUDA(cudaStreamDestroy(gpu[g].work)), CUDA(cudaStreamDestroy(gpu[g].net));
    }
    bsr_destroy(host);
    return verdict(good);
}
