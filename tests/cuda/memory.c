/* Device memory: address space that the host may not touch, as a GPU's would fault; its bytes lie DISTANCE further on. */
#include "standin.h"
#include <sys/mman.h>

#define DISTANCE (1UL << 43) /* more than all GPUs together have, since freed addresses are used again only at the end */
#define GRAIN (2UL << 20) /* CUDA hands out memory in pages of 2 MiB */
#define ROUNDED(n) (((n) + GRAIN - 1) / GRAIN * GRAIN)

typedef enum { DEVICE, ADDRESSES_ONLY, HOST } kind_t;
typedef struct { char *at; size_t size; int device; kind_t kind; } range_t;

/* Sorted by address; a range is found by bisection. */
static range_t *ranges;
static int range_count, range_room;

static int last_at_or_before(const char *address) {
    int low = 0, high = range_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ranges[middle].at <= address) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

static range_t *range_of(const void *address) {
    int i = last_at_or_before(address);
    return i >= 0 && (const char *)address < ranges[i].at + ranges[i].size ? &ranges[i] : NULL;
}

static void add(range_t range) {
    if (range_count == range_room) {
        range_room = range_room ? 2 * range_room : 256;
        ranges = realloc(ranges, (size_t)range_room * sizeof *ranges);
    }
    int i = last_at_or_before(range.at) + 1;
    memmove(ranges + i + 1, ranges + i, (size_t)(range_count - i) * sizeof *ranges);
    ranges[i] = range;
    range_count++;
}

static range_t drop(range_t *range) {
    range_t gone = *range;
    memmove(range, range + 1, (size_t)(ranges + range_count - range - 1) * sizeof *ranges);
    range_count--;
    return gone;
}

static char *arena, *arena_end;

static char *addresses(size_t size) {
    char *at = NULL;
    LOCKED(
        if (!arena) {
            arena = mmap(NULL, 2 * DISTANCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            arena_end = arena == MAP_FAILED ? NULL : arena + DISTANCE;
        }
        if (arena_end && size <= (size_t)(arena_end - arena)) {
            at = arena_end - size;
            arena_end = at;
        });
    if (at)
        mprotect(at + DISTANCE, size, PROT_READ | PROT_WRITE);
    return at;
}

static void forget(range_t gone) {
    madvise(gone.at + DISTANCE, gone.size, MADV_DONTNEED);
    mprotect(gone.at + DISTANCE, gone.size, PROT_NONE);
    LOCKED(if (gone.at == arena_end) arena_end += gone.size);
}

char *bytes_at(const void *address, size_t bytes, int *device) {
    char *found;
    LOCKED(
        range_t *range = range_of(address);
        if (!range || range->kind == HOST) {
            *device = -1;
            found = (char *)address;
        } else {
            *device = range->device;
            found = (const char *)address + bytes <= range->at + range->size ? (char *)address + DISTANCE : NULL;
        });
    return found;
}

EXPORT void *standin_bytes(const void *address) { int device; return bytes_at(address, 0, &device); }
EXPORT size_t standin_distance(void) { return DISTANCE; }
EXPORT size_t standin_peak(int device) { return gpu(device) ? gpu(device)->peak : 0; }

cudaError_t take(void **out, size_t bytes, int device) {
    *out = NULL;
    if (!bytes)
        return cudaSuccess;
    size_t size = ROUNDED(bytes);
    int full = charge(device, size);
    char *at = full ? NULL : addresses(size);
    if (!full && !at)
        uncharge(device, size);
    note("malloc gpu=%d bytes=%zu%s", device, bytes, at ? "" : " refused");
    if (!at)
        return fail(cudaErrorMemoryAllocation);
    count(ALLOCATIONS, 1);
    LOCKED(add((range_t){at, size, device, DEVICE}));
    *out = at;
    return cudaSuccess;
}

static cudaError_t give_back(void *address, kind_t kind, range_t *gone) {
    int known = 0;
    LOCKED(
        range_t *range = range_of(address);
        known = range && range->at == address && range->kind == kind;
        if (known) *gone = drop(range));
    return known ? cudaSuccess : fail(cudaErrorInvalidValue);
}

static cudaError_t release(void *address) {
    range_t gone;
    if (!address)
        return cudaSuccess;
    cudaError_t error = give_back(address, DEVICE, &gone);
    if (!error) {
        note("free gpu=%d bytes=%zu", gone.device, gone.size);
        uncharge(gone.device, gone.size);
        forget(gone);
    }
    return error;
}

#define NOT_WHILE_CAPTURING() do { cudaError_t e_ = forbidden_while_capturing(); if (e_) return e_; } while (0)
#define NEEDS_A_GPU() do { \
        if (!gpu_count()) return fail(cudaErrorNoDevice); \
        if (is_lost(current_gpu)) return fail(cudaErrorUnknown); \
    } while (0)

