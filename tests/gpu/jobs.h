/* jobs.h: for programs written for the device: one call of one operation with operands that stay there. */
#ifndef BSR_GPU_JOBS_H
#define BSR_GPU_JOBS_H

#define GM_NO_REDIRECT
#include "mirror.h"
#include "../operands.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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
TF const bsr_context *cpu(void) { return t_context(BSR_ISA_DEFAULT); }

TF bsr_matrix empty_like(const bsr_matrix *like, int64_t capacity) {
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
static bool job_apart = false; /* a second pattern has arrays of its own */
static bool clear_accumulators = true;
TF void *copy_of(const void *array) {
    const bt_block *b = bt_find(array);
    return memcpy(bt_alloc(b->bytes, 8), b->data, b->bytes);
}
/* Operands of every kind of call: a of about `size` rows in square blocks. */
TF job job_new(int kind, int dtype, int64_t block, int64_t size, int tier) {
    t_spec s;
    bsr_matrix a, y, dy;
    int64_t n = size / 2, lines = size / block > 0 ? size / block : 1;
    gm_call *g = new gm_call(job_names[kind], nullptr, nullptr);
    int out = t_sums(dtype);
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
            t_list_room(&i, 0);
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
            if (job_apart) dy.crow_indices = copy_of(a.crow_indices), dy.col_indices = copy_of(a.col_indices);
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
TF void job_end(job *j) {
    delete j->mirror;
    if (j->workspace) cudaFree(j->workspace);
}
TF bsr_status job_run(job *j, const bsr_context *ctx, cudaStream_t stream, bsr_error *error = nullptr, uint64_t *word = nullptr) {
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
TF bool job_ready(job *j, const bsr_context *ctx, cudaStream_t stream) {
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
TF std::string written_bits(const gm_call &g, cudaStream_t stream) {
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
TF std::string job_bits(const job *j, cudaStream_t stream) { return written_bits(*j->mirror, stream); }
TF void poison(const gm_call &g, cudaStream_t stream) {
    for (int i = 0; i < g.regions; i++)
        if (g.region[i].written) gm_cuda("poisoning", cudaMemsetAsync(g.region[i].dev, BT_POISON, g.region[i].bytes, stream));
}
/* Poisons what the call writes; new_inputs: turns the numbers that it reads. */
TF void job_reset(const job *j, cudaStream_t stream, size_t turn) {
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
TF cudaStream_t new_stream(void) {
    cudaStream_t s;
    gm_cuda("making a stream", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}
TF int reduced(void) { return gm.every > 1; }
static const int tiers[] = {0, 1, 2};
static const int types[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64, BSR_I8, BSR_E4M3};
TF bool takes(int kind, int dtype) {
    return bsr_dtype_size(dtype) > 1 || (kind < SOFTMAX && kind != BACKWARD) || kind >= TO_DENSE;
}
TF uint64_t read_word(const uint64_t *word, cudaStream_t s) {
    uint64_t w = 0;
    gm_cuda("reading the word", cudaMemcpyAsync(&w, word, 8, cudaMemcpyDeviceToHost, s));
    gm_cuda("after a checked call", cudaStreamSynchronize(s));
    return w;
}
/* A workspace for the flag, too. */
TF bool job_ready_checked(job *j, cudaStream_t s, uint64_t *word) {
    bsr_error error;
    if (!job_ready(j, gm.ctx, s)) return false;
    if (job_run(j, gm.ctx, s, &error, word) == BSR_WORKSPACE_TOO_SMALL) {
        cudaFree(j->workspace), j->workspace_bytes = (uint64_t)error.value;
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&j->workspace, j->workspace_bytes));
    }
    CHECK_INT(job_run(j, gm.ctx, s, &error, word), BSR_OK);
    return true;
}

/* bt_main() of such a program: jobs keep their buffers. */
TF int job_main(int argc, char **argv, const bt_test *tests, size_t count) {
    static char apart[] = "--apart";
    char *list[64];
    int n = 0, failed;
    for (n = 0; n < argc && n < 62; n++) list[n] = argv[n];
    list[n++] = apart;
    failed = gm_direct(n, list, tests, count);
    t_contexts_end();
    return failed;
}

#endif /* BSR_GPU_JOBS_H */
