/* fuzz_state.c: sequences of calls on one matrix. What an earlier call leaves (views, a plan, rows of a tuned table, a workspace,
   the matrix itself, changed in place) is what a later one gets. After each step the matrix is valid and every result that of
   tests/ref64.h; a refused call has changed nothing. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz_operands.h"
#include "fuzz_random.h"

typedef struct world {
    fuzz_input *in;
    bsr_matrix m;
    int64_t capacity;
    bsr_dense source; /* of conversions */
    bsr_plan plan;    /* of the last query; op 0: none */
    bsr_tune_table table;
    bsr_tune_gpu gpus[1];
    bsr_tune_row rows[3];
    void *workspace;
    uint64_t workspace_bytes;
    const void *old_index, *old_schedule; /* views that a conversion has detached */
    bsr_error error;
} world;

static bsr_exec exec_of(world *w) {
    bsr_exec e = BSR_ZERO;
    e.error = &w->error;
    if (fuzz_below(w->in, 2)) e.workspace = w->workspace, e.workspace_bytes = w->workspace_bytes;
    return e;
}
static void make_world(world *w) {
    const int dtype = fuzz_below(w->in, 2) ? BSR_F32 : fuzz_below(w->in, 2) ? BSR_F64 : BSR_BF16;
    const int64_t br = fuzz_range(w->in, 1, 5), bc = fuzz_range(w->in, 1, 5), r = fuzz_range(w->in, 0, 5);
    const int64_t c = fuzz_range(w->in, 0, 70);
    const int index = fuzz_below(w->in, 2) ? BSR_I64 : BSR_I32;
    const size_t size = bsr_dtype_size(index);
    w->capacity = r * c, w->workspace_bytes = (uint64_t)fuzz_byte(w->in) * 64, w->workspace = bt_alloc(w->workspace_bytes, 64);
    bt_mark_output(w->workspace);
    w->source = t_dense(dtype, r * br, c * bc, (int)fuzz_below(w->in, LAYOUTS), NO_BATCH, 0);
    w->m = bsr_matrix_make(r * br, c * bc, br, bc, 0, bt_alloc((size_t)(r + 1) * size, size),
                           bt_alloc((size_t)w->capacity * size, size), index,
                           bt_alloc((size_t)(w->capacity * br * bc) * bsr_dtype_size(dtype), bsr_dtype_size(dtype)), dtype);
    bt_mark_output(w->m.crow_indices), bt_mark_output(w->m.col_indices), bt_mark_output(w->m.values);
    bt_mark_output(w->source.data);
    memset(w->m.crow_indices, 0, (size_t)(r + 1) * size);
    w->table.gpus = w->gpus, w->table.rows = w->rows, w->table.gpu_capacity = 1, w->table.row_capacity = 3;
}
/* Whole blocks of zeros, and what may look like zero. */
static void refill(world *w) {
    int64_t i, j;
    t_fill(&w->source, FILL_SIGNED);
    for (i = 0; i < w->source.rows; i++)
        for (j = 0; j < w->source.cols; j++) {
            const uint64_t block = (uint64_t)(i / w->m.block_rows * 71 + j / w->m.block_cols);
            if (bt_hash_bytes(bt.random >> 9, &block, 8) % 3) t_set(&w->source, 0, i, j, block % 2 ? 0.0 : -0.0);
        }
}
static void convert(world *w, int how) {
    const uint64_t before = fuzz_hash_all();
    const bsr_context *ctx = fuzz_isa(w->in);
    const double sparsity = (double)fuzz_below(w->in, 5) / 4;
    bsr_matrix m = w->m;
    bsr_exec e = exec_of(w);
    bsr_status status;
    const int small = fuzz_below(w->in, 4) == 0;
    m.nnz = small ? fuzz_below(w->in, w->capacity > 1 ? (int)w->capacity : 1) : w->capacity;
    if (small) e.workspace = NULL; /* which a failure may have written */
    if (how == 0) status = bsr_from_dense(ctx, &w->source, &m, &e);
    else if (how == 1) status = bsr_random_pattern(ctx, (uint64_t)fuzz_byte(w->in), sparsity, &m, &e);
    else status = bsr_prune(ctx, bsr_operand_dense(&w->source), sparsity, (int)fuzz_below(w->in, 3), &m, &e);
    if (status != BSR_OK) {
        FUZZ_REQUIRE(status == BSR_CAPACITY && small && w->error.value > m.nnz && w->error.value <= w->capacity);
        FUZZ_REQUIRE(before == fuzz_hash_all());
        return;
    }
    FUZZ_REQUIRE(!m.transposed_index && !m.schedule && m.nnz <= w->capacity);
    if (how == 1) t_fill_values(&m, FILL_SIGNED);
    if (w->m.transposed_index) w->old_index = w->m.transposed_index;
    if (w->m.schedule) w->old_schedule = w->m.schedule;
    w->m = m, w->plan.op = 0;
    if (how == 0) { /* nothing is lost */
        bsr_dense back = t_output(w->m.dtype, w->m.rows, w->m.cols, ROW, NO_BATCH);
        ref_result want;
        FUZZ_REQUIRE(bsr_to_dense(ctx, &w->m, &back, NULL) == BSR_OK);
        want.want = ref_dense(&w->source), want.bound = ref_new(NO_BATCH, w->m.rows, w->m.cols);
        REF_COMPARE(&back, &want, REF_ANY);
    }
}
static void product(world *w) {
    const unsigned form = fuzz_byte(w->in);
    const uint32_t trans = form & 1 ? BSR_TRANS_A : 0;
    const int64_t n = fuzz_width(w->in), k = trans ? w->m.rows : w->m.cols;
    const bsr_context *ctx = fuzz_isa(w->in);
    bsr_dense b = t_random(w->m.dtype, k, n, (int)fuzz_below(w->in, LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
    bsr_dense out = t_output(w->m.dtype, trans ? w->m.cols : w->m.rows, n, (int)fuzz_below(w->in, LAYOUTS), NO_BATCH);
    bsr_exec e = exec_of(w);
    bsr_tune_row key;
    bsr_plan found;
    bsr_status status;
    ref_result want;
    if (form & 2) e.table = &w->table;
    if (form & 4) { /* what a query says is what runs, also later, and other contexts may refuse it */
        e.query = form & 8 ? &w->plan : &found, e.key = &key;
        FUZZ_REQUIRE(bsr_dense_mm(ctx, trans, &w->m, &b, &out, &e) == BSR_OK);
        FUZZ_REQUIRE(t_all_poison(out.data) && key.op == BSR_OP_DENSE_ADDMM);
        e.query = NULL, e.key = NULL;
        if (form & 16) { /* the next call with this key finds an instruction set in the table */
            key.kernel = 1 + (form >> 5 & 1);
            status = bsr_tune_update(&w->table, &w->gpus[0], &key, &w->error);
            FUZZ_REQUIRE(status == BSR_OK || status == BSR_CAPACITY || status == BSR_BAD_ARGUMENT);
        }
    } else if (w->plan.op && form & 8) {
        e.plan = &w->plan;
    }
    want = ref_dense_addmm(0, NULL, 1, trans, &w->m, &b, NULL, w->m.dtype, 0);
    status = bsr_dense_mm(ctx, trans, &w->m, &b, &out, &e);
    if (status == BSR_OK) REF_COMPARE(&out, &want, REF_ANY);
    else FUZZ_REQUIRE(status == BSR_BAD_PLAN && e.plan && t_all_poison(out.data));
}
static void in_place(world *w, int softmax) {
    const bsr_context *ctx = fuzz_isa(w->in);
    bsr_exec e = exec_of(w);
    ref_result want;
    int64_t i;
    const size_t used = (size_t)(w->m.nnz * w->m.block_rows * w->m.block_cols) * bsr_dtype_size(w->m.dtype);
    memset((char *)w->m.values + used, BT_POISON, bt_find(w->m.values)->bytes - used); /* what a larger pattern has left */
    if (softmax) {
        want = ref_softmax(0.5, &w->m, NULL, 0);
        for (i = 0; i < w->m.rows * w->m.cols; i++) /* portable C adds a row up element by element */
            want.bound.v[i] += (double)w->m.cols * (w->m.dtype == BSR_F64 ? REF_U64 : 0x1p-24) * want.want.v[i];
        FUZZ_REQUIRE(bsr_softmax(ctx, 0.5, &w->m, NULL, &w->m, &e) == BSR_OK);
    } else {
        const int64_t k = fuzz_width(w->in);
        const double beta = (double)fuzz_below(w->in, 2) / 2;
        bsr_dense x = t_random(w->m.dtype, w->m.rows, k, (int)fuzz_below(w->in, LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        bsr_dense y = t_random(w->m.dtype, k, w->m.cols, (int)fuzz_below(w->in, LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        want = ref_sampled(beta, &w->m, 0.25, &x, &y, NO_BATCH, NO_BATCH, w->m.dtype, 0);
        FUZZ_REQUIRE(bsr_sampled_addmm(ctx, beta, &w->m, 0.25, &x, &y, &w->m, &e) == BSR_OK);
    }
    REF_COMPARE_MATRIX(&w->m, &want, REF_ANY);
}
/* Views of a pattern that is gone: refused, or any numbers, but nothing outside the arrays. */
static void stale(world *w) {
    bsr_matrix m = w->m;
    bsr_dense b = t_random(m.dtype, m.rows, 3, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(m.dtype, m.cols, 3, ROW, NO_BATCH);
    bsr_exec e = exec_of(w);
    bsr_status status;
    m.transposed_index = w->old_index, m.schedule = w->old_schedule;
    status = bsr_dense_mm(fuzz_isa(w->in), BSR_TRANS_A, &m, &b, &out, &e);
    if (status == BSR_OVERLAP) status = BSR_BAD_STRUCTURE; /* a view as long as this pattern's would reach into out */
    FUZZ_REQUIRE(status == BSR_OK || (status == BSR_BAD_STRUCTURE && t_all_poison(out.data)));
    FUZZ_REQUIRE((m.transposed_index || m.schedule) || status == BSR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in;
    world w;
    int steps;
    memset(&w, 0, sizeof w);
    in.p = data, in.end = data + size, w.in = &in;
    fuzz_case_begin(&in, "state");
    make_world(&w), refill(&w);
    for (steps = 0; steps < 20 && (steps < 3 || in.p < in.end); steps++) {
        const int step = (int)fuzz_below(&in, 12);
        switch (step) {
            case 0: refill(&w); break;
            case 1:
            case 2:
            case 3: convert(&w, step - 1); break;
            case 4: t_attach_transposed(&w.m); break;
            case 5: t_attach_schedule(&w.m, 1 << fuzz_below(&in, 4), (int)fuzz_below(&in, 2)); break;
            case 6: t_fill_values(&w.m, FILL_SIGNED); break;
            case 7: in_place(&w, 1); break;
            case 8: in_place(&w, 0); break;
            case 9: stale(&w); break;
            default: product(&w);
        }
        FUZZ_REQUIRE(bsr_validate(fuzz_isa(&in), &w.m, NULL) == BSR_OK);
    }
    fuzz_case_end();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) { return fuzz_random_main(argc, argv, 2000, 10, 150); }
#endif
