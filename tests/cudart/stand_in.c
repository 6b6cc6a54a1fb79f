/* stand_in.c: see stand_in.h. The entry points with two leading underscores are those that nvcc's host code calls; they are
   private to each toolkit: this is what versions 12 and 13 use. */
#include "stand_in.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define SI_KERNELS 4096
si_state si;
static si_kernel kernels[SI_KERNELS];
static int kernel_count;

void si_restart(void) {
    si.calls = si.fail_at = si.after_failure = si.forbidden = si.launches = si.maps = si.maps_refused = 0;
    si.fail_code = si.last_error = si.capturing = si.elsewhere = si.refuse_maps = 0;
    si.failed = si.forbidden_name = si.map_wrong = NULL, si.driver = 13000;
}
int si_kernel_count(void) { return kernel_count; }
const si_kernel *si_kernel_at(int i) { return &kernels[i]; }
void si_set_static_shared(int i, size_t bytes) { kernels[i].static_shared = bytes; }

static si_kernel *find(const void *function) {
    int i;
    for (i = 0; i < kernel_count; i++)
        if (kernels[i].function == function) return &kernels[i];
    return NULL;
}

/* Lines "arch registers shared stack spill_stores spill_loads mangled ...", as tests/test_cudart.sh writes them. */
int si_read_kernels(const char *path, const char *arch) {
    char line[8192], a[32], name[4096];
    int registers, found = 0, i;
    unsigned long shared;
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%31s %d %lu %*d %*d %*d %4095s", a, &registers, &shared, name) != 4 || strcmp(a, arch)) continue;
        for (i = 0; i < kernel_count; i++) {
            if (strcmp(kernels[i].name, name)) continue;
            kernels[i].known = 1, kernels[i].registers = registers, kernels[i].static_shared = shared, found++;
        }
    }
    fclose(f);
    return found;
}

/* Every entry point starts here: counts, and fails where the test wants it. */
static cudaError_t enter(const char *name, int kind) {
    if (si.operation && (kind == SI_LOAD || kind == SI_ALLOCATE || kind == SI_SET_DEVICE || (kind == SI_WAIT && !si.may_wait)))
        si.forbidden++, si.forbidden_name = name;
    if (si.failed) si.after_failure++;
    if (++si.calls != si.fail_at) return cudaSuccess;
    si.failed = name;
    return (cudaError_t)(si.last_error = si.fail_code);
}
static cudaError_t refuse(cudaError_t e) { return (cudaError_t)(si.last_error = (int)e); }
#define ENTER(kind)                                   \
    do {                                              \
        const cudaError_t e_ = enter(__func__, kind); \
        if (e_ != cudaSuccess) return e_;             \
    } while (0)

/* ---- what nvcc's host code calls ---- */

void **__cudaRegisterFatBinary(void *fat);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid, uint3 *bid,
                            dim3 *bdim, dim3 *gdim, int *wsize);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant, int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);

static void *module[1];
void **__cudaRegisterFatBinary(void *fat) { return (void)fat, module; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { return (void)handle, 0; }
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid, uint3 *bid,
                            dim3 *bdim, dim3 *gdim, int *wsize) {
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)bdim, (void)gdim, (void)wsize;
    if (kernel_count == SI_KERNELS) return;
    kernels[kernel_count].function = host, kernels[kernel_count].name = name;
    kernels[kernel_count++].dynamic_limit = 48 * 1024;
}

static struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)(size_t)function;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}

/* ---- launches ---- */

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **args, size_t shared, const void *stream,
                          const unsigned *cluster, int early) {
    si_kernel *k = find(function);
    si_launch l;
    memset(&l, 0, sizeof l);
    l.kernel = k, l.stream = stream, l.dynamic_shared = shared, l.early = early, l.parameters = args;
    l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
    l.cluster[0] = cluster[0], l.cluster[1] = cluster[1], l.cluster[2] = cluster[2];
    l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
    if (k) l.loaded = k->loaded[si.current], l.dynamic_limit = k->dynamic_limit;
    if (k && k->dynamic_limit == 48 * 1024) l.dynamic_limit -= k->static_shared < 48 * 1024 ? k->static_shared : 48 * 1024;
    si.launches++;
    if (si.on_launch) si.on_launch(&l);
    return k ? cudaSuccess : refuse(cudaErrorInvalidDeviceFunction);
}
static const unsigned one[3] = {1, 1, 1};
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    ENTER(SI_LAUNCH);
    if (!args) return refuse(cudaErrorInvalidValue);
    return launch(function, grid, block, args, shared, stream, one, 0);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args) {
    unsigned cluster[3] = {1, 1, 1}, i;
    int early = 0;
    ENTER(SI_LAUNCH);
    if (!args || config->numAttrs > 4) return refuse(cudaErrorInvalidValue);
    for (i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            cluster[0] = config->attrs[i].val.clusterDim.x, cluster[1] = config->attrs[i].val.clusterDim.y,
            cluster[2] = config->attrs[i].val.clusterDim.z;
        else if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            early = config->attrs[i].val.programmaticStreamSerializationAllowed;
    return launch(function, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream, cluster, early);
}
cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream) {
    (void)value, (void)bytes, (void)stream;
    ENTER(SI_ASYNC_FILL);
    return data || !bytes ? cudaSuccess : refuse(cudaErrorInvalidValue);
}

