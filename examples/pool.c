/* A program with threads of its own: the library's work runs on them (bsr_context_desc.parallel_for), with the same bits. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

#include <pthread.h>

enum { WORKERS = 4, ROWS = 200, BLOCK = 16, STORED = 20, COLS = 256, STEPS = 20 };

/* The caller and WORKERS - 1 threads that sleep between jobs. One job runs at a time. */
typedef struct pool {
    pthread_t id[WORKERS];
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    void (*body)(void *arg, int64_t task); /* the job */
    void *arg;
    int64_t next, tasks, finished;
    int64_t jobs, share[WORKERS]; /* how many jobs there were, and which worker did how many tasks */
    int started, stop;
} pool;

/* Takes tasks until none is left. With the lock held, also when it returns. */
static void pool_work(pool *p, int worker) {
    while (p->next < p->tasks) {
        const int64_t task = p->next++;
        void (*const body)(void *arg, int64_t task) = p->body;
        void *const arg = p->arg;
        pthread_mutex_unlock(&p->lock);
        body(arg, task);
        pthread_mutex_lock(&p->lock);
        p->share[worker]++;
        if (++p->finished == p->tasks) pthread_cond_signal(&p->done);
    }
}
static void *pool_thread(void *user) {
    pool *p = (pool *)user;
    int worker;
    pthread_mutex_lock(&p->lock);
    for (worker = ++p->started; !p->stop;) {
        pool_work(p, worker);
        pthread_cond_wait(&p->wake, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}
/* What the library calls: runs body(arg, 0 .. tasks - 1), returns when all are done. */
static void pool_for(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    pool *p = (pool *)user;
    pthread_mutex_lock(&p->lock);
    p->body = body, p->arg = arg, p->next = p->finished = 0, p->tasks = tasks, p->jobs++;
    pthread_cond_broadcast(&p->wake);
    pool_work(p, 0);
    while (p->finished < p->tasks) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
static void pool_begin(pool *p) {
    int i;
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL), pthread_cond_init(&p->wake, NULL), pthread_cond_init(&p->done, NULL);
    for (i = 1; i < WORKERS; i++)
        if (pthread_create(&p->id[i], NULL, pool_thread, p)) fprintf(stderr, "no thread\n"), exit(1);
}
static void pool_end(pool *p) {
    int i;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (i = 1; i < WORKERS; i++) pthread_join(p->id[i], NULL);
}

int main(void) {
    static int32_t crow[ROWS + 1], col[ROWS * STORED];
    const int64_t n = ROWS * BLOCK, nnz = ROWS * STORED;
    float *values = (float *)malloc((size_t)(nnz * BLOCK * BLOCK) * 4), *x = (float *)malloc((size_t)(n * COLS) * 12);
    bsr_context_desc desc = BSR_ZERO;
    bsr_context *ctx;
    bsr_matrix A;
    bsr_dense b, y, z;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    uint64_t random = 1;
    double start, shared, alone;
    pool p;
    int i, same;
    if (!values || !x) return 1;
    for (i = 0; i < nnz; i++) col[i] = (i % STORED * 5 + i / STORED) % ROWS;
    for (i = 0; i <= ROWS; i++) crow[i] = i * STORED;
    fill_normal_f32(values, nnz * BLOCK * BLOCK, &random), fill_normal_f32(x, n * COLS, &random);
    A = bsr_matrix_make(n, n, BLOCK, BLOCK, nnz, crow, col, BSR_I32, values, BSR_F32);
    b = bsr_dense_row_major(x, BSR_F32, n, COLS), y = z = b;
    y.data = x + n * COLS, z.data = x + 2 * n * COLS;

    pool_begin(&p);
    desc.backend = BSR_BACKEND_CPU, desc.threads = WORKERS, desc.parallel_for = pool_for, desc.parallel_user = &p;
    REQUIRE(bsr_create(&desc, &ctx, &error), &error);
    exec.error = &error;
    for (start = seconds(), i = 0; i < STEPS; i++) REQUIRE(bsr_dense_mm(ctx, 0, &A, &b, &y, &exec), &error);
    shared = (seconds() - start) / STEPS;
    exec.threads = 1; /* a cap for one call: this one stays on the thread that calls */
    start = seconds();
    REQUIRE(bsr_dense_mm(ctx, 0, &A, &b, &z, &exec), &error);
    alone = seconds() - start, same = !memcmp(y.data, z.data, (size_t)(n * COLS) * 4);
    printf("%.2f ms on %d workers, %.2f ms alone; %d jobs; tasks of each:", 1e3 * shared, WORKERS, 1e3 * alone, (int)p.jobs);
    for (i = 0; i < WORKERS; i++) printf(" %d", (int)p.share[i]);
    printf("\n");
    pool_end(&p), bsr_destroy(ctx), free(values), free(x);
    return verdict(same && p.jobs == STEPS);
}
