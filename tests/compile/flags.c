/* Flags in every place where programs write them, as C and as C++ with the strictest warnings; const arrays as inputs. */
#include "bsrsparse.h"

#if !defined(BSR_EXEC_SKIP_CHECKS) || !defined(BSR_PLAN_PACKS_B) || !defined(BSR_MATRIX_RAGGED) || !defined(BSR_TRANS_C) || \
    !defined(BSR_ATTENTION_CAUSAL) || !defined(BSR_TUNE_TRUSTED)
#error "#ifdef finds no flag"
#endif

static const uint32_t both = BSR_EXEC_SKIP_CHECKS | BSR_EXEC_NO_LOG;
static const int many[BSR_EXEC_CONSTANT_MATRIX == 128 ? BSR_MAX_BATCH_DIMS : -1] = {BSR_TUNE_ANY, BSR_CLIMB_MAX,
                                                                                   BSR_TUNE_TEXT_MAX};
static const int32_t crow[] = {0, 1}, col[] = {0};
static const float values[] = {1, 2, 3, 4};
enum { OF_OTHERS = BSR_TRANS_A | BSR_TRANS_B };

uint32_t flags_of(const bsr_plan *plan, int fast);
uint32_t flags_of(const bsr_plan *plan, int fast) {
    const bsr_dense b = bsr_dense_row_major(values, BSR_F32, 2, 2), c = bsr_dense_col_major(values, BSR_F32, 2, 2);
    bsr_matrix a = bsr_matrix_make(2, 2, 2, 2, 1, crow, col, BSR_I32, values, BSR_F32);
    bsr_attention_options o = BSR_ZERO;
    bsr_exec e = BSR_ZERO;
    float not_yet[4]; /* an output's memory has no value yet */
    const bsr_dense out = bsr_dense_row_major(not_yet, BSR_F32, 2, 2);
    const bsr_matrix m = bsr_matrix_make(2, 2, 2, 2, 1, crow, col, BSR_I32, not_yet, BSR_F32);
    uint32_t trans = fast ? BSR_TRANS_A : 0;
    e.flags = both, e.flags |= BSR_EXEC_TF32, e.flags &= ~BSR_EXEC_NO_LOG, e.flags ^= fast ? BSR_EXEC_TF32X3 : BSR_EXEC_TF32;
    a.flags = BSR_MATRIX_RAGGED, o.flags = BSR_ATTENTION_CAUSAL | BSR_ATTENTION_MASK_BOOLEAN, trans |= BSR_TRANS_C;
    switch (e.flags) {
        case BSR_EXEC_SKIP_CHECKS | BSR_EXEC_TF32X3: trans = 0; break;
        case BSR_EXEC_SKIP_CHECKS: trans = OF_OTHERS; break;
        default: break;
    }
    return ((plan->flags & BSR_PLAN_USES_SCHEDULE) != 0) + (e.flags & ~(BSR_EXEC_NO_LOG | BSR_EXEC_TF32)) + a.flags + o.flags +
           trans + (many[0] < 0) + (b.data == c.data) + (out.data == m.values);
}

/* The enumerators that bindings see. */
#undef BSR_EXEC_TF32
#undef BSR_PLAN_PACKS_B
#undef BSR_MATRIX_RAGGED
#undef BSR_TRANS_B
#undef BSR_ATTENTION_MASK_ADDITIVE
#undef BSR_TUNE_TRUSTED
extern const bsr_exec_flag exec_flag;
extern const bsr_plan_flag plan_flag;
extern const bsr_matrix_flag matrix_flag;
extern const bsr_trans_flag trans_flag;
extern const bsr_attention_flag attention_flag;
extern const bsr_tune_flag tune_flag;
const bsr_exec_flag exec_flag = BSR_EXEC_TF32;
const bsr_plan_flag plan_flag = BSR_PLAN_PACKS_B;
const bsr_matrix_flag matrix_flag = BSR_MATRIX_RAGGED;
const bsr_trans_flag trans_flag = BSR_TRANS_B;
const bsr_attention_flag attention_flag = BSR_ATTENTION_MASK_ADDITIVE;
const bsr_tune_flag tune_flag = BSR_TUNE_TRUSTED;