/* ---- devices and kernels ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    ENTER(SI_QUERY);
    *count = si.devices;
    return si.devices ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device) {
    ENTER(SI_QUERY);
    *device = si.current;
    return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    ENTER(SI_QUERY);
    (void)stream;
    *device = si.elsewhere ? !si.current : si.current;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    ENTER(SI_SET_DEVICE);
    if (device < 0 || device >= si.devices) return refuse(cudaErrorInvalidDevice);
    si.current = device;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    const si_device *d = &si.device[device & 1];
    ENTER(SI_QUERY);
    if (device < 0 || device >= si.devices) return refuse(cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = d->sm_count; break;
        case cudaDevAttrComputeCapabilityMajor: *value = d->cc_major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = d->cc_minor; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)d->shared_per_block; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)d->shared_optin; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)d->shared_optin + 1024; break;
        case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = d->cc_major == 7 ? 1024 : 2048; break;
        case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrL2CacheSize: *value = 40 << 20; break;
        case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    ENTER(SI_QUERY);
    if (device < 0 || device >= si.devices) return refuse(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    strcpy(p->name, "Stand-in");
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function) {
    si_kernel *k = find(function);
    ENTER(SI_LOAD);
    if (!k) return refuse(cudaErrorInvalidDeviceFunction);
    if (si.device[si.current].cc_major * 10 + si.device[si.current].cc_minor < 75) return refuse(cudaErrorNoKernelImageForDevice);
    memset(a, 0, sizeof *a);
    a->sharedSizeBytes = k->static_shared, a->numRegs = k->registers, a->maxThreadsPerBlock = 1024;
    a->ptxVersion = a->binaryVersion = si.device[si.current].cc_major * 10 + si.device[si.current].cc_minor;
    k->loaded[si.current] = 1;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    si_kernel *k = find(function);
    ENTER(SI_LOAD);
    if (!k) return refuse(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value + k->static_shared > si.device[si.current].shared_optin) return refuse(cudaErrorInvalidValue);
    k->dynamic_limit = (size_t)value;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared,
                                                                   unsigned flags) {
    (void)function, (void)threads, (void)shared, (void)flags;
    ENTER(SI_QUERY);
    *blocks = 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
/* The tensor-map encoder, with the limits of the driver's manual. Sizes, strides and address are the operands': what does not fit
   is refused, and counted. Boxes, swizzles and types are the library's own choice: a wrong one is noted. */
