/* cta.h: enough of CUDA for whole kernels on the host: the threads of a CTA are coroutines that exchange numbers, wait at
   barriers, and share tensor cores and a copy engine, which do what they are asked for at once or as late as they may, as the
   case's number says. What is read too early, written too soon or never waited for is then seen in the results; a CTA in which
   nobody can go on is an error. One CTA runs at a time. No GPU and no nvcc is needed. */
#ifndef BSR_CTA_H
#define BSR_CTA_H

#include <functional>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
typedef const uint64_t *bsri_gate;
#define BSRI_GATE , bsri_gate gate
#define BSRI_ENTER (void)gate
#define BSRI_MMA_TIGHT 0
#define BSRI_MMA_FULL 0
#define BSRI_MMA_NARROW 0
static struct {
    unsigned x;
} threadIdx, blockIdx, gridDim, blockDim;

/* --- numbers --- */
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T, class S> static T bits_as(S s) {
    T t;
    static_assert(sizeof t == sizeof s, "another size");
    memcpy(&t, &s, sizeof t);
    return t;
}
static inline float __uint_as_float(uint32_t u) { return bits_as<float>(u); }
static inline float __int_as_float(int u) { return bits_as<float>(u); }
static inline uint32_t __float_as_uint(float f) { return bits_as<uint32_t>(f); }
static inline int __float_as_int(float f) { return bits_as<int>(f); }
static inline long long __double_as_longlong(double d) { return bits_as<long long>(d); }
struct __half {
    uint16_t u;
};
static __half __ushort_as_half(unsigned short u) { return {u}; }
static float __half2float(__half h) { return bsri_f16_to_f32(h.u); }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
static inline uint32_t __fns(uint32_t mask, int, int n) { /* from bit 0 on, the n-th one */
    for (uint32_t i = 0; i < 32; i++)
        if (mask >> i & 1 && !--n) return i;
    return ~0u;
}
static inline float __fdividef(float a, float b) { return a / b; }
static inline void __threadfence(void) {}
template <class T> static T atomicAdd(T *at, T v) {
    const T old = *at;
    return *at = old + v, old;
}

