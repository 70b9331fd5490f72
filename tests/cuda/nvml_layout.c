/* Compiled, never linked: what the stand-in for the driver library lays out by hand is what NVIDIA's own header says. */
#include "../nvml/layout.h"
#include <nvml.h>
#include <stddef.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, mine, theirs, yours) _Static_assert(offsetof(ours, mine) == offsetof(theirs, yours), #ours "." #mine)

SAME_SIZE(memory_v1_t, nvmlMemory_t);
SAME_PLACE(memory_v1_t, free, nvmlMemory_t, free);
SAME_PLACE(memory_v1_t, used, nvmlMemory_t, used);
SAME_SIZE(memory_v2_t, nvmlMemory_v2_t);
SAME_PLACE(memory_v2_t, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(memory_v2_t, free, nvmlMemory_v2_t, free);
SAME_PLACE(memory_v2_t, used, nvmlMemory_v2_t, used);
SAME_SIZE(temperature_v1_t, nvmlTemperature_v1_t);
SAME_SIZE(utilization_t, nvmlUtilization_t);
SAME_SIZE(process_v1_t, nvmlProcessInfo_v1_t);
SAME_PLACE(process_v1_t, bytes, nvmlProcessInfo_v1_t, usedGpuMemory);
SAME_SIZE(process_v3_t, nvmlProcessInfo_t);
SAME_PLACE(process_v3_t, bytes, nvmlProcessInfo_t, usedGpuMemory);
SAME_PLACE(process_v3_t, gpu_instance, nvmlProcessInfo_t, gpuInstanceId);
SAME_SIZE(fabric_v2_t, nvmlGpuFabricInfo_v2_t);
SAME_PLACE(fabric_v2_t, state, nvmlGpuFabricInfoV_t, state);
SAME_SIZE(process_sample_t, nvmlProcessUtilizationSample_t);
SAME_PLACE(process_sample_t, at_us, nvmlProcessUtilizationSample_t, timeStamp);
SAME_PLACE(process_sample_t, sm, nvmlProcessUtilizationSample_t, smUtil);
SAME_SIZE(pci_t, nvmlPciInfo_t);
SAME_PLACE(pci_t, bus_id, nvmlPciInfo_t, busId);
_Static_assert(NOT_SUPPORTED == NVML_ERROR_NOT_SUPPORTED && NOT_FOUND == NVML_ERROR_NOT_FOUND && UNINITIALIZED == NVML_ERROR_UNINITIALIZED, "errors");
_Static_assert(INSUFFICIENT_SIZE == NVML_ERROR_INSUFFICIENT_SIZE && DRIVER_NOT_LOADED == NVML_ERROR_DRIVER_NOT_LOADED, "errors");
_Static_assert(VERSION_MISMATCH_OF_ARGUMENT == NVML_ERROR_ARGUMENT_VERSION_MISMATCH && INVALID_ARGUMENT == NVML_ERROR_INVALID_ARGUMENT, "errors");
