/* What the examples share: which backend runs, calls that must succeed, memory. Included by example.h. */
#ifndef BACKEND_H
#define BACKEND_H
#include "bsrsparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__CUDACC__) && !defined(BSRSPARSE_NO_CUDA)
#define EXAMPLE_CUDA
#endif

static int on_gpu; /* the backend that runs is CUDA; set by open_backend() */

/* Ends the program with one line where a call failed. `error` is the record that the call was given. What the GPU was given to
   do is done when this returns: the examples read results on the CPU. */
static inline void require(bsr_status status, const bsr_error *error, const char *what) {
    char line[320];
#ifdef EXAMPLE_CUDA
    if (status == BSR_OK && on_gpu && cudaDeviceSynchronize() != cudaSuccess)
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError())), exit(1);
#endif
    if (status == BSR_OK) return;
    bsr_error_string(error, line, sizeof line);
    fprintf(stderr, "%s: %s\n", what, line);
    exit(1);
}
#define REQUIRE(call, error) require(call, error, #call)

/* The context that runs, on the backend that --backend cpu|cuda names: CUDA by default where the program was compiled by nvcc and
   there is a GPU. *builder is a context of the CPU, for making matrices. */
static inline bsr_context *open_backend(int argc, char **argv, int64_t threads, bsr_context **builder) {
    bsr_context_desc desc = BSR_ZERO;
    bsr_context *ctx;
    bsr_error error;
    bsr_info info;
    int i;
    for (i = 1; i < argc; i++) {
        const char *name = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--backend")) continue;
        desc.backend = !strcmp(name, "cuda") ? BSR_BACKEND_CUDA : BSR_BACKEND_CPU;
        if (!strcmp(name, "cpu") || !strcmp(name, "cuda")) continue;
        fprintf(stderr, "--backend: cpu or cuda\n");
        exit(1);
    }
    desc.threads = (int32_t)threads;
    REQUIRE(bsr_create(&desc, &ctx, &error), &error);
    desc.backend = BSR_BACKEND_CPU;
    REQUIRE(bsr_create(&desc, builder, &error), &error);
    bsr_query_info(ctx, &info);
    on_gpu = info.backend == BSR_BACKEND_CUDA;
    return ctx;
}
static inline void print_backend(const bsr_context *ctx) {
    bsr_info info;
    bsr_query_info(ctx, &info);
    printf("bsrsparse %d.%d.%d, %s backend, ", BSR_VERSION_MAJOR, BSR_VERSION_MINOR, BSR_VERSION_PATCH, info.backend_name);
    if (on_gpu) printf("sm_%d%d, %d multiprocessors\n", (int)info.cc_major, (int)info.cc_minor, (int)info.sm_count);
    else printf("%s, %d thread%s\n", info.isa_name, (int)info.threads, info.threads == 1 ? "" : "s");
}

/* Zeroed memory, never null, that the CPU can reach and so can the GPU if there is one in use. */
static inline void *allocate(int64_t count, size_t size) {
    void *p = NULL;
    if (count >= 0 && (uint64_t)count < SIZE_MAX / 2 / size) {
        const size_t n = count > 0 ? (size_t)count : 1;
#ifdef EXAMPLE_CUDA
        if (on_gpu) p = cudaMallocManaged(&p, n * size) == cudaSuccess ? memset(p, 0, n * size) : NULL;
        else
#endif
            p = calloc(n, size);
    }
    if (p) return p;
    fprintf(stderr, "out of memory: %lld x %lu bytes\n", (long long)count, (unsigned long)size);
    exit(1);
}
static inline void release(void *p) {
#ifdef EXAMPLE_CUDA
    if (on_gpu) cudaFree(p);
    else
#endif
        free(p);
}

#endif
