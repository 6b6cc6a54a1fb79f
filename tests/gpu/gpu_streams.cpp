/* gpu_streams.cpp: The same bits on every run: beside other work, in graphs, from several threads and devices, after what the
   stream did just before; no operation allocates. */
#include "plans.h"

TEST(same_bits_beside_other_work) { /* 1,000 runs of each operation while two other streams are busy with another */
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
/* In the strictest mode a capture fails at any allocation, synchronisation or legacy copy in this thread. */
TEST(replays_give_the_same_bits) {
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
TEST(threads_give_the_same_bits) { /* two contexts, eight host threads, each with a stream and buffers of its own */
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
/* Calls one after another in a stream, each with what the one before made, with a wait after each, as they come, and as a graph:
   on Hopper kernels start before the one before them has ended and must not read, or write over, too soon. Stale results are no
   numbers. */
TEST(chains_read_nothing_too_soon) {
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
                bsr_dense b = t_random(type, size, n, ROW, NO_BATCH, 0, FILL_SIGNED), out[8];
                gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                auto da = g.map(&a), dv = g.map(&views), dz = g.map(&z, true), dy = g.map(&y, true);
                const bsr_dense *db = g.map(&b), *o[8];
                for (int i = 0; i < 8; i++) out[i] = t_output(type, size, n, ROW, NO_BATCH), o[i] = g.map(&out[i], true);
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
                    done(bsr_chain_mm(gm.ctx, 0, da, o[1], NULL, o[6], 0, NULL, 1, dy, NULL, o[7], &e)); /* values of just now */
                    done(bsr_dense_mm(gm.ctx, 0, dy, o[1], o[2], &product)); /* the same */
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
                for (int i = 0; i < 8; i++) /* numbers: else what is stale could not be told from them */
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
TEST(constant_matrix_repeats_its_bits) {
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

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"two_devices", two_devices},
                                    {"replays_give_the_same_bits", replays_give_the_same_bits},
                                    {"no_allocation", no_allocation},
                                    {"threads_give_the_same_bits", threads_give_the_same_bits},
                                    {"chains_read_nothing_too_soon", chains_read_nothing_too_soon},
                                    {"patterns_of_just_now", patterns_of_just_now},
                                    {"constant_matrix_repeats_its_bits", constant_matrix_repeats_its_bits},
                                    {"same_bits_beside_other_work", same_bits_beside_other_work}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