static int refuse_map(const char *wrong) {
    if (wrong) si.map_wrong = wrong;
    return si.maps_refused++, 1;
}
static int encode_tiled(void *map, int type, unsigned rank, void *address, const unsigned long long *size,
                        const unsigned long long *stride, const unsigned *box, const unsigned *element, int interleave,
                        int swizzle, int l2, int fill) {
    static const unsigned bytes_of[13] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}, swizzle_of[4] = {0, 32, 64, 128};
    unsigned i, line;
    if (si.refuse_maps) return refuse_map(NULL);
    if (!map || (size_t)map % 64) return refuse_map("a tensor map is not on 64 bytes");
    if (rank < 1 || rank > 5) return refuse_map("a tensor map's rank");
    if (type < 0 || type > 12 || interleave != 0 || l2 < 0 || l2 > 3 || fill < 0 || fill > 1)
        return refuse_map("a tensor map's type, interleave, L2 promotion or fill"); /* the library interleaves nothing */
    if (swizzle < 0 || swizzle > 3) return refuse_map("a tensor map's swizzle");
    for (i = 0; i < rank; i++) {
        if (!box[i] || box[i] > 256) return refuse_map("a box of a tensor map is 0 or above 256");
        if (!element[i] || element[i] > 8) return refuse_map("an element stride of a tensor map");
    }
    line = box[0] * bytes_of[type];
    if (line % 16) return refuse_map("the inner box of a tensor map is no multiple of 16 bytes");
    if (swizzle && line > swizzle_of[swizzle]) return refuse_map("the inner box of a tensor map is wider than its swizzle");
    if (!address || (size_t)address % 16) return refuse_map(NULL);
    for (i = 0; i < rank; i++)
        if (!size[i] || size[i] > 1ull << 32) return refuse_map(NULL);
    for (i = 0; i + 1 < rank; i++)
        if (stride[i] % 16 || stride[i] >= 1ull << 40) return refuse_map(NULL);
    memset(map, 0, 128);
    return si.maps++, 0;
}
/* The same for images. */
static int encode_im2col(void *map, int type, unsigned rank, void *address, const unsigned long long *size,
                         const unsigned long long *stride, const int *low, const int *high, unsigned channels, unsigned pixels,
                         const unsigned *element, int interleave, int swizzle, int l2, int fill) {
    static const int most[3] = {32768, 128, 16};
    static const unsigned swizzle_of[4] = {0, 32, 64, 128};
    unsigned i;
    if (si.refuse_maps) return refuse_map(NULL);
    if (!map || (size_t)map % 64) return refuse_map("a tensor map is not on 64 bytes");
    if (rank < 3 || rank > 5) return refuse_map("the rank of a map of images");
    if ((type != 6 && type != 9) || interleave != 0 || l2 < 0 || l2 > 3 || fill != 0)
        return refuse_map("the type, interleave, L2 promotion or fill of a map of images");
    if (swizzle < 1 || swizzle > 3 || channels * 2 != swizzle_of[swizzle]) return refuse_map("the swizzle of a map of images");
    if (!pixels || pixels > 1024) return refuse_map("the pixels of a map of images");
    if (element[0] != 1 || element[rank - 1] != 1) return refuse_map("an element stride of channels or images");
    for (i = 0; i < rank; i++)
        if (!element[i] || element[i] > 8) return refuse_map("an element stride of a map of images");
    for (i = 0; i + 2 < rank; i++) {
        if (low[i] < -most[rank - 3] || low[i] >= most[rank - 3] || high[i] < -most[rank - 3] || high[i] >= most[rank - 3])
            return refuse_map("a corner of a map of images");
        if ((long long)size[i + 1] + high[i] <= low[i]) return refuse_map("a map of images without pixels");
    }
    if (!address || (size_t)address % 16) return refuse_map("images that are not on 16 bytes");
    for (i = 0; i < rank; i++)
        if (!size[i] || size[i] > 1ull << 32) return refuse_map("a size of a map of images");
    for (i = 0; i + 1 < rank; i++)
        if (!stride[i] || stride[i] % 16 || stride[i] >= 1ull << 40) return refuse_map("a stride of a map of images");
    memset(map, 0, 128);
    return si.maps++, 0;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    const int tiled = !strcmp(symbol, "cuTensorMapEncodeTiled"), known = tiled || !strcmp(symbol, "cuTensorMapEncodeIm2col");
    int (*const encode)(void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const unsigned *,
                        const unsigned *, int, int, int, int) = encode_tiled;
    int (*const images)(void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const int *,
                        const int *, unsigned, unsigned, const unsigned *, int, int, int, int) = encode_im2col;
    (void)version, (void)flags;
    ENTER(SI_LOAD);
    *function = NULL;
    if (tiled) memcpy(function, &encode, sizeof *function);
    else if (known) memcpy(function, &images, sizeof *function);
    if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    ENTER(SI_QUERY);
    *version = si.driver;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    ENTER(SI_QUERY);
    *version = 13000;
    return cudaSuccess;
}

/* ---- errors, streams, pointers ---- */

cudaError_t cudaGetLastError(void) {
    const int e = si.last_error;
    si.last_error = 0;
    return (cudaError_t)e;
}
cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)si.last_error; }
const char *cudaGetErrorName(cudaError_t e) { return (void)e, "cudaError"; }
const char *cudaGetErrorString(cudaError_t e) { return (void)e, "an error of the stand-in"; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream;
    ENTER(SI_QUERY);
    *status = si.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *pointer) {
    ENTER(SI_QUERY);
    memset(a, 0, sizeof *a);
    if (!si.is_device || !si.is_device(pointer)) return cudaSuccess; /* unregistered host memory */
    a->type = cudaMemoryTypeDevice, a->device = si.current, a->devicePointer = (void *)(size_t)pointer;
    return cudaSuccess;
}

/* ---- what operations must not call ---- */

cudaError_t cudaMalloc(void **p, size_t bytes) {
    ENTER(SI_ALLOCATE);
    *p = (void *)((size_t)1 << 60), si.allocations += bytes > 0;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    ENTER(SI_ALLOCATE);
    si.allocations -= p != NULL;
    return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream) { return (void)stream, cudaMalloc(p, bytes); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) { return (void)stream, cudaFree(p); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaMalloc(p, bytes); }
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

/* Device memory reads as zeros here. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)stream, (void)from;
    ENTER(SI_WAIT);
    if (kind == cudaMemcpyDeviceToHost) memset(to, 0, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}
cudaError_t cudaMemset(void *data, int value, size_t bytes) {
    (void)data, (void)value, (void)bytes;
    ENTER(SI_WAIT);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    ENTER(SI_ALLOCATE);
    *event = (cudaEvent_t)&si;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return (void)event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { /* a test's own: a number of launches */
    if ((void *)event != (void *)&si) *(long *)event = si.launches;
    return (void)stream, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return (void)event, cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    return *ms = 1, (void)from, (void)to, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    ENTER(SI_WAIT);
    return si.capturing ? refuse(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    ENTER(SI_WAIT);
    return si.capturing ? refuse(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
