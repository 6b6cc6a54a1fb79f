/* gpu_test.cpp: what only a GPU can get wrong: the same bits on every run beside other work, graph capture, threads, no
   allocation or synchronisation inside operations, sizes beyond 2^31, errors that must not stay behind. */
#define GM_NO_REDIRECT
#include "mirror.h"
#include "../operands.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/* ---------------------------------------------------------------------------------------------- */
/* jobs: one call of one operation with operands that stay on the device                          */
/* ---------------------------------------------------------------------------------------------- */

namespace {
typedef std::function<bsr_status(const bsr_context *, const bsr_exec *)> call_function;
struct job {
    gm_call *mirror;
    call_function device;
    int tier;
    char *workspace;
    uint64_t workspace_bytes;
    std::shared_ptr<std::vector<void *>> raw; /* arrays that no struct of the mirror holds */
    std::shared_ptr<bsr_matrix> target;       /* what conversions fill, as each run begins */
};
} /* namespace */
enum {
    ADDMM,
    ADDMM_T,
    ADDMM_T_SCAN,
    SCATTER,
    DENSE_SCATTER,
    SDD,
    DSD,
    DDS,
    BACKWARD,
    SAMPLED,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    ATTENTION,
    TO_DENSE,
    FROM_DENSE,
    FROM_CSR,
    FROM_COO,
    FROM_MASK,
    RANDOM,
    PRUNE,
    TRANSPOSED,
    SCHEDULE,
    JOBS
};
static const char *const job_names[] = {"dense_addmm",
                                        "dense_addmm of A^T",
                                        "dense_addmm of A^T without index",
                                        "scatter_mm",
                                        "dense_scatter_mm",
                                        "matmul SDD",
                                        "matmul DSD",
                                        "matmul DDS",
                                        "matmul_backward",
                                        "sampled_addmm",
                                        "softmax",
                                        "softmax_backward",
                                        "attention",
                                        "to_dense",
                                        "from_dense",
                                        "from_csr",
                                        "from_coo",
                                        "from_block_mask",
                                        "random_pattern",
                                        "prune",
                                        "transposed_index",
                                        "schedule"};
const char *gm_kernel(int i, int *number); /* library.cu */
static const bsr_context *cpu(void) { return t_context(BSR_ISA_DEFAULT); }

