/* scale_cases.h: what tests of scales have in common. */
#ifndef BSR_SCALE_CASES_H
#define BSR_SCALE_CASES_H

/* How many groups of so many a size has; 0: one of all. */
TF int64_t groups_of(int64_t size, int64_t group) { return group ? (size + group - 1) / group : 1; }
/* These operands and scales are refused, with this error, and nothing is written. */
TF void refused(bsr_status status, int item, int operand, const bsr_scales *sa, const bsr_scales *sb, const bsr_matrix *a,
                const bsr_dense *b, int out_type) {
    bsr_epilogue e = BSR_ZERO;
    bsr_exec exec = t_exec(0);
    bsr_dense out = t_output(out_type, a->rows, b->cols, ROW, NO_BATCH);
    e.a_scales = sa, e.b_scales = sb;
    CHECK_INT(bsr_dense_addmm(t_any_context(), 0, NULL, 1, 0, a, b, &e, &out, &exec), status);
    CHECK_INT(t_error.item, item), CHECK_INT(t_error.operand, operand);
    CHECK(t_all_poison(out.data));
}

#endif
