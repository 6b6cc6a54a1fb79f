/* gpu_calls.cpp: Contexts of the device, plans that a query gave, and calls that are refused: before anything runs, and with
 * nothing left behind. */
#include "plans.h"

TEST(contexts_of_devices) {
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
TEST(queried_plans_are_taken) { /* a plan that a query gave is accepted as it is */
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
            char *more = nullptr; /* A^T without its index: where there is room, it is built first */
            if (plan.flags & BSR_PLAN_BUILDS_INDEX) {
                CHECK(plan.workspace_bytes > j.workspace_bytes);
                gm_cuda("cudaMalloc", cudaMalloc(&more, plan.workspace_bytes));
                e.workspace = more, e.workspace_bytes = plan.workspace_bytes;
            } else CHECK_INT(plan.workspace_bytes, j.workspace_bytes);
            e.query = nullptr, e.plan = &plan;
            CHECK_INT(j.device(gm.ctx, &e), BSR_OK);
            plan.backend = BSR_BACKEND_CPU;
            CHECK_INT(j.device(gm.ctx, &e), BSR_BAD_PLAN), CHECK_INT(error.item, BSR_ITEM_PLAN_FIELD), CHECK_INT(error.index, 1);
            plan.backend = 0, plan.kernel = 99999;
            CHECK_INT(j.device(gm.ctx, &e), BSR_BAD_PLAN), CHECK_INT(error.item, BSR_ITEM_PLAN_FIELD), CHECK_INT(error.index, 3);
            gm_cuda("after the runs", cudaStreamSynchronize(gm.stream));
            gm_cuda("cudaFree", cudaFree(more));
        }
        job_end(&j);
    }
}
/* What a kernel's counters do not hold is not its own, as a plan that names its tier shows: nothing is read. What gathers
   elements counts in 64 bits. */
TEST(sizes_beyond_counters) {
    static const struct {
        int64_t rows, cols, br, bc, nnz, n;
        int gathered;
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
        CHECK_INT(bsr_dense_mm(gm.ctx, 0, &a, &b, &c, &e), BSR_OK);
        CHECK_INT(found.reason == BSR_WHY_GATHERED, x.gathered);
    }
    cudaFree(p);
}
/* A stream whose capture was spoilt refuses every launch: the status says so, nothing stays behind in the runtime. */
TEST(failing_launch_leaves_nothing_behind) {
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
TEST(host_pointers_are_refused) {
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
            if (kind == ADDMM) refused((void **)&g->epilogue[0].alpha_ptr), refused((void **)&g->epilogue[0].beta_ptr);
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

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"contexts_of_devices", contexts_of_devices},
                                    {"queried_plans_are_taken", queried_plans_are_taken},
                                    {"failing_launch_leaves_nothing_behind", failing_launch_leaves_nothing_behind},
                                    {"sizes_beyond_counters", sizes_beyond_counters},
                                    {"host_pointers_are_refused", host_pointers_are_refused}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
