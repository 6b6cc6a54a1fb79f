/* fuzz_random.h: for targets whose operands come from tests/operands.h: what a case consists of is drawn from the input while it
   lasts, the numbers in the operands are drawn from a seed. Every promise that does not hold ends the program. */
#ifndef BSR_FUZZ_RANDOM_H
#define BSR_FUZZ_RANDOM_H

#include "fuzz.h"
#include "../ref64.h"

static inline void fuzz_case_begin(fuzz_input *in, const char *name) {
    bt.test = name, bt.text[0] = 0, bt.shown = 0;
    bt_open(1);
    bt.random = bt.seed + fuzz_byte(in);
}
static inline void fuzz_case_end(void) {
    bt_free_all();
    if (bt.bad) abort(); /* bt_fail() has said why */
}
static inline int64_t fuzz_range(fuzz_input *in, int64_t low, int64_t high) {
    return low + fuzz_below(in, (int)(high - low + 1));
}
/* Sizes of operands: mostly small, now and then past a few vectors or tiles. */
static inline int64_t fuzz_width(fuzz_input *in) {
    static const int64_t wide[] = {16, 17, 31, 33, 64, 65, 100, 130};
    const unsigned b = fuzz_byte(in);
    return b >= 232 ? wide[b % 8] : (int64_t)(b % 12);
}
/* Every byte of every buffer. */
static inline uint64_t fuzz_hash_all(void) {
    uint64_t h = 1469598103934665603u;
    const bt_block *b;
    for (b = bt.blocks; b; b = b->next) h = bt_hash_bytes(h, b->data, b->bytes);
    return h;
}
static inline const bsr_context *fuzz_isa(fuzz_input *in) {
    const bsr_context *ctx = t_context(1 + (int)fuzz_below(in, 3));
    return ctx ? ctx : t_context(BSR_ISA_DEFAULT);
}
/* A buffer as long as `bytes`, with what stands at `old` and behind it zeros, of an output poison. */
static inline void *fuzz_longer(void *old, int64_t bytes, int64_t element, int shift) {
    const bt_block *b = bt_find(old);
    const size_t have = b ? b->bytes : 0, want = (size_t)bytes + (size_t)shift;
    unsigned char *p;
    size_t i;
    if (!b || (want <= have && !shift)) return old; /* memory that is not ours, or long enough */
    p = (unsigned char *)bt_alloc(want, (size_t)element);
    for (i = 0; i < want - (size_t)shift; i++)
        if (i < have || !b->output) p[(size_t)shift + i] = i < have ? ((unsigned char *)old)[i] : 0;
    if (b->output) bt_mark_output(p);
    return p + shift;
}

#endif /* BSR_FUZZ_RANDOM_H */
