/* Kernels: known by name, checked as a GPU would refuse them, counted, never run. And what a GPU says of itself. */
#include "standin.h"

cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, enum cudaDriverEntryPointQueryResult *);

/* ---- errors ---- */

static __thread cudaError_t last_error;
cudaError_t fail(cudaError_t error) {
    last_error = error;
    note("error %s", cudaGetErrorName(error));
    return error;
}
cudaError_t cudaGetLastError(void) { cudaError_t error = last_error; last_error = cudaSuccess; return error; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct { cudaError_t code; const char *name, *words; } errors[] = {
#define ERROR(name, words) {name, #name, words}
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
};
static int place_of(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            return (int)i;
    return -1;
}
const char *cudaGetErrorName(cudaError_t error) { int i = place_of(error); return i < 0 ? "cudaErrorUnknown" : errors[i].name; }
const char *cudaGetErrorString(cudaError_t error) { int i = place_of(error); return i < 0 ? "unknown error" : errors[i].words; }

/* ---- a GPU ---- */

static int threads(const gpu_t *of) { return of->major == 7 && of->minor == 5 ? 1024 : of->major == 8 && of->minor ? 1536 : 2048; }
static int shared_memory(const gpu_t *of) { /* that one block may ask for, bytes */
    if (of->major < 8) return of->minor == 5 ? 64 << 10 : 96 << 10;
    return of->major > 8 ? 227 << 10 : of->minor ? 99 << 10 : 163 << 10;
}

/* A driver runs what was built for its CUDA or an older one; within one major version, what was built for any. */
static int too_old(void) { return driver_version() && driver_version() / 1000 < CUDART_VERSION / 1000; }

cudaError_t cudaGetDeviceCount(int *out) {
    *out = 0;
    if (gpu_count() && too_old())
        return fail(cudaErrorInsufficientDriver);
    *out = gpu_count();
    return *out ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    if (!gpu(device))
        return fail(gpu_count() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    current_gpu = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *out) { *out = current_gpu; return gpu_count() ? cudaSuccess : fail(cudaErrorNoDevice); }
cudaError_t cudaDeviceReset(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *out) { *out = driver_version(); return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *out) { *out = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer) { *out = device != peer; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    static char enabled[MAX_GPUS][MAX_GPUS];
    if (!gpu(peer))
        return fail(cudaErrorInvalidDevice);
    if (enabled[current_gpu][peer])
        return fail(cudaErrorPeerAccessAlreadyEnabled);
    enabled[current_gpu][peer] = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int device) { /* as tests/nvml/standin.c numbers them */
    snprintf(out, (size_t)size, "0000:%02X:00.0", gpu(device)->place + 1);
    return cudaSuccess;
}
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

static void uuid_bytes(const char *text, char *out) {
    int digits = 0;
    for (text += !strncmp(text, "GPU-", 4) ? 4 : 0; *text && digits < 32; text++) {
        const char *place = strchr("0123456789abcdef", *text | 0x20);
        if (place && *text != '-') {
            int value = (int)(place - "0123456789abcdef");
            out[digits / 2] = (char)(digits % 2 ? out[digits / 2] | value : value << 4);
            digits++;
        }
    }
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    gpu_t *of = gpu(device);
    if (!of)
        return fail(cudaErrorInvalidDevice);
    *out = (struct cudaDeviceProp){
        .totalGlobalMem = of->total, .major = of->major, .minor = of->minor, .multiProcessorCount = of->multiprocessors,
        .sharedMemPerBlock = 48 << 10, .sharedMemPerBlockOptin = (size_t)shared_memory(of),
        .sharedMemPerMultiprocessor = (size_t)shared_memory(of) + (of->major >= 8 ? 1024 : 0),
        .regsPerBlock = 65536, .regsPerMultiprocessor = 65536, .warpSize = 32, .memPitch = 0x7fffffff,
        .maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {0x7fffffff, 65535, 65535},
        .maxThreadsPerMultiProcessor = threads(of), .maxBlocksPerMultiProcessor = threads(of) / 64,
        .totalConstMem = 65536, .textureAlignment = 512, .texturePitchAlignment = 32, .memoryBusWidth = 256, .l2CacheSize = 4 << 20,
        .canMapHostMemory = 1, .concurrentKernels = 1, .asyncEngineCount = 3, .unifiedAddressing = 1, .pciBusID = of->place + 1,
        .streamPrioritiesSupported = 1, .globalL1CacheSupported = 1, .localL1CacheSupported = 1, .managedMemory = 1,
        .cooperativeLaunch = 1, .computePreemptionSupported = 1, .hostRegisterSupported = 1, .memoryPoolsSupported = 1,
        .concurrentManagedAccess = 1, .canUseHostPointerForRegisteredMem = 1,
    };
    snprintf(out->name, sizeof out->name, "%s", of->name);
    uuid_bytes(of->uuid, out->uuid.bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr wanted, int device) {
    gpu_t *of = gpu(device);
    if (!of)
        return fail(cudaErrorInvalidDevice);
    switch ((int)wanted) {
    case cudaDevAttrComputeCapabilityMajor: *out = of->major; break;
    case cudaDevAttrComputeCapabilityMinor: *out = of->minor; break;
    case cudaDevAttrMultiProcessorCount: *out = of->multiprocessors; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *out = threads(of); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *out = threads(of) / 64; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *out = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *out = shared_memory(of); break;
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *out = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *out = 64; break;
    case cudaDevAttrMaxGridDimX: *out = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *out = 65535; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *out = 65536; break;
    case cudaDevAttrTotalConstantMemory: *out = 65536; break;
    case cudaDevAttrWarpSize: *out = 32; break;
    case cudaDevAttrClockRate: *out = 1590000; break;
    case cudaDevAttrMemoryClockRate: *out = 5001000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *out = 256; break;
    case cudaDevAttrL2CacheSize: *out = 4 << 20; break;
    case cudaDevAttrTextureAlignment: *out = 512; break;
    case cudaDevAttrAsyncEngineCount: *out = 3; break;
    case cudaDevAttrPciBusId: *out = of->place + 1; break;
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrManagedMemory: case cudaDevAttrCooperativeLaunch: case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrCanMapHostMemory: case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrConcurrentKernels: case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *out = 1; break;
    default: *out = 0;
    }
    return cudaSuccess;
}

/* ---- kernels ---- */

typedef struct { const void *host; const char *name; } kernel_t;
static kernel_t *known;
static size_t known_count, known_room;
static int sorted;

EXPORT void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
EXPORT void __cudaRegisterFatBinaryEnd(void **handle) {}
EXPORT void __cudaUnregisterFatBinary(void **handle) {}
EXPORT char __cudaInitModule(void **handle) { return 1; }
EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size, int constant, int global) {}
EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *thread, void *block,
                                   void *block_size, void *grid_size, int *warp) {
    if (known_count == known_room) {
        known_room = known_room ? 2 * known_room : 65536;
        known = realloc(known, known_room * sizeof *known);
    }
    known[known_count++] = (kernel_t){host, name};
    sorted = 0;
}
static int by_host(const void *a, const void *b) {
    const kernel_t *one = a, *other = b;
    return one->host < other->host ? -1 : one->host > other->host;
}
static const char *name_of(const void *host) {
    kernel_t wanted = {host, NULL}, *found;
    LOCKED(
        if (!sorted) { qsort(known, known_count, sizeof *known, by_host); sorted = 1; }
        found = bsearch(&wanted, known, known_count, sizeof *known, by_host));
    return found ? found->name : "?";
}

/* A stream begins with the number of its GPU: see streams.c. */
static int gpu_of(cudaStream_t stream) { return (uintptr_t)stream <= 2 ? current_gpu : *(int *)stream; }

static cudaError_t launch(const void *kernel, const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (!gpu_count())
        return fail(cudaErrorNoDevice);
    note("launch %s grid=%u,%u,%u block=%u,%u,%u", name ? name : name_of(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z);
    size_t size = (size_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !size || size > 1024)
        return fail(cudaErrorInvalidConfiguration);
    if (shared > (size_t)shared_memory(gpu(current_gpu)))
        return fail(cudaErrorInvalidValue);
    if (gpu_of(stream) != current_gpu)
        return fail(cudaErrorInvalidResourceHandle);
    if (is_captured(stream))
        capture_kernel(stream);
    else
        count(LAUNCHES, 1);
    return cudaSuccess;
}

typedef struct { dim3 grid, block; size_t shared; void *stream; } configuration_t;
static __thread configuration_t pushed[16];
static __thread int depth;
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    if (depth == 16)
        return 1;
    pushed[depth++] = (configuration_t){grid, block, shared, stream};
    return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth)
        return cudaErrorInvalidConfiguration;
    configuration_t *last = &pushed[--depth];
    *grid = last->grid;
    *block = last->block;
    *shared = last->shared;
    *(void **)stream = last->stream;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return launch(kernel, NULL, grid, block, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return launch(kernel, NULL, grid, block, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *kernel, void **args) {
    return launch(kernel, NULL, how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream);
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host) { *out = (cudaKernel_t)host; return cudaSuccess; }
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return launch(kernel, NULL, grid, block, shared, stream);
}
/* What a wheel built for this capability would say. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel) {
    gpu_t *of = gpu(current_gpu);
    int built_for = of->major * 10 + of->minor;
    *out = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 32, .ptxVersion = built_for,
                                       .binaryVersion = built_for, .maxDynamicSharedSizeBytes = 48 << 10};
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute which, int value) {
    int too_much = which == cudaFuncAttributeMaxDynamicSharedMemorySize && value > shared_memory(gpu(current_gpu));
    return too_much ? fail(cudaErrorInvalidValue) : cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void *kernel, enum cudaFuncCache config) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *kernel, int block, size_t shared, unsigned flags) {
    int fit = threads(gpu(current_gpu)) / (block > 0 ? block : 1);
    *out = fit ? fit : 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *kernel, int block, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, kernel, block, shared, 0);
}

/* ---- the driver: what torch asks of it, and code that is compiled while running ---- */

CUresult cuInit(unsigned flags) { return gpu_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int *out) { *out = driver_version(); return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *out, int device) { *out = device; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *out) { *out = gpu_count(); return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *out, int size, CUdevice device) { snprintf(out, (size_t)size, "%s", gpu(device)->name); return CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(size_t *out, CUdevice device) { *out = gpu(device)->total; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute wanted, CUdevice device) {
    return cudaDeviceGetAttribute(out, (enum cudaDeviceAttr)wanted, device) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
/* A context is its GPU's number plus one. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) { *out = (CUcontext)(uintptr_t)(device + 1); return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) { *flags = 0; *active = gpu(device)->has_context; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *out) { *out = (CUcontext)(uintptr_t)(current_gpu + 1); return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { current_gpu = (int)(uintptr_t)context - 1; return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *out) { *out = current_gpu; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **out) { *out = cudaGetErrorString((cudaError_t)error); return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **out) { *out = cudaGetErrorName((cudaError_t)error); return CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule *out, const void *image) { *out = (CUmodule)malloc(1); return CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, CUjit_option *options, void **values) { return cuModuleLoadData(out, image); }
CUresult cuModuleLoad(CUmodule *out, const char *path) { return cuModuleLoadData(out, path); }
CUresult cuModuleUnload(CUmodule module) { free(module); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) { *out = (CUfunction)strdup(name); return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute wanted, CUfunction function) {
    *out = wanted == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : wanted == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *out, CUlimit limit) { *out = 1 << 20; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int block, size_t shared) {
    return (CUresult)cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, function, block, shared);
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **args, void **extra) {
    return (CUresult)launch(NULL, (const char *)function, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared, stream);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *as, CUfunction function, void **args, void **extra) {
    return cuLaunchKernel(function, as->gridDimX, as->gridDimY, as->gridDimZ, as->blockDimX, as->blockDimY, as->blockDimZ,
                          as->sharedMemBytes, as->hStream, args, extra);
}

/* torch finds the driver's calls by name; what is not here says that it is not supported. */
#include <dlfcn.h>
static int not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    char second[128];
    Dl_info here;
    snprintf(second, sizeof second, "%s_v2", name);
    void *self = dladdr((void *)not_supported, &here) ? dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    *out = self ? dlsym(self, name) : NULL;
    if (self && !*out)
        *out = dlsym(self, second);
    if (!*out) {
        note("not emulated: %s", name);
        *out = (void *)not_supported;
    }
    if (status)
        *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(name, out, 0, flags, status);
}
