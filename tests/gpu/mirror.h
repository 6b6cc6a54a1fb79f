/* mirror.h: runs a CPU test program on the GPU, unchanged. A device test program is

       #include "mirror.h"
       #include "../test_product.c"

   compiled as C++17. Every operation that the tests call is redirected here: what the operands point to is copied to the
   device (whole buffers of the harness with their guards, more guards around them), the operation runs on a CUDA context,
   everything is copied back, so that the harness's own checks (guards, untouched inputs, poison in gaps, the float64
   reference) see what the device did. An operation that the CUDA backend does not have yet runs on the CPU; a case of which
   nothing ran on the device counts as skipped.

   Before each call the CPU backend checks the same arguments. Where it objects to the contents of index arrays, which are
   not looked at in device memory, the device is left out; where it objects to anything else, the device must object in the
   same words.

   Arguments beside those of bsr_test.h:
     --tier N      force bsr_plan.kernel N (1 simt, 2 mma, 3 wgmma) where an operation has tiers; calls that the tier refuses
                   run on the CPU
     --every N     only one case in N goes to the device; the others are hardly worked out
     --kernels N   of the calls whose plans name the same kernel only the 1st, 2nd, 4th, 8th and so on go to the device, N at
                   most (for compute-sanitizer); of an operation whose plans name none a call, and the more calls in between the
                   longer none has launched a new kernel. Small ones only. Says which kernels were launched
     --random N    so many random products (gpu_products), and N / 5 random calls of each operation (gpu_random); 200.
     --seed S      others
     --apart       each buffer is an allocation of its own, exactly as long as needed (for compute-sanitizer)
     --odd         buffers start at the addresses that they have on the host modulo 64; without it one case in four has
                   that, the others start at multiples of 256 bytes, so that vector paths are met as well */
#ifndef BSR_MIRROR_H
#define BSR_MIRROR_H

#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define REF_ROUNDS_P (gm.tier != 1) /* ref64.h: what the tiers on tensor cores do */
#define REF_F8_ERROR (gm.tier % 3 ? 0 : 132 * 0x1p-13)
/* weights of fewer bits are rounded to b's type: scale, zero point, number */
#define REF_WEIGHTS_ERROR(dtype) ((dtype) == BSR_BF16 ? 3 * 0x1p-8 : (dtype) == BSR_F16 ? 3 * 0x1p-11 : 0)
static int gm_wanted(void);
#define BT_WANTED gm_wanted()
#include "../bsr_test.h"
#include "../../bsrsparse.h"
#include "../operations.h"
#include <cuda_runtime.h>
#include <setjmp.h>
#include <signal.h>
#include <time.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/* ---------------------------------------------------------------------------------------------- */
/* state                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

#ifndef GM_BACKEND /* BSR_BACKEND_CPU, with a stand-in for cuda_runtime.h, tries the mirror itself without a GPU */
#define GM_BACKEND BSR_BACKEND_CUDA
#endif
#define GM_ZONE 256
#define GM_REGIONS 64
#define GM_ARENA (size_t(256) << 20)
#define GM_LIMIT (int64_t(1) << 20) /* of memory that is not the harness's: more is a made-up size */
#define GM_NAMES 40
#define GM_KERNELS 2048
#define GM_OPS 128
#define GM_LATER ((char *)(uintptr_t(1) << 40)) /* nobody reads there */
#define GM_SMALL (size_t(2) << 20)              /* bytes of a call's operands, with --kernels */
#define GM_FOR_SPEED /* flags of plans whose workspace a call can do without */                                        \
    (BSR_PLAN_SLOW_TRANSPOSE | BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT | BSR_PLAN_TURNS_DENSE | BSR_PLAN_MERGES_BATCH | \
     BSR_PLAN_BUILDS_INDEX | BSR_PLAN_CUTS_ROWS)

namespace { /* one program holds several test programs, each with its own state */
struct gm_region {
    char *host, *dev, *stage, *later; /* later: where it seems to be as long as it has no place on the device */
    size_t bytes;
    bool whole, written, data; /* a buffer of the harness (else memory of the test's own); the call may write it; numbers */
};
struct gm_state {
    bsr_context *ctx;
    cudaStream_t stream;
    char *arena, *stage, *workspace;
    int tier, grid, every, kernels, apart, odd, direct, random, seed; /* grid: a cap of it, 0: drawn here and there */
    long planned[GM_KERNELS], launches[GM_KERNELS]; /* by number in the kernel table: calls whose plan named it, launches */
    struct {
        long calls, next, barren; /* calls so far, the next for the device; how many of those found no new kernel */
    } unplanned[GM_OPS];          /* operations whose plans name no kernel */
    int ran, lacking, refused, contents, left_out; /* in this case */
    long launched, objected, offered, staged;      /* in all; calls that a workspace could stage, that one did */
    const bt_test *tests;
    size_t test_count;
    struct {
        const char *name;
        long count;
    } lacks[GM_NAMES], refuses[GM_NAMES];
} gm;
} /* namespace */

extern long gm_total[3];  /* main.cpp */
extern long *gm_launches; /* library.cu */
TF void gm_note(bool tier, const char *name) {
    auto *list = tier ? gm.refuses : gm.lacks;
    for (int i = 0; i < GM_NAMES; i++) {
        if (!list[i].name) list[i].name = name;
        if (strcmp(list[i].name, name)) continue;
        list[i].count++;
        return;
    }
}
static void gm_totals(void) {
    for (int i = 0; i < GM_NAMES && gm.lacks[i].name; i++)
        printf("not on the device: %s (%ld calls)\n", gm.lacks[i].name, gm.lacks[i].count);
    for (int i = 0; i < GM_NAMES && gm.refuses[i].name; i++)
        printf("refused by tier %d: %s (%ld calls)\n", gm.tier, gm.refuses[i].name, gm.refuses[i].count);
    printf("%ld calls ran on the device, %ld of them staged, %ld were refused there as on the CPU\n", gm.launched, gm.staged,
           gm.objected);
}
/* With --every: does this case go to the device? */
static int gm_wanted(void) { return gm.every < 2 || gm.direct || bt.seed / 4 % (uint64_t)gm.every == 0; }
/* Does the build hold the type? (Reduced builds hold a few.) */
TF bool gm_compiled(int dtype) { return bsr_supports(gm.ctx, BSR_OP_TO_DENSE, dtype, dtype, 1, 1) != 0; }
/* With --kernels: a plan names this kernel; is the call one of those that go to the device? */
TF bool gm_next_of(int kernel) {
    const long n = ++gm.planned[kernel];
    return !(n & (n - 1)) && n >> gm.kernels == 0;
}
/* A CUDA error ends the program: nothing after it would mean anything. */
static void gm_cuda(const char *what, cudaError_t e) {
    if (e == cudaSuccess) return;
    printf("FAIL %s [%s]: CUDA error %d (%s) %s; the program stops\n", bt.test, bt.text, (int)e, cudaGetErrorString(e), what);
    gm_totals();
    printf("%ld passed, %ld failed, %ld skipped\n", bt.passed, bt.failed + 1, bt.skipped);
    fflush(stdout);
    _Exit(1);
}

/* Device memory filled, or given what the host has, before any stream goes on. cudaMemset, and cudaMemcpy from memory that is not
   pinned, may return before they have begun, in a stream that those of the tests don't wait for: what a test put there afterwards
   would be overwritten, on a GPU that others use too. */
TF void gm_fill(void *to, int byte, size_t bytes) {
    gm_cuda("in cudaMemset", cudaMemsetAsync(to, byte, bytes, gm.stream));
    gm_cuda("filling", cudaStreamSynchronize(gm.stream));
}
TF void gm_put(void *to, const void *from, size_t bytes) {
    gm_cuda("copying to the device", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gm.stream));
    gm_cuda("copying to the device", cudaStreamSynchronize(gm.stream));
}

/* A crash on the host side of the library fails the case, not the program. */
static thread_local sigjmp_buf gm_crash;
static thread_local volatile sig_atomic_t gm_guarded;
static void gm_signal(int number) {
    if (gm_guarded) siglongjmp(gm_crash, number);
    signal(number, SIG_DFL);
    raise(number);
}
template <class F> static bsr_status gm_guard(const char *name, F call) {
    struct sigaction action;
    bsr_status status = BSR_STATUS_FORCE_32;
    int number;
    memset(&action, 0, sizeof action);
    action.sa_handler = gm_signal, action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL), sigaction(SIGFPE, &action, NULL), sigaction(SIGBUS, &action, NULL);
    number = sigsetjmp(gm_crash, 1);
    gm_guarded = number == 0;
    if (!number) status = call();
    else bt_fail(__FILE__, __LINE__, "%s crashed on the host: signal %d", name, number);
    gm_guarded = 0;
    return status;
}