cudaError_t cudaMalloc(void **out, size_t bytes) { NEEDS_A_GPU(); NOT_WHILE_CAPTURING(); return take(out, bytes, current_gpu); }
cudaError_t cudaFree(void *address) { NEEDS_A_GPU(); NOT_WHILE_CAPTURING(); return release(address); }
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) { NEEDS_A_GPU(); return take(out, bytes, current_gpu); }
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) { return release(address); }

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    NEEDS_A_GPU();
    *unused = free_bytes(current_gpu);
    *total = gpu(current_gpu)->total;
    return cudaSuccess;
}

/* ---- pinned memory of the host ---- */

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    NOT_WHILE_CAPTURING();
    if (posix_memalign(out, 4096, bytes ? bytes : 1))
        return fail(cudaErrorMemoryAllocation);
    LOCKED(add((range_t){*out, bytes, current_gpu, HOST}));
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }
cudaError_t cudaFreeHost(void *address) {
    range_t gone;
    NOT_WHILE_CAPTURING();
    cudaError_t error = give_back(address, HOST, &gone);
    if (!error)
        free(address);
    return error;
}
cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
    int taken;
    LOCKED(taken = range_of(address) != NULL; if (!taken) add((range_t){address, bytes, current_gpu, HOST}));
    return taken ? fail(cudaErrorHostMemoryAlreadyRegistered) : cudaSuccess;
}
cudaError_t cudaHostUnregister(void *address) { range_t gone; return give_back(address, HOST, &gone); }
cudaError_t cudaHostGetDevicePointer(void **out, void *address, unsigned flags) { *out = address; return cudaSuccess; }

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *address) {
    memset(about, 0, sizeof *about);
    about->device = -2;
    LOCKED(
        range_t *range = range_of(address);
        if (range) {
            about->type = range->kind == HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
            about->device = range->device;
            about->devicePointer = (void *)address;
            about->hostPointer = range->kind == HOST ? (void *)address : NULL;
        });
    return cudaSuccess;
}

/* ---- copies ---- */

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (!bytes)
        return cudaSuccess;
    NEEDS_A_GPU();
    int there, here;
    char *target = bytes_at(to, bytes, &there), *source = bytes_at(from, bytes, &here);
    int is[] = {[cudaMemcpyHostToHost] = there < 0 && here < 0, [cudaMemcpyHostToDevice] = there >= 0 && here < 0,
                [cudaMemcpyDeviceToHost] = there < 0 && here >= 0, [cudaMemcpyDeviceToDevice] = there >= 0 && here >= 0,
                [cudaMemcpyDefault] = 1};
    note("copy %s <- %s bytes=%zu", there < 0 ? "host" : "gpu", here < 0 ? "host" : "gpu", bytes);
    if (!target || !source || !is[kind])
        return fail(cudaErrorInvalidValue);
    count(there >= 0 && here >= 0 ? ON_DEVICE : there >= 0 ? TO_DEVICE : FROM_DEVICE, 1);
    if (there < 0 || here < 0)
        count(there >= 0 ? BYTES_TO_DEVICE : BYTES_FROM_DEVICE, bytes);
    if (is_captured(stream))
        capture_copy(stream, (copy_t){target, source, bytes, 0});
    else
        memmove(target, source, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    NOT_WHILE_CAPTURING();
    count(SYNCHRONISATIONS, 1);
    return copy(to, from, bytes, kind, NULL);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t bytes, cudaStream_t stream) {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && !error; row++)
        error = copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
    return error;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (!bytes)
        return cudaSuccess;
    NEEDS_A_GPU();
    int there;
    char *target = bytes_at(to, bytes, &there);
    if (!target || there < 0)
        return fail(cudaErrorInvalidValue);
    if (is_captured(stream)) {
        capture_copy(stream, (copy_t){target, NULL, bytes, value});
        return cudaSuccess;
    }
    uintptr_t page = 4096, first = ((uintptr_t)target + page - 1) & ~(page - 1), last = ((uintptr_t)target + bytes) & ~(page - 1);
    if (value || last <= first) {
        memset(target, value, bytes);
        return cudaSuccess;
    }
    /* Zeroed pages are given back to the system: a large allocation that is only zeroed costs the host nothing. */
    memset(target, 0, first - (uintptr_t)target);
    memset((char *)last, 0, (uintptr_t)target + bytes - last);
    madvise((void *)first, last - first, MADV_DONTNEED);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }

/* Variables of kernels: nothing reads them, so one page for each is enough. */
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) { return cudaSuccess; }
cudaError_t cudaGetSymbolAddress(void **out, const void *symbol) {
    static struct { const void *symbol; void *at; } known[256];
    for (int i = 0; i < 256; i++) {
        if (!known[i].symbol) {
            known[i].symbol = symbol;
            cudaError_t error = take(&known[i].at, 4096, current_gpu);
            if (error)
                return error;
        }
        if (known[i].symbol == symbol) {
            *out = known[i].at;
            return cudaSuccess;
        }
    }
    return fail(cudaErrorInvalidSymbol);
}

/* ---- the driver's: addresses first, memory behind them later (expandable segments) ---- */

typedef struct { size_t size; int device; } physical_t;

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    size_t size = ROUNDED(bytes);
    char *at = addresses(size);
    if (!at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    LOCKED(add((range_t){at, size, current_gpu, ADDRESSES_ONLY}));
    *out = (CUdeviceptr)at;
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    range_t gone;
    if (give_back((void *)address, ADDRESSES_ONLY, &gone))
        return CUDA_ERROR_INVALID_VALUE;
    forget(gone);
    return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *wanted, unsigned long long flags) {
    if (charge(wanted->location.id, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical_t *made = malloc(sizeof *made);
    *made = (physical_t){bytes, wanted->location.id};
    *out = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    physical_t *gone = (physical_t *)(uintptr_t)handle;
    uncharge(gone->device, gone->size);
    free(gone);
    return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    int known;
    LOCKED(
        range_t *range = range_of((void *)address);
        known = range != NULL;
        if (known) range->device = ((physical_t *)(uintptr_t)handle)->device);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    int device;
    char *gone = bytes_at((void *)address, bytes, &device);
    if (gone)
        madvise(gone, bytes, MADV_DONTNEED);
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *who, size_t count) { return CUDA_SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *wanted, CUmemAllocationGranularity_flags flags) {
    *out = GRAIN;
    return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    int known;
    LOCKED(
        range_t *range = range_of((void *)address);
        known = range != NULL;
        if (known && base) *base = (CUdeviceptr)range->at;
        if (known && size) *size = range->size);
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute wanted, CUdeviceptr address) {
    CUresult answer = CUDA_SUCCESS;
    LOCKED(
        range_t *range = range_of((void *)address);
        if (!range) answer = CUDA_ERROR_INVALID_VALUE;
        else if (wanted == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)out = range->device;
        else if (wanted == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr *)out = address;
        else if (wanted == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *(unsigned *)out = range->kind == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        else if (wanted == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *(CUdeviceptr *)out = (CUdeviceptr)range->at;
        else answer = CUDA_ERROR_NOT_SUPPORTED);
    return answer;
}

/* torch asks these of a pool that it does not use; there is one for each GPU. */
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) { *out = (cudaMemPool_t)(uintptr_t)(device + 1); return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr wanted, void *out) {
    gpu_t *of = gpu((int)(uintptr_t)pool - 1);
    *(unsigned long long *)out = of ? of->held : 0;
    return of ? cudaSuccess : fail(cudaErrorInvalidValue);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *who, size_t count) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { return cudaSuccess; }