static bsr_matrix empty_like(const bsr_matrix *like, int64_t capacity) {
    bsr_matrix m;
    int64_t r = like->rows / like->block_rows;
    memset(&m, 0, sizeof m);
    m.dtype = like->dtype, m.index_dtype = BSR_I32, m.block_rows = like->block_rows, m.block_cols = like->block_cols,
    m.nnz = capacity;
    m.rows = like->rows, m.cols = like->cols;
    m.crow_indices = bt_alloc((size_t)(r + 1) * 4, 4), m.col_indices = bt_alloc((size_t)capacity * 4, 4);
    m.values = bt_alloc((size_t)(capacity * m.block_rows * m.block_cols) * bsr_dtype_size(m.dtype), bsr_dtype_size(m.dtype));
    return m;
}
/* What job_new() makes of a besides: its index type, views (1: transposed index, 2: a schedule by pairs, 4: of its columns). */
static int job_index = BSR_I32, job_views = 0;
static bool clear_accumulators = true;
/* Operands of every kind of call: a of about `size` rows in square blocks. */
static job job_new(int kind, int dtype, int64_t block, int64_t size, int tier) {
    t_spec s;
    bsr_matrix a, y, dy;
    int64_t n = size / 2, lines = size / block > 0 ? size / block : 1;
    gm_call *g = new gm_call(job_names[kind], nullptr, nullptr);
    int out = dtype == BSR_I8 ? BSR_I32 : dtype;
    auto raw = std::make_shared<std::vector<void *>>();
    auto target = std::make_shared<bsr_matrix>();
    job j = {g, nullptr, tier, nullptr, 0, raw, target};
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.block_rows = s.block_cols = block, s.r = lines, s.c = lines + 1, s.nnz = lines * (lines + 1) / 3 + 1,
    s.index_dtype = job_index;
    a = t_matrix(&s);
    if (job_views & 1) t_attach_transposed(&a);
    if (job_views & 6) t_attach_schedule(&a, 2, (job_views & 4) != 0);
    bsr_dense b = t_random(dtype, kind == ADDMM_T || kind == ADDMM_T_SCAN ? a.rows : a.cols, n, ROW, NO_BATCH, 0, FILL_SIGNED);
    bsr_dense c = t_output(out, kind == ADDMM_T || kind == ADDMM_T_SCAN ? a.cols : a.rows, n, ROW, NO_BATCH);
    bsr_dense x = t_random(dtype, a.rows, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
              z = t_random(dtype, 64, a.cols, COL, NO_BATCH, 0, FILL_SIGNED);
    switch (kind) {
        case ADDMM:
        case ADDMM_T:
        case ADDMM_T_SCAN: {
            bsr_dense input = t_random(out, c.rows, n, ROW, NO_BATCH, 0, FILL_SIGNED),
                      bias = t_random(out, c.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
            bsr_epilogue e;
            memset(&e, 0, sizeof e), e.bias = &bias;
            if (kind == ADDMM_T) t_attach_transposed(&a);
            auto da = g->map(&a);
            auto db = g->map(&b), di = g->map(&input), dc = g->map(&c, true);
            auto de = g->map(&e);
            uint32_t trans = kind == ADDMM ? 0 : BSR_TRANS_A;
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                return bsr_dense_addmm(c, 2, di, 3, trans, da, db, de, dc, e);
            };
            break;
        }
        case DENSE_SCATTER:
        case SCATTER: {
            bsr_scatter_indices i;
            memset(&i, 0, sizeof i), i.format = BSR_SCATTER_STRIDED, i.split_n = 2;
            if (bsr_build_scatter_indices(cpu(), &a, n, &i, NULL) != BSR_OK) break;
            i.c_indices = (int64_t *)bt_alloc((size_t)i.c_count * 8, 8),
            i.r_offsets = (int64_t *)bt_alloc((size_t)i.r_count * 8, 8);
            i.p_indices = (int64_t *)bt_alloc((size_t)i.p_count * 8, 8),
            i.q_indices = (int64_t *)bt_alloc((size_t)i.q_count * 8, 8);
            if (bsr_build_scatter_indices(cpu(), &a, n, &i, NULL) != BSR_OK) break;
            auto di = g->map(&i);
            auto db = g->map(&b), dc = g->map(&c, true);
            if (kind == SCATTER) {
                bsr_dense blocks = bsr_dense_batched(bsr_dense_row_major(a.values, dtype, block, block), a.nnz, block * block);
                auto dbl = g->map(&blocks);
                memset(c.data, 0, (size_t)(c.rows * n) * bsr_dtype_size(out));
                /* it adds to the accumulators, so that they are cleared before each run */
                size_t bytes = (size_t)(c.rows * n) * bsr_dtype_size(out);
                j.device = [=](const bsr_context *c, const bsr_exec *e) {
                    if (clear_accumulators) cudaMemsetAsync(dc->data, 0, bytes, (cudaStream_t)e->stream);
                    return bsr_scatter_mm(c, dbl, db, di, dc, e);
                };
                break;
            }
            auto da = g->map(&a);
            j.device = [=](const bsr_context *c, const bsr_exec *e) { return bsr_dense_scatter_mm(c, da, db, di, dc, e); };
            break;
        }
        case SDD:
        case SAMPLED: {
            y = t_matrix_output(&a, out, PACKED);
            auto dx = g->map(&x), dz = g->map(&z);
            auto dy_ = g->map(&y, true);
            if (kind == SDD)
                j.device = [=](const bsr_context *c, const bsr_exec *e) {
                    return bsr_matmul(c, 0, {dx, nullptr}, {dz, nullptr}, {nullptr, dy_}, e);
                };
            else
                j.device = [=](const bsr_context *c, const bsr_exec *e) {
                    return bsr_sampled_addmm(c, 0, nullptr, 0.5 + (dtype == BSR_I8) * 0.5, dx, dz, dy_, e);
                };
            break;
        }
        case DSD: {
            auto da = g->map(&a);
            auto db = g->map(&b), dc = g->map(&c, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                return bsr_matmul(c, 0, {nullptr, da}, {db, nullptr}, {dc, nullptr}, e);
            };
            break;
        }
        case DDS: {
            bsr_dense left = t_random(dtype, 70, a.rows, ROW, NO_BATCH, 0, FILL_SIGNED),
                      o = t_output(out, 70, a.cols, ROW, NO_BATCH);
            auto da = g->map(&a);
            auto dl = g->map(&left), d_out = g->map(&o, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                return bsr_matmul(c, 0, {dl, nullptr}, {nullptr, da}, {d_out, nullptr}, e);
            };
            break;
        }
        case BACKWARD: {
            bsr_dense dc = t_random(dtype, a.rows, n, ROW, NO_BATCH, 0, FILL_SIGNED),
                      gb = t_output(dtype, a.cols, n, ROW, NO_BATCH);
            y = t_matrix_output(&a, dtype, PACKED);
            t_attach_transposed(&a);
            auto da = g->map(&a), gy = g->map(&y, true);
            auto db = g->map(&b), ddc = g->map(&dc), dgb = g->map(&gb, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                return bsr_matmul_backward(c, 0, {nullptr, da}, {db, nullptr}, {ddc, nullptr}, {nullptr, gy}, {dgb, nullptr}, e);
            };
            break;
        }
        case SOFTMAX: {
            y = t_matrix_output(&a, dtype, PACKED);
            auto da = g->map(&a), gy = g->map(&y, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) { return bsr_softmax(c, 0.5, da, nullptr, gy, e); };
            break;
        }
        case SOFTMAX_BACKWARD: {
            y = t_matrix_output(&a, dtype, PACKED);
            dy = a, t_make_values(&dy, dtype, PACKED, 0), t_fill_values(&dy, FILL_SIGNED);
            auto da = g->map(&a), ddy = g->map(&dy), gy = g->map(&y, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) { return bsr_softmax_backward(c, 0.5, da, ddy, gy, e); };
            break;
        }
        case ATTENTION: {
            bsr_dense k = t_random(dtype, a.cols, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
                      v = t_random(dtype, a.cols, 64, ROW, NO_BATCH, 0, FILL_SIGNED);
            bsr_dense o = t_output(dtype, a.rows, 64, ROW, NO_BATCH),
                      lse = t_output(dtype == BSR_F64 ? BSR_F64 : BSR_F32, a.rows, 1, ROW, NO_BATCH);
            bsr_attention_options options;
            memset(&options, 0, sizeof options), options.dropout_p = 0.1, options.dropout_seed = 7,
                                                 options.flags = BSR_ATTENTION_CAUSAL;
            auto dx = g->map(&x), dk = g->map(&k), dv = g->map(&v), d_out = g->map(&o, true), dl = g->map(&lse, true);
            auto da = g->map(&a);
            auto dopt = g->map(&options);
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                return bsr_attention(c, 0, dx, dk, dv, da, dopt, d_out, dl, e);
            };
            break;
        }
        case TO_DENSE: {
            bsr_dense o = t_output(dtype, a.rows, a.cols, ROW, NO_BATCH);
            auto da = g->map(&a);
            auto d_out = g->map(&o, true);
            j.device = [=](const bsr_context *c, const bsr_exec *e) { return bsr_to_dense(c, da, d_out, e); };
            break;
        }
        case FROM_DENSE:
        case PRUNE:
        case FROM_MASK:
        case RANDOM:
        case FROM_CSR:
        case FROM_COO: {
            int64_t blocks = s.r * s.c, i;
            bsr_dense source = t_random(dtype, a.rows, a.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
            bsr_matrix m = empty_like(&a, blocks);
            uint8_t *mask = (uint8_t *)bt_alloc((size_t)blocks, 1);
            int64_t entries = a.rows * 3;
            int32_t *row = (int32_t *)bt_alloc((size_t)entries * 4, 4), *col = (int32_t *)bt_alloc((size_t)entries * 4, 4),
                    *crow = (int32_t *)bt_alloc((size_t)(a.rows + 1) * 4, 4);
            for (i = 0; i < blocks; i++) mask[i] = (uint8_t)bt_below(2);
            for (i = 0; i < entries; i++) row[i] = (int32_t)(i / 3), col[i] = (int32_t)bt_below(a.cols);
            for (i = 0; i <= a.rows; i++) crow[i] = (int32_t)(3 * i);
            bsr_dense values = t_random(dtype, 1, entries, ROW, NO_BATCH, 0, FILL_SIGNED);
            auto ds = g->map(&source), dvalues = g->map(&values);
            auto dm = g->map_target(&m, true, true);
            if (kind == FROM_MASK) *raw = {g->place(mask, blocks, false)};
            if (kind == FROM_CSR || kind == FROM_COO)
                *raw = {g->place(kind == FROM_CSR ? crow : row, kind == FROM_CSR ? 4 * (a.rows + 1) : entries * 4, false),
                        g->place(col, entries * 4, false)};
            *target = *dm;
            int64_t rows = a.rows, cols = a.cols;
            j.device = [=](const bsr_context *c, const bsr_exec *e) {
                *dm = *target;
                return kind == FROM_DENSE ? bsr_from_dense(c, ds, dm, e)
                       : kind == PRUNE    ? bsr_prune(c, {ds, nullptr}, 0.6, BSR_NORM_L2, dm, e)
                       : kind == FROM_CSR
                           ? bsr_from_csr(c, rows, cols, entries, raw->at(0), raw->at(1), BSR_I32, dvalues->data, dtype, dm, e)
                       : kind == FROM_COO
                           ? bsr_from_coo(c, rows, cols, entries, raw->at(0), raw->at(1), BSR_I32, dvalues->data, dtype, dm, e)
                       : kind == RANDOM ? bsr_random_pattern(c, 11, 0.5, dm, e)
                                        : bsr_from_block_mask(c, (const uint8_t *)raw->at(0), dm, e);
            };
            break;
        }
        default: {
            uint64_t bytes = 0;
            bsr_status status = kind == TRANSPOSED ? bsr_transposed_index_size(cpu(), &a, &bytes, NULL)
                                                   : bsr_schedule_size(cpu(), &a, 2, 0, &bytes, NULL);
            if (status != BSR_OK) break;
            void *buffer = bt_alloc((size_t)bytes, 64);
            auto da = g->map(&a);
            *raw = {g->place(buffer, (int64_t)bytes, true)};
            if (kind == TRANSPOSED)
                j.device = [=](const bsr_context *c, const bsr_exec *e) {
                    return bsr_build_transposed_index(c, da, raw->at(0), bytes, e);
                };
            else
                j.device = [=](const bsr_context *c, const bsr_exec *e) {
                    return bsr_build_schedule(c, da, 2, 0, raw->at(0), bytes, e);
                };
        }
    }
    g->upload();
    return j;
}
static void job_end(job *j) {
    delete j->mirror;
    if (j->workspace) cudaFree(j->workspace);
}
static bsr_status job_run(job *j, const bsr_context *ctx, cudaStream_t stream, bsr_error *error = nullptr,
                          uint64_t *word = nullptr) {
    bsr_exec e = BSR_ZERO;
    bsr_plan plan;
    bsr_error mine;
    memset(&plan, 0, sizeof plan), plan.kernel = j->tier;
    e.stream = stream, e.plan = j->tier ? &plan : nullptr, e.error = error ? error : &mine, e.workspace = j->workspace,
    e.workspace_bytes = j->workspace_bytes;
    if (word) e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word;
    return gm_guard(j->mirror->name, [&] { return j->device(ctx, &e); });
}
/* Runs it once, with a workspace where it wants one; false and a counted skip where the device lacks it. */
static bool job_ready(job *j, const bsr_context *ctx, cudaStream_t stream) {
    bsr_error error;
    memset(&error, 0, sizeof error);
    bsr_status status = job_run(j, ctx, stream, &error);
    if (status == BSR_WORKSPACE_TOO_SMALL) {
        j->workspace_bytes = (uint64_t)error.value;
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&j->workspace, j->workspace_bytes));
        status = job_run(j, ctx, stream, &error);
    }
    if (status == BSR_UNSUPPORTED && error.item == BSR_ITEM_NOT_IMPLEMENTED) {
        bt_skip("the CUDA backend does not have the operation");
        return false;
    }
    if (status == BSR_BAD_PLAN && j->tier) {
        bt_skip("the forced tier does not take these calls");
        return false;
    }
    gm_cuda("after the first run", cudaStreamSynchronize(stream));
    if (status != BSR_OK) {
        char text[320];
        bsr_error_string(&error, text, sizeof text);
        bt_fail(__FILE__, __LINE__, "%s: %s", j->mirror->name, text);
    }
    bt.checks++;
    return status == BSR_OK;
}
/* All that the call wrote. */
static std::string written_bits(const gm_call &g, cudaStream_t stream) {
    std::string all;
    for (int i = 0; i < g.regions; i++) {
        const gm_region *r = &g.region[i];
        if (!r->written) continue;
        size_t at = all.size();
        all.resize(at + r->bytes);
        gm_cuda("copying back", cudaMemcpyAsync(&all[at], r->dev, r->bytes, cudaMemcpyDeviceToHost, stream));
    }
    gm_cuda("copying back", cudaStreamSynchronize(stream));
    return all;
}
static std::string job_bits(const job *j, cudaStream_t stream) { return written_bits(*j->mirror, stream); }
static void poison(const gm_call &g, cudaStream_t stream) {
    for (int i = 0; i < g.regions; i++)
        if (g.region[i].written) gm_cuda("poisoning", cudaMemsetAsync(g.region[i].dev, BT_POISON, g.region[i].bytes, stream));
}
/* Poisons what the call writes; new_inputs: turns the numbers that it reads. */
static void job_reset(const job *j, cudaStream_t stream, size_t turn) {
    poison(*j->mirror, stream);
    for (int i = 0; i < j->mirror->regions; i++) {
        const gm_region *r = &j->mirror->region[i];
        if (!r->written && r->data && r->bytes > turn) {
            gm_cuda("new inputs", cudaMemcpyAsync(r->dev, r->host + turn, r->bytes - turn, cudaMemcpyHostToDevice, stream));
            gm_cuda("new inputs", cudaMemcpyAsync(r->dev + r->bytes - turn, r->host, turn, cudaMemcpyHostToDevice, stream));
        }
    }
    gm_cuda("new inputs", cudaStreamSynchronize(stream));
}
static cudaStream_t new_stream(void) {
    cudaStream_t s;
    gm_cuda("making a stream", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}
static int reduced(void) { return gm.every > 1; }
static const int tiers[] = {0, 1, 2};
static const int types[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64, BSR_I8};
static bool takes(int kind, int dtype) { return dtype != BSR_I8 || (kind < SOFTMAX && kind != BACKWARD) || kind >= TO_DENSE; }

/* ---------------------------------------------------------------------------------------------- */
/* the same bits                                                                                  */
/* ---------------------------------------------------------------------------------------------- */

TEST(same_bits) { /* 1,000 runs of each operation while two other streams are busy with another */
    cudaStream_t mine = new_stream(), busy[2] = {new_stream(), new_stream()};
    for (int kind = 0; kind < JOBS; kind++)
        for (int tier : tiers)
            for (int t = 0; t < 2; t++) {
                int runs = reduced() ? 3 : 1000;
                if (tier && kind >= SOFTMAX) continue;
                bt_case("%s, %s, tier %d", job_names[kind], bsr_dtype_name(types[t]), tier);
                job j = job_new(kind, types[t], 16, 256, tier),
                    noise[2] = {job_new(ADDMM, BSR_F32, 32, 512, 0), job_new(SAMPLED, BSR_BF16, 8, 256, 0)};
                if (job_ready(&j, gm.ctx, mine) && job_ready(&noise[0], gm.ctx, busy[0]) &&
                    job_ready(&noise[1], gm.ctx, busy[1])) {
                    std::string want = job_bits(&j, mine);
                    int bad = 0;
                    for (int i = 0; i < runs; i++) {
                        job_run(&noise[i & 1], gm.ctx, busy[i & 1]);
                        if (i % 100 == 0) job_reset(&j, mine, 0);
                        if (job_run(&j, gm.ctx, mine) != BSR_OK) bt_fail(__FILE__, __LINE__, "run %d failed", i);
                        if (i % 10 == 0 || i == runs - 1 || kind == ADDMM) bad += job_bits(&j, mine) != want;
                    }
                    CHECK_INT(bad, 0);
                    gm_cuda("in other streams", cudaDeviceSynchronize());
                }
                job_end(&j), job_end(&noise[0]), job_end(&noise[1]);
            }
    cudaStreamDestroy(mine), cudaStreamDestroy(busy[0]), cudaStreamDestroy(busy[1]);
}

/* ---------------------------------------------------------------------------------------------- */
/* capture                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

/* In the strictest mode a capture fails at any allocation, synchronisation or legacy copy in this thread. */
TEST(capture) {
    cudaStream_t s = new_stream(), beside = new_stream();
    for (int kind = 0; kind < JOBS; kind++)
        for (int tier : tiers)
            for (int t = 0; t < 5; t++) {
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t replay = nullptr;
                if ((tier && kind >= SOFTMAX) || !takes(kind, types[t])) continue;
                bt_case("%s, %s, tier %d", job_names[kind], bsr_dtype_name(types[t]), tier);
                job j = job_new(kind, types[t], t == 1 ? 32 : 5, 96, tier);
                if (job_ready(&j, gm.ctx, s)) {
                    gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
                    bsr_status status = job_run(&j, gm.ctx, s);
                    CHECK_INT(job_run(&j, gm.ctx, beside), BSR_OK); /* a stream that is not captured may be used, too */
                    cudaError_t e = cudaStreamEndCapture(s, &graph);
                    CHECK_INT(status, BSR_OK), CHECK_INT(e, cudaSuccess);
                    gm_cuda("beside a capture", cudaStreamSynchronize(beside));
                    if (e == cudaSuccess && status == BSR_OK && cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess) {
                        for (int turn = 0; turn <= 16; turn += 8) {
                            job_reset(&j, s, (size_t)turn);
                            CHECK_INT(job_run(&j, gm.ctx, s), BSR_OK);
                            std::string want = job_bits(&j, s);
                            job_reset(&j, s, (size_t)turn);
                            CHECK_INT(cudaGraphLaunch(replay, s), cudaSuccess);
                            CHECK(job_bits(&j, s) == want);
                        }
                        cudaGraphExecDestroy(replay);
                    } else bt_fail(__FILE__, __LINE__, "no graph");
                    if (graph) cudaGraphDestroy(graph);
                    (void)cudaGetLastError();
                }
                job_end(&j);
            }
    cudaStreamDestroy(s), cudaStreamDestroy(beside);
}

/* ---------------------------------------------------------------------------------------------- */
/* checked indices                                                                                */
/* ---------------------------------------------------------------------------------------------- */

namespace {
struct index_array {
    char *dev;
    size_t bytes;
    int dtype; /* of its entries */
    enum { CROW, COL, VIEW, LIST, RAW } what;
};
} /* namespace */
/* The index arrays that the call reads. */
static std::vector<index_array> index_arrays(const job &j) {
    const gm_call &g = *j.mirror;
    std::vector<index_array> all;
    const auto add = [&](const void *p, int dtype, decltype(index_array::what) what) {
        for (int i = 0; p && i < g.regions; i++)
            if (g.region[i].dev == (const char *)p && !g.region[i].written && g.region[i].bytes)
                all.push_back({g.region[i].dev, g.region[i].bytes, dtype, what});
    };
    for (int i = 0; i < g.matrices; i++) {
        const bsr_matrix &m = g.matrix[i];
        add(m.crow_indices, m.index_dtype, index_array::CROW), add(m.col_indices, m.index_dtype, index_array::COL);
        add(m.transposed_index, BSR_I32, index_array::VIEW), add(m.schedule, BSR_I32, index_array::VIEW);
    }
    for (const int64_t *p : {g.indices.c_indices, g.indices.r_offsets, g.indices.p_indices, g.indices.q_indices})
        add(p, BSR_I64, index_array::LIST);
    for (size_t i = 0; i < j.raw->size() && j.raw->size() == 2; i++) add(j.raw->at(i), BSR_I32, index_array::RAW);
    return all;
}
static uint64_t read_word(const uint64_t *word, cudaStream_t s) {
    uint64_t w = 0;
    gm_cuda("reading the word", cudaMemcpyAsync(&w, word, 8, cudaMemcpyDeviceToHost, s));
    gm_cuda("after a checked call", cudaStreamSynchronize(s));
    return w;
}
/* One entry of an index array made anything; put back as it goes. */
namespace {
struct spoiled {
    const index_array &a;
    int64_t at, was, now;
    spoiled(const index_array &array) : a(array) {
        const int64_t size = (int64_t)bsr_dtype_size(a.dtype);
        const int64_t odd[] = {-1, -7, INT32_MIN, INT32_MAX, 1 << 30, INT64_MIN, INT64_MAX};
        now = odd[bt_below(a.dtype == BSR_I64 ? 7 : 5)], was = 0, at = bt_below((int64_t)a.bytes / size);
        copy(&was, cudaMemcpyDeviceToHost), copy(&now, cudaMemcpyHostToDevice);
    }
    void copy(int64_t *value, cudaMemcpyKind kind) const {
        const size_t size = bsr_dtype_size(a.dtype); /* the low bytes come first */
        char *there = a.dev + (size_t)at * size;
        const bool in = kind == cudaMemcpyHostToDevice;
        gm_cuda("spoiling an index", cudaMemcpy(in ? (void *)there : value, in ? (const void *)value : there, size, kind));
    }
    ~spoiled() { copy(&was, cudaMemcpyHostToDevice); }
};
} /* namespace */
/* Entries of a matrix's arrays and views on the device, by number: columns (twice), rows and positions of the transposed index
   (twice the latter), the schedule's order. */
namespace {
struct index_entries {
    char *base[6];
    void set(const bsr_matrix &m, int64_t rows, int64_t positions) {
        char *t = (char *)(uintptr_t)m.transposed_index;
        base[0] = base[1] = (char *)m.col_indices, base[2] = t + rows, base[3] = base[4] = t + positions;
        base[5] = (char *)(uintptr_t)m.schedule + 64;
    }
    static int64_t count(int what, int64_t nnz, int64_t rows) { return what == 5 ? rows : nnz; }
    int64_t put(int what, int64_t i, int64_t now, int64_t size) const { /* returns what stood there */
        int64_t was = 0;
        if (what == 5) size = 4;
        gm_cuda("reading an index", cudaMemcpy(&was, base[what] + i * size, (size_t)size, cudaMemcpyDeviceToHost));
        gm_cuda("writing an index", cudaMemcpy(base[what] + i * size, &now, (size_t)size, cudaMemcpyHostToDevice));
        return was;
    }
};
} /* namespace */
/* Did the finding name what was spoiled? */
static void check_finding(const spoiled &x, uint64_t word) {
    bsr_error error;
    CHECK(bsr_device_status(word, &error) == BSR_BAD_STRUCTURE || error.item == BSR_ITEM_INDICES_COUNT);
    const int item = error.item;
    switch (x.a.what) {
        case index_array::CROW: CHECK(item >= BSR_ITEM_CROW_FIRST && item <= BSR_ITEM_CROW_DECREASES); break;
        case index_array::COL: CHECK(item == BSR_ITEM_COL_RANGE && error.index == x.at); break;
        case index_array::VIEW: CHECK(item == BSR_ITEM_VIEW_HEADER || item == BSR_ITEM_VIEW_CONTENT); break;
        case index_array::LIST: CHECK(item >= BSR_ITEM_INDICES_COUNT && item <= BSR_ITEM_INDICES_DUPLICATE); break;
        default: CHECK(item >= BSR_ITEM_CROW_FIRST && item <= BSR_ITEM_ROW_RANGE);
    }
    char text[320];
    bsr_error_string(&error, text, sizeof text);
    if (bt.bad) printf("     array %d, entry %lld made %lld: %s\n", (int)x.a.what, (long long)x.at, (long long)x.now, text);
}
static void clear_all(const job &j, cudaStream_t s) { /* as it must be left where nothing is written */
    poison(*j.mirror, s);
    gm_cuda("poisoning", cudaStreamSynchronize(s));
}
/* A call with each of its index arrays spoiled in turn, `times` times: nothing is written and the word says where; as it is:
   the bits of a call without the flag. graph: all by replay. */
static void check_job(job *j, cudaStream_t s, uint64_t *word, int times, cudaGraphExec_t graph, const std::string &want) {
    const std::vector<index_array> arrays = index_arrays(*j);
    const auto run = [&](bool good) {
        clear_all(*j, s), clear_accumulators = good;
        if (graph) CHECK_INT(cudaGraphLaunch(graph, s), cudaSuccess);
        else CHECK_INT(job_run(j, gm.ctx, s, nullptr, word), BSR_OK);
        clear_accumulators = true;
        return read_word(word, s);
    };
    clear_all(*j, s);
    const std::string untouched = job_bits(j, s);
    for (int i = 0; i < times * (int)arrays.size(); i++) {
        const spoiled x(arrays[(size_t)i % arrays.size()]);
        const uint64_t found = run(false);
        if (!found) { /* what stands between two arrays of a view, or an entry that says the same as before */
            CHECK(x.a.what == index_array::VIEW || x.was == x.now);
            CHECK(job_bits(j, s) == want);
            continue;
        }
        const std::string left = job_bits(j, s);
        CHECK(left == untouched);
        check_finding(x, found);
    }
    CHECK_INT(run(true), 0);
    CHECK(job_bits(j, s) == want);
}
/* A workspace for the flag, too. */
static bool job_ready_checked(job *j, cudaStream_t s, uint64_t *word) {
    bsr_error error;
    if (!job_ready(j, gm.ctx, s)) return false;
    if (job_run(j, gm.ctx, s, &error, word) == BSR_WORKSPACE_TOO_SMALL) {
        cudaFree(j->workspace), j->workspace_bytes = (uint64_t)error.value;
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&j->workspace, j->workspace_bytes));
    }
    CHECK_INT(job_run(j, gm.ctx, s, &error, word), BSR_OK);
    return true;
}
TEST(checked_indices) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    const int times = reduced() ? 1 : 5;
    for (int kind = 0; kind < JOBS; kind++)
        for (int tier = 0; tier < 4; tier++)
            for (int form = 0; form < (reduced() ? 3 : 6); form++) {
                const int type = types[form % 5], block = form % 3 == 0 ? 16 : form % 3 == 1 ? 64 : 5;
                if ((tier && kind > ATTENTION) || !takes(kind, type)) continue;
                job_index = form & 1 ? BSR_I64 : BSR_I32;
                job_views = form == 2 ? 0 : kind == ADDMM || kind == DSD ? 2 : kind == ADDMM_T_SCAN ? 4 : kind < SOFTMAX ? 5 : 3;
                if (kind == TRANSPOSED || kind == SCHEDULE) job_views = 0;
                if (kind == ADDMM_T_SCAN) job_views &= ~1;
                bt_case("%s, %s, blocks of %d, tier %d, views %d", job_names[kind], bsr_dtype_name(type), block, tier, job_views);
                job j = job_new(kind, type, block, block == 5 ? 100 : 512, tier);
                if (job_ready_checked(&j, s, word)) {
                    cudaGraph_t graph = nullptr;
                    cudaGraphExec_t replay = nullptr;
                    clear_all(j, s);
                    CHECK_INT(job_run(&j, gm.ctx, s), BSR_OK);
                    const std::string want = job_bits(&j, s);
                    check_job(&j, s, word, times, nullptr, want);
                    clear_accumulators = kind != SCATTER; /* else it is cleared in the graph, too */
                    gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
                    CHECK_INT(job_run(&j, gm.ctx, s, nullptr, word), BSR_OK);
                    clear_accumulators = true;
                    gm_cuda("ending a capture", cudaStreamEndCapture(s, &graph));
                    gm_cuda("making a graph", cudaGraphInstantiate(&replay, graph, 0));
                    if (kind != SCATTER) check_job(&j, s, word, 1, replay, want);
                    cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
                }
                job_end(&j);
            }
    job_index = BSR_I32, job_views = 0;
    cudaFree(word), cudaStreamDestroy(s);
}
/* Views of another matrix, a ragged batch, bsr_validate in a capture. */
TEST(checked_views_and_batches) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    for (int form = 0; form < 4; form++) {
        bsr_exec e = BSR_ZERO;
        bsr_error error;
        t_spec spec;
        void *workspace = nullptr;
        static const char *const names[] = {"as it is", "another's transposed index", "another's schedule", "columns"};
        bt_case("%s", names[form]);
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 16, spec.r = 20, spec.c = 30, spec.nnz = 200;
        spec.index_dtype = BSR_I64;
        bsr_matrix a = t_matrix(&spec), b = t_matrix(&spec);
        t_attach_transposed(&a), t_attach_schedule(&a, 2, 0);
        spec.nnz = 201;
        bsr_matrix other = t_matrix(&spec);
        t_attach_transposed(&b), t_attach_schedule(&other, 2, 0);
        if (form == 1) a.transposed_index = b.transposed_index; /* the same header: its contents give it away */
        if (form == 2) a.schedule = other.schedule;
        if (form == 3) ((int64_t *)a.col_indices)[7] = ((int64_t *)a.col_indices)[6];
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *da = g.map(&a);
        g.upload();
        e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word, e.error = &error;
        if (bsr_validate(gm.ctx, da, &e) == BSR_WORKSPACE_TOO_SMALL) {
            e.workspace_bytes = (uint64_t)error.value;
            gm_cuda("in cudaMalloc", cudaMalloc(&workspace, e.workspace_bytes)), e.workspace = workspace;
        }
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t replay = nullptr;
        gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        CHECK_INT(bsr_validate(gm.ctx, da, &e), BSR_OK);
        gm_cuda("ending a capture", cudaStreamEndCapture(s, &graph));
        gm_cuda("making a graph", cudaGraphInstantiate(&replay, graph, 0));
        CHECK_INT(cudaGraphLaunch(replay, s), cudaSuccess);
        bsr_device_status(read_word(word, s), &error);
        CHECK_INT(error.item, form == 0                          ? BSR_ITEM_NONE
                              : form == 1                        ? BSR_ITEM_VIEW_CONTENT
                              : form == 2                        ? BSR_ITEM_VIEW_HEADER
                              : error.item == BSR_ITEM_COL_ORDER ? BSR_ITEM_COL_ORDER
                                                                 : BSR_ITEM_VIEW_CONTENT);
        CHECK_INT(error.operand, form ? BSR_ARG_MATRIX : BSR_ARG_NONE);
        cudaGraphExecDestroy(replay), cudaGraphDestroy(graph), cudaFree(workspace);
    }
    cudaFree(word), cudaStreamDestroy(s);
}
/* Many CTAs look: the first of several findings is told, wherever they stand. */
TEST(checked_million) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    void *workspace = nullptr;
    t_spec spec;
    index_entries at;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8)), gm_cuda("in cudaMalloc", cudaMalloc(&workspace, 1 << 20));
    for (int wide = 0; wide < 2; wide++) {
        bt_case("%s", wide ? "i64" : "i32");
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 1, spec.r = reduced() ? 300 : 1501, spec.c = spec.r + 2;
        spec.nnz = spec.r * spec.c / 2, spec.index_dtype = wide ? BSR_I64 : BSR_I32;
        bsr_matrix a = t_matrix(&spec);
        t_attach_transposed(&a), t_attach_schedule(&a, 1, 0);
        const int64_t es = wide ? 8 : 4, nnz = a.nnz, ccol = (es * (spec.c + 1) + 63) / 64 * 64;
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *m = g.map(&a);
        g.upload();
        at.set(*m, 64 + ccol, 64 + ccol + (es * nnz + 63) / 64 * 64);
        for (int i = 0; i < 24; i++) {
            bsr_exec e = BSR_ZERO;
            bsr_error error;
            const int what = i % 6;
            int64_t first = INT64_MAX, was[3], where[3];
            e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word;
            e.workspace = workspace, e.workspace_bytes = 1 << 20;
            for (int k = 0; k < 3; k++) { /* three entries of one array */
                where[k] = bt_below(at.count(what, nnz, spec.r)), first = where[k] < first ? where[k] : first;
                was[k] = at.put(what, where[k], what == 0 || what > 3 ? -1 : INT32_MAX, es);
            }
            CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK);
            bsr_device_status(read_word(word, s), &error);
            CHECK_INT(error.item, what < 2 ? BSR_ITEM_COL_RANGE : BSR_ITEM_VIEW_CONTENT);
            CHECK_INT(error.operand, BSR_ARG_MATRIX);
            CHECK_INT(error.index, first);
            for (int k = 2; k >= 0; k--) at.put(what, where[k], was[k], es);
        }
        bsr_exec e = BSR_ZERO;
        bsr_error error;
        e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word;
        e.workspace = workspace, e.workspace_bytes = 1 << 20;
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK), CHECK_INT(read_word(word, s), 0);
        const int64_t line = at.put(5, 3, 0, es), twice = at.put(5, 7, line, es); /* one line for another: it is named twice */
        at.put(5, 3, line, es);
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK);
        bsr_device_status(read_word(word, s), &error);
        CHECK_INT(error.item, BSR_ITEM_VIEW_REPEATS), CHECK_INT(error.index, line);
        at.put(5, 7, twice, es);
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK), CHECK_INT(read_word(word, s), 0);
    }
    cudaFree(workspace), cudaFree(word), cudaStreamDestroy(s);
}
/* bsr_validate takes anything and reads nothing else: under memcheck this is a test of that. */
TEST(hostile_row_pointers) {
    for (int i = 0; i < 40; i++) {
        t_spec spec;
        bsr_error error, device;
        bsr_exec e = BSR_ZERO;
        bt_case("%d", i);
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 1, spec.r = 1 + bt_below(30), spec.c = 1 + bt_below(30);
        spec.nnz = 1 + bt_below(spec.r * spec.c), spec.index_dtype = i & 1 ? BSR_I64 : BSR_I32;
        bsr_matrix a = t_matrix(&spec);
        const int64_t odd[] = {-5, -1, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, a.nnz + 1};
        for (int64_t k = bt_range(1, 3); k; k--) {
            const int64_t at = bt_below(3) ? bt_below(spec.r + 1) : 0, v = odd[bt_below(7)];
            if (i & 1) ((int64_t *)a.crow_indices)[at] = v;
            else ((int32_t *)a.crow_indices)[at] = (int32_t)v;
        }
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *da = g.map(&a);
        g.upload();
        void *workspace = nullptr;
        gm_cuda("in cudaMalloc", cudaMalloc(&workspace, 4096));
        e.error = &error;
        const int want = bsr_validate(cpu(), &a, &e);
        e.error = &device, e.workspace = workspace, e.workspace_bytes = 4096;
        CHECK_INT(bsr_validate(gm.ctx, da, &e), want);
        CHECK_INT(device.item, error.item), CHECK_INT(device.index, error.index), CHECK_INT(device.value, error.value);
        cudaFree(workspace);
    }
}