/* What the CPU says about the contents of arrays. */
TF bool gm_contents_item(int item) {
    switch (item) {
        case BSR_ITEM_CROW_FIRST:
        case BSR_ITEM_CROW_LAST:
        case BSR_ITEM_CROW_DECREASES:
        case BSR_ITEM_CROW_LONG:
        case BSR_ITEM_COL_RANGE:
        case BSR_ITEM_BLOCK_KIND:
        case BSR_ITEM_COL_ORDER:
        case BSR_ITEM_PATTERN_MISMATCH:
        case BSR_ITEM_VIEW_HEADER:
        case BSR_ITEM_VIEW_CONTENT:
        case BSR_ITEM_ROW_RANGE:
        case BSR_ITEM_INDICES_RANGE:
        case BSR_ITEM_INDICES_DUPLICATE:
        case BSR_ITEM_LIST_COUNT:
        case BSR_ITEM_LIST_COLUMN:
        case BSR_ITEM_MOE_EXPERT:
        case BSR_ITEM_MOE_CAPACITY:
        case BSR_ITEM_MOE_OFFSETS:
        case BSR_ITEM_MOE_ROW_OF:
        case BSR_ITEM_MOE_SLOT_OF: return true;
        default: return false;
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* sizes of what is not the harness's; -1: none that memory could have                            */
/* ---------------------------------------------------------------------------------------------- */

TF int64_t gm_extent(int64_t element, int n, const int64_t *size, const int64_t *stride) {
    __int128 last = 0;
    for (int i = 0; i < n; i++) {
        if (size[i] == 0) return 0;
        if (size[i] < 0 || stride[i] < 0) return -1;
        last += (__int128)(size[i] - 1) * stride[i];
        if (last > GM_LIMIT) return -1;
    }
    return (int64_t)(last + 1) * element;
}
TF int64_t gm_dense_bytes(const bsr_dense *d) {
    int64_t size[6] = {d->rows, d->cols}, stride[6] = {d->row_stride, d->col_stride};
    if (d->batch_dims < 0 || d->batch_dims > 4) return -1;
    for (int i = 0; i < d->batch_dims; i++) size[2 + i] = d->batch[i], stride[2 + i] = d->batch_stride[i];
    return gm_extent((int64_t)bsr_dtype_size(d->dtype), 2 + d->batch_dims, size, stride);
}
TF int64_t gm_array_bytes(const bsr_matrix *m, int which) { /* 0 crow, 1 col, 2 values */
    int64_t size[7] = {m->nnz, m->block_rows, m->block_cols}, stride[7] = {1, 0, 0};
    const int64_t *batch = which == 0 ? m->crow_batch_stride : which == 1 ? m->col_batch_stride : m->values_batch_stride;
    int n = which == 2 ? 3 : 1;
    if (m->batch_dims < 0 || m->batch_dims > 4 || m->block_rows < 1 || m->block_cols < 1 || m->block_rows > 4096 ||
        m->block_cols > 4096)
        return -1;
    if (which == 0) size[0] = m->rows < 0 ? -1 : m->rows / m->block_rows + 1;
    if (which == 2) {
        memcpy(stride, m->value_strides, 3 * sizeof stride[0]);
        if (!stride[0] && !stride[1] && !stride[2])
            stride[0] = m->block_rows * m->block_cols, stride[1] = m->block_cols, stride[2] = 1;
    }
    for (int i = 0; i < m->batch_dims; i++) size[n] = m->batch[i], stride[n++] = batch[i];
    return gm_extent((int64_t)bsr_dtype_size(which == 2 ? m->dtype : m->index_dtype), n, size, stride);
}

/* ---------------------------------------------------------------------------------------------- */
/* one call                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

namespace {
struct gm_call {
    const char *name;
    const bsr_context *ctx;
    const bsr_exec *exec;
    gm_region region[GM_REGIONS];
    int regions = 0, denses = 0, matrices = 0;
    int searched = -1; /* with --kernels: the operation, where its plans name no kernel */
    size_t used = 0;
    bool odd;
    bsr_dense dense[60]; /* bsr_attention_merge takes 2 times 28, and two */
    bsr_matrix matrix[8];
    bsr_epilogue epilogue[2] = {}; /* a chain has two */
    bsr_scales scales[4];
    int epilogues = 0;
    bsr_softmax_options softmax;
    bsr_map_options maps = BSR_ZERO;
    bsr_attention_options attention = BSR_ZERO;
    bsr_attention_extra extra = BSR_ZERO;
    bsr_lengths lengths = BSR_ZERO;
    bsr_pages pages = BSR_ZERO;
    bsr_scatter_indices indices = BSR_ZERO;
    bsr_moe_routing routing = BSR_ZERO;
    bsr_select select = BSR_ZERO;
    bsr_block_lists lists = BSR_ZERO;

    gm_call(const char *name_, const bsr_context *ctx_, const bsr_exec *exec_) : name(name_), ctx(ctx_), exec(exec_) {
        odd = gm.odd || bt.seed % 4 == 0;
    }
    /* What is no pointer is the same on both sides. */
    template <class T> static std::enable_if_t<std::is_arithmetic<T>::value, T> map(T number, bool) { return number; }

    /* Where p's memory will stand on the device. later: with --kernels it has no place yet, as most calls are left out; settle()
       finds one, and what is in our structs is moved there. */
    void *place(const void *p, int64_t bytes, bool written, bool data = false, bool later = false) {
        char *at = (char *)(uintptr_t)p;
        if (!at || !gm_wanted()) return at;
        for (int i = 0; i < regions; i++)
            if (at >= region[i].host && at < region[i].host + region[i].bytes) {
                region[i].written |= written, region[i].data |= data;
                if (!later && region[i].dev == region[i].later) take(&region[i]);
                return region[i].dev + (at - region[i].host);
            }
        gm_region r = {};
        size_t front = 0;
        for (bt_block *b = bt.blocks; b && !r.host; b = b->next) {
            if (at < (char *)b->data - (b->bytes ? 0 : 1) || at > (char *)b->data + b->bytes) continue;
            if (at == (char *)b->data + b->bytes && bt_other(b, at)) continue; /* the end of one, the start of another */
            if (gm.apart) r.host = (char *)b->data, r.bytes = b->bytes;
            else r.host = (char *)b->base, r.bytes = b->front + b->bytes + b->back, front = b->front;
            r.whole = true;
        }
        if (!r.host) r.host = at, r.bytes = bytes > 0 ? (size_t)bytes : 0;
        r.written = written, r.data = data;
        if (regions == GM_REGIONS) gm_cuda("(too many buffers for the mirror)", cudaErrorInvalidValue);
        if (gm.apart && later && gm.kernels && !gm.direct) {
            r.dev = r.later = GM_LATER + used, used += (r.bytes + 256) / 256 * 256;
        } else if (gm.apart) {
            take(&r);
        } else {
            size_t start = used + GM_ZONE, want = odd ? (size_t)(uintptr_t)r.host % 64 : (256 - front % 256) % 256,
                   step = odd ? 64 : 256;
            start += (want + step - start % step) % step;
            used = start + r.bytes;
            if (used + GM_ZONE > GM_ARENA) gm_cuda("(the mirror's arena is too small)", cudaErrorMemoryAllocation);
            r.dev = gm.arena + start, r.stage = gm.stage + start;
        }
        region[regions] = r;
        return region[regions++].dev + (at - r.host);
    }
    /* Whole pieces of 16 bytes: memcheck takes the copy of 10 bytes to shared memory, the rest zeros, for one of 16. */
    static void take(gm_region *r) {
        const size_t piece = r->bytes / 16 * 16;
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&r->dev, piece + 16));
        gm_fill(r->dev + piece, BT_POISON, 16);
    }
    template <class P> void move(P *&p) const {
        for (int end = 0; end < 2 && p; end++) /* the end of one may be the start of another */
            for (int i = 0; i < regions; i++) {
                const char *at = (const char *)p, *later = region[i].later;
                if (!later || (at != later && (at < later || at >= later + region[i].bytes + end))) continue;
                p = (P *)(region[i].dev + (at - later));
                return;
            }
    }
    /* Before a call that goes to the device: places for what has none. */
    void settle(void *&workspace) {
        for (int i = 0; i < regions; i++)
            if (region[i].dev == region[i].later) take(&region[i]);
        for (int i = 0; i < denses; i++) move(dense[i].data);
        for (int i = 0; i < matrices; i++) {
            bsr_matrix *m = &matrix[i];
            move(m->crow_indices), move(m->col_indices), move(m->values), move(m->transposed_index), move(m->schedule);
        }
        for (bsr_epilogue &e : epilogue) move(e.alpha_ptr), move(e.beta_ptr), move(e.user_data);
        move(attention.user_data), move(maps.user_data);
        move(indices.c_indices), move(indices.r_offsets), move(indices.p_indices), move(indices.q_indices);
        move(routing.counts), move(routing.offsets), move(routing.row_of), move(routing.slot_of), move(routing.status);
        move(attention.block_kind), move(lengths.q_lengths), move(lengths.k_lengths), move(lengths.key_counts);
        move(workspace);
    }
    static bool bt_other(const bt_block *not_this, const char *at) {
        for (const bt_block *b = bt.blocks; b; b = b->next)
            if (b != not_this && at == (const char *)b->data) return true;
        return false;
    }

    const bsr_dense *map(const bsr_dense *d, bool written = false) {
        if (!d) return nullptr;
        bsr_dense *copy = &dense[denses++];
        *copy = *d, copy->data = place(d->data, gm_dense_bytes(d), written, true, true);
        return copy;
    }
    bsr_matrix *map_target(const bsr_matrix *m, bool values, bool pattern,
                           int64_t rows = 0) { /* rows: where m does not say yet */
        if (!m) return nullptr;
        bsr_matrix sized = *m;
        if (!m->rows && m->block_rows > 0 && rows > 0 && rows < GM_LIMIT) sized.rows = rows + m->block_rows - 1;
        bsr_matrix *copy = &matrix[matrices++];
        *copy = *m;
        copy->crow_indices = place(m->crow_indices, gm_array_bytes(&sized, 0), pattern, false, true);
        copy->col_indices = place(m->col_indices, gm_array_bytes(m, 1), pattern, false, true);
        copy->values = place(m->values, gm_array_bytes(m, 2), values, true, true);
        copy->transposed_index = place(m->transposed_index, 0, false, false, true);
        copy->schedule = place(m->schedule, 0, false, false, true);
        return copy;
    }
    const bsr_matrix *map(const bsr_matrix *m, bool written = false) { return map_target(m, written, false); }
    bsr_operand map(bsr_operand o, bool written = false) { return {map(o.dense, written), map(o.sparse, written)}; }
    const bsr_epilogue *map(const bsr_epilogue *e, bool = false) {
        if (!e) return nullptr;
        bsr_epilogue *copy = &epilogue[epilogues++];
        *copy = *e, copy->left_alpha = map(e->left_alpha), copy->right_alpha = map(e->right_alpha), copy->bias = map(e->bias);
        for (int of = 0; of < 2; of++) {
            const bsr_scales *from = of ? e->b_scales : e->a_scales, **to = of ? &copy->b_scales : &copy->a_scales;
            bsr_scales *mine = &scales[2 * epilogues - 2 + of];
            if (from) *mine = *from, mine->scale = map(from->scale), mine->zero = map(from->zero), *to = mine;
        }
        copy->alpha_ptr = (const double *)place(e->alpha_ptr, 8, false, false, true);
        copy->beta_ptr = (const double *)place(e->beta_ptr, 8, false, false, true);
        copy->user_data = place(e->user_data, 4, false, false, true);
        return copy;
    }
    const bsr_scales *map(const bsr_scales *s, bool written = false) {
        if (!s) return nullptr;
        scales[0] = *s, scales[0].scale = map(s->scale, written);
        return scales;
    }
    const bsr_softmax_options *map(const bsr_softmax_options *o, bool = false) {
        if (!o) return nullptr;
        softmax = *o, softmax.relative_bias = map(o->relative_bias), softmax.key_padding_mask = map(o->key_padding_mask);
        softmax.attn_mask = map(o->attn_mask);
        return &softmax;
    }
    const bsr_select *map(const bsr_select *s, bool = false) {
        if (!s) return nullptr;
        select = *s, select.scores = map(s->scores), select.q = map(s->q), select.k = map(s->k);
        return &select;
    }
    const bsr_block_lists *map(const bsr_block_lists *l, bool written) {
        if (!l) return nullptr;
        lists = *l;
        for (int32_t **p : {&lists.counts, &lists.indices, &lists.full_counts, &lists.full_indices})
            *p = (int32_t *)place(*p, 0, written);
        return &lists;
    }
    const bsr_conv_shape *map(const bsr_conv_shape *s, bool = false) { return s; } /* the host's */
    const bsr_map_options *map(const bsr_map_options *o, bool = false) {
        if (!o) return nullptr;
        maps = *o, maps.user_data = place(o->user_data, 4, false, false, true);
        return &maps;
    }
    const bsr_attention_options *map(const bsr_attention_options *o, bool = false) {
        if (!o) return nullptr;
        attention = *o, attention.key_padding_mask = map(o->key_padding_mask), attention.relative_bias = map(o->relative_bias);
        attention.user_data = place(o->user_data, 4, false, false, true);
        attention.block_kind = given(o->block_kind), attention.slopes = map(o->slopes), attention.sinks = map(o->sinks);
        if (o->lengths) {
            lengths = *o->lengths, lengths.q_lengths = given(o->lengths->q_lengths);
            lengths.k_lengths = given(o->lengths->k_lengths), lengths.key_counts = given(o->lengths->key_counts);
            attention.lengths = &lengths;
        }
        if (o->pages) pages = *o->pages, pages.table = given(o->pages->table), attention.pages = &pages;
        if (o->extra) {
            extra = *o->extra, extra.row_max = map(o->extra->row_max, true), extra.d_lse = map(o->extra->d_lse);
            extra.d_relative_bias = map(o->extra->d_relative_bias, true), extra.d_sinks = map(o->extra->d_sinks, true);
            extra.d_slopes = map(o->extra->d_slopes, true), extra.d_scores = map(o->extra->d_scores, true);
            attention.extra = &extra;
        }
        return &attention;
    }
    /* An array of the harness, whose place is found at once. */
    template <class T> const T *given(const T *p) { return (const T *)place(p, 0, false); }
    const int32_t *map(const int32_t *p, bool) { return given(p); }
    int64_t *list(const int64_t *p, int64_t count, bool written) {
        return (int64_t *)place(p, count > 0 && count < 65536 ? count * 8 : 0, written, false, true);
    }
    bsr_scatter_indices *map(const bsr_scatter_indices *x, bool written = false) {
        if (!x) return nullptr;
        indices = *x;
        indices.c_indices = list(x->c_indices, x->c_count, written), indices.r_offsets = list(x->r_offsets, x->r_count, written);
        indices.p_indices = list(x->p_indices, x->p_count, written), indices.q_indices = list(x->q_indices, x->q_count, written);
        return &indices;
    }

    /* written: by the operation that fills it. */
    const bsr_moe_routing *map(const bsr_moe_routing *r, bool written = false) {
        if (!r) return nullptr;
        const auto array = [&](int32_t *p, __int128 count) {
            return (int32_t *)place(p, count > 0 && count < 65536 ? (int64_t)count * 4 : 0, written, false, true);
        };
        routing = *r;
        routing.counts = array(r->counts, r->experts), routing.offsets = array(r->offsets, (__int128)r->experts + 1);
        routing.row_of = array(r->row_of, (__int128)r->tokens * r->slots), routing.slot_of = array(r->slot_of, r->rows);
        routing.status = (uint64_t *)place(r->status, 8, written, false, true);
        return &routing;
    }

    void upload() {
        for (int i = 0; i < regions && gm.apart; i++) gm_put(region[i].dev, region[i].host, region[i].bytes);
        if (gm.apart) return;
        used += GM_ZONE;
        memset(gm.stage, BT_GUARD, used);
        for (int i = 0; i < regions; i++) memcpy(region[i].stage, region[i].host, region[i].bytes);
        gm_cuda("copying to the device", cudaMemcpyAsync(gm.arena, gm.stage, used, cudaMemcpyHostToDevice, gm.stream));
    }
    /* Copies everything back. The harness sees to its own buffers; what lies between and around is looked at here. */
    void download() {
        if (!gm.apart) gm_cuda("copying back", cudaMemcpyAsync(gm.stage, gm.arena, used, cudaMemcpyDeviceToHost, gm.stream));
        gm_cuda("after the call", cudaStreamSynchronize(gm.stream));
        size_t at = 0;
        for (int i = 0; i < regions; i++) {
            gm_region *r = &region[i];
            if (gm.apart) {
                char *copy = (char *)malloc(r->bytes + 1);
                gm_cuda("copying back", cudaMemcpy(copy, r->dev, r->bytes, cudaMemcpyDeviceToHost));
                r->stage = copy;
            } else {
                for (size_t end = (size_t)(r->stage - gm.stage); at < end; at++)
                    if ((unsigned char)gm.stage[at] != BT_GUARD) break;
                if (at != (size_t)(r->stage - gm.stage))
                    bt_fail(__FILE__, __LINE__, "%s wrote before a buffer of %zu bytes on the device", name, r->bytes);
                at = (size_t)(r->stage - gm.stage) + r->bytes;
            }
            if (r->whole || r->written) memcpy(r->host, r->stage, r->bytes);
            else if (memcmp(r->host, r->stage, r->bytes))
                bt_fail(__FILE__, __LINE__, "%s wrote an input of %zu bytes", name, r->bytes);
            if (gm.apart) free(r->stage);
        }
        for (; !gm.apart && at < used && (unsigned char)gm.stage[at] == BT_GUARD; at++) {
        }
        if (!gm.apart && at < used) bt_fail(__FILE__, __LINE__, "%s wrote behind its last buffer on the device", name);
        bt.checks++;
    }
    ~gm_call() {
        for (int i = 0; i < regions && gm.apart; i++)
            if (region[i].dev != region[i].later) cudaFree(region[i].dev);
    }

    static int other_backend(int backend) {
        if (GM_BACKEND == BSR_BACKEND_CPU) return backend;
        return backend == BSR_BACKEND_CPU ? BSR_BACKEND_CUDA : backend == BSR_BACKEND_CUDA ? BSR_BACKEND_CPU : backend;
    }
    /* With --kernels: is this one of the calls of its kernel that go to the device? */
    template <class D> bool chosen(const bsr_exec &e, D device) {
        bsr_plan plan = BSR_ZERO;
        bsr_exec ask = e;
        size_t bytes = 0;
        for (int i = 0; i < regions; i++) bytes += region[i].bytes;
        ask.query = &plan;
        if (bytes > GM_SMALL || e.query || gm_guard(name, [&] { return device(gm.ctx, &ask); }) != BSR_OK) return false;
        if (plan.instance > 0 && plan.instance < GM_KERNELS) return gm_next_of(plan.instance);
        auto &op = gm.unplanned[plan.op % GM_OPS];
        if (op.calls++ < op.next) return false;
        searched = plan.op % GM_OPS;
        return true;
    }
    /* After such a call: the next one comes later if it launched nothing that was not launched before. */
    void looked(const long (&before)[GM_KERNELS]) {
        auto &op = gm.unplanned[searched];
        bool fresh = false;
        for (int i = 0; i < GM_KERNELS; i++) fresh |= gm.launches[i] && !before[i];
        op.barren = fresh ? 0 : op.barren + 1, op.next = op.calls + (op.barren < 7 ? 1 << op.barren : 64) - 1;
    }
    /* Whether plans of the operation have tiers. */
    bool tiered() const {
#define X(operation, op, tiers, ...) \
    if (tiers && !strcmp(name, "bsr_" #operation)) return true;
        T_OPERATIONS(X)
#undef X
        return false;
    }
    void grow(size_t bytes) {
        const size_t zone = gm.apart ? 0 : GM_ZONE; /* apart: tools see to what lies behind */
        if (gm.workspace) cudaFree(gm.workspace);
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&gm.workspace, bytes + zone));
        if (zone) gm_fill(gm.workspace, 0xff, bytes + zone);
    }
    void behind(size_t bytes) {
        char found[GM_ZONE];
        if (gm.apart) return;
        gm_cuda("copying back", cudaMemcpy(found, gm.workspace + bytes, GM_ZONE, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < GM_ZONE; i++)
            if ((unsigned char)found[i] != 0xff) {
                bt_fail(__FILE__, __LINE__, "%s wrote behind the workspace", name);
                break;
            }
    }
    /* A product that a workspace can stage, in one way or another, is told to: estimates would hardly do so for small ones. */
    template <class D> bool offer(bsr_exec *e, bsr_plan *plan, D device) {
        static const uint32_t ways[] = {BSR_PLAN_STAGES_DENSE, BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT, BSR_PLAN_STAGES_OUT,
                                        BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT | BSR_PLAN_MERGES_BATCH,
                                        BSR_PLAN_BUILDS_INDEX,
                                        BSR_PLAN_TURNS_DENSE, BSR_PLAN_TURNS_DENSE | BSR_PLAN_STAGES_OUT,
                                        BSR_PLAN_BUILDS_INDEX | BSR_PLAN_STAGES_DENSE, 0};
        bsr_plan named = BSR_ZERO;
        bsr_error ignored;
        bsr_exec ask = *e;
        if (e->query || e->workspace || e->plan || !tiered() || gm.kernels || gm.apart) return false;
        plan->flags = ways[gm.offered++ % (long)(sizeof ways / sizeof *ways)];
        if (!strcmp(name, "bsr_attention")) plan->flags = 0, plan->split = (int32_t)(gm.offered % 3 ? 1 + gm.offered % 7 : 0);
        ask.plan = plan, ask.query = &named, ask.error = &ignored;
        if (!(plan->flags | (uint32_t)plan->split) || device(gm.ctx, &ask) != BSR_OK || !named.workspace_bytes)
            return plan->flags = 0, plan->split = 0, false;
        grow((size_t)named.workspace_bytes);
        e->workspace = gm.workspace, e->workspace_bytes = named.workspace_bytes, e->plan = plan, gm.staged++;
        return true;
    }
    /* host(ctx, exec) and device(ctx, exec) make the same call with the operands of either side. checked: a query on the CPU
       tells what is wrong with the arguments. */
    template <class H, class D> bsr_status run(bool checked, H host, D device) {
        static const bsr_exec none = BSR_ZERO;
        bsr_exec e = exec ? *exec : none, ask = e;
        bsr_error said, found;
        bsr_plan plan, ignored;
        bsr_status wanted = BSR_OK, status;
        if (!ctx) return host(ctx, exec);
        memset(&said, 0, sizeof said), memset(&found, 0, sizeof found), memset(&plan, 0, sizeof plan);
        if (!gm_wanted()) {
            gm.left_out++;
            return tiered() && !e.query ? BSR_OK : host(ctx, exec); /* nobody looks at the numbers */
        }
        if (checked) {
            ask.query = &ignored, ask.error = &said, ask.flags &= ~BSR_EXEC_SKIP_CHECKS;
            wanted = host(ctx, &ask);
        }
        if (gm_contents_item(said.item) || /* the number of blocks that offsets tell */
            (said.item == BSR_ITEM_NNZ_MISMATCH && !strcmp(name, "bsr_moe_transposed_index"))) {
            gm.contents++;
            return host(ctx, exec);
        }
        /* A query says what must be there; a call without it is refused on either side. */
        const bool needs = checked && wanted == BSR_OK && !e.query && ignored.workspace_bytes > e.workspace_bytes &&
                           !(ignored.flags & GM_FOR_SPEED);
        if (e.plan)
            plan = *e.plan, plan.backend = other_backend(plan.backend),
            plan.kernel = plan.kernel >= 1 && plan.kernel <= 3 ? 0 : plan.kernel;
        const bool forced = gm.tier && tiered();
        if (forced && !plan.kernel) plan.kernel = gm.tier;
        e.plan = e.plan || forced ? &plan : nullptr;
        e.error = &found, e.stream = gm.stream, e.workspace = place(e.workspace, 0, true, false, true);
        if (!e.max_grid[0]) e.max_grid[0] = gm.grid;
        if (!e.max_grid[0] && bt.seed % 4 == 1) /* few CTAs, which go round: operands are small, and no CTA would otherwise */
            e.max_grid[0] = (int)(1 + bt.seed / 256 % (bt.seed / 128 % 2 ? 4 : 40));
        if (gm.kernels && (wanted != BSR_OK || !chosen(e, device))) {
            gm.left_out++;
            return host(ctx, exec);
        }
        long before[GM_KERNELS];
        memcpy(before, gm.launches, sizeof before);
        settle(e.workspace);
        upload();
        if (wanted != BSR_OK) e.query = &ignored; /* what the CPU refuses is never launched */
        const bool staged = wanted == BSR_OK && !needs && offer(&e, &plan, device);
        status = gm_guard(name, [&] { return device(gm.ctx, &e); });
        if (status == BSR_OK && said.status == BSR_OVERLAP) { /* a made-up size that reaches another buffer only on the host */
            gm.contents++;
            return host(ctx, exec);
        }
        if (status == BSR_STATUS_FORCE_32) return host(ctx, exec);
        if (status == BSR_WORKSPACE_TOO_SMALL && needs) wanted = status, said = found;
        if (status == BSR_WORKSPACE_TOO_SMALL && wanted == BSR_OK && checked && ignored.workspace_bytes > e.workspace_bytes &&
            host(ctx, exec) == BSR_WORKSPACE_TOO_SMALL)
            return status; /* the CPU cannot do without, either, for all its plan wants speed, too */
        if (status == BSR_WORKSPACE_TOO_SMALL && wanted == BSR_OK && found.value > 0) {
            grow((size_t)found.value), e.workspace = gm.workspace, e.workspace_bytes = (uint64_t)found.value;
            status = device(gm.ctx, &e);
            gm_cuda("after the call", cudaStreamSynchronize(gm.stream)), behind((size_t)e.workspace_bytes);
        }
        gm_cuda("after the call", cudaStreamSynchronize(gm.stream));
        if (staged) behind((size_t)e.workspace_bytes);
        gm_cuda("left behind by the call", cudaGetLastError());
        if (found.item == BSR_ITEM_NOT_IMPLEMENTED && said.item != found.item) {
            if (wanted == BSR_OK || status != wanted) gm_note(false, name), gm.lacking++;
            return host(ctx, exec);
        }
        if (searched >= 0) looked(before);
        if (forced && found.item == BSR_ITEM_PLAN_FIELD && found.index == 3 && said.item != BSR_ITEM_PLAN_FIELD) {
            gm_note(true, name), gm.refused++;
            return host(ctx, exec);
        }
        gm.ran += !gm.tier || forced; /* what has no tiers does not make a case one of the forced tier */
        if (status == BSR_OK) gm.launched++;
        else gm.objected++;
        download();
        if (found.item == BSR_ITEM_PLAN_FIELD && found.index == 1) found.value = other_backend((int)found.value);
        if (exec && exec->query && status == BSR_OK &&
            ((exec->query->op >= BSR_OP_VALIDATE && exec->query->op < BSR_OP_CONV) ||
             (exec->query->op >= BSR_OP_BLOCK_MASK && exec->query->op <= BSR_OP_SELECT_BLOCKS)))
            exec->query->workspace_bytes = 0; /* conversions' scratch */
        if (exec && exec->query && status == BSR_OK) exec->query->backend = other_backend(exec->query->backend);
        if (wanted == BSR_OK && (status == BSR_CAPACITY || status == BSR_BAD_STRUCTURE))
            said = found, wanted = status; /* found while building */
        const bool larger =
            status == BSR_WORKSPACE_TOO_SMALL && wanted == BSR_OK; /* the device's plan wants more than the CPU's */
        if (said.status != BSR_OVERLAP && found.status != BSR_OVERLAP && checked && !larger &&
            (status != wanted || found.item != said.item || found.operand != said.operand || found.index != said.index ||
             found.value != said.value)) {
            char here[320], there[320];
            bsr_error_string(&found, here, sizeof here), bsr_error_string(&said, there, sizeof there);
            bt_fail(__FILE__, __LINE__, "%s: the device says \"%s\" (index %lld), the CPU \"%s\" (index %lld)", name, here,
                    (long long)found.index, there, (long long)said.index);
        }
        if (exec && exec->error) *exec->error = found;
        return status;
    }
};
} /* namespace */
/* On the device a conversion leaves its count in crow_indices, as nothing may wait for it. Reads it there: -1 where items of a
   matrix that is not ragged have different counts. */
