/* plans.h: what runs, as text, for tests/same_code.sh: test_cudart KERNELS ARCH --plans. A line for each call: its group, the
   call, the plan, the estimate's bits, then each launch's kernel (mangled) and geometry, with tabs between. The calls are those
   of plan_cases.h, some of them by every plan that differs, and random ones of every operation; on two GPUs. Included by
   test_cudart.c. */
#include "plan_cases.h"

double si_estimate; /* library.cu sets it */

static char ran[8192]; /* kernels and geometries that were launched */
static void note_launch(const si_launch *l) {
    const size_t n = strlen(ran);
    snprintf(ran + n, sizeof ran - n, "\t%s\t%u,%u,%u x %u,%u,%u cluster %u,%u,%u shared %zu",
             l->kernel ? l->kernel->name : "none", l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
             l->cluster[0], l->cluster[1], l->cluster[2], l->dynamic_shared);
}
static void print_plan(const bsr_plan *p, int status, double estimate) {
    printf("\t%s tier %d tile %d x %d split %d stages %d order %d flags %u workspace %llu why %d not %d\t",
           status == TOUCHED ? "touched" : status == TOO_LARGE ? "too large" : bsr_status_name((bsr_status)status), p->kernel,
           p->tile_rows, p->tile_cols, p->split, p->stages, p->order, (unsigned)p->flags,
           (unsigned long long)p->workspace_bytes, p->reason, p->refused);
    if (estimate > 0) printf("%a", estimate);
    printf("%s\n", ran);
}
static int plan_try(const bsr_context *ctx, const plan_problem *p, const bsr_exec *ex) {
    const int status = sigsetjmp(on_fault, 1);
    ran[0] = 0, si_estimate = 0;
    return status ? status : (int)plan_call(ctx, p, ex);
}
/* The plans that differ of all that may be asked for, how many ask for each. */
static void print_asked(const bsr_context *ctx, const plan_problem *p, bsr_exec *ex, const char *name) {
    static bsr_plan known[PLAN_ASKED];
    static int asked[PLAN_ASKED];
    int count = 0, i, j;
    for (i = 0; i < PLAN_ASKED; i++) {
        const bsr_plan want = plan_asked(i);
        bsr_plan got = BSR_ZERO;
        ex->plan = &want, ex->query = &got;
        if (plan_try(ctx, p, ex) != BSR_OK) continue;
        for (j = 0; j < count && !plan_same(&known[j], &got); j++) {
        }
        if (j == count) known[count] = got, asked[count++] = 0;
        asked[j]++;
    }
    ex->query = NULL;
    for (j = 0; j < count; j++) {
        int status;
        ex->plan = &known[j], status = plan_try(ctx, p, ex);
        printf("%s, asked for by %d", name, asked[j]), print_plan(&known[j], status, si_estimate);
    }
    ex->plan = NULL;
}
/* With an input, a schedule, a workspace where numbers say so: as they come, without the drawing of other shapes. */
static void print_problem(const bsr_context *ctx, const char *device, const char *kind, int i) {
    plan_shape x = plan_random(kind, 1, i);
    plan_problem p;
    bsr_exec ex = BSR_ZERO;
    bsr_plan plan = BSR_ZERO;
    char *at[7], name[200];
    double estimate;
    int j, status;
    if (i % 3 == 1) x.ways |= PLAN_INPUT * (int)plan_draw(2), x.ways |= PLAN_SCHEDULE * (int)plan_draw(2);
    if (plan_dtype(kind) == BSR_I8) x.ways &= ~(PLAN_RELU | PLAN_INPUT); /* floats' */
    p = plan_problem_of(kind, x);
    for (j = 0; j < 7; j++) at[j] = arena.base + ((int64_t)j << 36);
    plan_operands(&p, at[0], at[1], at[2], at[3]);
    p.a.crow_indices = at[4], p.a.col_indices = at[5];
    if (p.trans) p.a.transposed_index = at[6];
    if (x.ways & PLAN_SCHEDULE) p.a.schedule = at[6] + (INT64_C(1) << 30);
    ex.flags = plan_flags(kind);
    if (i % 5 == 2) ex.workspace = arena.base + (INT64_C(7) << 36), ex.workspace_bytes = 1u << 30;
    snprintf(name, sizeof name, "%s %s\t%d: %lld x %lld x %lld, blocks of %lld, %g, ways %d%s", device, kind, i, (long long)x.m,
             (long long)x.k, (long long)x.n, (long long)x.b, x.s, x.ways, ex.workspace ? ", workspace" : "");
    ex.query = &plan, status = plan_try(ctx, &p, &ex), estimate = si_estimate, ex.query = NULL;
    if (status == BSR_OK) status = plan_try(ctx, &p, &ex);
    printf("%s", name), print_plan(&plan, status, estimate);
    if (i % 3 == 0) print_asked(ctx, &p, &ex, name);
}
static bsr_dense packed_heads(bsr_dense x, t_shape batch) {
    int64_t item = x.rows * x.cols;
    int i;
    for (i = batch.dims - 1; i >= 0; i--) x.batch[i] = batch.n[i], x.batch_stride[i] = item, item *= batch.n[i];
    x.batch_dims = batch.dims, x.data = aligned(item, x.dtype);
    return x;
}
/* Attention as fast kernels want it: packed heads, one mask for all items, by every tier. */
static void print_attention(const bsr_context *ctx, const char *device, int i) {
    static const int dtypes[] = {BSR_F16, BSR_BF16, BSR_F16, BSR_BF16, BSR_F32}, blocks[] = {16, 32, 64, 64, 128},
                     widths[] = {32, 64, 64, 80, 96, 128, 128, 256}, lengths[] = {128, 512, 1024, 1536, 4096};
    t_shape whole = NO_BATCH, keys;
    bsr_attention_options o = BSR_ZERO;
    bsr_dense q, k, v, out;
    bsr_matrix mask;
    int dtype, tier, status, group;
    int64_t block, d;
    arena.used = 0, tidy = 1, plan_state = (uint64_t)i, bt.random = (uint64_t)i, plan_draw(2), plan_draw(2);
    dtype = PLAN_PICK(dtypes), block = PLAN_PICK(blocks), d = PLAN_PICK(widths), group = 1 << plan_draw(3);
    whole.dims = 2, whole.n[0] = 1 + (int64_t)plan_draw(4), whole.n[1] = group * (1 + (int64_t)plan_draw(4));
    keys = whole, keys.n[1] /= group;
#define PACKED(length, batch) packed_heads(bsr_dense_row_major(NULL, dtype, length, d), batch)
    q = PACKED(PLAN_PICK(lengths), whole), k = PACKED(PLAN_PICK(lengths), keys);
    v = PACKED(k.rows, keys), out = PACKED(q.rows, whole);
    mask = bsr_matrix_make(q.rows, k.rows, block, block, 1 + (int64_t)plan_draw((uint64_t)(q.rows / block * (k.rows / block))),
                           aligned(1 << 20, BSR_I32), aligned(1 << 20, BSR_I32), BSR_I32, aligned(1 << 28, dtype), dtype);
    if (plan_draw(3) == 0) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = k.rows - q.rows;
    if (plan_draw(4) == 0) o.flags |= plan_draw(2) ? BSR_ATTENTION_MASK_BOOLEAN : BSR_ATTENTION_MASK_ADDITIVE;
    if (plan_draw(8) == 0) o.dropout_p = 0.1, o.dropout_seed = 7;
    for (tier = 0; tier <= 3; tier++) {
        bsr_plan asked = BSR_ZERO, plan = BSR_ZERO;
        bsr_exec ex = BSR_ZERO;
        int run;
        asked.kernel = tier, ex.plan = &asked, ex.flags = BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG, ran[0] = 0;
        for (run = 0; run < 2; run++) {
            ex.query = run ? NULL : &plan, status = sigsetjmp(on_fault, 1);
            if (!status) status = (int)bsr_attention(ctx, 0, &q, &k, &v, &mask, &o, &out, NULL, &ex);
        }
        printf("%s attention packed\t%d: tier %d, blocks of %lld, heads of %lld, lengths %lld %lld, flags %u", device, i, tier,
               (long long)block, (long long)d, (long long)q.rows, (long long)k.rows, (unsigned)o.flags);
        print_plan(&plan, status, 0);
    }
}
static void print_call(const bsr_context *ctx, const char *device, const operation *o, int i) {
    const char *const name = bsr_op_name(o->op);
    const uint64_t seed = bt_hash_bytes((uint64_t)i, name, strlen(name));
    bsr_error error;
    bsr_exec ex = BSR_ZERO;
    int status;
    ex.error = &error, ex.flags = BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG;
    if (i % 8 == 3) ex.flags |= BSR_EXEC_TF32;
    ran[0] = 0, si_estimate = 0, memset(&last_plan, 0, sizeof last_plan);
    status = make_with_workspace(o, ctx, seed, i % 4 == 3, &ex);
    printf("%s %s\t%d", device, name, i), print_plan(&last_plan, status, si_estimate);
}
static int print_plans(void) {
    static const char *const kinds[] = {
        "bf16",     "bf16+any",  "bf16+few", "bf16+relu", "f16",          "f16+any",     "f16+few",     "f32",        "f32+any",
        "f32+few",  "f32+tf32",  "f32+tf32+any",          "f32+tf32x3",   "i8",          "i8+any",      "i8+few",
        "bf16+any+sides", "bf16+few+sides", "f32+any+sides", "f32+tf32+sides", "i8+any+sides", "f16+sampled+sides",
        "bf16+sampled", "f16+sampled", "f32+sampled", "f32+tf32+sampled", "i8+sampled", "f32+tf32x3+sampled",
        "f64", "f64+any", "f64+few", "f64+sampled"};
    static const struct {
        const si_device *device;
        int problems, calls; /* of each kind, of each operation */
    } on[] = {{hopper, 300, 400}, {&models[1], 60, 100}};
    size_t d, k;
    int i, status = BSR_OK;
    arena.size = INT64_C(1) << 40; /* the same everywhere */
    for (d = 0; d < BT_COUNT(on); d++) {
        bsr_context *ctx;
        bsr_error error;
        use_devices(on[d].device, NULL), watch.device = on[d].device;
        ctx = create(BSR_BACKEND_CUDA, -1, &status, &error);
        if (!ctx) return 1;
        si.on_launch = note_launch;
        for (k = 0; k < BT_COUNT(kinds); k++)
            for (i = 0; i < on[d].problems; i++) print_problem(ctx, on[d].device->name, kinds[k], i);
        for (k = 0; k < BT_COUNT(operations); k++) {
            if (k && operations[k].op == operations[k - 1].op) continue; /* of each bsr_op the first */
            for (i = 0; i < on[d].calls; i++) print_call(ctx, on[d].device->name, &operations[k], i);
        }
        for (i = 0; i < on[d].calls; i++) print_attention(ctx, on[d].device->name, i);
        bsr_destroy(ctx);
    }
    return 0;
}