TEST(no_allocation) { /* the device's free memory stays as it is; host time is printed */
    cudaStream_t s = new_stream();
    for (int kind = 0; kind < JOBS; kind++) {
        bt_case("%s", job_names[kind]);
        job j = job_new(kind, BSR_F32, 16, 128, 0);
        if (job_ready(&j, gm.ctx, s)) {
            size_t before = 0, after = 0, total;
            cudaEvent_t events[2];
            cudaEventCreate(&events[0]), cudaEventCreate(&events[1]);
            cudaMemGetInfo(&before, &total);
            struct timespec t0, t1;
            clock_gettime(CLOCK_MONOTONIC, &t0);
            for (int i = 0; i < 200; i++) job_run(&j, gm.ctx, s);
            clock_gettime(CLOCK_MONOTONIC, &t1);
            cudaStreamSynchronize(s);
            cudaMemGetInfo(&after, &total);
            CHECK_INT(after, before);
            if (!reduced())
                printf("     host time of %s: %.1f us\n", job_names[kind],
                       ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / 200e3);
            cudaEventDestroy(events[0]), cudaEventDestroy(events[1]);
        }
        job_end(&j);
    }
    cudaStreamDestroy(s);
}

/* ---------------------------------------------------------------------------------------------- */
/* threads                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

TEST(threads) { /* two contexts, eight host threads, each with a stream and buffers of its own */
    bsr_context_desc d = BSR_ZERO;
    bsr_context *second = nullptr;
    d.backend = BSR_BACKEND_CUDA;
    CHECK_INT(bsr_create(&d, &second, NULL), BSR_OK);
    for (int kind = 0; kind < JOBS && second; kind++) {
        job j[8];
        std::string want, got[8];
        std::vector<std::thread> list;
        cudaStream_t stream[8];
        bool ready = true;
        int failures[8] = {0}, rounds = reduced() ? 2 : 50;
        bt_case("%s", job_names[kind]);
        uint64_t seed = bt.random;
        for (int i = 0; i < 8; i++) bt.random = seed, j[i] = job_new(kind, BSR_F32, 16, 160, 0), stream[i] = new_stream();
        for (int i = 0; i < 8 && ready; i++) ready = job_ready(&j[i], gm.ctx, stream[i]);
        if (ready) {
            want = job_bits(&j[0], stream[0]);
            for (int i = 0; i < 8; i++) job_reset(&j[i], stream[i], 0);
            for (int i = 0; i < 8; i++)
                list.emplace_back([&, i] {
                    for (int k = 0; k < rounds; k++) failures[i] += job_run(&j[i], i & 1 ? second : gm.ctx, stream[i]) != BSR_OK;
                    failures[i] += cudaStreamSynchronize(stream[i]) != cudaSuccess;
                });
            for (auto &t : list) t.join();
            for (int i = 0; i < 8; i++) CHECK_INT(failures[i], 0), CHECK(job_bits(&j[i], stream[i]) == want);
        }
        for (int i = 0; i < 8; i++) job_end(&j[i]), cudaStreamDestroy(stream[i]);
    }
    bsr_destroy(second);
}

/* ---------------------------------------------------------------------------------------------- */
/* errors                                                                                         */
/* ---------------------------------------------------------------------------------------------- */

TEST(contexts) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *ctx = nullptr;
    bsr_error error;
    bsr_info info;
    bt_case("the device's numbers");
    CHECK_INT(bsr_query_info(gm.ctx, &info), BSR_OK);
    CHECK_INT(info.backend, BSR_BACKEND_CUDA), CHECK_STR(info.backend_name, "cuda");
    CHECK(info.device == 0 && info.sm_count > 0 && info.cc_major >= 7);
    bt_case("the default backend is CUDA where there is a device");
    CHECK_INT(bsr_create(NULL, &ctx, &error), BSR_OK);
    if (ctx) CHECK_INT(bsr_query_info(ctx, &info), BSR_OK), CHECK_INT(info.backend, BSR_BACKEND_CUDA);
    bsr_destroy(ctx);
    bt_case("a device that is not there");
    for (int device : {100, -1, INT32_MIN, INT32_MAX}) {
        d.backend = BSR_BACKEND_CUDA, d.device = device;
        CHECK_INT(bsr_create(&d, &ctx, &error), BSR_NO_BACKEND);
        CHECK(ctx == nullptr && error.item == BSR_ITEM_DEVICE_MISSING && error.cuda_error != 0);
        CHECK_INT(cudaGetLastError(), cudaSuccess);
    }
}
/* A context for each of two devices. They give the same bits, at the same time, too, each from a thread of its own. Where the
   other device is current, or the stream is the other's, the call is refused, and nothing is written or stays behind. */
static void on_two_devices(bsr_context *const (&ctx)[2], const cudaStream_t (&stream)[2], job (&j)[2], int kind) {
    std::vector<std::thread> both;
    bsr_error error;
    int failures[2] = {0}, driver = 0;
    bool ready = true;
    gm_cuda("asking", cudaDriverGetVersion(&driver));
    for (int i = 0; i < 2; i++) cudaSetDevice(i), ready = job_ready(&j[i], ctx[i], stream[i]) && ready;
    if (!ready) return;
    const std::string want = job_bits(&j[0], stream[0]);
    CHECK(job_bits(&j[1], stream[1]) == want);
    for (int i = 0; i < 2; i++) {
        cudaSetDevice(i), job_reset(&j[i], stream[i], 0);
        const std::string poison = job_bits(&j[i], stream[i]);
        if (kind != SCATTER) { /* whose job clears the accumulators */
            cudaSetDevice(1 - i);
            CHECK_INT(job_run(&j[i], ctx[i], stream[i], &error), BSR_WRONG_DEVICE);
            CHECK(error.item == BSR_ITEM_CUDA_DEVICE && error.value == 1 - i);
            cudaSetDevice(i);
            if (CUDART_VERSION >= 12080 && driver >= 12080) {
                CHECK_INT(job_run(&j[i], ctx[i], stream[1 - i], &error), BSR_WRONG_DEVICE);
                CHECK(error.item == BSR_ITEM_CUDA_STREAM && error.value == 1 - i);
                gm_cuda("after the refusal", cudaStreamSynchronize(stream[1 - i]));
            }
            CHECK(job_bits(&j[i], stream[i]) == poison);
        }
    }
    for (int i = 0; i < 2; i++)
        both.emplace_back([&, i] {
            cudaSetDevice(i);
            for (int k = 0; k < 50; k++) failures[i] += job_run(&j[i], ctx[i], stream[i]) != BSR_OK;
            failures[i] += cudaStreamSynchronize(stream[i]) != cudaSuccess;
        });
    for (auto &t : both) t.join();
    for (int i = 0; i < 2; i++) cudaSetDevice(i), CHECK_INT(failures[i], 0), CHECK(job_bits(&j[i], stream[i]) == want);
}
TEST(two_devices) {
    bsr_context *ctx[2] = {nullptr, nullptr};
    cudaStream_t stream[2];
    int count = 0, current = -1;
    cudaGetDeviceCount(&count);
    if (count < 2) {
        bt_skip("there is one device only");
        return;
    }
    bt_case("contexts");
    for (int i = 0; i < 2; i++) {
        bsr_context_desc d = BSR_ZERO;
        bsr_info info;
        d.backend = BSR_BACKEND_CUDA, d.device = i + 1;
        CHECK_INT(bsr_create(&d, &ctx[i], NULL), BSR_OK), CHECK_INT(bsr_query_info(ctx[i], &info), BSR_OK);
        CHECK_INT(info.device, i);
        gm_cuda("asking", cudaGetDevice(&current)), CHECK_INT(current, 0);
        cudaSetDevice(i), stream[i] = new_stream(), cudaSetDevice(0);
    }
    for (int kind = 0; kind < JOBS; kind++)
        for (int tier = 0; tier <= 3; tier++)
            for (int type : {BSR_F32, BSR_BF16}) {
                job j[2];
                if ((tier && kind >= SOFTMAX) || !gm_compiled(type)) continue;
                bt_case("%s, %s, tier %d", job_names[kind], bsr_dtype_name(type), tier);
                const uint64_t seed = bt.random;
                for (int i = 0; i < 2; i++) cudaSetDevice(i), bt.random = seed, j[i] = job_new(kind, type, 64, 256, tier);
                on_two_devices(ctx, stream, j, kind);
                for (int i = 0; i < 2; i++) cudaSetDevice(i), job_end(&j[i]);
                cudaSetDevice(0);
            }
    for (int i = 0; i < 2; i++) cudaSetDevice(i), cudaStreamDestroy(stream[i]), bsr_destroy(ctx[i]);
    cudaSetDevice(0);
}
TEST(queries) { /* a plan that a query gave is accepted as it is */
    for (int kind = 0; kind < JOBS; kind++) {
        bt_case("%s", job_names[kind]);
        job j = job_new(kind, BSR_BF16, 32, 128, 0);
        if (job_ready(&j, gm.ctx, gm.stream)) {
            bsr_exec e = BSR_ZERO;
            bsr_error error;
            bsr_plan plan;
            char text[256];
            e.stream = gm.stream, e.query = &plan, e.error = &error, e.workspace = j.workspace,
            e.workspace_bytes = j.workspace_bytes;
            job_reset(&j, gm.stream, 0);
            CHECK_INT(j.device(gm.ctx, &e), BSR_OK);
            std::string poison = job_bits(&j, gm.stream);
            if (kind != SCATTER)
                CHECK(poison == std::string(poison.size(), (char)0xff)); /* (whose job clears the accumulators) */
            CHECK_INT(plan.backend, BSR_BACKEND_CUDA), CHECK(plan.op > 0), CHECK(bsr_plan_string(&plan, text, sizeof text) > 10);
            CHECK_INT(plan.workspace_bytes, j.workspace_bytes);
            e.query = nullptr, e.plan = &plan;
            CHECK_INT(j.device(gm.ctx, &e), BSR_OK);
            plan.backend = BSR_BACKEND_CPU;
            CHECK_INT(j.device(gm.ctx, &e), BSR_BAD_PLAN), CHECK_INT(error.item, BSR_ITEM_PLAN_FIELD), CHECK_INT(error.index, 1);
            plan.backend = 0, plan.kernel = 99999;
            CHECK_INT(j.device(gm.ctx, &e), BSR_BAD_PLAN), CHECK_INT(error.item, BSR_ITEM_PLAN_FIELD), CHECK_INT(error.index, 3);
            gm_cuda("after the runs", cudaStreamSynchronize(gm.stream));
        }
        job_end(&j);
    }
}
static int attribute(cudaDeviceAttr which) {
    int value = 0;
    gm_cuda("asking", cudaDeviceGetAttribute(&value, which, 0));
    return value;
}
/* Of the device, the number before the point: which tiers it has. */
static int architecture(void) { return attribute(cudaDevAttrComputeCapabilityMajor); }
/* What a kernel's counters do not hold is refused, as a plan that names its tier shows: nothing is read. */
TEST(counters) {
    static const struct {
        int64_t rows, cols, br, bc, nnz, n;
        int refused;
    } sizes[] = {{16, 1024, 16, 1024, INT64_C(1) << 19, 8, 0},
                 {16, 1024, 16, 1024, INT64_C(1) << 21, 8, 1},
                 {4096, 4096, 64, 64, INT64_C(1) << 20, 512, 0},
                 {16, INT64_C(1) << 36, 16, 16, 100, 512, 1}};
    void *p = nullptr;
    if (!gm_compiled(BSR_BF16) || architecture() < 8) {
        bt_skip("there are no such kernels");
        return;
    }
    gm_cuda("in cudaMalloc", cudaMalloc(&p, 256));
    for (auto &x : sizes) {
        bsr_plan found, plan = BSR_ZERO;
        bsr_exec e = BSR_ZERO;
        bt_case("%.0f columns, %.0f blocks of %d x %d", (double)x.cols, (double)x.nnz, (int)x.br, (int)x.bc);
        bsr_matrix a = bsr_matrix_make(x.rows, x.cols, x.br, x.bc, x.nnz, p, p, BSR_I64, p, BSR_BF16);
        bsr_dense b = bsr_dense_row_major(p, BSR_BF16, x.cols, x.n), c = bsr_dense_row_major(p, BSR_BF16, x.rows, x.n);
        plan.kernel = 2, e.plan = &plan, e.query = &found, e.flags = BSR_EXEC_SKIP_CHECKS; /* they overlap */
        CHECK_INT(bsr_dense_mm(gm.ctx, 0, &a, &b, &c, &e), x.refused ? BSR_BAD_PLAN : BSR_OK);
    }
    cudaFree(p);
}
/* A stream whose capture was spoilt refuses every launch: the status says so, nothing stays behind in the runtime. */
TEST(failing_launch) {
    for (int kind = 0; kind < JOBS; kind++) {
        cudaStream_t s = new_stream();
        cudaGraph_t graph = nullptr;
        bsr_error error;
        bt_case("%s", job_names[kind]);
        job j = job_new(kind, BSR_F32, 16, 64, 0);
        if (job_ready(&j, gm.ctx, s)) {
            gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
            (void)cudaStreamSynchronize(s);
            (void)cudaGetLastError();
            bsr_status status = job_run(&j, gm.ctx, s, &error);
            int left = (int)cudaPeekAtLastError();
            (void)cudaStreamEndCapture(s, &graph);
            (void)cudaGetLastError();
            CHECK_INT(status, BSR_CUDA_ERROR);
            CHECK_INT(error.item, BSR_ITEM_CUDA), CHECK(error.cuda_error != 0);
            CHECK_INT(left, cudaSuccess);
            CHECK(job_run(&j, gm.ctx, s) == BSR_OK);
            gm_cuda("after the next run", cudaStreamSynchronize(s));
        }
        job_end(&j);
        cudaStreamDestroy(s);
    }
}
/* Under the checking flag each pointer of a call, were it to pageable or to pinned memory of the host, is refused before anything
   runs. */
static void host_pointer_refused(const call_function &call, const bsr_exec *e, void **at) {
    static char pageable[4096];
    void *const kept = *at, *pinned = nullptr;
    gm_cuda("in cudaMallocHost", cudaMallocHost(&pinned, 4096));
    for (void *host : {(void *)(((uintptr_t)pageable + 63) / 64 * 64), pinned}) {
        memset(e->error, 0, sizeof *e->error), *at = host;
        CHECK_INT(call(gm.ctx, e), BSR_BAD_ARGUMENT), CHECK_INT(e->error->item, BSR_ITEM_CUDA_POINTER);
        gm_cuda("after the refusal", cudaStreamSynchronize(gm.stream));
        CHECK_INT(cudaGetLastError(), cudaSuccess);
    }
    *at = kept, cudaFreeHost(pinned);
}
/* Does the job's call take the dense operand i of its mirror as it stands there? */
static bool takes_dense(int kind, int i) {
    switch (kind) {
        case SCATTER: return i != 1; /* the accumulators, which the job itself clears */
        case FROM_DENSE:
        case PRUNE: return i == 0;
        case FROM_CSR:
        case FROM_COO: return i == 1;
        default: return kind != FROM_MASK && kind != RANDOM;
    }
}
TEST(host_pointers) {
    for (int kind = 0; kind < JOBS; kind++) {
        bsr_exec e = BSR_ZERO;
        bsr_error error;
        bt_case("%s", job_names[kind]);
        job j = job_new(kind, BSR_F32, 16, 64, 0);
        if (job_ready(&j, gm.ctx, gm.stream)) {
            e.stream = gm.stream, e.flags = BSR_EXEC_CHECK_POINTERS, e.error = &error, e.workspace = j.workspace,
            e.workspace_bytes = j.workspace_bytes;
            CHECK_INT(j.device(gm.ctx, &e), BSR_OK);
            gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
            job_reset(&j, gm.stream, 0);
            const std::string poison = job_bits(&j, gm.stream);
            gm_call *g = j.mirror;
            const auto refused = [&](void **at) { host_pointer_refused(j.device, &e, at); };
            for (int i = 0; i < g->denses; i++)
                if (takes_dense(kind, i)) refused(&g->dense[i].data);
            const bool builds = kind >= FROM_DENSE && kind <= PRUNE;
            for (int i = 0; i < g->matrices; i++) {
                bsr_matrix *m = builds ? &*j.target : &g->matrix[i];
                refused(&m->crow_indices), refused(&m->col_indices);
                if (m->transposed_index) refused((void **)&m->transposed_index);
                if (kind < TRANSPOSED && kind != ATTENTION && kind != FROM_MASK && kind != RANDOM) /* these want the pattern */
                    refused(&m->values);
            }
            for (auto &p : *j.raw) refused(&p);
            if (kind == SCATTER || kind == DENSE_SCATTER)
                for (int64_t **at : {&g->indices.c_indices, &g->indices.r_offsets, &g->indices.p_indices, &g->indices.q_indices})
                    refused((void **)at);
            if (kind == ADDMM) refused((void **)&g->epilogue.alpha_ptr), refused((void **)&g->epilogue.beta_ptr);
            if (j.workspace) refused(&e.workspace);
            CHECK(kind == SCATTER || job_bits(&j, gm.stream) == poison);
            CHECK_INT(j.device(gm.ctx, &e), BSR_OK);
            gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        }
        job_end(&j);
    }
    bt_case("layout_mask");
    bsr_layout l = bsr_layout_default(BSR_LAYOUT_FIXED, 2, 8);
    bsr_exec e = BSR_ZERO;
    bsr_error error;
    uint8_t *mask = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&mask, 128));
    e.stream = gm.stream, e.flags = BSR_EXEC_CHECK_POINTERS, e.error = &error;
    const auto call = [&](const bsr_context *ctx, const bsr_exec *e) { return bsr_layout_mask(ctx, &l, mask, e); };
    host_pointer_refused(call, &e, (void **)&mask);
    CHECK_INT(call(gm.ctx, &e), BSR_OK);
    gm_cuda("after the run", cudaStreamSynchronize(gm.stream)), cudaFree(mask);
}

/* ---------------------------------------------------------------------------------------------- */
/* absent blocks, tiers against each other                                                        */
/* ---------------------------------------------------------------------------------------------- */

/* With --kernels: is the call none of those that it picks? */
template <class F> static bool left_out(bsr_exec e, F call) {
    bsr_plan found = BSR_ZERO;
    e.query = &found;
    return gm.kernels && call(&e) == BSR_OK && !gm_next_of(found.instance);
}
/* Rows of b that no stored block meets hold NaN and Inf; every tier and block size gives finite numbers, near the CPU's. */
TEST(absent_blocks) {
    static const int64_t blocks[] = {1, 3, 8, 16, 32, 48, 64, 128};
    for (int tier : tiers)
        for (int64_t block : blocks)
            for (int t = 0; t < 3; t++)
                for (int trans = 0; trans < 2; trans++) {
                    t_spec s;
                    if (!gm_compiled(types[t])) continue;
                    int64_t i, j, p, bad = 0;
                    bsr_exec e = BSR_ZERO;
                    bsr_error error;
                    bsr_plan plan;
                    bt_case("block %d, %s, tier %d%s", (int)block, bsr_dtype_name(types[t]), tier, trans ? ", A^T" : "");
                    memset(&s, 0, sizeof s), memset(&plan, 0, sizeof plan);
                    s.dtype = types[t], s.block_rows = s.block_cols = block, s.r = 5, s.c = 6, s.nnz = 4, s.index_dtype = BSR_I32;
                    bsr_matrix a = t_matrix(&s);
                    if (trans) t_attach_transposed(&a);
                    bsr_dense b =
                        t_random(types[t], trans ? a.rows : a.cols, 136, bt_below(2) ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                    bsr_dense c = t_output(types[t], trans ? a.cols : a.rows, 136, ROW, NO_BATCH),
                              w = t_output(types[t], c.rows, 136, ROW, NO_BATCH);
                    for (i = 0; i < b.rows; i++) {
                        int met = 0;
                        for (int64_t r = 0; r < s.r; r++)
                            for (p = t_crow(&a, 0, r); p < t_crow(&a, 0, r + 1); p++)
                                met |= (trans ? r : t_col(&a, 0, p)) == i / block;
                        for (j = 0; j < 136 && !met; j++) t_set(&b, 0, i, j, j % 2 ? (double)NAN : (double)INFINITY);
                    }
                    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                    auto da = g.map(&a);
                    auto db = g.map(&b), dc = g.map(&c, true);
                    g.upload();
                    plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.error = &error, e.stream = gm.stream;
                    auto call = [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, trans ? BSR_TRANS_A : 0, da, db, dc, e); };
                    if (left_out(e, call)) {
                        bt_skip("left out by --every or --kernels");
                        continue;
                    }
                    bsr_status status = call(&e);
                    if (status == BSR_BAD_PLAN && tier) {
                        bt_skip("the forced tier does not take these calls");
                        continue;
                    }
                    CHECK_INT(status, BSR_OK);
                    g.download();
                    CHECK_INT(bsr_dense_mm(cpu(), trans ? BSR_TRANS_A : 0, &a, &b, &w, NULL), BSR_OK);
                    for (i = 0; i < c.rows; i++)
                        for (j = 0; j < 136; j++)
                            bad += !(fabs(t_get(&c, 0, i, j) - t_get(&w, 0, i, j)) <=
                                     (t ? 0.02 : 1e-5) * (1 + fabs(t_get(&w, 0, i, j))));
                    CHECK_INT(bad, 0);
                }
}