TF int64_t gm_built_count(const bsr_matrix *m) {
    int64_t count = 0, items = 1, r = m->block_rows > 0 ? m->rows / m->block_rows : 0;
    for (int i = 0; i < m->batch_dims; i++) items *= m->batch[i];
    for (int64_t k = 0; k < items; k++) {
        int64_t at = r, rest = k, n;
        for (int i = m->batch_dims - 1; i >= 0; i--) at += rest % m->batch[i] * m->crow_batch_stride[i], rest /= m->batch[i];
        n = m->index_dtype == BSR_I64 ? ((const int64_t *)m->crow_indices)[at] : ((const int32_t *)m->crow_indices)[at];
        if (k && n != count && !(m->flags & BSR_MATRIX_RAGGED)) return -1;
        count = n;
    }
    return items ? count : m->nnz;
}
/* A conversion: the CPU works on the test's matrix, the device on a copy of the struct. What the CPU would refuse once it has
   counted is left to the CPU. */
template <class H, class D> static bsr_status gm_build(gm_call *g, bsr_matrix *m, int64_t rows, H host, D device) {
    bsr_matrix *dm = g->map_target(m, true, true, rows);
    void *saved[GM_REGIONS];
    bool on_device = false;
    bsr_status s;
    for (int i = 0; i < g->regions; i++) {
        saved[i] = malloc(g->region[i].bytes + 1);
        if (g->region[i].whole || g->region[i].written) memcpy(saved[i], g->region[i].host, g->region[i].bytes);
    }
    int regions = g->regions;
    s = g->run(
        true,
        [&](const bsr_context *c, const bsr_exec *e) {
            on_device = false;
            return host(c, m, e);
        },
        [&](const bsr_context *c, const bsr_exec *e) {
            on_device = true;
            return device(c, dm, e);
        });
    if (on_device && m) {
        int64_t capacity = m->nnz, count = capacity;
        bsr_matrix after = *m;
        after.rows = dm->rows, after.cols = dm->cols;
        if (s == BSR_OK && !(g->exec && g->exec->query)) count = gm_built_count(&after);
        if (s == BSR_OK && (count < 0 || (m->col_indices && count > capacity))) {
            for (int i = 0; i < regions; i++)
                if (g->region[i].whole || g->region[i].written) memcpy(g->region[i].host, saved[i], g->region[i].bytes);
            gm.contents++, gm.ran--;
            s = host(g->ctx, m, g->exec);
        } else {
            m->rows = dm->rows, m->cols = dm->cols, m->nnz = count;
            if (!dm->transposed_index) m->transposed_index = nullptr;
            if (!dm->schedule) m->schedule = nullptr;
        }
    }
    for (int i = 0; i < regions; i++) free(saved[i]);
    return s;
}