/* --- threads of a CTA --- */
enum { CTA = 384, STACK = 96 << 10, WARPS = CTA / 32, NAMED = 16 };
struct coroutine {
    ucontext_t start;
    jmp_buf here;
    std::vector<char> stack;
    int state; /* 0 not started, 1 running, 2 ended */
};
static coroutine threads[CTA];
static jmp_buf scheduler;
static std::function<void()> body;
static unsigned long events; /* grows while there is progress */
static bool late;            /* engines do things as late as they may */
static void yield(void) {
    coroutine *t = &threads[threadIdx.x];
    if (!_setjmp(t->here)) _longjmp(scheduler, 1);
}
struct meeting {
    int arrived;
    unsigned long turn;
    void arrive(int count) {
        if (++arrived == count) arrived = 0, turn++, events++;
    }
    void meet(int count) {
        const unsigned long now = turn;
        arrive(count);
        while (turn == now) yield();
    }
};
static meeting named[NAMED], warp_meeting[WARPS];
static int any_of_all;
static void __syncthreads(void) { named[0].meet((int)blockDim.x); }
static void bsri_named_sync(int number, int count) { named[number].meet(count); }
static void bsri_named_arrive(int number, int count) { events++, named[number].arrive(count); }
/* What each lane of a warp offers, and all of them read. Two places in turn: who is ahead is ahead by one exchange at most. */
struct warp_exchange {
    uint64_t slot[2][32];
    unsigned long turn[32];
};
static warp_exchange exchanges[WARPS];
template <class T> static const uint64_t *exchange(T v) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    warp_exchange &x = exchanges[warp];
    uint64_t(&slot)[32] = x.slot[x.turn[lane]++ % 2];
    slot[lane] = 0, memcpy(&slot[lane], &v, sizeof v);
    warp_meeting[warp].meet(32);
    return slot;
}
template <class T> static T shuffled(const uint64_t *slot, unsigned from) {
    T v;
    memcpy(&v, &slot[from % 32], sizeof v);
    return v;
}
static void __syncwarp(void) { warp_meeting[threadIdx.x / 32].meet(32); }
template <class T> static T __shfl_sync(unsigned, T v, int from) { return shuffled<T>(exchange(v), (unsigned)from); }
template <class T> static T __shfl_xor_sync(unsigned, T v, int d) {
    return shuffled<T>(exchange(v), threadIdx.x % 32 ^ (unsigned)d);
}
template <class T> static T __shfl_up_sync(unsigned, T v, int d) {
    const uint64_t *slot = exchange(v);
    return (int)(threadIdx.x % 32) < d ? v : shuffled<T>(slot, threadIdx.x % 32 - (unsigned)d);
}
template <class T> static T __shfl_down_sync(unsigned, T v, int d) {
    const uint64_t *slot = exchange(v);
    return (int)(threadIdx.x % 32) + d > 31 ? v : shuffled<T>(slot, threadIdx.x % 32 + (unsigned)d);
}
static unsigned __ballot_sync(unsigned, bool v) {
    const uint64_t *slot = exchange(v);
    unsigned all = 0;
    for (unsigned i = 0; i < 32; i++) all |= slot[i] ? 1u << i : 0u;
    return all;
}
static int __any_sync(unsigned, bool v) { return __ballot_sync(~0u, v) != 0; }
static int __all_sync(unsigned, bool v) { return __ballot_sync(~0u, v) == ~0u; }
static unsigned __reduce_min_sync(unsigned, unsigned v) {
    const uint64_t *slot = exchange(v);
    unsigned least = ~0u;
    for (unsigned i = 0; i < 32; i++) least = min(least, (unsigned)slot[i]);
    return least;
}
static unsigned __reduce_max_sync(unsigned, unsigned v) { return ~__reduce_min_sync(~0u, ~v); }
static int __reduce_max_sync(unsigned, int v) { return (int)(__reduce_max_sync(~0u, (unsigned)v ^ 1u << 31) ^ 1u << 31); }
static int __reduce_min_sync(unsigned, int v) { return (int)(__reduce_min_sync(~0u, (unsigned)v ^ 1u << 31) ^ 1u << 31); }
static unsigned __reduce_add_sync(unsigned, unsigned v) {
    const uint64_t *slot = exchange(v);
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i++) sum += (unsigned)slot[i];
    return sum;
}
static unsigned __match_any_sync(unsigned, int v) {
    const uint64_t *slot = exchange(v);
    unsigned same = 0;
    for (unsigned i = 0; i < 32; i++) same |= shuffled<int>(slot, i) == v ? 1u << i : 0u;
    return same;
}
static unsigned __reduce_or_sync(unsigned, unsigned v) {
    const uint64_t *slot = exchange(v);
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i++) sum |= (unsigned)slot[i];
    return sum;
}