/* Bytes that nobody wrote: no NaN that a processor makes has all of them set. */
static bool untouched(const char *x, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (x[i] != (char)BT_POISON) return false;
    return true;
}
/* The first number with other bits, or -1; what a NaN carries does not count, unless one of them was never written. */
static int64_t first_other(const void *a, const void *b, size_t bytes, int dtype) {
    const size_t size = bsr_dtype_size(dtype);
    if (!memcmp(a, b, bytes)) return -1;
    for (size_t i = 0; i < bytes / size; i++) {
        const char *x = (const char *)a + i * size, *y = (const char *)b + i * size;
        if (!memcmp(x, y, size)) continue;
        const double u = t_load(a, dtype, (int64_t)i), v = t_load(b, dtype, (int64_t)i);
        if (u == u || v == v || untouched(x, size) || untouched(y, size)) return (int64_t)i;
    }
    return -1;
}
/* Every tier with every tile that a plan may name: what it does not take is refused, the rest is the CPU's bit for bit (whole
   numbers). So small operands meet the kernels that else only large ones do. With --kernels only the calls that it picks run.
   out: what the CPU made; ran: calls, by tier (0: the library's choice). */
template <class F> static void each_plan(const gm_call &g, const void *out, int dtype, bsr_exec e, int *ran, F call) {
    static const struct {
        int cols, split, stages, rows = 0;
    } tiles[] = {{0, 0, 0},   {8, 0, 0},   {16, 0, 0},  {32, 0, 0},      {64, 0, 0},      {128, 0, 0},
                 {256, 0, 0}, {64, 0, 1},  {64, 1, 3},  {64, 2, 3},      {64, 4, 3},      {64, 2, 0},
                 {64, 4, 0},  {128, 1, 0}, {128, 2, 0}, {128, 1, 0, 16}, {128, 0, 0, 128}};
    const bt_block *block = bt_find(out);
    const gm_region *to = nullptr;
    std::vector<char> got(block->bytes);
    for (int i = 0; i < g.regions; i++)
        if (g.region[i].written) to = &g.region[i];
    for (int tier = 0; tier <= 3; tier++)
        for (auto &tile : tiles) {
            bsr_plan plan = BSR_ZERO;
            if (!tier && &tile != tiles) continue;
            plan.kernel = tier, plan.tile_rows = tile.rows, plan.tile_cols = tile.cols;
            plan.split = tile.split, plan.stages = tile.stages;
            e.plan = tier ? &plan : nullptr, e.stream = gm.stream;
            if (left_out(e, call)) {
                ran[tier]++;
                continue;
            }
            poison(g, gm.stream);
            bsr_status status = call(&e);
            if (status == BSR_BAD_PLAN && tier) continue;
            CHECK_INT(status, BSR_OK), ran[tier]++;
            gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
            gm_cuda("copying back", cudaMemcpy(got.data(), to->dev, to->bytes, cudaMemcpyDeviceToHost));
            const int64_t at = first_other(got.data(), block->data, to->bytes, dtype);
            if (at >= 0)
                bt_fail(__FILE__, __LINE__, "tier %d, %d columns, split %d, %d stages: element %d is %g, not %g", tier, tile.cols,
                        tile.split, tile.stages, (int)at, t_load(got.data(), dtype, at), t_load(block->data, dtype, at));
        }
}
static bsr_exec exec_of(uint32_t flags) {
    bsr_exec e = BSR_ZERO;
    e.flags = flags;
    return e;
}
/* Square blocks of whole numbers. */
static t_spec spec_of(int type, int64_t block, int64_t r, int64_t c, int64_t nnz) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = type, s.kind = FILL_INTEGER, s.index_dtype = BSR_I32, s.block_rows = s.block_cols = block;
    s.r = r, s.c = c, s.nnz = nnz;
    return s;
}
/* So compute-sanitizer meets each kernel, whatever is drawn elsewhere: those of products in `instances`, others in
 * `every_kernel`.
 */
struct noting {
    long *const before = gm_launches;
    long had[GM_KERNELS]; /* with --kernels calls of tests before count as well: they are not made again */
    noting() {
        gm_launches = gm.launches, memcpy(had, gm.launches, sizeof had);
        if (gm.kernels) memset(had, 0, sizeof had);
    }
    ~noting() { gm_launches = before; }
    void check(bool products) const {
        int number;
        for (int i = 0; const char *name = gm_kernel(i, &number); i++) {
            const bool product = strstr(name, "PRODUCT") || strstr(name, "SAMPLED");
            if (product != products) continue;
            bt_case("kernel %d, %s", number, name);
            CHECK(gm.launches[number] > had[number] || architecture() != 9);
        }
    }
};
/* Small and odd blocks, few columns and many, either layout, by rows and by the transposed index, blocks by columns and with
   gaps, in each way that the library has for them. */