/* ---------------------------------------------------------------------------------------------- */
/* the operations                                                                                 */
/* ---------------------------------------------------------------------------------------------- */

#define GM_HOST [&](const bsr_context *c, const bsr_exec *e)
/* Those that write operands as large as their descriptors say: gm_name() is bsr_name() with its arguments mapped one by one. */
template <class O, class... P> struct gm_mirror {
    static bsr_status call(const bsr_context *ctx, P... given) {
        const std::tuple<P...> all(given...);
        return both(ctx, all, std::make_index_sequence<sizeof...(P) - 1>());
    }
    template <size_t... I>
    static bsr_status both(const bsr_context *ctx, const std::tuple<P...> &all, std::index_sequence<I...>) {
        gm_call g(O::name, ctx, std::get<sizeof...(P) - 1>(all));
        const std::tuple<std::tuple_element_t<I, std::tuple<P...>>...> there{
            g.map(std::get<I>(all), (O::writes >> I & 1) != 0)...};
        return g.run(
            O::writes != 0, GM_HOST { return O::function()(c, std::get<I>(all)..., e); },
            GM_HOST { return O::function()(c, std::get<I>(there)..., e); });
    }
};
template <class O, class... P> constexpr auto gm_mirrored(bsr_status (*)(const bsr_context *, P...)) {
    return &gm_mirror<O, P...>::call;
}
#define X(operation, op, tiers, waits, arguments)                     \
    namespace {                                                       \
    struct gm_of_##operation {                                        \
        static constexpr const char *name = "bsr_" #operation;        \
        static constexpr unsigned writes = arguments;                 \
        static constexpr auto function() { return &bsr_##operation; } \
    };                                                                \
    }                                                                 \
    static constexpr auto gm_##operation = gm_mirrored<gm_of_##operation>(&bsr_##operation);
