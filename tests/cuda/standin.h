/* A stand-in for CUDA: the machine's libcudart and libcuda, for tests on machines without a GPU.
 *
 * torch's own CUDA build runs over it. What torch decides on the host is real: its caching allocator and its
 * out-of-memory, which kernels it launches and how often, streams, events, the rules of graph capture, copies and
 * synchronisations, peers, what each process holds of a GPU. Kernels do nothing here; values.py computes their results.
 *
 * The GPUs are those of the file that KGOPS_NVML_STANDIN names, in the words of tests/nvml/standin.c, so that the driver
 * library and CUDA always show one machine. Of its lines this reads: driver's `cuda`, and of a GPU (or MIG slice) `name`,
 * `uuid`, `capability`, `memory`, `multiprocessors`, `context`, `lost`, `mig`. KGOPS_CUDA_LOG names a file for every call
 * that matters.
 *
 * It knows nothing of: speed, rounding of kernels, races (all is synchronous), workspaces that cuDNN would choose.
 */
#ifndef STANDIN_H
#define STANDIN_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 16

/* ---- gpus.c: the machine, and who holds what of it ---- */

typedef struct {
    char name[128], uuid[96];
    int major, minor, multiprocessors;
    int place;        /* on the machine, whatever CUDA_VISIBLE_DEVICES hides */
    size_t total;     /* bytes that CUDA can give */
    size_t elsewhere; /* of those, held by processes that are not on this stand-in */
    size_t context;   /* what a process's first use of the GPU costs */
    int lost;
    int has_context;  /* in this process */
    size_t held, peak;
} gpu_t;

int gpu_count(void);
gpu_t *gpu(int device);          /* NULL: there is no such GPU */
int driver_version(void);        /* as cudaDriverGetVersion says it: 13000 */
size_t free_bytes(int device);   /* after everybody's */
int charge(int device, size_t bytes); /* 0, or -1: it does not fit */
void uncharge(int device, size_t bytes);
int is_lost(int device);         /* looks again whether the state says so */

/* ---- this thread's GPU and last error ---- */

extern __thread int current_gpu;
cudaError_t fail(cudaError_t error); /* remembers it for cudaGetLastError */

/* ---- memory.c ---- */

cudaError_t take(void **out, size_t bytes, int device);
/* Where the host finds the bytes of an address: itself for the host's memory (*device = -1), NULL beyond an allocation. */
char *bytes_at(const void *address, size_t bytes, int *device);

/* ---- streams.c ---- */

enum { LAUNCHES, TO_DEVICE, FROM_DEVICE, ON_DEVICE, SYNCHRONISATIONS, ALLOCATIONS, BYTES_TO_DEVICE, BYTES_FROM_DEVICE, COUNTS };
void count(int what, unsigned long long how_many);

typedef struct { char *to; const char *from; size_t bytes; int value; } copy_t; /* from NULL: set to value */
int is_captured(cudaStream_t stream);
void capture_copy(cudaStream_t stream, copy_t copy);
void capture_kernel(cudaStream_t stream);
cudaError_t forbidden_while_capturing(void); /* a call that no capture under way allows */

/* ---- log ---- */

void note(const char *form, ...) __attribute__((format(printf, 1, 2)));
extern pthread_mutex_t standin_lock;
#define LOCKED(...) do { pthread_mutex_lock(&standin_lock); __VA_ARGS__; pthread_mutex_unlock(&standin_lock); } while (0)

#endif
