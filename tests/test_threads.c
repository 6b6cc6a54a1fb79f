/* test_threads.c: the same bits for any number of threads, any order of tasks, any number of callers; the floating-point
   environment left as found. Meant to be built with -fopenmp; without it the thread counts are counted skips. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"

#include <pthread.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#define HAVE_MXCSR
#endif

enum { ADDMM, ADDMM_T, SDD, SOFTMAX, ATTENTION, FROM_DENSE, PRUNE, RANDOM, TRANSPOSED, LAYOUT, WORKS };
static const char *const work_names[] = {
    "dense_addmm", "dense_addmm of A^T", "sampled_addmm",    "softmax", "attention", "from_dense",
    "prune",       "random_pattern",     "transposed_index", "layout"};

/* Big enough that every engine cuts it into many tasks. */
typedef struct work {
    bsr_matrix a, t;
    bsr_dense b, bt_, x, y, q, k, v, source;
} work;
static work work_new(int dtype, int64_t block) {
    work w;
    t_spec s;
    memset(&w, 0, sizeof w), memset(&s, 0, sizeof s);
    s.dtype = dtype, s.block_rows = s.block_cols = block, s.r = 160 / block, s.c = 192 / block, s.nnz = s.r * s.c / 3,
    s.batch = t_batch(1, 2, 0, 0, 0);
    w.a = t_matrix(&s), w.t = w.a;
    t_attach_transposed(&w.t), t_attach_schedule(&w.a, 2, 0);
    w.b = t_random(dtype, w.a.cols, 150, ROW, s.batch, 0, FILL_SIGNED),
    w.bt_ = t_random(dtype, w.a.rows, 150, COL, s.batch, 0, FILL_SIGNED);
    w.x = t_random(dtype, w.a.rows, 70, ROW, s.batch, 0, FILL_SIGNED),
    w.y = t_random(dtype, 70, w.a.cols, ROW, s.batch, 0, FILL_SIGNED);
    w.q = t_random(dtype, w.a.rows, 32, ROW, s.batch, 0, FILL_SIGNED),
    w.k = t_random(dtype, w.a.cols, 32, ROW, s.batch, 0, FILL_SIGNED),
    w.v = t_random(dtype, w.a.cols, 48, ROW, s.batch, 0, FILL_SIGNED);
    w.source = t_random(dtype, w.a.rows, w.a.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
    return w;
}
/* Runs one kind of work into buffers of its own; returns a hash of what was written, 0 if it failed. */
static uint64_t work_run(const bsr_context *ctx, const work *w, int which) {
    size_t bytes = 1 << 20;
    unsigned char *out = (unsigned char *)calloc(1, bytes), *more = out + bytes / 2;
    int dtype = w->a.dtype;
    int64_t size = (int64_t)bsr_dtype_size(dtype);
    bsr_status status = BSR_BAD_ARGUMENT;
    bsr_matrix m = w->a;
    bsr_dense o;
    bsr_layout l = bsr_layout_default(BSR_LAYOUT_BIGBIRD, 8, 64);
    uint64_t h = 0, view = 0;
    if (!out) abort();
    m.values = out, memset(m.value_strides, 0, sizeof m.value_strides),
    m.values_batch_stride[0] = m.nnz * m.block_rows * m.block_cols;
    switch (which) {
        case ADDMM:
        case ADDMM_T:
            o = bsr_dense_batched(bsr_dense_row_major(out, dtype, which == ADDMM ? w->a.rows : w->a.cols, 150), 2,
                                  (which == ADDMM ? w->a.rows : w->a.cols) * 150);
            status = bsr_dense_mm(ctx, which == ADDMM ? 0 : BSR_TRANS_A, which == ADDMM ? &w->a : &w->t,
                                  which == ADDMM ? &w->b : &w->bt_, &o, NULL);
            break;
        case SDD: status = bsr_sampled_addmm(ctx, 0, NULL, 1, &w->x, &w->y, &m, NULL); break;
        case SOFTMAX: status = bsr_softmax(ctx, 0.5, &w->a, NULL, &m, NULL); break;
        case ATTENTION: {
            bsr_attention_options a;
            bsr_dense lse =
                bsr_dense_batched(bsr_dense_row_major(more, dtype == BSR_F64 ? BSR_F64 : BSR_F32, w->a.rows, 1), 2, w->a.rows);
            memset(&a, 0, sizeof a), a.flags = BSR_ATTENTION_CAUSAL, a.causal_offset = 20, a.dropout_p = 0.2, a.dropout_seed = 5;
            o = bsr_dense_batched(bsr_dense_row_major(out, dtype, w->a.rows, 48), 2, w->a.rows * 48);
            status = bsr_attention(ctx, 0, &w->q, &w->k, &w->v, &w->a, &a, &o, &lse, NULL);
            break;
        }
        case LAYOUT: status = bsr_layout_mask(ctx, &l, out, NULL); break;
        case TRANSPOSED:
            if (bsr_transposed_index_size(ctx, &w->a, &view, NULL) == BSR_OK && view < bytes)
                status = bsr_build_transposed_index(ctx, &w->a, out + (64 - (uintptr_t)out % 64), view, NULL);
            break;
        default:
            memset(m.batch, 0, sizeof m.batch), m.batch_dims = 0, m.crow_indices = more, m.col_indices = more + 65536,
                                                m.schedule = NULL;
            m.nnz = (m.rows / m.block_rows) * (m.cols / m.block_cols), m.index_dtype = BSR_I32;
            if (which == RANDOM) m.values = NULL;
            if (m.nnz * m.block_rows * m.block_cols * size <= (int64_t)(bytes / 2) && m.nnz <= 32768) {
                if (which == FROM_DENSE) status = bsr_from_dense(ctx, &w->source, &m, NULL);
                else if (which == PRUNE) status = bsr_prune(ctx, bsr_operand_dense(&w->source), 0.7, BSR_NORM_L2, &m, NULL);
                else status = bsr_random_pattern(ctx, 99, 0.7, &m, NULL);
            }
    }
    if (which == TRANSPOSED) h = bt_hash_bytes(7, out + (64 - (uintptr_t)out % 64), (size_t)view);
    else h = bt_hash_bytes(7, out, bytes);
    free(out);
    return status == BSR_OK ? h | 1 : 0;
}

static bsr_context *context_of(int isa, int threads, bsr_parallel_for f, void *user) {
    bsr_context_desc d;
    bsr_context *ctx = NULL;
    memset(&d, 0, sizeof d);
    d.isa = isa, d.threads = threads, d.parallel_for = f, d.parallel_user = user;
    return bsr_create(&d, &ctx, NULL) == BSR_OK ? ctx : NULL;
}
static const int types[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};

/* A caller's parallel_for: three threads, tasks from the last to the first, handed out one by one. */
typedef struct pool {
    int64_t next;
    void (*body)(void *, int64_t);
    void *arg;
    pthread_mutex_t lock;
} pool;
static void *pool_thread(void *user) {
    pool *p = (pool *)user;
    for (;;) {
        int64_t task;
        pthread_mutex_lock(&p->lock);
        task = --p->next;
        pthread_mutex_unlock(&p->lock);
        if (task < 0) return NULL;
        p->body(p->arg, task);
    }
}
static long pool_calls;
static void reverse_for(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    pool p;
    pthread_t id[3];
    int i, n = 0;
    pool_calls++;
    if (user != &pool_calls) return;
    p.next = tasks, p.body = body, p.arg = arg;
    pthread_mutex_init(&p.lock, NULL);
    for (i = 0; i < 3; i++) n += pthread_create(&id[n], NULL, pool_thread, &p) == 0;
    if (!n) pool_thread(&p);
    for (i = 0; i < n; i++) pthread_join(id[i], NULL);
    pthread_mutex_destroy(&p.lock);
}
static void even_odd_for(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    int64_t i;
    (void)user;
    for (i = 1; i < tasks; i += 2) body(arg, i);
    for (i = 0; i < tasks; i += 2) body(arg, i);
}

TEST(same_bits) {
    static const int64_t blocks[] = {3, 16, 32};
    static const int counts[] = {2, 3, 7};
    int t, b, which, isa, i;
    for (t = 0; t < 4; t++)
        for (b = 0; b < 3; b++)
            for (isa = 1; isa <= 3; isa++) {
                work w;
                uint64_t want[WORKS];
                bsr_context *ctx;
                if (t && b != t % 3) continue; /* f32 with every block size, the others with one each */
                bt_case("%s, blocks of %d, isa %d", bsr_dtype_name(types[t]), (int)blocks[b], isa);
                ctx = context_of(isa, 1, NULL, NULL);
                if (!ctx) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                w = work_new(types[t], blocks[b]);
                for (which = 0; which < WORKS; which++) {
                    want[which] = work_run(ctx, &w, which);
                    if (!want[which]) bt_fail(__FILE__, __LINE__, "%s failed", work_names[which]);
                }
                bsr_destroy(ctx);
                for (i = 0; i < 5; i++) { /* OpenMP 2, 3, 7; pthreads in reverse; odd tasks first */
                    ctx = context_of(isa, i < 3 ? counts[i] : 0, i < 3 ? NULL : i == 3 ? reverse_for : even_odd_for, &pool_calls);
                    for (which = 0; which < WORKS && ctx; which++) {
                        bt.checks++;
                        if (work_run(ctx, &w, which) != want[which])
                            bt_fail(__FILE__, __LINE__, "%s: other bits in form %d", work_names[which], i);
                    }
                    bsr_destroy(ctx);
                }
            }
    bt_case("the caller's parallel_for was called");
    CHECK(pool_calls > 0);
}
TEST(openmp) { /* says so when the thread counts above could not differ */
#ifdef _OPENMP
    bsr_context *ctx = context_of(0, 3, NULL, NULL);
    bsr_info info;
    CHECK(ctx && bsr_query_info(ctx, &info) == BSR_OK && info.threads == 3);
    bsr_destroy(ctx);
#else
    bt_skip("built without OpenMP");
#endif
}

/* A pool that counts: how often it was asked, for how many tasks at most, and how many of them ran at once. */
typedef struct counts {
    int64_t calls, most, running, peak;
    pthread_mutex_t lock;
    int64_t next, tasks;
    void (*body)(void *, int64_t);
    void *arg;
} counts;
static void *counted_thread(void *user) {
    counts *p = (counts *)user;
    for (;;) {
        int64_t task;
        pthread_mutex_lock(&p->lock);
        task = p->next < p->tasks ? p->next++ : -1;
        if (task >= 0 && ++p->running > p->peak) p->peak = p->running;
        pthread_mutex_unlock(&p->lock);
        if (task < 0) return NULL;
        p->body(p->arg, task);
        pthread_mutex_lock(&p->lock);
        p->running--;
        pthread_mutex_unlock(&p->lock);
    }
}
static void counted_for(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    counts *p = (counts *)user;
    pthread_t id[4];
    int i, n = 0;
    p->calls++, p->next = 0, p->tasks = tasks, p->body = body, p->arg = arg;
    if (tasks > p->most) p->most = tasks;
    for (i = 0; i < 4; i++) n += pthread_create(&id[n], NULL, counted_thread, p) == 0;
    if (!n) counted_thread(p);
    for (i = 0; i < n; i++) pthread_join(id[i], NULL);
}
/* One product with a cap; returns its hash, or 0 where it failed. */
static uint64_t capped_run(const bsr_context *ctx, const work *w, int32_t cap, int transposed, bsr_dense *out) {
    bsr_exec e;
    size_t bytes = (size_t)(w->a.rows > w->a.cols ? w->a.rows : w->a.cols) * 150 * 2 * bsr_dtype_size(out->dtype);
    memset(&e, 0, sizeof e), e.threads = cap, memset(out->data, 0x5a, bytes);
    if (bsr_dense_mm(ctx, transposed ? BSR_TRANS_A : 0, &w->a, transposed ? &w->bt_ : &w->b, out, &e) != BSR_OK) return 0;
    return bt_hash_bytes(7, out->data, bytes) | 1;
}
TEST(caps) { /* bsr_exec.threads, and desc.threads as the number of a pool's workers */
    static const int32_t told[] = {0, 1, 2, 4}, caps[] = {0, 1, 2, 3, 9, 4096};
    counts p;
    bsr_info info;
    int t, k, transposed;
    memset(&p, 0, sizeof p), pthread_mutex_init(&p.lock, NULL);
    for (t = 0; t < 4; t++)
        for (transposed = 0; transposed < 2; transposed++) {
            uint64_t want = 0;
            work w;
            bsr_context *ctx;
            bsr_dense out;
            bt_case("%d workers, %s", (int)told[t], transposed ? "A^T" : "A");
            w = work_new(BSR_F32, 3), w.a.schedule = w.a.transposed_index = NULL, ctx = context_of(0, told[t], counted_for, &p);
            out = bsr_dense_row_major(bt_alloc((size_t)(w.a.rows + w.a.cols) * 300 * 4, 64), BSR_F32,
                                      transposed ? w.a.cols : w.a.rows, 150);
            out = bsr_dense_batched(out, 2, out.rows * 150);
            CHECK(ctx && bsr_query_info(ctx, &info) == BSR_OK && info.threads == told[t]);
            for (k = 0; k < 6; k++) {
                const int64_t limit = caps[k] && caps[k] < (told[t] ? told[t] : 4) ? caps[k] : 4; /* the pool has 4 */
                uint64_t got;
                p.calls = p.most = p.peak = p.running = 0;
                got = capped_run(ctx, &w, caps[k], transposed, &out);
                want = want ? want : got;
                CHECK(got && got == want);
                CHECK_INT(p.calls > 0, told[t] != 1 && caps[k] != 1);
                CHECK(p.peak <= limit);
                if (caps[k] == 2 && told[t] != 1 && told[t] != 2) CHECK_INT(p.most, 2);
            }
            bsr_destroy(ctx);
        }
    for (k = 0; k < 2; k++) {
        const int64_t bad = k ? -1 : 4097;
        bsr_context *ctx = context_of(0, 1, NULL, NULL);
        bsr_dense out;
        bsr_error error;
        bsr_exec e;
        work w;
        bt_case("a cap of %d", (int)bad);
        w = work_new(BSR_F32, 3), out = bsr_dense_row_major(bt_alloc((size_t)w.a.rows * 300 * 4, 64), BSR_F32, w.a.rows, 150);
        out = bsr_dense_batched(out, 2, w.a.rows * 150);
        memset(&e, 0, sizeof e), e.threads = (int32_t)bad, e.error = &error;
        CHECK_INT(bsr_dense_mm(ctx, 0, &w.a, &w.b, &out, &e), BSR_BAD_ARGUMENT);
        CHECK(error.item == BSR_ITEM_THREADS && error.operand == BSR_ARG_EXEC && error.value == bad);
        bsr_destroy(ctx);
    }
    pthread_mutex_destroy(&p.lock);
}

typedef struct client {
    const bsr_context *ctx;
    const work *w;
    uint64_t got[WORKS];
    pthread_t id;
} client;
static void *client_thread(void *user) {
    client *c = (client *)user;
    int which, round;
    for (round = 0; round < 3; round++)
        for (which = 0; which < WORKS; which++) {
            uint64_t h = work_run(c->ctx, c->w, which);
            if (round && h != c->got[which]) h = 0;
            c->got[which] = h;
        }
    return NULL;
}
TEST(shared_context) { /* eight threads, one context */
    int b, i, which, started;
    for (b = 0; b < 2; b++) {
        client clients[8];
        work w;
        bsr_context *ctx;
        bt_case("%d", b);
        ctx = context_of(0, b ? 2 : 1, NULL, NULL), w = work_new(BSR_F32, b ? 32 : 16);
        for (i = started = 0; i < 8; i++)
            clients[i].ctx = ctx, clients[i].w = &w,
            started += pthread_create(&clients[i].id, NULL, client_thread, &clients[i]) == 0;
        CHECK_INT(started, 8);
        for (i = 0; i < started; i++) pthread_join(clients[i].id, NULL);
        for (which = 0; which < WORKS; which++) {
            uint64_t want = work_run(ctx, &w, which);
            for (i = 0; i < started; i++) CHECK(want && clients[i].got[which] == want);
        }
        bsr_destroy(ctx);
    }
}

/* A diagonal whose schedule has more lines, in disorder, than the bits on a stack: calls at once share the context's. */
enum { DIAGONAL = 70001 };
typedef struct scheduled {
    const bsr_context *ctx;
    bsr_matrix a;
    bsr_dense b;
    float *out;
    int status[4];
    pthread_t id;
} scheduled;
static void *scheduled_thread(void *user) {
    scheduled *s = (scheduled *)user;
    const bsr_dense out = bsr_dense_row_major(s->out, BSR_F32, DIAGONAL, 1);
    int i;
    for (i = 0; i < 4; i++) s->status[i] = bsr_dense_mm(s->ctx, 0, &s->a, &s->b, &out, NULL);
    return NULL;
}
TEST(checks_at_once) {
    scheduled s[4];
    bsr_context *ctx;
    int32_t *crow, *col, *order[2];
    float *x;
    uint64_t bytes = 0;
    int i, k, started;
    bt_case("schedules in disorder");
    ctx = context_of(0, 1, NULL, NULL);
    crow = (int32_t *)bt_alloc((DIAGONAL + 1) * 4, 4), col = (int32_t *)bt_alloc(DIAGONAL * 4, 4);
    x = (float *)bt_alloc(DIAGONAL * 4, 4);
    for (i = 0; i <= DIAGONAL; i++) crow[i] = i;
    for (i = 0; i < DIAGONAL; i++) col[i] = i, x[i] = (float)(i % 251);
    for (k = 0; k < 4; k++) {
        s[k].ctx = ctx, s[k].b = bsr_dense_row_major(x, BSR_F32, DIAGONAL, 1);
        s[k].a = bsr_matrix_make(DIAGONAL, DIAGONAL, 1, 1, DIAGONAL, crow, col, BSR_I32, x, BSR_F32);
        s[k].out = (float *)bt_alloc(DIAGONAL * 4, 4);
    }
    for (k = 0; k < 2; k++) { /* in the second one line stands twice */
        void *view;
        CHECK_INT(bsr_schedule_size(ctx, &s[k].a, 1, 0, &bytes, NULL), BSR_OK);
        view = bt_alloc((size_t)bytes, 64);
        CHECK_INT(bsr_build_schedule(ctx, &s[k].a, 1, 0, view, bytes, NULL), BSR_OK);
        order[k] = (int32_t *)(void *)((char *)view + 64), s[k].a.schedule = s[k + 2].a.schedule = view;
        for (i = 0; i < DIAGONAL; i++) order[k][i] = (int32_t)((int64_t)i * 40009 % DIAGONAL);
    }
    order[1][DIAGONAL - 1] = order[1][5];
    for (k = started = 0; k < 4; k++) started += pthread_create(&s[k].id, NULL, scheduled_thread, &s[k]) == 0;
    CHECK_INT(started, 4);
    for (k = 0; k < started; k++) pthread_join(s[k].id, NULL);
    for (k = 0; k < started; k++)
        for (i = 0; i < 4; i++) CHECK_INT(s[k].status[i], k % 2 ? BSR_BAD_STRUCTURE : BSR_OK);
    for (k = 0; k < 4; k += 2) {
        for (i = 0; i < DIAGONAL && s[k].out[i] == x[i] * x[i]; i++) {
        }
        CHECK_INT(i, DIAGONAL);
    }
    bsr_destroy(ctx);
}

TEST(float_environment) { /* control bits as found, even odd ones, and the result with subnormals as they are */
#ifdef HAVE_MXCSR
    int isa, mode, which;
    for (isa = 1; isa <= 3; isa++)
        for (mode = 0; mode < 2; mode++) {
            work w;
            bsr_context *ctx;
            unsigned before, after, set;
            bt_case("isa %d, %s", isa, mode ? "FTZ and DAZ on" : "as started");
            ctx = context_of(isa, 2, NULL, NULL);
            if (!ctx) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            w = work_new(BSR_F32, 16), before = _mm_getcsr(), set = (before & ~0x3fu) | (mode ? 0x8040u : 0);
            for (which = 0; which < WORKS; which++) {
                _mm_setcsr(set);
                work_run(ctx, &w, which);
                after = _mm_getcsr();
                _mm_setcsr(before);
                CHECK_INT(after & ~0x3fu, set & ~0x3fu);
            }
            bsr_destroy(ctx);
        }
    bt_case("subnormal products are not flushed");
    for (isa = 1; isa <= 3; isa++) {
        int32_t crow[] = {0, 1}, col[] = {0};
        float value[16 * 16] = {0}, b[16 * 16] = {0}, out[16 * 16];
        bsr_matrix a = bsr_matrix_make(16, 16, 16, 16, 1, crow, col, BSR_I32, value, BSR_F32);
        bsr_dense db = bsr_dense_row_major(b, BSR_F32, 16, 16), dout = bsr_dense_row_major(out, BSR_F32, 16, 16);
        bsr_context *ctx = context_of(isa, 1, NULL, NULL);
        if (!ctx) continue;
        value[0] = 0x1p-100f, b[3] = 0x1p-40f;
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &db, &dout, NULL), BSR_OK);
        CHECK(out[3] == 0x1p-140f);
        bsr_destroy(ctx);
    }
#else
    bt_skip("no MXCSR on this machine");
#endif
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"same_bits", same_bits},
        {"openmp", openmp},
        {"caps", caps},
        {"shared_context", shared_context},
        {"checks_at_once", checks_at_once},
        {"float_environment", float_environment},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