T_CALLS(X)
T_GRADIENTS(X)
#undef X
TF bsr_status gm_sum_mm(const bsr_context *ctx, double beta, const bsr_dense *input, const bsr_term *terms, int64_t count,
                        const bsr_epilogue *epilogue, const bsr_dense *out, const bsr_exec *exec) {
    gm_call g("bsr_sum_mm", ctx, exec);
    const auto there_input = g.map(input);
    bsr_term there[BSR_TERMS_MAX] = {};
    for (int64_t i = 0; terms && i < count && count <= BSR_TERMS_MAX; i++) /* more are refused, and may not be there */
        there[i] = terms[i], there[i].a = g.map(terms[i].a), there[i].b = g.map(terms[i].b);
    const auto there_epilogue = g.map(epilogue);
    const auto there_out = g.map(out, true);
    return g.run(
        true, GM_HOST { return bsr_sum_mm(c, beta, input, terms, count, epilogue, out, e); },
        GM_HOST { return bsr_sum_mm(c, beta, there_input, terms ? there : nullptr, count, there_epilogue, there_out, e); });
}
TF bsr_status gm_attention_merge(const bsr_context *ctx, int64_t count, const bsr_dense *x, const bsr_dense *y,
                                 const bsr_dense *out, const bsr_dense *lse, const bsr_exec *exec) {
    gm_call g("bsr_attention_merge", ctx, exec);
    const bsr_dense *there[2][28] = {};
    for (int64_t i = 0; i < count && count <= 28; i++) { /* more are refused, and may not be there */
        if (x) there[0][i] = g.map(&x[i]);
        if (y) there[1][i] = g.map(&y[i]);
    }
    const auto there_out = g.map(out, true), there_lse = g.map(lse, true);
    return g.run(
        true, GM_HOST { return bsr_attention_merge(c, count, x, y, out, lse, e); },
        GM_HOST {
            bsr_dense parts[2][28] = {}; /* whose places on the device are known now */
            for (int i = 0; i < 28; i++)
                for (int which = 0; which < 2; which++)
                    if (there[which][i]) parts[which][i] = *there[which][i];
            return bsr_attention_merge(c, count, x ? parts[0] : nullptr, y ? parts[1] : nullptr, there_out, there_lse, e);
        });
}
/* The others build. */
TF bsr_status gm_build_scatter_indices(const bsr_context *ctx, const bsr_matrix *a, int64_t n, bsr_scatter_indices *x,
                                       const bsr_exec *exec) {
    gm_call g("bsr_build_scatter_indices", ctx, exec);
    auto da = g.map(a);
    auto dx = g.map(x, true);
    bool on_device = false;
    bsr_status s = g.run(
        true,
        GM_HOST {
            on_device = false;
            return bsr_build_scatter_indices(c, a, n, x, e);
        },
        GM_HOST {
            on_device = true;
            return bsr_build_scatter_indices(c, da, n, dx, e);
        });
    if (on_device && x) x->c_count = dx->c_count, x->r_count = dx->r_count, x->p_count = dx->p_count, x->q_count = dx->q_count;
    return s;
}
#define GM_TARGET [&](const bsr_context *c, bsr_matrix *t, const bsr_exec *e)
TF bsr_status gm_from_dense(const bsr_context *ctx, const bsr_dense *source, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_from_dense", ctx, exec);
    auto ds = g.map(source);
    return gm_build(
        &g, m, source ? source->rows : 0, GM_TARGET { return bsr_from_dense(c, source, t, e); },
        GM_TARGET { return bsr_from_dense(c, ds, t, e); });
}
TF int64_t gm_count_bytes(int64_t n, int dtype) { return n > 0 && n < GM_LIMIT ? n * (int64_t)bsr_dtype_size(dtype) : 0; }
TF bsr_status gm_from_csr(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *crow, const void *col,
                          int index_dtype, const void *values, int dtype, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_from_csr", ctx, exec);
    const void *dcrow = g.place(crow, gm_count_bytes(rows < GM_LIMIT ? rows + 1 : 0, index_dtype), false);
    const void *dcol = g.place(col, gm_count_bytes(nnz, index_dtype), false),
               *dvalues = g.place(values, gm_count_bytes(nnz, dtype), false);
    return gm_build(
        &g, m, rows, GM_TARGET { return bsr_from_csr(c, rows, cols, nnz, crow, col, index_dtype, values, dtype, t, e); },
        GM_TARGET { return bsr_from_csr(c, rows, cols, nnz, dcrow, dcol, index_dtype, dvalues, dtype, t, e); });
}
TF bsr_status gm_from_coo(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *row, const void *col,
                          int index_dtype, const void *values, int dtype, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_from_coo", ctx, exec);
    const void *drow = g.place(row, gm_count_bytes(nnz, index_dtype), false),
               *dcol = g.place(col, gm_count_bytes(nnz, index_dtype), false);
    const void *dvalues = g.place(values, gm_count_bytes(nnz, dtype), false);
    return gm_build(
        &g, m, rows, GM_TARGET { return bsr_from_coo(c, rows, cols, nnz, row, col, index_dtype, values, dtype, t, e); },
        GM_TARGET { return bsr_from_coo(c, rows, cols, nnz, drow, dcol, index_dtype, dvalues, dtype, t, e); });
}
TF bsr_status gm_reblock(const bsr_context *ctx, const bsr_matrix *source, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_reblock", ctx, exec);
    auto ds = g.map(source);
    return gm_build(
        &g, m, source ? source->rows : 0, GM_TARGET { return bsr_reblock(c, source, t, e); },
        GM_TARGET { return bsr_reblock(c, ds, t, e); });
}
/* CSR and COO are built as matrices of 1 x 1 blocks are. */
TF bsr_status gm_to_csr(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz, void *crow,
                        void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec) {
    gm_call g("bsr_to_csr", ctx, exec);
    bsr_matrix m = bsr_matrix_make(rows, cols, 1, 1, nnz ? *nnz : 0, crow, col, index_dtype, values, dtype);
    auto ds = g.map(source);
    const bsr_status s = gm_build(
        &g, &m, rows,
        GM_TARGET {
            return bsr_to_csr(c, source, rows, cols, nnz ? &t->nnz : nullptr, t->crow_indices, t->col_indices, index_dtype,
                              t->values, dtype, e);
        },
        GM_TARGET {
            return bsr_to_csr(c, ds, rows, cols, nnz ? &t->nnz : nullptr, t->crow_indices, t->col_indices, index_dtype, t->values,
                              dtype, e);
        });
    if (nnz) *nnz = m.nnz;
    return s;
}
TF bsr_status gm_to_coo(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz, void *crow,
                        void *row, void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec) {
    gm_call g("bsr_to_coo", ctx, exec);
    bsr_matrix m = bsr_matrix_make(rows, cols, 1, 1, nnz ? *nnz : 0, crow, col, index_dtype, values, dtype);
    auto ds = g.map(source);
    void *drow = g.place(row, gm_count_bytes(m.nnz, index_dtype), true);
    const bsr_status s = gm_build(
        &g, &m, rows,
        GM_TARGET {
            return bsr_to_coo(c, source, rows, cols, nnz ? &t->nnz : nullptr, t->crow_indices, row, t->col_indices, index_dtype,
                              t->values, dtype, e);
        },
        GM_TARGET {
            return bsr_to_coo(c, ds, rows, cols, nnz ? &t->nnz : nullptr, t->crow_indices, drow, t->col_indices, index_dtype,
                              t->values, dtype, e);
        });
    if (nnz) *nnz = m.nnz;
    return s;
}
TF int64_t gm_mask_bytes(const bsr_matrix *m) {
    if (!m || m->block_rows < 1 || m->block_cols < 1 || m->rows < 0 || m->cols < 0 || m->batch_dims < 0 || m->batch_dims > 4)
        return 0;
    __int128 n = (__int128)(m->rows / m->block_rows) * (m->cols / m->block_cols);
    for (int i = 0; i < m->batch_dims; i++) n = n > GM_LIMIT || m->batch[i] < 0 ? GM_LIMIT + 1 : n * m->batch[i];
    return n > GM_LIMIT ? 0 : (int64_t)n;
}
TF bsr_status gm_from_block_mask(const bsr_context *ctx, const uint8_t *mask, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_from_block_mask", ctx, exec);
    const uint8_t *dmask = (const uint8_t *)g.place(mask, gm_mask_bytes(m), false);
    return gm_build(
        &g, m, 0, GM_TARGET { return bsr_from_block_mask(c, mask, t, e); },
        GM_TARGET { return bsr_from_block_mask(c, dmask, t, e); });
}
TF bsr_status gm_random_pattern(const bsr_context *ctx, uint64_t seed, double sparsity, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_random_pattern", ctx, exec);
    return gm_build(
        &g, m, 0, GM_TARGET { return bsr_random_pattern(c, seed, sparsity, t, e); },
        GM_TARGET { return bsr_random_pattern(c, seed, sparsity, t, e); });
}
TF bsr_status gm_prune(const bsr_context *ctx, bsr_operand source, double sparsity, int norm, bsr_matrix *m,
                       const bsr_exec *exec) {
    gm_call g("bsr_prune", ctx, exec);
    bsr_operand ds = g.map(source);
    return gm_build(
        &g, m,
        source.dense    ? source.dense->rows
        : source.sparse ? source.sparse->rows
                        : 0,
        GM_TARGET { return bsr_prune(c, source, sparsity, norm, t, e); },
        GM_TARGET { return bsr_prune(c, ds, sparsity, norm, t, e); });
}
TF bsr_status gm_conv_prune(const bsr_context *ctx, const bsr_dense *filter, double sparsity, int norm, bsr_matrix *m,
                            const bsr_exec *exec) {
    gm_call g("bsr_conv_prune", ctx, exec);
    const bsr_dense *df = g.map(filter);
    return gm_build(
        &g, m, filter ? filter->rows : 0, GM_TARGET { return bsr_conv_prune(c, filter, sparsity, norm, t, e); },
        GM_TARGET { return bsr_conv_prune(c, df, sparsity, norm, t, e); });
}
TF int64_t gm_view_bytes(uint64_t bytes) { return bytes < (uint64_t)GM_LIMIT ? (int64_t)bytes : 0; }
TF bsr_status gm_build_transposed_index(const bsr_context *ctx, const bsr_matrix *m, void *buffer, uint64_t bytes,
                                        const bsr_exec *exec) {
    gm_call g("bsr_build_transposed_index", ctx, exec);
    auto dm = g.map(m);
    void *db = g.place(buffer, gm_view_bytes(bytes), true);
    return g.run(
        true, GM_HOST { return bsr_build_transposed_index(c, m, buffer, bytes, e); },
        GM_HOST { return bsr_build_transposed_index(c, dm, db, bytes, e); });
}
TF bsr_status gm_build_schedule(const bsr_context *ctx, const bsr_matrix *m, int group, int transposed, void *buffer,
                                uint64_t bytes, const bsr_exec *exec) {
    gm_call g("bsr_build_schedule", ctx, exec);
    auto dm = g.map(m);
    void *db = g.place(buffer, gm_view_bytes(bytes), true);
    return g.run(
        true, GM_HOST { return bsr_build_schedule(c, m, group, transposed, buffer, bytes, e); },
        GM_HOST { return bsr_build_schedule(c, dm, group, transposed, db, bytes, e); });
}
TF bsr_status gm_moe_topology(const bsr_context *ctx, const bsr_moe_routing *r, bsr_matrix *m, const bsr_exec *exec) {
    gm_call g("bsr_moe_topology", ctx, exec);
    auto dr = g.map(r);
    return gm_build(
        &g, m, 0, GM_TARGET { return bsr_moe_topology(c, r, t, e); }, GM_TARGET { return bsr_moe_topology(c, dr, t, e); });
}
TF bsr_status gm_moe_transposed_index(const bsr_context *ctx, const bsr_moe_routing *r, const bsr_matrix *m, void *buffer,
                                      uint64_t bytes, const bsr_exec *exec) {
    gm_call g("bsr_moe_transposed_index", ctx, exec);
    auto dr = g.map(r);
    auto dm = g.map(m);
    void *db = g.place(buffer, gm_view_bytes(bytes), true);
    return g.run(
        true, GM_HOST { return bsr_moe_transposed_index(c, r, m, buffer, bytes, e); },
        GM_HOST { return bsr_moe_transposed_index(c, dr, dm, db, bytes, e); });
}
/* A builder's kinds, of its columns. */
TF uint8_t *gm_kinds(gm_call *g, const bsr_matrix *m, uint8_t *kind) {
    const int64_t size = m ? (int64_t)bsr_dtype_size(m->index_dtype) : 0, bytes = size ? gm_array_bytes(m, 1) : 0;
    return (uint8_t *)g->place(kind, bytes > 0 ? bytes / size : 0, true);
}
TF bsr_status gm_block_mask(const bsr_context *ctx, int64_t lq, int64_t lk, const bsr_attention_options *o,
                            const bsr_matrix *within, bsr_matrix *m, uint8_t *kind, const bsr_exec *exec) {
    gm_call g("bsr_block_mask", ctx, exec);
    const bsr_attention_options *d_o = g.map(o);
    const bsr_matrix *d_within = g.map(within);
    uint8_t *d_kind = gm_kinds(&g, m, kind);
    return gm_build(
        &g, m, lq, GM_TARGET { return bsr_block_mask(c, lq, lk, o, within, t, kind, e); },
        GM_TARGET { return bsr_block_mask(c, lq, lk, d_o, d_within, t, d_kind, e); });
}
/* What only the CPU tells, as it looks at contents while it works: a column that a row's lists name twice. */
TF bool gm_lists_repeat(const bsr_block_lists *l, const bsr_matrix *m) {
    const int64_t lines = gm_mask_bytes(m) ? gm_mask_bytes(m) / (m->cols / m->block_cols) : 0;
    for (int64_t i = 0; i < lines; i++) {
        std::vector<bool> seen((size_t)(m->cols / m->block_cols));
        for (int of = 0; of < 2; of++) {
            const int32_t *counts = of ? l->full_counts : l->counts, *index = of ? l->full_indices : l->indices;
            for (int k = 0; counts && k < counts[i]; k++) {
                const size_t c = (size_t)index[i * (of ? l->full_width : l->width) + k];
                if (seen[c]) return true;
                seen[c] = true;
            }
        }
    }
    return false;
}
/* What a query of a call says, on the CPU. */
template <class F> static bsr_status gm_asked(const bsr_exec *exec, const F &call) {
    bsr_plan plan = BSR_ZERO;
    bsr_exec ask = exec ? *exec : bsr_exec();
    bsr_error error;
    ask.query = &plan, ask.error = &error, ask.plan = nullptr;
    return call(&ask);
}
TF bsr_status gm_from_block_lists(const bsr_context *ctx, const bsr_block_lists *l, bsr_matrix *m, uint8_t *kind,
                                  const bsr_exec *exec) {
    gm_call g("bsr_from_block_lists", ctx, exec);
    const auto asked = [&](const bsr_exec *e) { return bsr_from_block_lists(ctx, l, m, kind, e); };
    if (ctx && gm_asked(exec, asked) == BSR_OK && gm_lists_repeat(l, m)) {
        gm.contents++;
        return bsr_from_block_lists(ctx, l, m, kind, exec);
    }
    const bsr_block_lists *d_l = g.map(l, false);
    uint8_t *d_kind = gm_kinds(&g, m, kind);
    return gm_build(
        &g, m, 0, GM_TARGET { return bsr_from_block_lists(c, l, t, kind, e); },
        GM_TARGET { return bsr_from_block_lists(c, d_l, t, d_kind, e); });
}
TF bsr_status gm_to_block_lists(const bsr_context *ctx, const bsr_matrix *m, const uint8_t *kind, const bsr_block_lists *l,
                                const bsr_exec *exec) {
    gm_call g("bsr_to_block_lists", ctx, exec);
    const auto asked = [&](const bsr_exec *e) { return bsr_to_block_lists(ctx, m, kind, l, e); };
    if (ctx && gm_asked(exec, asked) == BSR_CAPACITY) {
        gm.contents++;
        return bsr_to_block_lists(ctx, m, kind, l, exec);
    }
    const bsr_matrix *dm = g.map(m);
    const uint8_t *d_kind = g.given(kind);
    const bsr_block_lists *d_l = g.map(l, true);
    return g.run(
        true, GM_HOST { return bsr_to_block_lists(c, m, kind, l, e); },
        GM_HOST { return bsr_to_block_lists(c, dm, d_kind, d_l, e); });
}
TF bsr_status gm_select_blocks(const bsr_context *ctx, const bsr_select *s, bsr_matrix *m, uint8_t *kind, const bsr_exec *exec) {
    gm_call g("bsr_select_blocks", ctx, exec);
    const bsr_select *ds = g.map(s);
    uint8_t *d_kind = gm_kinds(&g, m, kind);
    return gm_build(
        &g, m, 0, GM_TARGET { return bsr_select_blocks(c, s, t, kind, e); },
        GM_TARGET { return bsr_select_blocks(c, ds, t, d_kind, e); });
}
TF bsr_status gm_layout_mask(const bsr_context *ctx, const bsr_layout *layout, uint8_t *mask, const bsr_exec *exec) {
    gm_call g("bsr_layout_mask", ctx, exec);
    int64_t bytes = layout && layout->heads > 0 && layout->heads < 4096 && layout->blocks > 0 && layout->blocks < 1024
                        ? layout->heads * layout->blocks * layout->blocks
                        : 0;
    uint8_t *dmask = (uint8_t *)g.place(mask, bytes, true);
    return g.run(
        true, GM_HOST { return bsr_layout_mask(c, layout, mask, e); }, GM_HOST { return bsr_layout_mask(c, layout, dmask, e); });
}