static void each_small_block(int type) {
    static const int64_t sides[][2] = {{1, 1}, {2, 2},  {3, 3},  {4, 4},  {6, 9},  {8, 8},
                                       {5, 7}, {1, 12}, {17, 2}, {40, 3}, {3, 700}};
    static const int64_t widths[] = {1, 2, 5, 33, 36, 64, 333};
    int ran[4] = {0};
    for (auto &side : sides)
        for (int64_t n : widths)
            for (int form = 0; form < 8; form++) { /* bits: transposed, dense operands by columns, a gap between blocks */
                const bool large = side[0] * side[1] > 1000;
                if (large && (n > 36 || form > 1)) continue;
                bt_case("%s, blocks of %d x %d, %d columns, form %d", bsr_dtype_name(type), (int)side[0], (int)side[1], (int)n,
                        form);
                t_spec s = spec_of(type, side[0], large ? 9 : 41, large ? 5 : 37, large ? 20 : 300);
                s.block_cols = side[1];
                if (form & 4) s.layout = n % 2 ? BLOCKS_GAPS : BLOCKS_COL;
                bsr_matrix a = t_matrix(&s);
                const uint32_t op = form & 1 ? BSR_TRANS_A : 0;
                const int layout = form & 2 ? COL : ROW, out = type == BSR_I8 ? BSR_I32 : type;
                if (op) t_attach_transposed(&a);
                bsr_dense b = t_random(type, op ? a.rows : a.cols, n, layout, NO_BATCH, 0, FILL_INTEGER);
                bsr_dense c = t_output(out, op ? a.cols : a.rows, n, layout, NO_BATCH);
                gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                auto da = g.map(&a);
                auto db = g.map(&b), dc = g.map(&c, true);
                g.upload();
                CHECK_INT(bsr_dense_mm(cpu(), op, &a, &b, &c, NULL), BSR_OK);
                each_plan(g, c.data, out, exec_of(0), ran,
                          [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
            }
    bt_case("%s: small blocks that ran", bsr_dtype_name(type));
    CHECK(ran[0] > 0);
}
TEST(instances) {
    const noting launches;
    static const uint32_t flags[] = {0, BSR_EXEC_TF32, BSR_EXEC_TF32X3};
    static const int64_t blocks[] = {16, 32, 64, 128}, widths[] = {272, 264, 8, 16, 32, 64};
    const int major = architecture(), strips = attribute(cudaDevAttrMultiProcessorCount) * 3 / 4 + 2;
    for (int type : types) {
        int ran[2][4] = {{0}}; /* products, sampled products; by tier */
        const bool halves = type == BSR_BF16 || type == BSR_F16;
        if (!gm_compiled(type)) continue;
        for (int64_t block : blocks)
            for (int form = 0; form < 32; form++) { /* bits: transposed, dense operand column-major, by 4: width, more rows */
                const int trans = form & 1, layout = form & 2 ? COL : ROW, width = form / 4, many = width == 6;
                const int64_t n = !many ? widths[width % 6] : block == 64 ? 8 << (form & 3) : form & 1 ? 8 : 32;
                const int out = type == BSR_I8 ? BSR_I32 : type;
                if (width > 6 || (many && block != 32 && !(halves && block == 64))) continue; /* 64: strips of few columns */
                bt_case("%s, blocks of %d, %d columns, form %d", bsr_dtype_name(type), (int)block, (int)n, form);
                const int64_t r = !many ? 256 / block + 1 : block == 64 ? strips : 4 * strips; /* 3 a multiprocessor, and more */
                const int64_t c_blocks = many ? 2 : width || block > 16 ? 4 : 64; /* 64: slots of mma's rings are used again */
                const t_spec s = spec_of(type, block, r, c_blocks, r * c_blocks / 2);
                bsr_matrix a = t_matrix(&s);
                const uint32_t op = trans && !many ? BSR_TRANS_A : 0;
                if (op) t_attach_transposed(&a);
                bsr_dense b = t_random(type, op ? a.rows : a.cols, n, layout, NO_BATCH, 0, FILL_INTEGER);
                bsr_dense c = t_output(out, op ? a.cols : a.rows, n, layout, NO_BATCH);
                gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                auto da = g.map(&a);
                auto db = g.map(&b), dc = g.map(&c, true);
                g.upload();
                CHECK_INT(bsr_dense_mm(cpu(), op, &a, &b, &c, NULL), BSR_OK);
                for (int i = 0; i < (type == BSR_F32 ? 3 : 1); i++)
                    each_plan(g, c.data, out, exec_of(flags[i]), ran[0],
                              [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
                if (width || trans) continue;
                bsr_dense x = t_random(type, a.rows, 128, ROW, NO_BATCH, 0, FILL_INTEGER),
                          y = t_random(type, 128, a.cols, layout, NO_BATCH, 0, FILL_INTEGER);
                bsr_matrix z = t_matrix_output(&a, out, PACKED);
                gm_call h("bsr_sampled_addmm", gm.ctx, nullptr);
                auto dx = h.map(&x), dy = h.map(&y);
                auto dz = h.map(&z, true);
                h.upload();
                CHECK_INT(bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &y, &z, NULL), BSR_OK);
                each_plan(h, z.values, out, exec_of(0), ran[1],
                          [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dy, dz, e); });
            }
        each_small_block(type);
        bt_case("%s: tiers that ran", bsr_dtype_name(type));
        CHECK(ran[0][1] > 0 && ran[1][1] > 0);
        if (type != BSR_F64 && major >= 8) CHECK(ran[0][2] > 0);
        if (halves && major >= 8) CHECK(ran[1][2] > 0);
        if ((halves || type == BSR_I8) && major == 9) CHECK(ran[0][3] > 0);
        if (halves && major == 9) CHECK(ran[1][3] > 0);
    }
    launches.check(true);
}

/* A type that a reduced build holds. */
static int any_type(void) {
    for (int type : types)
        if (gm_compiled(type)) return type;
    return BSR_F32;
}
/* Attention by a tier, with and without options, and by heads of 64 and 128. */
static void each_attention(int type, int tier, int64_t block) {
    for (int form = 0; form < 4; form++) {
        const int64_t d = form & 1 ? 128 : 64;
        const t_spec s = spec_of(type, block, 2, 2, 3);
        bsr_attention_options o = BSR_ZERO;
        bsr_exec e = t_exec(0);
        o.dropout_p = form & 2 ? 0.1 : 0.0;
        bt_case("attention, %s, tier %d, blocks of %d, form %d", bsr_dtype_name(type), tier, (int)block, form);
        bsr_matrix mask = t_matrix(&s);
        bsr_dense q = t_random(type, mask.rows, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  k = t_random(type, mask.cols, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  v = t_random(type, mask.cols, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  out = t_output(type, mask.rows, d, ROW, NO_BATCH);
        gm.tier = tier;
        (void)RUN_OK(gm_attention(cpu(), 0, &q, &k, &v, &mask, &o, &out, nullptr, &e));
        gm.tier = 0;
    }
}
/* Views of patterns that fit into few words, into more, into none; with 32 and 64 bits; what bsr_validate finds there, and in a
   matrix that has a column too many. */
static void each_view(int64_t across, int index_dtype) {
    t_spec s = spec_of(any_type(), 1, 12, across, 100);
    bsr_exec e = t_exec(0);
    uint64_t bytes[2] = {0, 0};
    s.index_dtype = index_dtype;
    bt_case("views, %d columns, %s", (int)across, bsr_dtype_name(index_dtype));
    bsr_matrix m = t_matrix(&s);
    const int64_t first = across < 89 ? across : 89; /* of 100 in the first of 12 rows: a schedule says that it is tall */
    for (int64_t i = 0, at = 0; i < 12; i++) {
        const int64_t start = at, end = first + i * (100 - first) / 11;
        for (; at < end; at++) t_set_index(m.col_indices, index_dtype, at, at - start + (i ? across / 2 : 0));
        t_set_index(m.crow_indices, index_dtype, i + 1, at);
    }
    if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes[0], &e)) ||
        !RUN_OK(bsr_schedule_size(cpu(), &m, 2, 0, &bytes[1], &e)))
        return;
    void *view[2] = {bt_alloc((size_t)bytes[0], 64), bt_alloc((size_t)bytes[1], 64)};
    bt_mark_output(view[0]), bt_mark_output(view[1]);
    if (!RUN_OK(gm_build_transposed_index(cpu(), &m, view[0], bytes[0], &e)) ||
        !RUN_OK(gm_build_schedule(cpu(), &m, 2, 0, view[1], bytes[1], &e)))
        return;
    m.transposed_index = view[0], m.schedule = view[1];
    (void)RUN_OK(gm_validate(cpu(), &m, &e));
    int64_t *const tall = (int64_t *)view[1] + 7;
    CHECK_INT(*tall, across > 89);
    ++*tall;
    CHECK_INT(gm_validate(cpu(), &m, &e), BSR_BAD_STRUCTURE);
    --*tall;
    t_set_index(m.col_indices, index_dtype, 99, across);
    CHECK_INT(gm_validate(cpu(), &m, &e), BSR_BAD_STRUCTURE);
}
/* Lists of each format; all layouts; a matrix without rows. */
static void each_list(void) {
    t_spec s = spec_of(any_type(), 4, 6, 6, 20);
    bsr_exec e = t_exec(0);
    for (int format = 1; format <= 3; format++) {
        bsr_scatter_indices x = BSR_ZERO;
        bt_case("lists of format %d", format);
        bsr_matrix a = t_matrix(&s);
        x.format = format, x.split_n = 2;
        if (!RUN_OK(bsr_build_scatter_indices(cpu(), &a, 16, &x, &e))) continue;
        const int64_t count[4] = {x.c_count, x.r_count, x.p_count, x.q_count};
        int64_t **const array[4] = {&x.c_indices, &x.r_offsets, &x.p_indices, &x.q_indices};
        for (int k = 0; k < 4; k++)
            if (count[k]) *array[k] = (int64_t *)bt_alloc((size_t)count[k] * 8, 8), bt_mark_output(*array[k]);
        (void)RUN_OK(gm_build_scatter_indices(cpu(), &a, 16, &x, &e));
    }
    for (int kind : {BSR_LAYOUT_FIXED, BSR_LAYOUT_BIGBIRD}) {
        bsr_layout l = bsr_layout_default(kind, 2, 12);
        uint8_t *mask = (uint8_t *)bt_alloc(2 * 12 * 12, 1);
        bt_case("layout %d", kind), bt_mark_output(mask);
        (void)RUN_OK(gm_layout_mask(cpu(), &l, mask, &e));
    }
    bt_case("no rows");
    bsr_dense none = t_random(s.dtype, 0, 8, ROW, NO_BATCH, 0, FILL_INTEGER);
    s.r = 0, s.nnz = 0;
    bsr_matrix m = t_matrix(&s);
    m.rows = 0, m.cols = 8;
    (void)RUN_OK(gm_from_dense(cpu(), &none, &m, &e));
}
/* The kernels that look at index arrays first. */
static void each_look(void) {
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    for (int kind : {SOFTMAX, SOFTMAX_BACKWARD, FROM_COO, SCATTER}) {
        if (!takes(kind, any_type())) continue;
        bt_case("%s, indices looked at", job_names[kind]);
        job j = job_new(kind, any_type(), 16, 64, 0);
        (void)job_ready_checked(&j, gm.stream, word), job_end(&j);
    }
    cudaFree(word);
}
/* Every other kernel by calls that no draw decides. */
TEST(every_kernel) {
    const noting launches;
    const int kernels = gm.kernels;
    gm.kernels = 0;
    for (int kind = SOFTMAX; kind < JOBS; kind++)
        for (int type : types)
            for (int64_t block : {16, 5}) {
                if (!gm_compiled(type) || !takes(kind, type) || kind == ATTENTION) continue;
                if (kind >= TO_DENSE && (type != any_type() || block != 16)) continue;
                bt_case("%s, %s, blocks of %d", job_names[kind], bsr_dtype_name(type), (int)block);
                job j = job_new(kind, type, block, 64, 0);
                (void)job_ready(&j, gm.ctx, gm.stream), job_end(&j);
            }
    for (int type : types)
        if (gm_compiled(type) && type != BSR_I8) {
            each_attention(type, 1, 16);
            for (int tier = 1; tier <= 3; tier++) each_attention(type, tier, 64);
            each_attention(type, 3, 128);
        }
    for (int index : {BSR_I32, BSR_I64})
        for (int64_t across : {20, 600, 3000}) each_view(across, index);
    each_list();
    each_look();
    gm.kernels = kernels, launches.check(false);
}

/* What is random of a random product: half the time the layouts that tensor cores take. */
static int random_layout(bool nice) { return (int)bt_below(nice ? 4 : (int)LAYOUTS); }
/* As `batch`, with a dimension of 1 here and there, or without its first dimensions. */
static t_shape random_batch(t_shape batch) {
    t_shape s = batch;
    if (bt_below(3) == 0) return NO_BATCH;
    for (int i = 0; i < s.dims; i++)
        if (bt_below(3) == 0) s.n[i] = 1;
    return s;
}
/* The first pattern with rows of very different lengths: some whole, some empty, the others short. */
static void skew(const bsr_matrix *a, int64_t r, int64_t c) {
    int64_t left = a->nnz, at = 0;
    for (int64_t i = 0; i < r; i++) {
        const int64_t must = left - (r - 1 - i) * c, some = bt_below(8) == 0 ? c : bt_below(3) ? bt_below(c / 8 + 2) : 0;
        const int64_t n = some < must ? must : some < left ? some : left;
        for (int64_t j = 0; j < n; j++) t_set_index(a->col_indices, a->index_dtype, at + j, j * c / n);
        at += n, left -= n, t_set_index(a->crow_indices, a->index_dtype, i + 1, at);
    }
}
/* Products of whole numbers at random: sizes, blocks, layouts, batches, patterns, epilogues, views, Inf and NaN. --random N:
   how many; --seed S: which. */
TEST(random_products) {
    static const int all[] = {BSR_BF16, BSR_BF16, BSR_F16, BSR_I8, BSR_F32, BSR_F64};
    static const int of_bytes[] = {BSR_I32, BSR_I32, BSR_F32, BSR_BF16, BSR_F16, BSR_I8};
    static const int64_t blocks[] = {16, 32, 64, 128};
    int ran[4] = {0};
    for (int k = 0; k < (reduced() ? gm.random / 10 : gm.random); k++) {
        bt_case("product %d of seed %d", k, gm.seed);
        t_spec s;
        const bool nice = bt_below(3) > 0, trans = bt_below(3) == 0, odd_ones = bt_below(6) == 0;
        const bool tall = bt_below(8) == 0;                                    /* many rows, few columns */
        const bool large = !tall && bt_below(30) == 0, single = tall || large; /* as many tiles as a GPU has room for */
        int type = all[bt_below(6)];
        while (!gm_compiled(type)) type = all[bt_below(6)];
        const int wide = bt_below(4) || type == BSR_F64 ? (int)type : (int)BSR_F32;
        const int out = type == BSR_I8 ? of_bytes[bt_below(6)] : wide, less = out == BSR_F64 || bt_below(2) ? out : (int)BSR_F32;
        const int other = t_is_float(out) ? less : (int)BSR_I32;
        const t_shape batch =
            t_batch((int)(single || bt_below(2) ? 0 : bt_range(1, bt_below(3) ? 2 : 4)), bt_range(1, 3), bt_range(1, 2), 2, 2);
        const int64_t most = bt_below(3) ? 330 : 64, some = bt_below(2) ? 8 * bt_range(1, most / 8) : bt_range(1, most);
        const int64_t around = 64 * bt_range(1, 5) + bt_range(-1, 1) * (bt_below(2) ? 1 : 8), any = bt_below(20) ? some : 0;
        const int64_t n = tall          ? bt_range(1, 64)
                          : large       ? 8 * bt_range(16, 128)
                          : bt_below(4) ? any
                                        : around; /* of tiles' ends */
        memset(&s, 0, sizeof s);
        s.dtype = type, s.kind = FILL_INTEGER, s.index_dtype = bt_below(4) ? BSR_I32 : BSR_I64, s.batch = random_batch(batch);
        s.block_rows = s.block_cols = blocks[bt_below(4)];
        if (bt_below(8) == 0) s.block_rows = bt_range(1, 40), s.block_cols = bt_range(1, 40);
        if (bt_below(10) == 0) s.block_cols = blocks[bt_below(4)];
        s.r = bt_range(bt_below(20) != 0, 600 / s.block_rows + 2), s.c = bt_range(bt_below(20) != 0, 500 / s.block_cols + 2);
        if (tall) s.block_rows = s.block_cols = bt_below(2) ? 64 : 128, s.r = bt_range(40, 130), s.c = bt_range(1, 6);
        if (large) s.block_rows = s.block_cols = blocks[bt_below(4)], s.r = s.c = bt_range(1000, 3000) / s.block_rows;
        s.nnz = s.r * s.c * (bt_below(6) == 0 ? 100 : bt_below(6) == 0 ? 0 : bt_range(2, 90)) / 100;
        s.unsorted = bt_below(4) == 0, s.duplicates = bt_below(6) == 0, s.ragged = s.batch.dims && bt_below(2);
        s.layout = bt_below(2) ? PACKED : (nice ? (int)bt_range(BLOCKS_COL, BLOCKS_COL_WIDE) : (int)bt_below(BLOCKS_LAYOUTS));
        s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(4), s.shared_values = (unsigned)bt_below(4);
        if (large) s.nnz = s.nnz / 5 + 1;
        bsr_matrix a = t_matrix(&s);
        if (!s.ragged && t_items(&s.batch) && bt_below(4) == 0) skew(&a, s.r, s.c);
        if (trans && bt_below(4)) t_attach_transposed(&a);
        if (bt_below(3) == 0) t_attach_schedule(&a, 1 << bt_below(4), trans);
        if (a.schedule && bt_below(3) == 0) { /* of another pattern: as long as that is all, it changes no result */
            bsr_matrix was = t_matrix(&s);
            was.nnz == a.nnz ? t_attach_schedule(&was, 1 << bt_below(4), trans) : (void)0;
            if (was.schedule) a.schedule = was.schedule;
        }
        bsr_dense b = t_random(type, trans ? a.rows : a.cols, n, random_layout(nice), random_batch(batch), (unsigned)bt_below(4),
                               FILL_INTEGER);
        const t_shape whole = t_join(t_matrix_batch(&a), t_dense_batch(&b));
        bsr_dense c = t_output(out, trans ? a.cols : a.rows, n, random_layout(nice), whole);
        bsr_exec e = exec_of(type != BSR_F32 ? 0 : bt_below(2) ? 0 : bt_below(2) ? BSR_EXEC_TF32 : BSR_EXEC_TF32X3);
        for (double odd : {(double)NAN, (double)INFINITY, -(double)INFINITY}) /* (three products of an Inf make a NaN) */
            if (odd_ones && t_is_float(type) && b.rows && n && !(odd == odd && e.flags & BSR_EXEC_TF32X3))
                t_set(&b, bt_below(t_dense_items(&b)), bt_below(b.rows), bt_below(n), odd);
        const unsigned has = bt_below(2) ? 0 : (unsigned)bt_below(32), bias_row = (unsigned)bt_below(2);
        bsr_epilogue f = BSR_ZERO;
        bsr_dense input = t_random(out, c.rows, n, random_layout(nice), random_batch(whole), 0, FILL_INTEGER);
        bsr_dense left = t_random(other, c.rows, 1, ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense right = t_random(other, 1, n, ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense bias = t_random(other, bias_row ? 1 : c.rows, bias_row ? n : 1, ROW, NO_BATCH, 0, FILL_INTEGER);
        const double alpha = bt_below(3) ? 1 : (double)bt_range(-2, 2), beta = has & 1 ? (double)bt_range(-1, 2) : 0;
        f.left_alpha = has & 2 ? &left : nullptr, f.right_alpha = has & 4 ? &right : nullptr, f.bias = has & 8 ? &bias : nullptr;
        f.activation = has & 16 && t_is_float(out) ? BSR_ACT_RELU : BSR_ACT_NONE;
        double *const scalars = (double *)bt_alloc(16, 8);
        scalars[0] = (double)bt_range(-2, 2), scalars[1] = (double)bt_range(-1, 2);
        if (bt_below(8) == 0) f.alpha_ptr = scalars;
        if (has & 1 && bt_below(4) == 0) f.beta_ptr = scalars + 1;
        gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
        auto da = g.map(&a);
        auto db = g.map(&b), dc = g.map(&c, true), di = has & 1 ? g.map(&input) : nullptr;
        auto df = g.map(&f);
        g.upload();
        const uint32_t op = trans ? BSR_TRANS_A : 0;
        CHECK_INT(bsr_dense_addmm(cpu(), beta, has & 1 ? &input : nullptr, alpha, op, &a, &b, &f, &c, NULL), BSR_OK);
        if (bt_below(4) == 0) e.flags |= BSR_EXEC_CONSTANT_MATRIX;
        if (bt_below(6) == 0) e.max_grid[0] = (int)bt_range(1, bt_below(2) ? 3 : 40);
        bt_describe(
            "%s to %s, %d x %d blocks of %d x %d, %d columns, epilogue %u, alpha %g, beta %g, flags %u, grid %d%s%s%s%s%s",
            bsr_dtype_name(type), bsr_dtype_name(out), (int)s.r, (int)s.c, (int)s.block_rows, (int)s.block_cols, (int)n, has,
            alpha, beta, e.flags, e.max_grid[0], trans ? ", A^T" : "", s.duplicates ? ", duplicates" : "",
            s.ragged ? ", ragged" : "", odd_ones ? ", Inf and NaN" : "", f.alpha_ptr ? ", alpha in memory" : "");
        each_plan(g, c.data, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, beta, di, alpha, op, da, db, df, dc, e); });
    }
    const int major = architecture();
    bt_case("tiers that ran");
    if (gm.random < 100 || reduced()) {
        bt_skip("too few products");
        return;
    }
    CHECK(ran[0] > 0 && ran[1] > 0);
    if (major >= 8) CHECK(ran[2] > 0);
    if (major == 9) CHECK(ran[3] > 0);
}

/* Where lists, windows, rounds and views of kernels begin and end: products that random ones hardly meet. Each is there because a
   kernel that was wrong in that place passed all other tests. */
typedef std::vector<std::vector<int64_t>> columns_of_rows;
struct edge {
    const char *name;
    int64_t block, across, n; /* block columns; columns of b */
    columns_of_rows rows;
    int schedule; /* lines of a group, 0: none */
    bool both;    /* A^T, too */
    bool grids;   /* with fewer CTAs, too */
};
static std::vector<int64_t> numbers(int64_t from, int64_t to, int64_t step = 1) {
    std::vector<int64_t> list;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) list.push_back(i);
    return list;
}
static columns_of_rows rows_of(int64_t count, const std::function<std::vector<int64_t>(int64_t)> &row) {
    columns_of_rows rows;
    for (int64_t i = 0; i < count; i++) rows.push_back(row(i));
    return rows;
}
/* 64 columns: the second half first; in order; backwards; one twice. */
static columns_of_rows rows_in_disorder() {
    std::vector<int64_t> turned = numbers(32, 64), twice = numbers(0, 64);
    turned.insert(turned.end(), twice.begin(), twice.begin() + 32), twice[32] = 31;
    return {turned, numbers(0, 64), numbers(63, -1, -1), twice};
}
/* 96 columns, of which the 65th does not follow the 64th: one twice; back to the first. */
static columns_of_rows later_disorder() {
    std::vector<int64_t> twice = numbers(0, 96), turned = numbers(32, 96), start = numbers(0, 32);
    twice[64] = 63, turned.insert(turned.end(), start.begin(), start.end());
    return {twice, turned, numbers(0, 96), turned, twice};
}
static bsr_matrix matrix_of(int type, int64_t block, int64_t across, const columns_of_rows &rows) {
    t_spec s = spec_of(type, block, (int64_t)rows.size(), across, 0);
    int64_t at = 0, line = 0;
    for (auto &row : rows) s.nnz += (int64_t)row.size();
    bsr_matrix a = t_matrix(&s);
    for (auto &row : rows) {
        for (int64_t column : row) t_set_index(a.col_indices, BSR_I32, at++, column);
        t_set_index(a.crow_indices, BSR_I32, ++line, at);
    }
    return a;
}
/* c = op(a) b by every plan, with fewer CTAs, too, if so wanted. room: the buffer that c is in. */
static void exact_product(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *c, const void *room, uint32_t op, bool grids,
                          int *ran) {
    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
    bsr_exec e = BSR_ZERO;
    auto da = g.map(a);
    auto db = g.map(b), dc = g.map(c, true);
    g.upload();
    CHECK_INT(bsr_dense_mm(cpu(), op, a, b, c, NULL), BSR_OK);
    for (int grid : {0, 40, 16}) {
        e.max_grid[0] = grid;
        if (!grid || grids)
            each_plan(g, room, c->dtype, e, ran, [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
    }
}
static void run_edge(const edge &x, int type, int layout, bool trans, int *ran) {
    const int out = type == BSR_I8 ? BSR_I32 : type;
    columns_of_rows turned((size_t)(trans ? x.across : 0));
    for (size_t i = 0; i < x.rows.size() && trans; i++)
        for (int64_t column : x.rows[i]) turned[(size_t)column].push_back((int64_t)i);
    bsr_matrix a = matrix_of(type, x.block, trans ? (int64_t)x.rows.size() : x.across, trans ? turned : x.rows);
    if (trans) t_attach_transposed(&a);
    if (x.schedule) t_attach_schedule(&a, x.schedule, trans);
    const uint32_t op = trans ? BSR_TRANS_A : 0;
    bsr_dense b = t_random(type, x.across * x.block, x.n, layout, NO_BATCH, 0, FILL_INTEGER);
    bsr_dense c = t_output(out, (int64_t)x.rows.size() * x.block, x.n, layout, NO_BATCH);
    exact_product(&a, &b, &c, c.data, op, x.grids, ran);
    for (int64_t tall : {INT64_C(-1), INT64_C(1), INT64_C(1) << 40}) { /* another count deals otherwise: the same result */
        if (!x.schedule || !x.grids) break;
        ((int64_t *)a.schedule)[7] = tall;
        exact_product(&a, &b, &c, c.data, op, x.grids, ran);
    }
}
/* Of a whole test: each tier that the device has ran something. */
static void check_ran(const int (&ran)[4], int type) {
    const int major = architecture();
    if (reduced() || !gm_compiled(type)) return;
    CHECK(ran[0] > 0 && ran[1] > 0), CHECK(major < 8 || ran[2] > 0), CHECK(major != 9 || type == BSR_F32 || ran[3] > 0);
}
TEST(product_edges) {
    std::vector<edge> list;
    for (int64_t b : {16, 32, 64, 128}) {
        const int64_t across = b < 64 ? 1100 : 600;
        const auto windows = [&](int64_t i) {
            std::vector<int64_t> some;
            for (int64_t c : {0, 1, 30, 511, 512, 513, 575, 1023, 1024, 1090})
                if (c + i < across && (c + i) % 3) some.push_back(c + i);
            return some;
        };
        const auto all = [](int64_t n) { return [=](int64_t i) { return numbers(i, n); }; };
        list.push_back({"disorder after 32 columns", b, 64, 72, rows_in_disorder(), 0, false, false});
        list.push_back({"disorder after 64 columns", b, 96, 72, later_disorder(), 0, false, false});
        list.push_back({"long rows", b, b < 64 ? 150 : 17000 / b, 8, rows_of(2, all(b < 64 ? 150 : 17000 / b)), 0, true, false});
        for (int64_t n : {64, 200})
            if (b >= 64) list.push_back({"long rows, some columns", b, 110, n, rows_of(2, all(110)), 0, n == 64, false});
        if (b % 64 == 16 || b == 64)
            list.push_back({"windows of 512 columns", b, across, 72, rows_of(9, windows), 0, false, false});
        for (int64_t r = 127; r <= 129 && b >= 64; r++) /* rows whose ends are in registers */
            list.push_back({"128 block rows", b, 1, 72, rows_of(r, [](int64_t) { return numbers(0, 1); }), 0, false, false});
        list.push_back({"a schedule that pads", b, 6, 1536, rows_of(5, all(6)), 8, true, false});
        if (b < 64) { /* row by row, or all rows of some columns */
            const auto thin = [=](int64_t i) { return numbers(i % 7, 1024 / b, 13); };
            list.push_back({"a dense operand beyond the L2", b, 1024 / b, 12296, rows_of(40, thin), 0, false, false});
            const int64_t far = 196800 / b;
            const auto apart = [=](int64_t i) { return numbers(i, far, far / 3); };
            list.push_back({"a dense operand beyond the L2, few columns", b, far, 64, rows_of(40, apart), 0, false, true});
            list.push_back({"a dense operand beyond the L2, few rows", b, 2 * far, 64, rows_of(3, apart), 0, false, true});
        }
    }
    for (int schedule : {0, 1, 2}) { /* many short units, and few long ones of very different lengths */
        const auto brief = [](int64_t i) { return i % 3 ? numbers(i % 2, i % 2 + 1) : numbers(0, 2); };
        const auto uneven = [](int64_t i) { return i % 10 ? numbers(i, i + 1) : numbers(0, 60); };
        list.push_back({"short units", 64, 2, 72, rows_of(600, brief), schedule, false, true});
        list.push_back({"uneven units", 64, 60, 264, rows_of(60, uneven), schedule, false, true});
        if (schedule != 1) /* teams of three CTAs: none is dealt, all go round */
            list.push_back({"short units of three tiles", 64, 2, 520, rows_of(256, brief), schedule, false, false});
    }
    for (int type : {BSR_BF16, BSR_F16, BSR_I8}) {
        int ran[4] = {0};
        if (!gm_compiled(type)) continue;
        for (auto &x : list) {
            if (type != BSR_BF16 && (!x.both || x.n > 128)) continue;
            for (int form = 0; form < 8; form++) {
                const int layout = form % 4, trans = form / 4; /* b in aligned lines: where a kernel folds them */
                if ((trans && !x.both) || (layout > COL && (trans || x.n > 8))) continue;
                bt_case("%s: %s, blocks of %d, schedule %d, layout %d%s", bsr_dtype_name(type), x.name, (int)x.block, x.schedule,
                        layout, trans ? ", A^T" : "");
                if (reduced()) bt_skip("left out by --every");
                else run_edge(x, type, layout, trans, ran);
            }
        }
        check_ran(ran, type);
    }
}
/* The same of sampled products: rows of several tiles, columns in any order and repeated, tiles that do not go into the grid. */
static void run_sampled_edge(const edge &x, int type, int form, int *ran) { /* bits: mat1, mat2 by columns, input, to f32 */
    const int out = form & 8 ? (int)BSR_F32 : type;
    bsr_matrix c = matrix_of(out, x.block, x.across, x.rows), z = t_matrix_output(&c, out, PACKED);
    bsr_dense m1 = t_random(type, c.rows, x.n, form & 1 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
    bsr_dense m2 = t_random(type, x.n, c.cols, form & 2 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
    const double beta = form & 4 ? 2 : 0;
    gm_call g("bsr_sampled_addmm", gm.ctx, nullptr);
    bsr_exec e = BSR_ZERO;
    auto dc = g.map(&c);
    auto d1 = g.map(&m1), d2 = g.map(&m2);
    auto dz = g.map(&z, true);
    g.upload();
    CHECK_INT(bsr_sampled_addmm(cpu(), beta, &c, 3, &m1, &m2, &z, NULL), BSR_OK);
    for (int grid : {0, 40, 3}) {
        e.max_grid[0] = grid;
        each_plan(g, z.values, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, beta, dc, 3, d1, d2, dz, e); });
    }
}
TEST(sampled_edges) {
    std::vector<edge> list;
    for (int64_t b : {16, 32, 64, 128}) {
        columns_of_rows disorder = rows_in_disorder();
        disorder.push_back({}), disorder.push_back({5, 5, 5});
        const auto sparse = [](int64_t i) { return numbers(i % 4, 60, 3 + i % 5); };
        list.push_back({"disorder", b, 64, 64, disorder, 0, false, false});
        list.push_back(
            {"long rows", b, 2000 / b, 96, rows_of(3, [&](int64_t i) { return numbers(i, 2000 / b); }), 0, false, false});
        list.push_back({"long rows of few", b, 9000 / b, 64, rows_of(3, [&](int64_t i) { return numbers(i, 9000 / b, 9); }), 0,
                        false, false});
        list.push_back({"many tiles", b, 60, 32, rows_of(1280 / b, sparse), 0, false, false});
    }
    for (int type : {BSR_BF16, BSR_F16}) {
        int ran[4] = {0};
        for (auto &x : list)
            for (int form : {0, 1, 2, 3, 4, 7, 8, 14}) {
                if (!gm_compiled(type) || (type == BSR_F16 && form > 3)) continue;
                bt_case("%s: %s, blocks of %d, form %d", bsr_dtype_name(type), x.name, (int)x.block, form);
                if (reduced()) bt_skip("left out by --every");
                else run_sampled_edge(x, type, form, ran);
            }
        check_ran(ran, type);
    }
}
/* Views that few have, each operand in turn: lines that overlap or are all the same, bases that are aligned less or not at all,
   items a line apart, nothing stored. */
TEST(odd_views) {
    static const char *const names[] = {"lines of b overlap",      "lines of b are one",      "items of b overlap",
                                        "blocks overlap",          "lines of blocks overlap", "all blocks are one",
                                        "bases 16 bytes further",  "b one element further",   "values one element further",
                                        "out one element further", "nothing is stored",       "no columns"};
    enum { B_LINES, B_ONE, B_ITEMS, A_BLOCKS, A_LINES, A_ONE, FURTHER, B_ODD, A_ODD, C_ODD, NOTHING, NO_COLUMNS, VIEWS };
    for (int type : {BSR_BF16, BSR_I8, BSR_F32})
        for (int64_t block : {16, 32, 64, 128})
            for (int64_t n : {8, 64, 264})
                for (int form = 0; form < 2 * VIEWS; form++) {
                    const int layout = form & 1, kind = form / 2, out = type == BSR_I8 ? BSR_I32 : type,
                              step = type == BSR_I8 ? 16 : 8;
                    const int64_t far = kind == FURTHER ? step : 1, cols = kind == NO_COLUMNS ? 0 : n;
                    int ran[4] = {0};
                    if (!gm_compiled(type) || (type != BSR_BF16 && n == 64)) continue;
                    bt_case("%s: %s, blocks of %d, %d columns, layout %d", bsr_dtype_name(type), names[kind], (int)block, (int)n,
                            layout);
                    if (reduced()) {
                        bt_skip("left out by --every");
                        continue;
                    }
                    const t_spec s = spec_of(type, block, 5, 6, kind == NOTHING ? 0 : 17);
                    bsr_matrix a = t_matrix(&s);
                    bsr_dense all = t_random(type, 1, 3 * (a.cols + 1) * (n + 1), ROW, NO_BATCH, 0, FILL_INTEGER), b = all;
                    bsr_dense values = t_random(type, 1, (s.nnz + 1) * (block + 1) * block, ROW, NO_BATCH, 0, FILL_INTEGER);
                    b = layout == COL ? bsr_dense_col_major(all.data, type, a.cols, cols)
                                      : bsr_dense_row_major(all.data, type, a.cols, cols);
                    int64_t *const line = layout == COL ? &b.col_stride : &b.row_stride, items = kind == B_ITEMS ? 3 : 1;
                    if (kind == B_LINES) *line = step;
                    if (kind == B_ONE) *line = 0;
                    if (kind == B_ITEMS) b = bsr_dense_batched(b, 3, *line);
                    if (kind == B_ODD || kind == FURTHER) b.data = (char *)b.data + far * (int64_t)bsr_dtype_size(type);
                    if (kind >= A_BLOCKS && kind <= A_ODD && kind != B_ODD) a.values = values.data;
                    if (kind == A_BLOCKS || kind == A_LINES || kind == A_ONE)
                        a.value_strides[0] = kind == A_BLOCKS ? step
                                             : kind == A_ONE  ? 0
                                                              : block * block,
                        a.value_strides[1] = kind == A_LINES ? step : block, a.value_strides[2] = 1;
                    if (kind == A_ODD || kind == FURTHER) a.values = (char *)values.data + far * (int64_t)bsr_dtype_size(type);
                    if (kind == NOTHING) a.values = a.col_indices = NULL;
                    bsr_dense room = t_output(out, 1, items * a.rows * n + 16, ROW, NO_BATCH), c;
                    c = layout == COL ? bsr_dense_col_major(room.data, out, a.rows, cols)
                                      : bsr_dense_row_major(room.data, out, a.rows, cols);
                    if (kind == C_ODD || kind == FURTHER) c.data = (char *)c.data + far * (int64_t)bsr_dtype_size(out);
                    if (kind == B_ITEMS) c = bsr_dense_batched(c, 3, a.rows * n);
                    exact_product(&a, &b, &c, room.data, 0, false, ran);
                    CHECK(ran[0] > 0);
                }
}
/* alpha in the gap between out's rows, which no tier may write. */
TEST(scalar_between_rows) {
    for (int type : {BSR_BF16, BSR_F16, BSR_F32})
        for (int64_t block : {16, 64})
            for (int64_t n : {8, 72, 264}) {
                const int64_t line = n + 8;
                const double alpha = 3;
                bsr_epilogue f = BSR_ZERO;
                if (!gm_compiled(type)) continue;
                bt_case("%s, blocks of %d, %d columns", bsr_dtype_name(type), (int)block, (int)n);
                const t_spec s = spec_of(type, block, 5, 6, 17);
                bsr_matrix a = t_matrix(&s);
                bsr_dense b = t_random(type, a.cols, n, ROW, NO_BATCH, 0, FILL_INTEGER);
                void *const room = bt_alloc((size_t)(a.rows * line) * bsr_dtype_size(type), 64);
                bsr_dense c = bsr_dense_strided(room, type, a.rows, n, line, 1);
                char *const at = (char *)room + (line + n) * (int64_t)bsr_dtype_size(type);
                const bt_block *const whole = bt_find(room);
                gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
                auto da = g.map(&a);
                auto db = g.map(&b), dc = g.map(&c, true);
                bt_mark_output(room), f.alpha_ptr = (const double *)(const void *)at, memcpy(at, &alpha, sizeof alpha);
                auto df = g.map(&f);
                std::vector<char> before(whole->data, whole->data + whole->bytes), want;
                CHECK_INT(bsr_dense_addmm(cpu(), 0, NULL, 1, 0, &a, &b, &f, &c, NULL), BSR_OK);
                want.assign(whole->data, whole->data + whole->bytes);
                for (int tier = 0; tier <= 3; tier++) {
                    bsr_plan plan = BSR_ZERO;
                    bsr_exec e = BSR_ZERO;
                    plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.stream = gm.stream;
                    memcpy(whole->data, before.data(), before.size()), g.upload();
                    const bsr_status status = bsr_dense_addmm(gm.ctx, 0, NULL, 1, 0, da, db, df, dc, &e);
                    if (status == BSR_BAD_PLAN && tier > 1) continue;
                    CHECK_INT(status, BSR_OK), g.download();
                    CHECK(!memcmp(whole->data, want.data(), want.size()));
                }
            }
}
/* A matrix as a conversion on the device leaves it: nnz is what its arrays have room for, crow_indices end before that. What
   stands behind is no index and no number. */
static bsr_matrix matrix_with_room(int type, int64_t block, bsr_matrix *real) {
    bsr_matrix a =
        matrix_of(type, block, 10, rows_of(9, [](int64_t i) { return i < 7 ? numbers(i % 3, 10, 2) : numbers(0, 7); }));
    *real = a, real->nnz = t_crow(&a, 0, 7);
    for (int64_t i = 7; i <= 9; i++) t_set_index(a.crow_indices, BSR_I32, i, real->nnz);
    for (int64_t i = real->nnz; i < a.nnz; i++) t_set_index(a.col_indices, BSR_I32, i, -1);
    const size_t used = (size_t)(real->nnz * block * block) * bsr_dtype_size(type);
    memset((char *)a.values + used, 0xff, bt_find(a.values)->bytes - used);
    return a;
}
TEST(room_to_spare) {
    const uint64_t most = 1 << 20;
    void *view = nullptr, *workspace = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc(&workspace, most)), gm_cuda("in cudaMalloc", cudaMalloc(&view, most));
    for (int type : {BSR_BF16, BSR_F32}) {
        int ran[4] = {0};
        for (int64_t block : {16, 32, 64, 128})
            for (int form = 0; form < 7 && gm_compiled(type); form++) { /* products, of A^T, another */
                const int trans = form % 2, n = form < 2 ? 8 : form < 4 ? 64 : 136, out = type;
                bsr_matrix real;
                bsr_exec e = BSR_ZERO;
                uint64_t bytes = 0;
                bt_case("%s, blocks of %d, form %d", bsr_dtype_name(type), (int)block, form);
                bsr_matrix a = matrix_with_room(type, block, &real), z = t_matrix_output(&a, out, PACKED), few = z;
                few.nnz = real.nnz;
                bsr_dense x = t_random(type, a.rows, 64, ROW, NO_BATCH, 0, FILL_INTEGER),
                          y = t_random(type, 64, a.cols, COL, NO_BATCH, 0, FILL_INTEGER);
                bsr_dense b = t_random(type, trans ? a.rows : a.cols, n, ROW, NO_BATCH, 0, FILL_INTEGER),
                          c = t_output(out, trans ? a.cols : a.rows, n, ROW, NO_BATCH);
                gm_call g("", gm.ctx, nullptr);
                if (form == 6) {
                    auto dx = g.map(&x), dy = g.map(&y);
                    auto dz = g.map(&z, true);
                    g.upload();
                    CHECK_INT(bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &y, &few, NULL), BSR_OK);
                    each_plan(g, z.values, out, e, ran,
                              [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dy, dz, e); });
                    continue;
                }
                auto da = g.map_target(&a, false, false);
                auto db = g.map(&b), dc = g.map(&c, true);
                const uint32_t op = trans ? BSR_TRANS_A : 0;
                g.upload();
                CHECK_INT(bsr_dense_mm(cpu(), op, &real, &b, &c, NULL), BSR_OK);
                if (trans) {
                    e.workspace = workspace, e.workspace_bytes = most, e.stream = gm.stream;
                    CHECK_INT(bsr_transposed_index_size(gm.ctx, da, &bytes, NULL), BSR_OK), CHECK(bytes <= most);
                    CHECK_INT(bsr_build_transposed_index(gm.ctx, da, view, bytes, &e), BSR_OK), da->transposed_index = view;
                }
                each_plan(g, c.data, out, e, ran, [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
            }
        check_ran(ran, type);
    }
    /* the same bits as without: softmax, both dense forms, attention, a schedule, the largest blocks */
    for (int type : {BSR_BF16, BSR_F32})
        for (int64_t block : {16, 64})
            for (int form = 0; form < 6 && gm_compiled(type); form++) {
                bsr_matrix real;
                bsr_exec e = BSR_ZERO;
                bt_case("%s, blocks of %d, operation %d", bsr_dtype_name(type), (int)block, form);
                bsr_matrix a = matrix_with_room(type, block, &real), z = t_matrix_output(&a, type, PACKED);
                bsr_matrix kept = empty_like(&a, 30);
                bsr_dense q = t_random(type, a.rows, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
                          k = t_random(type, a.cols, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
                          o = t_output(type, a.rows, 64, ROW, NO_BATCH), whole = t_output(type, a.rows, a.cols, ROW, NO_BATCH);
                gm_call g("", gm.ctx, nullptr);
                auto da = g.map_target(&a, false, false), dz = g.map_target(&z, form == 0, false),
                     dkept = g.map_target(&kept, form == 4, form == 4);
                auto dq = g.map(&q), dk = g.map(&k), d_out = g.map(&o, form == 2), dw = g.map(&whole, form == 1);
                void *const dview = form == 3 || form == 5 ? g.place(bt_alloc((size_t)most, 64), (int64_t)most, true) : nullptr;
                std::string want;
                g.upload();
                e.workspace = workspace, e.workspace_bytes = most, e.stream = gm.stream;
                for (int64_t nnz : {real.nnz, a.nnz}) {
                    da->nnz = dz->nnz = nnz, dkept->nnz = 30, poison(g, gm.stream);
                    bsr_status status = form == 0   ? bsr_softmax(gm.ctx, 1, da, NULL, dz, &e)
                                        : form == 1 ? bsr_to_dense(gm.ctx, da, dw, &e)
                                        : form == 2 ? bsr_attention(gm.ctx, 0, dq, dk, dk, da, NULL, d_out, NULL, &e)
                                        : form == 3 ? bsr_build_schedule(gm.ctx, da, 2, 0, dview, most, &e)
                                        : form == 4 ? bsr_prune(gm.ctx, {nullptr, da}, 0.8, BSR_NORM_L2, dkept, &e)
                                                    : bsr_build_schedule(gm.ctx, da, 4, 1, dview, most, &e);
                    CHECK_INT(status, BSR_OK);
                    std::string bits = written_bits(g, gm.stream);
                    if (dview) bits[8] = 0; /* nnz, which stands in its header */
                    if (nnz == real.nnz) want = bits;
                    else CHECK(bits == want);
                }
            }
    cudaFree(workspace), cudaFree(view);
}
/* Whole epilogues one by one, with more columns than a tile has, and with few: whole numbers; GELU of what is far above 0. */
TEST(epilogues) {
    enum { INPUT = 1, LEFT = 2, RIGHT = 4, BIAS = 8, RELU = 16, SMOOTH = 32, USER = 64 };
    static const unsigned parts[] = {0,    INPUT, LEFT, RIGHT, BIAS, RELU, BIAS | RELU, BIAS | SMOOTH, INPUT | BIAS | SMOOTH,
                                     USER, 31};
    const int64_t many = attribute(cudaDevAttrMultiProcessorCount) * 6 / 5 + 1; /* short products: four CTAs each, by two warps */
    const auto run = [&](int type, int64_t block, int64_t n, int form, unsigned has, int *ran) {
        const int layout = form & 1 ? COL_WIDE : ROW_WIDE, other = form & 4 ? (int)BSR_F32 : type;
        const int out = form & 8 ? (int)BSR_F32 : type;
        bsr_epilogue f = BSR_ZERO;
        bsr_exec e = BSR_ZERO;
        bt_case("%s, blocks of %d, %d columns, form %d, epilogue %u", bsr_dtype_name(type), (int)block, (int)n, form, has);
        if (reduced()) {
            bt_skip("left out by --every");
            return;
        }
        const int64_t r = (block == 32 && form < 2) || n == 8 ? many : 192 / block + 1;
        const t_spec s = spec_of(type, block, r, 2, r + 1);
        bsr_matrix a = t_matrix(&s);
        /* with f32 beside the dense operand lies the other way than out; an input's lines are as far apart as out's, or closer */
        bsr_dense b = t_random(type, a.cols, n, (form ^ form >> 2) & 1 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense c = t_output(out, a.rows, n, layout, NO_BATCH);
        const int close = (form >> 1 ^ n >> 5) & 1 ? form & 1 ? COL : ROW : layout;
        bsr_dense input = t_random(out, has & INPUT ? a.rows : 1, n, close, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense left = t_random(other, a.rows, 1, ROW, NO_BATCH, 0, FILL_INTEGER),
                  right = t_random(other, 1, n, ROW, NO_BATCH, 0, FILL_INTEGER),
                  bias = t_random(other, form & 2 ? a.rows : 1, form & 2 ? 1 : n, ROW, NO_BATCH, 0, FILL_INTEGER);
        for (int64_t i = 0; i < bias.rows; i++)
            for (int64_t j = 0; j < bias.cols; j++)
                if (has & SMOOTH) t_set(&bias, 0, i, j, (double)(8192 + 64 * (i + j)));
        f.left_alpha = has & LEFT ? &left : nullptr, f.right_alpha = has & RIGHT ? &right : nullptr;
        f.bias = has & BIAS ? &bias : nullptr;
        float *const step = (float *)bt_alloc(4, 4); /* of the user's function, by the row */
        *step = 0.5f, f.user_data = has & USER ? step : nullptr;
        f.activation = has & SMOOTH ? (int)BSR_ACT_GELU
                       : has & RELU ? (int)BSR_ACT_RELU
                       : has & USER ? (int)BSR_EPILOGUE_tf_shift
                                    : (int)BSR_ACT_NONE;
        const double beta = has & INPUT ? 2 : 0;
        gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
        auto da = g.map(&a);
        auto db = g.map(&b), dc = g.map(&c, true), di = has & INPUT ? g.map(&input) : nullptr;
        auto df = g.map(&f);
        g.upload();
        CHECK_INT(bsr_dense_addmm(cpu(), beta, has & INPUT ? &input : NULL, 3, 0, &a, &b, &f, &c, NULL), BSR_OK);
        each_plan(g, c.data, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, beta, di, 3, 0, da, db, df, dc, e); });
    };
    for (int type : {BSR_BF16, BSR_F16}) {
        int ran[4] = {0};
        for (int64_t block : {16, 32, 64, 128})
            for (int form = 0; form < 16; form++) /* bits: by columns, bias along a column, f32 beside, to f32 */
                for (unsigned has : parts)
                    for (int64_t n : {264, 8, 40}) /* few columns: strips of 64 rows, of 32 */
                        if (gm_compiled(type) && (type != BSR_F16 || block % 64 == 0) && (n == 264 || (block >= 64 && form < 2)))
                            run(type, block, n, form, has, ran);
        check_ran(ran, type);
    }
}
/* As absent_blocks: what is added up again from a row's own blocks. An Inf in one column; alpha behind a pointer, sums of items.
 */
TEST(absent_blocks_again) {
    for (int type : {BSR_BF16, BSR_F16})
        for (int64_t block : {16, 32})
            for (int column : {0, 199})
                for (int layout : {ROW, COL}) {
                    int ran[4] = {0};
                    bsr_exec e = BSR_ZERO;
                    if (!gm_compiled(type)) continue;
                    bt_case("%s, blocks of %d, column %d, layout %d", bsr_dtype_name(type), (int)block, column, layout);
                    t_spec s = spec_of(type, block, 9, 10, 40);
                    s.batch = t_batch(1, 3, 0, 0, 0);
                    bsr_matrix many = t_matrix(&s);
                    t_attach_transposed(&many);
                    s.batch = NO_BATCH;
                    bsr_matrix a = t_matrix(&s);
                    bsr_dense b = t_random(type, a.cols, 200, layout, NO_BATCH, 0, FILL_INTEGER),
                              back = t_random(type, many.rows, 200, layout, t_batch(1, 3, 0, 0, 0), 0, FILL_INTEGER);
                    bsr_dense c = t_output(type, a.rows, 200, layout, NO_BATCH),
                              sum = t_output(type, many.cols, 200, layout, NO_BATCH);
                    double *alpha = (double *)bt_alloc(8, 8);
                    bsr_epilogue f = BSR_ZERO;
                    *alpha = -2, f.alpha_ptr = alpha;
                    t_set(&b, 0, 5 * block + 3, column, (double)INFINITY),
                        t_set(&back, 1, 4 * block + 3, column, (double)INFINITY);
                    gm_call g("bsr_dense_addmm", gm.ctx, nullptr), h("bsr_matmul_backward", gm.ctx, nullptr);
                    auto da = g.map(&a);
                    auto db = g.map(&b), dc = g.map(&c, true);
                    auto df = g.map(&f);
                    g.upload();
                    CHECK_INT(bsr_dense_addmm(cpu(), 0, NULL, 1, 0, &a, &b, &f, &c, NULL), BSR_OK);
                    each_plan(g, c.data, type, e, ran,
                              [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, 0, NULL, 1, 0, da, db, df, dc, e); });
                    auto dm = h.map(&many);
                    auto dback = h.map(&back), dsum = h.map(&sum, true), dense = h.map(&b);
                    const bsr_operand none = {nullptr, nullptr};
                    h.upload();
                    CHECK_INT(bsr_matmul_backward(cpu(), 0, bsr_operand_sparse(&many), bsr_operand_dense(&b),
                                                  bsr_operand_dense(&back), none, bsr_operand_dense(&sum), NULL),
                              BSR_OK);
                    each_plan(h, sum.data, type, e, ran, [&](const bsr_exec *e) {
                        return bsr_matmul_backward(gm.ctx, 0, {nullptr, dm}, {dense, nullptr}, {dback, nullptr}, none,
                                                   {dsum, nullptr}, e);
                    });
                    if (architecture() == 9) CHECK(ran[3] > 0);
                }
}

/* Calls one after another in a stream, each with what the one before made, with a wait after each, as they come, and as a graph:
   on Hopper kernels start before the one before them has ended and must not read, or write over, too soon. Stale results are no
   numbers. */
TEST(chains) {
    cudaStream_t stream = new_stream();
    const int size = reduced() ? 512 : 2048;
    for (int type : {BSR_BF16, BSR_F16, BSR_F32})
        for (int64_t block : {16, 32, 64, 128})
            for (int64_t n : {8, 64, 512, 520}) { /* 520: by tiles of 256 columns, which only larger products would have */
                const bool wide = n == 520;
                if (!gm_compiled(type) || (wide && (type == BSR_F32 || architecture() != 9))) continue;
                bt_case("%s, blocks of %d, %d columns", bsr_dtype_name(type), (int)block, (int)n);
                const auto row = [&](int64_t i) {
                    return i % 7 == 3 ? std::vector<int64_t>() : numbers(bt_below(5), size / block, 5);
                };
                bsr_matrix a =
                    matrix_of(type, block, size / block, rows_of(size / block, row)); /* some have nothing to wait for */
                t_fill_values(&a, FILL_SIGNED);
                bsr_matrix z = t_matrix_output(&a, type, PACKED), y = t_matrix_output(&a, type, PACKED), views = a;
                t_attach_transposed(&views), t_attach_schedule(&views, (int)(128 / block), 0);
                bsr_dense b = t_random(type, size, n, ROW, NO_BATCH, 0, FILL_SIGNED), out[6];
                gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                auto da = g.map(&a), dv = g.map(&views), dz = g.map(&z, true), dy = g.map(&y, true);
                const bsr_dense *db = g.map(&b), *o[6];
                for (int i = 0; i < 6; i++) out[i] = t_output(type, size, n, ROW, NO_BATCH), o[i] = g.map(&out[i], true);
                g.upload();
                int bad = 0;
                auto calls = [&](bool wait) {
                    bsr_exec e = BSR_ZERO, product, constant;
                    bsr_plan plan = BSR_ZERO;
                    plan.kernel = 3, plan.tile_cols = 256;
                    e.stream = stream, product = e, product.plan = wide ? &plan : nullptr;
                    constant = product, constant.flags = BSR_EXEC_CONSTANT_MATRIX;
                    auto done = [&](bsr_status status) {
                        bad += status != BSR_OK;
                        if (wait) gm_cuda("in a chain", cudaStreamSynchronize(stream));
                    };
                    poison(g, stream);
                    done(bsr_dense_mm(gm.ctx, 0, da, db, o[0], &product));
                    done(bsr_dense_addmm(gm.ctx, 0, NULL, 0.1, 0, da, o[0], NULL, o[1], &constant));
                    done(bsr_dense_addmm(gm.ctx, 0, NULL, 0.1, 0, da, o[1], NULL, o[0], &constant)); /* over what was read */
                    bsr_dense across = bsr_dense_transposed(*o[1]);
                    done(bsr_sampled_addmm(gm.ctx, 0, NULL, 1e-4, o[0], &across, dz, &e));
                    done(bsr_softmax(gm.ctx, 1, dz, NULL, dy, &e));
                    done(bsr_dense_mm(gm.ctx, 0, dy, o[1], o[2], &product)); /* values of just now */
                    done(bsr_sampled_addmm(gm.ctx, 0, NULL, 1e-4, o[2], &across, dz, &e));
                    done(bsr_dense_mm(gm.ctx, 0, dz, o[2], o[3], &product));
                    if (n <= 64) done(bsr_attention(gm.ctx, 0, o[2], o[1], o[3], dz, NULL, o[4], NULL, &e));
                    done(bsr_dense_mm(gm.ctx, 0, da, o[n <= 64 ? 4 : 3], o[5], &constant));
                    for (int i = 0; i < 3; i++) { /* an input of just now, in place */
                        done(bsr_dense_addmm(gm.ctx, 0.5, o[5], 0.1, 0, da, o[0], NULL, o[5], i == 1 ? &constant : &product));
                        done(bsr_dense_addmm(gm.ctx, 0.5, o[0], 0.1, 0, da, o[5], NULL, o[0], &product));
                    }
                    done(bsr_dense_addmm(gm.ctx, 0, NULL, 0.1, 0, dv, o[0], NULL, o[5], &constant)); /* by views */
                    done(bsr_dense_addmm(gm.ctx, 0, NULL, 0.1, BSR_TRANS_A, dv, o[5], NULL, o[0], &constant));
                };
                calls(true);
                const auto want = written_bits(g, stream);
                g.download();
                for (int i = 0; i < 6; i++) /* numbers: else what is stale could not be told from them */
                    for (int64_t k = 0; k < n && (i != 4 || n <= 64); k++) CHECK(t_get(&out[i], 0, size - 1, k) * 0 == 0);
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t replay = nullptr;
                gm_cuda("starting a capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                calls(false);
                gm_cuda("ending a capture", cudaStreamEndCapture(stream, &graph));
                gm_cuda("making a graph", cudaGraphInstantiate(&replay, graph, 0));
                int other[2] = {0, 0};
                for (int i = 0; i < (reduced() ? 2 : 20); i++) {
                    calls(false), other[0] += written_bits(g, stream) != want;
                    poison(g, stream);
                    for (int k = 0; k <= i % 3; k++) gm_cuda("replaying a chain", cudaGraphLaunch(replay, stream));
                    other[1] += written_bits(g, stream) != want;
                }
                CHECK_INT(bad, 0), CHECK_INT(other[0], 0), CHECK_INT(other[1], 0);
                cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
            }
    cudaStreamDestroy(stream);
}

/* Index arrays and values that the work just before writes, with and without a product in between that starts early: what was
   there until then is another pattern. (Conversions let no kernel start before they have ended: this would see it if one did.) */
TEST(patterns_of_just_now) {
    const uint64_t most = 1 << 20;
    const int64_t size = 1024;
    static const int plans[][2] = {{0, 0}, {1, 0}, {2, 64}, {2, 0}, {3, 64}, {3, 128}, {3, 256}}; /* kernel, columns */
    cudaStream_t stream = new_stream();
    void *workspace = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc(&workspace, most));
    for (int type : {BSR_BF16, BSR_F32})
        for (int64_t block : {16, 32, 64, 128})
            for (int64_t n : {8, 64, 520}) {
                if (!gm_compiled(type)) continue;
                bt_case("%s, blocks of %d, %d columns", bsr_dtype_name(type), (int)block, (int)n);
                const int64_t lines = size / block;
                bsr_dense b = t_random(type, size, n, ROW, NO_BATCH, 0, FILL_INTEGER), source[2], out[2], beside;
                for (int k = 0; k < 2; k++) {
                    const auto row = [&](int64_t i) {
                        return i % 5 == k ? std::vector<int64_t>() : numbers(bt_below(4), lines, 2 + k);
                    };
                    bsr_matrix pattern = matrix_of(type, block, lines, rows_of(lines, row));
                    source[k] = t_output(type, size, size, ROW, NO_BATCH), out[k] = t_output(type, size, n, ROW, NO_BATCH);
                    CHECK_INT(bsr_to_dense(cpu(), &pattern, &source[k], NULL), BSR_OK);
                }
                const t_spec few = spec_of(type, block, 4, lines, lines);
                bsr_matrix small = t_matrix(&few), like = small, made;
                like.rows = size, made = empty_like(&like, lines * lines);
                beside = t_output(type, small.rows, n, ROW, NO_BATCH);
                gm_call g("", gm.ctx, nullptr);
                auto target = g.map_target(&made, true, true);
                auto dsmall = g.map(&small);
                auto db = g.map(&b), ds = g.map(&source[0]), dt = g.map(&source[1]), d0 = g.map(&out[0], true),
                     d1 = g.map(&out[1], true), dbeside = g.map(&beside, true);
                const bsr_matrix empty = *target;
                g.upload();
                for (auto &x : plans) {
                    bsr_plan plan = BSR_ZERO;
                    bsr_exec e = BSR_ZERO, product = e;
                    int refused = 0, bad = 0;
                    plan.kernel = x[0], plan.tile_cols = x[1];
                    e.stream = product.stream = stream, e.workspace = workspace, e.workspace_bytes = most;
                    product.plan = x[0] ? &plan : nullptr;
                    auto calls = [&](bool wait) {
                        const auto done = [&](bsr_status status) {
                            refused += status == BSR_BAD_PLAN, bad += status != BSR_OK && status != BSR_BAD_PLAN;
                            if (wait) gm_cuda("in a chain", cudaStreamSynchronize(stream));
                        };
                        poison(g, stream);
                        for (int i = 0; i < 6; i++) {
                            *target = empty;
                            done(bsr_from_dense(gm.ctx, i & 1 ? dt : ds, target, &e));
                            if (i % 3) done(bsr_dense_mm(gm.ctx, 0, dsmall, db, dbeside, &e));
                            done(bsr_dense_mm(gm.ctx, 0, target, db, i & 1 ? d1 : d0, &product));
                        }
                    };
                    calls(true);
                    if (refused) continue;
                    const auto want = written_bits(g, stream);
                    g.download();
                    for (int k = 0; k < 2 && !x[0]; k++) { /* right, too */
                        bsr_dense w = t_output(type, size, n, ROW, NO_BATCH);
                        bsr_matrix m = empty_like(&like, lines * lines);
                        CHECK_INT(bsr_from_dense(cpu(), &source[k], &m, NULL), BSR_OK);
                        CHECK_INT(bsr_dense_mm(cpu(), 0, &m, &b, &w, NULL), BSR_OK);
                        CHECK_INT(first_other(out[k].data, w.data, (size_t)(size * n) * bsr_dtype_size(type), type), -1);
                    }
                    int other = 0;
                    for (int i = 0; i < (reduced() ? 2 : 10); i++) calls(false), other += written_bits(g, stream) != want;
                    CHECK_INT(bad, 0), CHECK_INT(other, 0);
                }
            }
    cudaFree(workspace), cudaStreamDestroy(stream);
}
/* Few columns: how many warps add up a strip follows BSR_EXEC_CONSTANT_MATRIX, so that its bits may be others than without. Each
   repeats its own, whatever ran before, and is near the CPU's. */
TEST(constant_matrix) {
    const int64_t strips = attribute(cudaDevAttrMultiProcessorCount) * 3 / 4 + 2;
    for (int type : {BSR_BF16, BSR_F16})
        for (int64_t n : {8, 16, 32, 64})
            for (int64_t across : {6, 30})
                for (int layout : {ROW, COL}) {
                    if (!gm_compiled(type) || (type == BSR_F16 && n % 56 != 8)) continue; /* 8 and 64 */
                    bt_case("%s, %d columns, %d across, layout %d", bsr_dtype_name(type), (int)n, (int)across, layout);
                    t_spec s = spec_of(type, 64, strips, across, strips * across / 3);
                    s.kind = FILL_SIGNED;
                    bsr_matrix a = t_matrix(&s);
                    bsr_dense b = t_random(type, a.cols, n, layout, NO_BATCH, 0, FILL_SIGNED),
                              c = t_output(type, a.rows, n, layout, NO_BATCH), w = t_output(type, a.rows, n, layout, NO_BATCH);
                    bsr_dense before = t_output(type, a.rows, n, layout, NO_BATCH);
                    gm_call g("bsr_dense_mm", gm.ctx, nullptr), h("bsr_dense_mm", gm.ctx, nullptr);
                    auto da = g.map(&a);
                    auto db = g.map(&b), dc = g.map(&c, true), dbefore = h.map(&before, true);
                    g.upload(), h.upload();
                    CHECK_INT(bsr_dense_mm(cpu(), 0, &a, &b, &w, NULL), BSR_OK);
                    for (uint32_t flags : {0u, (uint32_t)BSR_EXEC_CONSTANT_MATRIX}) {
                        bsr_exec e = exec_of(flags);
                        std::string want;
                        int64_t bad = 0, other = 0;
                        e.stream = gm.stream;
                        for (int i = 0; i < 12; i++) {
                            poison(g, gm.stream);
                            for (int k = 0; k < i % 3; k++) CHECK_INT(bsr_dense_mm(gm.ctx, 0, da, db, dbefore, &e), BSR_OK);
                            CHECK_INT(bsr_dense_mm(gm.ctx, 0, da, db, dc, &e), BSR_OK);
                            const std::string bits = written_bits(g, gm.stream);
                            if (!i) want = bits;
                            else other += bits != want;
                        }
                        g.download();
                        for (int64_t i = 0; i < c.rows; i++)
                            for (int64_t j = 0; j < n; j++) {
                                const double x = t_get(&w, 0, i, j);
                                bad += !(fabs(t_get(&c, 0, i, j) - x) <= 0.02 * (1 + fabs(x)));
                            }
                        CHECK_INT(other, 0), CHECK_INT(bad, 0);
                    }
                }
}

/* ---------------------------------------------------------------------------------------------- */
/* many rows, columns, items                                                                      */
/* ---------------------------------------------------------------------------------------------- */

/* The device against the CPU, bit for bit: small whole numbers in f32. */
static void against_cpu(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *c) {
    bsr_exec e = BSR_ZERO;
    bsr_dense w = *c;
    size_t bytes = bt_find(c->data)->bytes;
    w.data = bt_alloc(bytes, 4), bt_mark_output(w.data);
    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
    auto da = g.map(a);
    auto db = g.map(b), dc = g.map(c, true);
    g.upload();
    e.stream = gm.stream;
    CHECK_INT(bsr_dense_mm(gm.ctx, 0, da, db, dc, &e), BSR_OK);
    g.download();
    CHECK_INT(bsr_dense_mm(cpu(), 0, a, b, &w, NULL), BSR_OK);
    CHECK(!memcmp(c->data, w.data, bytes));
}
TEST(wide_grids) {
    t_spec s;
    t_shape many = t_batch(1, 70000, 0, 0, 0);
    if (reduced()) {
        bt_skip("left out by --every");
        return;
    }
    memset(&s, 0, sizeof s);
    s.dtype = BSR_F32, s.kind = FILL_INTEGER, s.index_dtype = BSR_I32;
    for (int k = 0; k < 4; k++) {
        bt_case("%s", k == 0   ? "300,000 block rows"
                      : k == 1 ? "70,000 batch items"
                      : k == 2 ? "4,400,000 columns"
                               : "70,000 items of b, one a");
        s.block_rows = s.block_cols = k == 2 ? 4 : 1, s.r = k == 0 ? 300000 : 2, s.c = 3, s.nnz = k == 0 ? 400000 : 4;
        s.batch = k == 1 ? many : NO_BATCH;
        if (k == 1) s.shared_pattern = 1;
        bsr_matrix a = t_matrix(&s);
        bsr_dense b = t_random(BSR_F32, a.cols, k == 2 ? 4400000 : 3, ROW, k == 1 || k == 3 ? many : NO_BATCH, 0, FILL_INTEGER);
        bsr_dense c = t_output(BSR_F32, a.rows, b.cols, ROW, t_dense_batch(&b));
        against_cpu(&a, &b, &c);
    }
    for (int k = 0; k < 2; k++) { /* softmax and sampled product: many rows, many items */
        bt_case("%s: 70,000 items", k ? "sampled_addmm" : "softmax");
        s.block_rows = s.block_cols = 2, s.r = 2, s.c = 2, s.nnz = 3, s.batch = many, s.shared_pattern = 1;
        bsr_matrix a = t_matrix(&s), y = t_matrix_output(&a, BSR_F32, PACKED), w = t_matrix_output(&a, BSR_F32, PACKED);
        bsr_dense x = t_random(BSR_F32, 4, 3, ROW, many, 0, FILL_INTEGER),
                  z = t_random(BSR_F32, 3, 4, ROW, many, 0, FILL_INTEGER);
        gm_call g("", gm.ctx, nullptr);
        auto da = g.map(&a), dy = g.map(&y, true);
        auto dx = g.map(&x), dz = g.map(&z);
        bsr_exec e = BSR_ZERO;
        g.upload();
        e.stream = gm.stream;
        bsr_status status = k ? bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dz, dy, &e) : bsr_softmax(gm.ctx, 1, da, NULL, dy, &e);
        if (status == BSR_UNSUPPORTED) {
            bt_skip("the CUDA backend does not have the operation");
            continue;
        }
        CHECK_INT(status, BSR_OK);
        g.download();
        CHECK_INT(k ? bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &z, &w, NULL) : bsr_softmax(cpu(), 1, &a, NULL, &w, NULL), BSR_OK);
        int64_t bad = 0, n = (int64_t)(bt_find(y.values)->bytes / 4);
        for (int64_t i = 0; i < n; i++) bad += !(fabsf(((float *)y.values)[i] - ((float *)w.values)[i]) <= 1e-6f);
        CHECK_INT(bad, 0), CHECK(n > 800000);
    }
}

/* Numbers that are further from those wanted than `bound`, relative to 1 and more. */
static int64_t far_off(const void *got, const void *want, int dtype, double bound) {
    const int64_t n = (int64_t)(bt_find(want)->bytes / bsr_dtype_size(dtype));
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = t_load(got, dtype, i), y = t_load(want, dtype, i);
        const bool near = x == y || (std::isfinite(y) && fabs(x - y) <= bound * (1 + fabs(y)));
        bad += !near && (x == x || y == y);
    }
    return bad;
}
/* Softmax of more rows than there are places for: warps work on one after another, the next on its way. Rows of a few blocks, a
   few of many: those that leave room for two, for one, for none. A negative scale, with which the wrong maximum overflows. */
