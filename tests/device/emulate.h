/* emulate.h: enough of CUDA's names for kernels whose threads do not talk to each other: the sections of bsrsparse_kernels.cuh
   that look at index arrays, and copies line by line, run on the host, thread by thread, where a sanitizer sees what they read.
   tests/test_device.sh cuts them out, as they stand, into device.inc; what they need of other sections is here. */
#ifndef BSR_EMULATE_H
#define BSR_EMULATE_H

#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "bsr_test.h"

#ifdef BT_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define BSRI_BOUNDS(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

typedef const uint64_t *bsri_gate;
#define BSRI_GATE , bsri_gate gate
#define BSRI_ENTER (void)gate
static struct {
    unsigned x;
} threadIdx, blockIdx, gridDim;
static void bsri_pdl_launch_dependents(void) {}
static void bsri_pdl_wait(void) {}
template <class T> static T atomicMin(T *at, T v) {
    const T old = *at;
    return *at = old < v ? old : v, old;
}
template <class T> static T atomicMax(T *at, T v) {
    const T old = *at;
    return *at = old > v ? old : v, old;
}
template <class T> static T atomicAdd(T *at, T v) {
    const T old = *at;
    return *at = old + v, old;
}
template <class T> static T atomicOr(T *at, T v) {
    const T old = *at;
    return *at = old | v, old;
}
static char *bsri_dev_at(const void *base, int dtype, int64_t element) { return bsri_at(base, dtype, element); }
static bsri_item bsri_dev_matrix_item(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    return bsri_matrix_item(b, item, m);
}
static int bsri_dev_warp_sum(int x) { return x; } /* of kernels that are not run here */
static void __syncthreads(void) {}                /* of copies by tiles, which are not either */
struct uint4 {
    uint32_t x, y, z, w;
};
static uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static uint32_t __funnelshift_r(uint32_t low, uint32_t high, int bits) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (bits & 31));
}
#include "device.inc"

/* One launch: any grid, CTAs and threads in either order. */
template <class P> static void launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, unsigned threads) {
    const bool up = bt_below(2);
    if (work <= 0) return;
    gridDim.x = (unsigned)bt_range(1, bsri_min(work, 5));
    for (unsigned i = 0; i < gridDim.x * threads; i++) {
        const unsigned at = up ? i : gridDim.x * threads - 1 - i;
        blockIdx.x = at / threads, threadIdx.x = at % threads;
        kernel(p, NULL);
    }
}
#endif /* BSR_EMULATE_H */
