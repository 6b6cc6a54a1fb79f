/* stand_in.h: a recording stand-in of the CUDA runtime, for machines without a GPU. Linked instead of libcudart with the
   library's object as nvcc compiles it. No kernel runs: launches are recorded, device memory is never touched, any call
   can be made to fail, and calls that an operation must not make are counted. One thread at a time. */
#ifndef BSR_STAND_IN_H
#define BSR_STAND_IN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct si_kernel { /* of the list that tests/test_cudart.sh makes from ptxas' report */
    const void *function;  /* host address: what a launch names */
    const char *name;      /* mangled */
    int known;             /* the list has it */
    int registers;
    size_t static_shared, dynamic_limit;
    int loaded[2]; /* on each device, by cudaFuncGetAttributes */
} si_kernel;

typedef struct si_launch {
    const si_kernel *kernel; /* null: no such kernel in the program */
    unsigned grid[3], block[3], cluster[3];
    size_t dynamic_shared, dynamic_limit; /* limit: as cudaFuncSetAttribute left it */
    const void *stream;
    int loaded; /* before this launch */
    int early;  /* may start before the kernel before it has ended */
    void *const *parameters;
} si_launch;

typedef struct si_device { /* what cudaDeviceGetAttribute tells */
    const char *name;
    int cc_major, cc_minor, sm_count;
    size_t shared_per_block, shared_optin;
} si_device;

enum { SI_QUERY, SI_LOAD, SI_LAUNCH, SI_ASYNC_FILL, SI_WAIT, SI_ALLOCATE, SI_SET_DEVICE };

typedef struct si_state {
    si_device device[2]; /* set by the test */
    int devices, current;
    int capturing;       /* what cudaStreamIsCapturing tells */
    int elsewhere;       /* streams are the other device's */
    int driver;          /* its version */
    long calls, fail_at; /* the fail_at-th call from now fails with fail_code; 0: none */
    int fail_code, last_error;
    const char *failed; /* name of the call that was made to fail */
    long after_failure; /* calls after it, cudaGetLastError not counted */
    int operation;      /* between begin and end of an operation: loading, waiting, allocating calls are forbidden */
    int may_wait;       /* ... but waiting is not */
    long forbidden;
    const char *forbidden_name;
    long launches, allocations; /* allocations: made less freed */
    int refuse_maps;            /* the tensor-map encoder says no */
    long maps, maps_refused;    /* encoded; refused */
    const char *map_wrong;      /* what was wrong with a map, other than the operands' sizes, strides and address */
    void (*on_launch)(const si_launch *launch);
    int (*is_device)(const void *pointer); /* for cudaPointerGetAttributes */
} si_state;
extern si_state si;

void si_restart(void);                                   /* counters to zero, nothing fails; devices and loaded kernels stay */
int si_read_kernels(const char *path, const char *arch); /* returns how many of the program's kernels the list has */
int si_kernel_count(void);
const si_kernel *si_kernel_at(int i);
void si_set_static_shared(int i, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif /* BSR_STAND_IN_H */
