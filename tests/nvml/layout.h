/* What the calls of NVIDIA's driver library take and give, as far as standin.c answers them. tests/cuda/nvml_layout.c
 * compares each with NVIDIA's own header, where that can be had. */
#ifndef LAYOUT_H
#define LAYOUT_H

typedef unsigned long long u64;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH_OF_ARGUMENT = 25,
};

typedef struct { u64 total, free, used; } memory_v1_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned version, sensor; int celsius; } temperature_v1_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; u64 bytes; } process_v1_t;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process_v3_t;
typedef struct { unsigned pid; u64 at_us; unsigned sm, memory, encoder, decoder; } process_sample_t;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} pci_t;
/* The second version; a newer one is longer. */
typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned health; } fabric_v2_t;

#endif