/* ---------------------------------------------------------------------------------------------- */
/* contexts, cases, programs                                                                      */
/* ---------------------------------------------------------------------------------------------- */

/* The tests' contexts stay CPU contexts, of the portable and the default instruction set only; all of them stand for the one
   CUDA context. */
TF bsr_status gm_create(const bsr_context_desc *desc, bsr_context **out, bsr_error *error) {
    bsr_context_desc d;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    if (d.isa == BSR_ISA_AVX2 || d.isa == BSR_ISA_AVX512) {
        *out = NULL;
        return BSR_NO_BACKEND;
    }
    if (d.backend == BSR_BACKEND_DEFAULT) d.backend = BSR_BACKEND_CPU;
    return bsr_create(&d, out, error);
}

static const struct {
    const char *name, *reason;
} gm_host_only[] = {
    {"plans", "plans of the CPU backend; gpu_calls has those of the GPU"},
    {"plan_flags", "plans of the CPU backend; gpu_calls has those of the GPU"},
    {"contexts", "contexts of the CPU backend; gpu_calls has those of the GPU"},
    {"transposed_without_index", "threads and workspaces of the CPU backend; gpu_products has the device's"},
    {"bits_for_any_threads", "threads of the CPU backend"},
    {"timing", "seconds of the CPU backend"},
    {"same_bits", "threads, plans and workspaces of the CPU backend; gpu_gradients has the device's"},
    {"timing_ends", "the same"},
    {"more_blocks_than_counts", "counts beyond 64 bits are told by the CPU, which adds them up"},
    {"allocation_failures", "the allocator of the CPU backend"},
    {"workspace_replaces_allocator", "the allocator of the CPU backend"},
    {"numbers", "text parsers do not run on the device"},
    {"parsers_cut_and_changed", "text parsers do not run on the device"},
};
/* Called when a case is about to end. */
TF void gm_closing(void) {
    if (gm.direct) return;
    if (bt.open && bt.checks && !bt.skipped_case && !bt.bad && !gm.ran)
        bt_skip(gm.left_out   ? "left out by --every or --kernels"
                : gm.refused  ? "the forced tier does not take these calls"
                : gm.lacking  ? "the CUDA backend does not have the operation"
                : gm.contents ? "index contents (or how far buffers are apart) only matter on the CPU"
                              : "nothing in the case runs on the device");
    gm.ran = gm.lacking = gm.refused = gm.contents = gm.left_out = 0;
}
TF void gm_test(void) {
    for (size_t i = 0; i < sizeof gm_host_only / sizeof gm_host_only[0] && !gm.direct; i++)
        if (!strcmp(gm_host_only[i].name, bt.test)) {
            bt_skip(gm_host_only[i].reason);
            return;
        }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (size_t i = 0; i < gm.test_count; i++)
        if (!strcmp(gm.tests[i].name, bt.test)) gm.tests[i].run();
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (end.tv_sec - start.tv_sec >= 4) printf("     %s took %d s\n", bt.test, (int)(end.tv_sec - start.tv_sec)), fflush(stdout);
    gm_closing();
}
TF int gm_start(int argc, char **argv, const bt_test *tests, size_t count) {
    bsr_context_desc d;
    bsr_error error;
    cudaDeviceProp device;
    int kept = 1;
    gm.random = 200;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--tier") && i + 1 < argc) gm.tier = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--every") && i + 1 < argc) gm.every = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--kernels") && i + 1 < argc) gm.kernels = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--random") && i + 1 < argc) gm.random = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc) gm.seed = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--apart")) gm.apart = 1;
        else if (!strcmp(argv[i], "--odd")) gm.odd = 1;
        else argv[kept++] = argv[i];
    }
    memset(&d, 0, sizeof d);
    d.backend = GM_BACKEND;
    if (bsr_create(&d, &gm.ctx, &error) != BSR_OK) { /* a machine without a GPU, or one that the library fails on */
        int count = 0;
        const bool none = cudaGetDeviceCount(&count) != cudaSuccess || !count;
        printf("no CUDA context: %s\n0 passed, %d failed, %d skipped\n", cudaGetErrorString((cudaError_t)error.cuda_error), !none,
               none);
        exit(none ? 77 : 1);
    }
    if (cudaGetDeviceProperties(&device, 0) == cudaSuccess) printf("on %s%s\n", device.name, gm.tier ? ", one tier forced" : "");
    gm_cuda("making a stream", cudaStreamCreateWithFlags(&gm.stream, cudaStreamNonBlocking));
    if (!gm.apart) {
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&gm.arena, GM_ARENA));
        gm_cuda("in cudaMallocHost", cudaMallocHost((void **)&gm.stage, GM_ARENA));
    }
    gm.tests = tests, gm.test_count = count, gm_launches = gm.kernels ? gm.launches : nullptr;
    return kept;
}
TF void gm_end(void) {
    for (int i = 0, n = 0; i < GM_KERNELS && gm.kernels; i++)
        if (gm.launches[i]) printf(n++ ? " %d" : "launched: %d", i);
    if (gm.kernels) printf("\n");
    gm_launches = nullptr;
    cudaFree(gm.arena), cudaFreeHost(gm.stage), cudaFree(gm.workspace), cudaStreamDestroy(gm.stream);
    bsr_destroy(gm.ctx);
}
/* bt_main() of a CPU test program. */
TF int gm_main(int argc, char **argv, const bt_test *tests, size_t count) {
    bt_test *mine = (bt_test *)calloc(count, sizeof *mine);
    for (size_t i = 0; i < count; i++) mine[i].name = tests[i].name, mine[i].run = gm_test;
    bt_run("", gm_start(argc, argv, tests, count), argv, mine, count);
    gm_totals();
    gm_total[0] += bt.passed, gm_total[1] += bt.failed, gm_total[2] += bt.skipped;
    free(mine);
    gm_end();
    return bt.failed != 0;
}
/* bt_main() of a program written for the device. */
TF int gm_direct(int argc, char **argv, const bt_test *tests, size_t count) {
    bt_test *mine = (bt_test *)calloc(count, sizeof *mine);
    for (size_t i = 0; i < count; i++) mine[i].name = tests[i].name, mine[i].run = gm_test;
    gm.direct = 1;
    bt_run("", gm_start(argc, argv, tests, count), argv, mine, count);
    free(mine);
    gm_total[0] += bt.passed, gm_total[1] += bt.failed, gm_total[2] += bt.skipped;
    gm_end();
    return bt.failed != 0;
}