TEST(many_rows) {
    static const struct {
        int64_t block, across, rows; /* rows: block rows for each 132 multiprocessors */
        int type, mean;
    } shapes[] = {
        {32, 14, 1376, BSR_BF16, 3}, {16, 14, 2720, BSR_F32, 3}, {64, 48, 88, BSR_BF16, 13}, {64, 90, 44, BSR_BF16, 25}};
    const int64_t sms = attribute(cudaDevAttrMultiProcessorCount);
    for (auto &x : shapes) {
        const int type = x.type;
        if (!gm_compiled(type)) continue;
        bt_case("%s, %d columns of blocks of %d", bsr_dtype_name(type), (int)x.across, (int)x.block);
        if (reduced()) {
            bt_skip("left out by --every");
            continue;
        }
        const auto row = [&](int64_t i) { return numbers(0, bt_range(0, i % 5 == 2 ? x.across : 2 * x.mean - 1)); };
        bsr_matrix a = matrix_of(type, x.block, x.across, rows_of(x.rows * sms / 132 + 1, row));
        t_fill_values(&a, FILL_SIGNED);
        bsr_matrix y = t_matrix_output(&a, type, PACKED), w = t_matrix_output(&a, type, PACKED),
                   dx = t_matrix_output(&a, type, PACKED), dw = t_matrix_output(&a, type, PACKED);
        gm_call g("", gm.ctx, nullptr);
        auto da = g.map(&a), dy = g.map(&y, true), ddx = g.map(&dx, true);
        g.upload();
        CHECK_INT(bsr_softmax(cpu(), -200, &a, NULL, &w, NULL), BSR_OK);
        CHECK_INT(bsr_softmax_backward(cpu(), 0.5, &a, &a, &dw, NULL), BSR_OK);
        for (int grid : {0, 7}) {
            bsr_exec e = BSR_ZERO;
            e.stream = gm.stream, e.max_grid[0] = grid;
            poison(g, gm.stream);
            CHECK_INT(bsr_softmax(gm.ctx, -200, da, NULL, dy, &e), BSR_OK);
            CHECK_INT(bsr_softmax_backward(gm.ctx, 0.5, da, da, ddx, &e), BSR_OK);
            g.download();
            CHECK_INT(far_off(y.values, w.values, type, type == BSR_F32 ? 1e-4 : 0.02), 0);
            CHECK_INT(far_off(dx.values, dw.values, type, type == BSR_F32 ? 1e-4 : 0.02), 0);
        }
    }
}
/* Attention with more query tiles than there are places for, by all of the grid and by a few CTAs: dealt in several rounds, of
   about the same length and of very different ones. Rows of more blocks than a warp holds; keys and values of fewer heads. */