/* --- shared memory, barriers --- */
enum { SHARED_BYTES = 227 << 10 };
alignas(1024) char bsri_flash_memory[SHARED_BYTES + 1024];
static uint32_t bsri_smem_address(const void *at) {
    const uintptr_t a = (uintptr_t)at, base = (uintptr_t)bsri_flash_memory;
    if (a < base || a >= base + SHARED_BYTES) bt_fail(__FILE__, __LINE__, "an address outside of shared memory"), abort();
    return (uint32_t)(a - base);
}
static char *shared_at(uint32_t at) {
    if (at >= SHARED_BYTES) bt_fail(__FILE__, __LINE__, "shared memory ends before %u", at), abort();
    return bsri_flash_memory + at;
}
struct mbarrier { /* as it stands in shared memory */
    uint16_t count, pending;
    int32_t tx : 31;
    uint32_t phase : 1;
};
static_assert(sizeof(mbarrier) == 8, "64 bits");
static mbarrier *barrier_at(uint32_t at) { return (mbarrier *)(void *)shared_at(at); }
static void barrier_look(mbarrier *b) {
    if (b->pending || b->tx) return;
    b->pending = b->count, b->phase ^= 1, events++;
}
static void bsri_mbarrier_init(uint32_t at, int count) {
    mbarrier *b = barrier_at(at);
    b->count = b->pending = (uint16_t)count, b->tx = 0, b->phase = 0;
}
static void bsri_mbarrier_init_fence(void) {}
static void bsri_mbarrier_arrive(uint32_t at) {
    mbarrier *b = barrier_at(at);
    if (!b->pending) bt_fail(__FILE__, __LINE__, "too many threads arrive at a barrier"), abort();
    b->pending--, events++, barrier_look(b);
}
static void bsri_mbarrier_expect_tx(uint32_t at, uint32_t bytes) {
    barrier_at(at)->tx += (int32_t)bytes;
    bsri_mbarrier_arrive(at);
}
static void bsri_mbarrier_wait(uint32_t at, uint32_t parity) {
    while (barrier_at(at)->phase == parity) yield();
}
static void bsri_pdl_launch_dependents(void) {}
static void bsri_pdl_wait(void) {}
template <int N> static void bsri_setmaxnreg_inc(void) {}
template <int N> static void bsri_setmaxnreg_dec(void) {}
static void bsri_fence_proxy_async(void) {}
static bool bsri_elect_one(void) { return threadIdx.x % 32 == 0; }
static void bsri_dev_opaque(uint32_t &) {}
template <int N = 0> struct bsri_pipe {
    uint32_t stage, phase;
    void advance(uint32_t stages = N) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

/* --- the copy engine --- */
struct tensor { /* what a map holds here */
    const char *base;
    int64_t size[5], stride[4];
    int32_t box[5], rank, bytes, swizzle;
};
static_assert(sizeof(tensor) <= sizeof(bsri_tma_map), "no room");
static int bsri_tensor_map(const bsr_context *, bsri_tma_map *map, int dtype, const void *base, int rank, const int64_t *size,
                           const int64_t *stride, const int32_t *box, int swizzle, int) {
    tensor t;
    memset(&t, 0, sizeof t);
    if ((uintptr_t)base % 16 || rank > 5) return 0;
    t.base = (const char *)base, t.rank = rank, t.bytes = (int32_t)bsr_dtype_size(dtype), t.swizzle = swizzle;
    for (int i = 0; i < rank; i++) {
        if (size[i] < 1 || size[i] > INT32_MAX || (i && (stride[i - 1] < 16 || stride[i - 1] % 16))) return 0;
        if (box[i] < 1 || box[i] > 256 || (i == 0 && box[i] * t.bytes > (swizzle ? swizzle : 256))) return 0;
        t.size[i] = size[i], t.box[i] = box[i];
        if (i) t.stride[i - 1] = stride[i - 1];
    }
    memcpy(map, &t, sizeof t);
    return 1;
}
static void bsri_tma_prefetch(const bsri_tma_map *) {}
/* Where a byte stands in atoms of 8 lines of 128 bytes, or of 64. */
static uint32_t swizzled(uint32_t at, int swizzle) {
    return swizzle == 128 ? at ^ (at >> 7 & 7) << 4 : swizzle == 64 ? at ^ (at >> 7 & 3) << 4 : at;
}
struct tma_load {
    uint32_t to, barrier;
    tensor t;
    int at[5];
    void run(void) const {
        const int64_t lines = (int64_t)t.box[1] * (t.rank > 2 ? t.box[2] : 1) * (t.rank > 3 ? t.box[3] : 1);
        uint32_t out = to;
        for (int64_t line = 0; line < lines; line++)
            for (int c = 0; c < t.box[0]; c++, out += (uint32_t)t.bytes) {
                int64_t n = line, offset = 0;
                bool in = at[0] + c >= 0 && at[0] + c < t.size[0];
                for (int i = 1; i < t.rank; i++) {
                    const int64_t k = at[i] + n % t.box[i];
                    n /= t.box[i], in &= k >= 0 && k < t.size[i], offset += k * t.stride[i - 1];
                }
                char *const place = shared_at(swizzled(out, t.swizzle));
                if (in) memcpy(place, t.base + offset + (at[0] + c) * t.bytes, (size_t)t.bytes);
                else memset(place, 0, (size_t)t.bytes);
            }
        mbarrier *b = barrier_at(barrier);
        b->tx -= (int32_t)(out - to), events++, barrier_look(b);
    }
};
static std::vector<tma_load> loads;
static void bsri_tma_load(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int c0, int c1, int c2 = 0, int c3 = 0,
                          int c4 = 0) {
    tma_load l = {to, barrier, {}, {c0, c1, c2, c3, c4}};
    memcpy(&l.t, map, sizeof l.t);
    if (to % (l.t.swizzle == 128 ? 1024 : 128)) bt_fail(__FILE__, __LINE__, "a box at %u in shared memory", to);
    if (late) loads.push_back(l);
    else l.run();
}
static void run_arrivals(bool all);
static void run_loads(bool all) { /* in any order */
    run_arrivals(all);
    while (!loads.empty() && (all || bt_below(3) == 0)) {
        const size_t i = bt_below(loads.size());
        const tma_load l = loads[i];
        loads[i] = loads.back(), loads.pop_back();
        l.run();
    }
}

/* --- tensor stores: what they read is read as late as it may --- */
struct tma_store {
    uint32_t from;
    tensor t;
    int at[4], group;
    void run(void) const {
        const int64_t lines = (int64_t)t.box[1] * t.box[2] * t.box[3];
        uint32_t in = from;
        for (int64_t line = 0; line < lines; line++)
            for (int c = 0; c < t.box[0]; c++, in += (uint32_t)t.bytes) {
                int64_t n = line, offset = 0;
                bool inside = at[0] + c >= 0 && at[0] + c < t.size[0];
                for (int i = 1; i < 4; i++) {
                    const int64_t k = at[i] + n % t.box[i];
                    n /= t.box[i], inside &= k >= 0 && k < t.size[i], offset += k * t.stride[i - 1];
                }
                if (inside)
                    memcpy((char *)(uintptr_t)t.base + offset + (at[0] + c) * t.bytes, shared_at(swizzled(in, t.swizzle)),
                           (size_t)t.bytes);
            }
    }
};
static std::vector<tma_store> stores[CTA];
static int store_group[CTA];
static void bsri_tma_store(const bsri_tma_map *map, uint32_t from, int c0, int c1, int c2, int c3, uint64_t) {
    tma_store s = {from, {}, {c0, c1, c2, c3}, store_group[threadIdx.x]};
    memcpy(&s.t, map, sizeof s.t);
    if (late) stores[threadIdx.x].push_back(s);
    else s.run();
}
static void bsri_tma_commit(void) { store_group[threadIdx.x]++; }
template <int N> static void bsri_tma_wait_read(void) {
    std::vector<tma_store> &mine = stores[threadIdx.x];
    size_t n = 0;
    for (; n < mine.size() && mine[n].group < store_group[threadIdx.x] - N; n++) mine[n].run();
    mine.erase(mine.begin(), mine.begin() + (long)n);
}

/* --- cp.async: copies of 16 bytes, or 4 --- */
struct async_copy {
    uint32_t to;
    const char *from;
    int bytes, group, size;
};
static std::vector<async_copy> copies[CTA];
static int copy_group[CTA];
static void run_copy(const async_copy &c) {
    char *to = shared_at(c.to);
    memset(to, 0, (size_t)c.size);
    if (c.bytes > 0) memcpy(to, c.from, (size_t)c.bytes);
}
static void bsri_cp_async(uint32_t to, const void *from, int bytes = 16) {
    const async_copy c = {to, (const char *)from, bytes, copy_group[threadIdx.x], 16};
    if (to % 16 || (bytes && (uintptr_t)from % 16)) bt_fail(__FILE__, __LINE__, "a copy of 16 bytes is not aligned");
    if (late) copies[threadIdx.x].push_back(c);
    else run_copy(c);
}
static void bsri_cp_async_4(uint32_t to, const void *from) {
    const async_copy c = {to, (const char *)from, 4, copy_group[threadIdx.x], 4};
    if (to % 4 || (uintptr_t)from % 4) bt_fail(__FILE__, __LINE__, "a copy of 4 bytes is not aligned");
    if (late) copies[threadIdx.x].push_back(c);
    else run_copy(c);
}
static void bsri_cp_async_commit(void) { copy_group[threadIdx.x]++; }
template <int PENDING> static void bsri_cp_async_wait(void) {
    std::vector<async_copy> &mine = copies[threadIdx.x], rest;
    for (const async_copy &c : mine)
        if (c.group < copy_group[threadIdx.x] - PENDING) run_copy(c);
        else rest.push_back(c);
    mine = rest;
}
/* A barrier that counts a thread when its copies so far have landed: a thread's own one after another. */
struct copies_then {
    std::vector<async_copy> copies;
    uint32_t barrier;
};
static std::vector<copies_then> arrivals[CTA];
static int arrivals_left;
static void bsri_cp_async_arrive(uint32_t barrier) {
    if (!late) {
        bsri_mbarrier_arrive(barrier);
        return;
    }
    arrivals[threadIdx.x].push_back({copies[threadIdx.x], barrier}), copies[threadIdx.x].clear(), arrivals_left++;
}
static void run_arrivals(bool all) {
    for (int t = 0; t < CTA && arrivals_left; t++)
        while (!arrivals[t].empty() && (all || bt_below(3) == 0)) {
            for (const async_copy &c : arrivals[t][0].copies) run_copy(c);
            bsri_mbarrier_arrive(arrivals[t][0].barrier);
            arrivals[t].erase(arrivals[t].begin()), arrivals_left--;
        }
}

/* --- tensor cores --- */
static uint64_t bsri_wgmma_desc_address(uint32_t at) { return at & 0x3ffff; }
template <int LINE> static uint64_t bsri_wgmma_desc(uint32_t at, uint32_t far) {
    return bsri_wgmma_desc_bits(LINE, far) | bsri_wgmma_desc_address(at) >> 4;
}
struct wgmma_step { /* of a warpgroup; what each thread said */
    int n, a_type, b_type, across, told, group; /* columns; op(B)'s products lie across lines */
    void *d[128];
    const uint32_t *a[128]; /* null: in shared memory */
    uint64_t desc_a, desc_b;
    int keep[128];

    static float number(const char *at, int dtype) {
        static float bytes[32][256];
        uint16_t h;
        if (bsr_dtype_size(dtype) == 1) {
            if (bytes[dtype][1] == 0)
                for (int i = 0; i < 256; i++) {
                    const uint8_t u = (uint8_t)i;
                    bytes[dtype][i] = (float)bsri_load_f64(&u, dtype, 0);
                }
            return bytes[dtype][(uint8_t)*at];
        }
        memcpy(&h, at, 2);
        return dtype == BSR_F16 ? bsri_f16_to_f32(h) : bsri_bf16_to_f32(h);
    }
    static float operand(uint64_t desc, int dtype, int line, int k, bool turned) {
        const uint32_t at = (uint32_t)(desc & 0x3fff) << 4, far = (uint32_t)(desc >> 16 & 0x3fff) << 4;
        const uint32_t eight = (uint32_t)(desc >> 32 & 0x3fff) << 4, bytes = (uint32_t)bsr_dtype_size(dtype);
        const int swizzle = desc >> 62 == 1 ? 128 : 64;
        uint32_t place;
        if (turned)
            place = at + (uint32_t)(line / 64) * far + (uint32_t)(k / 8) * eight + (uint32_t)(k % 8 * 128 + line % 64 * 2);
        else place = at + (uint32_t)(line / 8) * eight + (uint32_t)(line % 8 * swizzle) + (uint32_t)k * bytes;
        return number(shared_at(swizzled(place, swizzle)), dtype);
    }
    void run(void) const {
        static float a_of[64][32], b_of[256][32];
        const int bytes = (int)bsr_dtype_size(a_type), ks = 32 / bytes, each = 4 / bytes; /* products; of a register */
        for (int m = 0; m < 64; m++)
            for (int k = 0; k < ks; k++) {
                const int t = m / 16 * 32 + m % 8 * 4 + k % (4 * each) / each;
                const uint32_t *w = a[t];
                a_of[m][k] = w ? number((const char *)&w[m % 16 / 8 + k / (4 * each) * 2] + k % each * bytes, a_type)
                               : operand(desc_a, a_type, m, k, false);
            }
        for (int j = 0; j < n; j++)
            for (int k = 0; k < ks; k++) b_of[j][k] = operand(desc_b, b_type, j, k, across);
        for (int t = 0; t < 128; t++)
            for (int i = 0; i < n / 2; i++) {
                const int m = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, j = i / 4 * 8 + t % 4 * 2 + i % 2;
                if (a_type == BSR_I8) {
                    int32_t s = keep[t] ? ((int32_t *)d[t])[i] : 0;
                    for (int k = 0; k < ks; k++) s += (int32_t)a_of[m][k] * (int32_t)b_of[j][k];
                    ((int32_t *)d[t])[i] = s;
                } else {
                    float s = keep[t] ? ((float *)d[t])[i] : 0;
                    for (int k = 0; k < ks; k++) s += a_of[m][k] * b_of[j][k];
                    ((float *)d[t])[i] = s;
                }
            }
    }
};
struct warpgroup {
    std::vector<wgmma_step> steps;
    long first, said[128], committed[128]; /* number of steps[0]; steps, groups of each thread */
    meeting together;
};
static warpgroup warpgroups[CTA / 128];
template <int N>
static void wgmma_say(int a_type, int b_type, int across, void *d, const uint32_t *a, uint64_t x, uint64_t y, int keep) {
    const unsigned t = threadIdx.x % 128;
    warpgroup &w = warpgroups[threadIdx.x / 128];
    const long at = w.said[t]++ - w.first;
    if (at == (long)w.steps.size()) w.steps.push_back(wgmma_step());
    wgmma_step &s = w.steps[(size_t)at];
    if (!s.told++) s.n = N, s.a_type = a_type, s.b_type = b_type, s.across = across, s.desc_a = x, s.desc_b = y;
    if (s.n != N || s.desc_a != x || s.desc_b != y) bt_fail(__FILE__, __LINE__, "threads of a warpgroup differ in a wgmma");
    s.d[t] = d, s.a[t] = a, s.keep[t] = keep, s.group = (int)w.committed[t];
    if (!late && s.told == 128) s.run();
}
static void bsri_wgmma_fence(void) {}
static void bsri_wgmma_commit(void) { warpgroups[threadIdx.x / 128].committed[threadIdx.x % 128]++; }
template <int PENDING> static void bsri_wgmma_wait(void) {
    warpgroup &w = warpgroups[threadIdx.x / 128];
    const long until = w.committed[threadIdx.x % 128] - PENDING;
    const unsigned long now = w.together.turn;
    if (w.together.arrived == 127) {
        size_t n = 0;
        for (; n < w.steps.size() && w.steps[n].group < until; n++) {
            if (w.steps[n].told != 128) bt_fail(__FILE__, __LINE__, "not all threads of a warpgroup said a wgmma");
            if (late) w.steps[n].run();
        }
        w.steps.erase(w.steps.begin(), w.steps.begin() + (long)n), w.first += (long)n;
    }
    w.together.arrive(128);
    while (w.together.turn == now) yield();
}
template <class T, int N> static void bsri_wgmma_done(T (&)[N]) {}
template <class T, int N, int TA = 0, int TB = 0> struct bsri_wgmma { /* TA, TB: of 8-bit floats which format they are */
    static constexpr int BYTE = T::BYTES == 1, A = BYTE && TA ? BSR_E5M2 : T::DTYPE, B = BYTE && TB ? BSR_E5M2 : T::DTYPE;
    static void ss(typename T::sum (&d)[N / 2], uint64_t a, uint64_t b, int keep = 1) {
        wgmma_say<N>(A, B, BYTE ? 0 : TB, d, NULL, a, b, keep);
    }
    static void rs(typename T::sum (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int keep = 1) {
        wgmma_say<N>(A, B, BYTE ? 0 : TB, d, a, 0, b, keep);
    }
};

/* --- launches --- */
static void run_thread(void) {
    body();
    threads[threadIdx.x].state = 2;
    _longjmp(scheduler, 1);
}
static void run_cta(void) {
    static volatile int left, i, step, idle;
    static volatile unsigned long before;
    memset(bsri_flash_memory, 0xff, sizeof bsri_flash_memory); /* NaN */
    memset(named, 0, sizeof named), memset(warp_meeting, 0, sizeof warp_meeting), memset(exchanges, 0, sizeof exchanges);
    for (warpgroup &w : warpgroups) w = warpgroup();
    for (int k = 0; k < CTA; k++) copies[k].clear(), arrivals[k].clear(), copy_group[k] = 0;
    arrivals_left = 0;
    for (int k = 0; k < CTA; k++) stores[k].clear(), store_group[k] = 0;
    loads.clear(), left = (int)blockDim.x, idle = 0;
    for (int k = 0; k < (int)blockDim.x; k++) {
        coroutine *t = &threads[k];
        t->state = 0;
        if (t->stack.empty()) t->stack.resize(STACK);
        getcontext(&t->start);
        t->start.uc_stack.ss_sp = t->stack.data(), t->start.uc_stack.ss_size = STACK, t->start.uc_link = NULL;
        makecontext(&t->start, run_thread, 0);
    }
    while (left) {
        left = 0, before = events;
        step = bt_below(2) ? 1 : -1;
        for (i = step > 0 ? 0 : (int)blockDim.x - 1; i >= 0 && i < (int)blockDim.x; i = i + step) {
            coroutine *t = &threads[i];
            if (t->state == 2) continue;
            threadIdx.x = (unsigned)i;
            if (!_setjmp(scheduler)) {
                if (t->state) _longjmp(t->here, 1);
                t->state = 1, events++;
                setcontext(&t->start);
            }
            if (threads[i].state != 2) left = left + 1;
            else events++;
        }
        run_loads(false);
        if (events == before) run_loads(true);
        idle = events == before ? idle + 1 : 0;
        if (idle > 3) {
            bt_fail(__FILE__, __LINE__, "nobody can go on: %d threads wait", left);
            return;
        }
    }
    for (warpgroup &w : warpgroups)
        if (!w.steps.empty()) bt_fail(__FILE__, __LINE__, "a wgmma was never waited for");
    for (int k = 0; k < CTA; k++)
        if (!stores[k].empty()) bt_fail(__FILE__, __LINE__, "a tensor store was never waited for");
}
static long launches;
template <class P> static void launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t grid, unsigned of) {
    gridDim.x = (unsigned)grid, blockDim.x = of, launches++, late = bt_below(2);
    body = [&] { kernel(p, NULL); };
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_cta();
}
#endif /* BSR_CTA_H */