/* The CPU's operations, whatever their names stand for: T_ON_CPU(name). */
#define X(operation, ...) static constexpr auto gm_cpu_##operation = &bsr_##operation;
T_OPERATIONS(X)
#undef X
#define T_ON_CPU(operation) gm_cpu_##operation

#ifndef GM_NO_REDIRECT
#define bsr_create gm_create
#define bsr_dense_addmm gm_dense_addmm
#define bsr_dense_mm gm_dense_mm
#define bsr_scatter_mm gm_scatter_mm
#define bsr_build_scatter_indices gm_build_scatter_indices
#define bsr_dense_scatter_mm gm_dense_scatter_mm
#define bsr_matmul gm_matmul
#define bsr_matmul_backward gm_matmul_backward
#define bsr_sampled_addmm gm_sampled_addmm
#define bsr_sampled_gated gm_sampled_gated
#define bsr_moe_route gm_moe_route
#define bsr_moe_topology gm_moe_topology
#define bsr_moe_transposed_index gm_moe_transposed_index
#define bsr_moe_gather gm_moe_gather
#define bsr_moe_scatter gm_moe_scatter
#define bsr_moe_weight_gradient gm_moe_weight_gradient
#define bsr_sum_mm gm_sum_mm
#define bsr_softmax gm_softmax
#define bsr_softmax_backward gm_softmax_backward
#define bsr_map gm_map
#define bsr_reduce gm_reduce
#define bsr_quantise gm_quantise
#define bsr_dequantise gm_dequantise
#define bsr_conv gm_conv
#define bsr_conv_weight_gradient gm_conv_weight_gradient
#define bsr_chain_mm gm_chain_mm
#define bsr_sampled_chain_mm gm_sampled_chain_mm
#define bsr_attention gm_attention
#define bsr_attention_backward gm_attention_backward
#define bsr_attention_merge gm_attention_merge
#define bsr_validate gm_validate
#define bsr_to_dense gm_to_dense
#define bsr_from_dense gm_from_dense
#define bsr_from_csr gm_from_csr
#define bsr_from_coo gm_from_coo
#define bsr_to_csr gm_to_csr
#define bsr_to_coo gm_to_coo
#define bsr_reblock gm_reblock
#define bsr_from_block_mask gm_from_block_mask
#define bsr_random_pattern gm_random_pattern
#define bsr_prune gm_prune
#define bsr_conv_prune gm_conv_prune
#define bsr_build_transposed_index gm_build_transposed_index
#define bsr_build_schedule gm_build_schedule
#define bsr_layout_mask gm_layout_mask
#define bsr_block_mask gm_block_mask
#define bsr_from_block_lists gm_from_block_lists
#define bsr_to_block_lists gm_to_block_lists
#define bsr_pool_blocks gm_pool_blocks
#define bsr_select_blocks gm_select_blocks
#define bt_case(...) (gm_closing(), bt_case(__VA_ARGS__))
#undef bt_main
#define bt_main gm_main
#endif /* GM_NO_REDIRECT */

#endif /* BSR_MIRROR_H */