TEST(many_tiles) {
    const int64_t sms = attribute(cudaDevAttrMultiProcessorCount), heads = 4;
    for (int64_t block : {128, 64, 32, 16})
        for (int form = 0; form < 4; form++) { /* bits: lengths differ, causal */
            const int type = BSR_BF16, uneven = form & 1;
            if (!gm_compiled(type)) continue;
            bt_case("blocks of %d rows, form %d", (int)block, form);
            if (reduced()) {
                bt_skip("left out by --every");
                continue;
            }
            const int64_t tiles = sms * (block == 128 ? 6 : 11) / heads, lines = (tiles * (block == 128 ? 128 : 64)) / block;
            const auto row = [&](int64_t i) {
                const int64_t n = i * block / 64 % 37 == 5 ? 40 : uneven ? bt_range(0, 2) : bt_range(3, 5), at = bt_below(41 - n);
                return numbers(at, at + n);
            };
            t_spec s = spec_of(type, 16, lines, 40, 0);
            const columns_of_rows rows = rows_of(lines, row);
            for (auto &r : rows) s.nnz += (int64_t)r.size();
            s.block_rows = block, s.pattern_only = 1;
            bsr_matrix mask = t_matrix(&s);
            for (int64_t i = 0, at = 0; i < lines; i++) {
                for (int64_t column : rows[(size_t)i]) t_set_index(mask.col_indices, BSR_I32, at++, column);
                t_set_index(mask.crow_indices, BSR_I32, i + 1, at);
            }
            const t_shape bq = t_batch(1, heads, 0, 0, 0), bk = t_batch(1, heads / 2, 0, 0, 0), bv = t_batch(1, 1, 0, 0, 0);
            const int64_t n = lines * block - 5;
            bsr_dense q = t_random(type, n, 8, ROW, bq, 0, FILL_SIGNED), k = t_random(type, 640, 8, ROW, bk, 0, FILL_SIGNED),
                      v = t_random(type, 640, 8, ROW, form & 2 ? bq : bv, 0, FILL_SIGNED);
            bsr_dense out = t_output(type, n, 8, ROW, bq), lse = t_output(BSR_F32, n, 1, ROW, bq),
                      want = t_output(type, n, 8, ROW, bq), norm = t_output(BSR_F32, n, 1, ROW, bq);
            bsr_attention_options o = BSR_ZERO;
            if (form & 2) o.flags = BSR_ATTENTION_CAUSAL, o.causal_offset = 300 - n / 2;
            gm_call g("", gm.ctx, nullptr);
            auto dm = g.map(&mask);
            auto dq = g.map(&q), dk = g.map(&k), dv = g.map(&v), d_out = g.map(&out, true), dl = g.map(&lse, true);
            auto d_options = g.map(&o);
            g.upload();
            CHECK_INT(bsr_attention(cpu(), 3, &q, &k, &v, &mask, &o, &want, &norm, NULL), BSR_OK);
            for (int tier = 1; tier <= 3; tier++)
                for (int grid : {0, 40, 3}) {
                    bsr_exec e = BSR_ZERO;
                    bsr_plan plan = BSR_ZERO;
                    if (grid && tier < 3) continue;
                    plan.kernel = tier, e.plan = &plan, e.stream = gm.stream, e.max_grid[0] = grid;
                    poison(g, gm.stream);
                    const bsr_status status = bsr_attention(gm.ctx, 3, dq, dk, dv, dm, d_options, d_out, dl, &e);
                    if (status == BSR_BAD_PLAN && tier == 3 && architecture() != 9) continue;
                    CHECK_INT(status, BSR_OK);
                    g.download();
                    CHECK_INT(far_off(out.data, want.data, type, 0.02), 0);
                    CHECK_INT(far_off(lse.data, norm.data, BSR_F32, 1e-4), 0);
                }
        }
}

/* ---------------------------------------------------------------------------------------------- */
/* beyond 2^31 elements: numbers whose sums are known                                             */
/* ---------------------------------------------------------------------------------------------- */

struct big { /* 350 x 400 blocks of 128 x 128, all stored: 2,293,760,000 elements, of which the last block is twos, the rest ones
              */
    int32_t *crow, *col;
    char *values;
    bsr_matrix m;
};
static bool big_new(big *g, int dtype) {
    const int64_t r = 350, c = 400, block = 128 * 128, n = r * c * block;
    size_t size = bsr_dtype_size(dtype), free_bytes = 0, total;
    std::vector<int32_t> crow((size_t)r + 1), col((size_t)(r * c));
    memset(g, 0, sizeof *g);
    cudaMemGetInfo(&free_bytes, &total);
    if (reduced() || free_bytes < 12ull * (size_t)n / 2) {
        bt_skip(reduced() ? "left out by --every" : "the device has too little free memory");
        return false;
    }
    for (int64_t i = 0; i <= r; i++) crow[(size_t)i] = (int32_t)(i * c);
    for (int64_t i = 0; i < r * c; i++) col[(size_t)i] = (int32_t)(i % c);
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->crow, crow.size() * 4)),
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->col, col.size() * 4));
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->values, (size_t)n * size));
    cudaMemcpy(g->crow, crow.data(), crow.size() * 4, cudaMemcpyHostToDevice),
        cudaMemcpy(g->col, col.data(), col.size() * 4, cudaMemcpyHostToDevice);
    std::vector<char> ones((size_t)block * size), twos((size_t)block * size);
    for (int64_t i = 0; i < block; i++) t_store(ones.data(), dtype, i, 1), t_store(twos.data(), dtype, i, 2);
    cudaMemcpy(g->values, ones.data(), ones.size(), cudaMemcpyHostToDevice);
    for (size_t have = ones.size(), all = (size_t)n * size; have < all; have *= 2) /* doubling */
        gm_cuda("filling",
                cudaMemcpy(g->values + have, g->values, have < all - have ? have : all - have, cudaMemcpyDeviceToDevice));
    cudaMemcpy(g->values + (size_t)n * size - twos.size(), twos.data(), twos.size(), cudaMemcpyHostToDevice);
    g->m = bsr_matrix_make(r * 128, c * 128, 128, 128, r * c, g->crow, g->col, BSR_I32, g->values, dtype);
    return true;
}
static void big_end(big *g) { cudaFree(g->crow), cudaFree(g->col), cudaFree(g->values); }
/* Room on the device, and what lies there. */
static void *device_room(size_t bytes) {
    void *p = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc(&p, bytes));
    return p;
}
static void *device_copy(const void *from, size_t bytes) {
    void *const p = device_room(bytes);
    gm_cuda("filling", cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    gm_cuda("filling", cudaDeviceSynchronize()); /* the end of the copy may be under way, and the stream does not wait for it */
    return p;
}
/* A device array of n equal numbers. */
static void *device_fill(int dtype, int64_t n, double v) {
    size_t size = bsr_dtype_size(dtype);
    std::vector<char> host((size_t)n * size);
    for (int64_t i = 0; i < n; i++) t_store(host.data(), dtype, i, v);
    return device_copy(host.data(), host.size());
}
static std::vector<double> fetch(const void *p, int dtype, int64_t from, int64_t n) {
    size_t size = bsr_dtype_size(dtype);
    std::vector<char> host((size_t)n * size);
    std::vector<double> v((size_t)n);
    gm_cuda("copying back", cudaMemcpy(host.data(), (const char *)p + (size_t)from * size, host.size(), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n; i++) v[(size_t)i] = t_load(host.data(), dtype, i);
    return v;
}
TEST(big_values) {
    static const int kinds[] = {BSR_BF16, BSR_I8};
    for (int dtype : kinds)
        for (int tier : tiers)
            for (int trans = 0; trans < 2; trans++) {
                big g;
                bsr_exec e = BSR_ZERO;
                bsr_plan plan;
                int out = dtype == BSR_I8 ? BSR_I32 : BSR_F32, n = 16;
                bt_case("%s, tier %d%s", bsr_dtype_name(dtype), tier, trans ? ", A^T" : "");
                if (!big_new(&g, dtype)) continue;
                int64_t rows = trans ? g.m.cols : g.m.rows, inner = trans ? g.m.rows : g.m.cols;
                void *b = device_fill(dtype, inner * n, 1), *c = device_fill(out, rows * n, -1);
                bsr_dense db = bsr_dense_row_major(b, dtype, inner, n), dc = bsr_dense_row_major(c, out, rows, n);
                void *view = nullptr;
                memset(&plan, 0, sizeof plan), plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.stream = gm.stream;
                bsr_status status = bsr_dense_mm(gm.ctx, trans ? BSR_TRANS_A : 0, &g.m, &db, &dc, &e);
                gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
                if (status == BSR_BAD_PLAN && tier) bt_skip("the forced tier does not take these calls");
                else {
                    std::vector<double> got = fetch(c, out, 0, rows * n);
                    int64_t bad = 0;
                    CHECK_INT(status, BSR_OK);
                    for (int64_t i = 0; i < rows * n; i++)
                        bad += got[(size_t)i] != (double)(inner + (i / n >= rows - 128 ? 128 : 0));
                    CHECK_INT(bad, 0);
                }
                cudaFree(b), cudaFree(c), cudaFree(view);
                big_end(&g);
            }
}
TEST(big_sampled_and_softmax) {
    big g;
    bsr_exec e = BSR_ZERO;
    e.stream = gm.stream;
    for (int tier : tiers) {
        bsr_plan plan;
        bt_case("sampled_addmm, tier %d", tier);
        if (!big_new(&g, BSR_BF16)) continue;
        void *x = device_fill(BSR_BF16, g.m.rows * 16, 1), *y = device_fill(BSR_BF16, 16 * g.m.cols, 1);
        bsr_dense dx = bsr_dense_row_major(x, BSR_BF16, g.m.rows, 16), dy = bsr_dense_col_major(y, BSR_BF16, 16, g.m.cols);
        memset(&plan, 0, sizeof plan), plan.kernel = tier, e.plan = tier ? &plan : nullptr;
        bsr_status status = bsr_sampled_addmm(gm.ctx, 1, &g.m, 1, &dx, &dy, &g.m, &e); /* in place: 1 + 16, 2 + 16 */
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_BAD_PLAN && tier) bt_skip("the forced tier does not take these calls");
        else {
            int64_t n = g.m.nnz * 16384, bad = 0,
                    places[] = {0, 16384, INT64_C(1) << 30, (INT64_C(1) << 31) - 8192, INT64_C(2200000000), n - 32768};
            CHECK_INT(status, BSR_OK);
            for (int64_t at : places) {
                std::vector<double> got = fetch(g.values, BSR_BF16, at, 16384);
                for (int64_t i = 0; i < 16384; i++) bad += got[(size_t)i] != (at + i >= n - 16384 ? 18 : 17);
            }
            CHECK_INT(bad, 0);
        }
        cudaFree(x), cudaFree(y), big_end(&g);
    }
    e.plan = nullptr;
    bt_case("softmax");
    if (big_new(&g, BSR_BF16)) {
        bsr_status status = bsr_softmax(gm.ctx, 1, &g.m, NULL, &g.m, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_UNSUPPORTED) bt_skip("the CUDA backend does not have the operation");
        else {
            int64_t n = g.m.nnz * 16384, bad = 0;
            CHECK_INT(status, BSR_OK);
            std::vector<double> first = fetch(g.values, BSR_BF16, 0, 16384), last = fetch(g.values, BSR_BF16, n - 32768, 32768);
            double sum = (51200 - 128) + 128 * exp(1.0);
            for (int i = 0; i < 16384; i++) bad += !(fabs(first[(size_t)i] * 51200 - 1) <= 0.01);
            for (int i = 0; i < 32768; i++) bad += !(fabs(last[(size_t)i] * sum / (i < 16384 ? 1 : exp(1.0)) - 1) <= 0.01);
            CHECK_INT(bad, 0);
        }
        big_end(&g);
    }
    bt_case("to_dense");
    if (big_new(&g, BSR_I8)) {
        void *c = nullptr;
        gm_cuda("in cudaMalloc", cudaMalloc(&c, (size_t)(g.m.rows * g.m.cols)));
        cudaMemset(c, 0x55, (size_t)(g.m.rows * g.m.cols));
        bsr_dense d = bsr_dense_row_major(c, BSR_I8, g.m.rows, g.m.cols);
        bsr_status status = bsr_to_dense(gm.ctx, &g.m, &d, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_UNSUPPORTED) bt_skip("the CUDA backend does not have the operation");
        else {
            std::vector<double> last = fetch(c, BSR_I8, (g.m.rows - 1) * g.m.cols, g.m.cols),
                                first = fetch(c, BSR_I8, 0, g.m.cols);
            int64_t bad = 0;
            for (int64_t i = 0; i < g.m.cols; i++)
                bad += last[(size_t)i] != (i >= g.m.cols - 128 ? 2 : 1) || first[(size_t)i] != 1;
            CHECK_INT(status, BSR_OK), CHECK_INT(bad, 0);
        }
        cudaFree(c), big_end(&g);
    }
    bt_case("an output of 2.3e9 elements");
    if (!reduced()) { /* one block column of ones (i8) times a row: 70,000 x 32,768 */
        const int64_t rows = 70000, n = 32768;
        std::vector<int32_t> crow((size_t)rows / 10 + 1), col((size_t)rows / 10, 0);
        for (size_t i = 0; i < crow.size(); i++) crow[i] = (int32_t)i;
        void *dcrow = device_copy(crow.data(), crow.size() * 4), *dcol = device_copy(col.data(), col.size() * 4),
             *values = device_fill(BSR_I8, rows * 4, 1), *b = device_fill(BSR_I8, 4 * n, 3), *c = device_room((size_t)(rows * n));
        cudaMemset(c, 0x55, (size_t)(rows * n));
        bsr_matrix a = bsr_matrix_make(rows, 4, 10, 4, rows / 10, dcrow, dcol, BSR_I32, values, BSR_I8);
        bsr_dense db = bsr_dense_row_major(b, BSR_I8, 4, n), dc = bsr_dense_row_major(c, BSR_I8, rows, n);
        CHECK_INT(bsr_dense_mm(gm.ctx, 0, &a, &db, &dc, &e), BSR_OK);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        std::vector<char> host((size_t)(rows * n));
        cudaMemcpy(host.data(), c, host.size(), cudaMemcpyDeviceToHost);
        int64_t bad = 0;
        for (char v : host) bad += v != 12;
        CHECK_INT(bad, 0);
        cudaFree(dcrow), cudaFree(dcol), cudaFree(values), cudaFree(b), cudaFree(c);
    } else bt_skip("left out by --every");
}

/* An output of 2.15e9 elements by each tier and tile that takes it. Of each row's block the first column holds numbers. */
TEST(big_outputs) {
    static const int plans[][2] = {{1, 0}, {2, 0}, {2, 64}, {3, 64}, {3, 128}, {3, 256}}; /* kernel, columns */
    const int64_t rows = 65664, n = 32776, block = 64, lines = rows / block;
    size_t free_bytes = 0, total;
    cudaMemGetInfo(&free_bytes, &total);
    if (reduced() || !gm_compiled(BSR_BF16) || free_bytes < size_t(6) << 30) {
        bt_skip(reduced() ? "left out by --every" : "the device has too little free memory, or no such kernels");
        return;
    }
    std::vector<int32_t> crow((size_t)lines + 1), col((size_t)lines);
    std::vector<uint16_t> values((size_t)(rows * block)), dense((size_t)(2 * block * n));
    const auto left = [](int64_t i) { return (double)(1 + i % 3 + i / 64 % 5); };
    const auto right = [](int64_t half, int64_t j) { return (double)((j * 7 + half * 3 + j / 1000) % 15 - 7); };
    for (int64_t i = 0; i <= lines; i++) crow[(size_t)i] = (int32_t)i;
    for (int64_t i = 0; i < lines; i++) col[(size_t)i] = (int32_t)(i % 2);
    for (int64_t i = 0; i < rows; i++) t_store(values.data(), BSR_BF16, i * block, left(i));
    for (int64_t i = 0; i < 2 * n; i++) t_store(dense.data(), BSR_BF16, i / n * block * n + i % n, right(i / n, i % n));
    void *at[] = {device_copy(crow.data(), crow.size() * 4), device_copy(col.data(), col.size() * 4),
                  device_copy(values.data(), values.size() * 2), device_copy(dense.data(), dense.size() * 2),
                  device_room((size_t)(rows * n) * 2)};
    const bsr_matrix a = bsr_matrix_make(rows, 2 * block, block, block, lines, at[0], at[1], BSR_I32, at[2], BSR_BF16);
    const bsr_dense b = bsr_dense_row_major(at[3], BSR_BF16, 2 * block, n), c = bsr_dense_row_major(at[4], BSR_BF16, rows, n);
    for (auto &x : plans) {
        bsr_plan plan = BSR_ZERO;
        bsr_exec e = BSR_ZERO;
        int64_t bad = 0;
        bt_case("tier %d, %d columns", x[0], x[1]);
        plan.kernel = x[0], plan.tile_cols = x[1], e.plan = &plan, e.stream = gm.stream;
        gm_cuda("poisoning", cudaMemsetAsync(at[4], BT_POISON, (size_t)(rows * n) * 2, gm.stream));
        const bsr_status status = bsr_dense_mm(gm.ctx, 0, &a, &b, &c, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_BAD_PLAN) bt_skip("the forced tier does not take these calls");
        else CHECK_INT(status, BSR_OK);
        for (int64_t i = 0; i < rows && status == BSR_OK; i += i < rows - 130 ? 499 : 1) {
            const std::vector<double> got = fetch(at[4], BSR_BF16, i * n, n);
            for (int64_t j = 0; j < n; j++) bad += got[(size_t)j] != left(i) * right(i / block % 2, j);
        }
        CHECK_INT(bad, 0);
    }
    for (void *p : at) cudaFree(p);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"contexts", contexts},
        {"two_devices", two_devices},
        {"queries", queries},
        {"capture", capture},
        {"checked_indices", checked_indices},
        {"checked_views_and_batches", checked_views_and_batches},
        {"checked_million", checked_million},
        {"hostile_row_pointers", hostile_row_pointers},
        {"no_allocation", no_allocation},
        {"threads", threads},
        {"failing_launch", failing_launch},
        {"counters", counters},
        {"host_pointers", host_pointers},
        {"absent_blocks", absent_blocks},
        {"instances", instances},
        {"every_kernel", every_kernel},
        {"random_products", random_products},
        {"product_edges", product_edges},
        {"odd_views", odd_views},
        {"scalar_between_rows", scalar_between_rows},
        {"room_to_spare", room_to_spare},
        {"sampled_edges", sampled_edges},
        {"epilogues", epilogues},
        {"absent_blocks_again", absent_blocks_again},
        {"chains", chains},
        {"patterns_of_just_now", patterns_of_just_now},
        {"constant_matrix", constant_matrix},
        {"wide_grids", wide_grids},
        {"many_rows", many_rows},
        {"many_tiles", many_tiles},
        {"same_bits", same_bits},
        {"big_values", big_values},
        {"big_sampled_and_softmax", big_sampled_and_softmax},
        {"big_outputs", big_outputs},
    };
    static char apart[] = "--apart"; /* jobs keep their buffers */
    static char *list[64];
    int n = 0, failed;
    for (n = 0; n < argc && n < 62; n++) list[n] = argv[n];
    list[n++] = apart;
    failed = gm_direct(n, list, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
