/* A stand-in for NVIDIA's driver library, for tests on machines without a GPU.
 *
 * It has the SONAME and the calls of libnvidia-ml.so.1 that nvidia-ml-py, gpustat and nvitop make, and
 * answers each from a text file, read anew on every call, so that a test changes the machine by replacing
 * the file. The file is named by KGOPS_NVML_STANDIN; without it the driver is "not loaded", as on a machine
 * whose library is installed and whose module is not.
 *
 *   init 9                              what nvmlInitWithFlags answers (0 without this line)
 *   driver 550.54.15
 *   cuda 12040
 *   delay_ms 200                        every call takes this long
 *   epoch 1                             another number than before makes every handle given out invalid
 *   log /tmp/calls                      one line per call: its name, GPU, and what it answered
 *   fail nvmlSystemGetDriverVersion 999 before the first GPU: for every GPU
 *   gpu                                begins a GPU; the lines below are its own
 *   name NVIDIA H200
 *   uuid GPU-…
 *   lost 15                             every call about this GPU answers so
 *   capability 9 0
 *   memory TOTAL RESERVED USED FREE     bytes
 *   utilization 37
 *   temperature 61
 *   power 70000                         milliwatts; also: limit
 *   process PID BYTES                   or: process PID hidden
 *   drawing PID BYTES                   a process that draws
 *   busy PID PERCENT                    its share of the multiprocessors' time, sampled now; without any such line for a
 *                                       GPU the driver does not count it; PID 0: it counts, and all are idle
 *   client PID BYTES                    of an MPS server
 *   fail nvmlDeviceGetPowerUsage 3      this call answers so for this GPU
 *   mig 1                               the GPU can be sliced; 1: it is
 *   slice PLACE                         begins a MIG device of the GPU
 *
 * `multiprocessors` and `context` are for the stand-in for CUDA (tests/cuda/standin.h), which shows torch the same GPUs; what
 * processes hold there is added here to what the file says.
 *
 * A value that is not written answers NVML_ERROR_NOT_SUPPORTED (3). Compiled with -DOLD_DRIVER it lacks the
 * calls that old drivers lack, as missing symbols.
 */

#define _GNU_SOURCE
#include "layout.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_PLACES 8
#define MAX_PROCESSES 64
#define MAX_FAILURES 32
#define HIDDEN 0xFFFFFFFFFFFFFFFFULL

typedef const void *device_t;

typedef struct { unsigned pid; u64 bytes; } process_t;
typedef struct { unsigned pid; int percent; } busy_t;
typedef struct { char call[64]; int code; } failure_t;

/* A GPU, or a slice of one: each answers the same questions. */
typedef struct {
    char name[96], uuid[96];
    int exists;
    int has_capability, major, minor;
    int has_memory;
    u64 total, reserved, used, free;
    int utilization, temperature; /* -1: not supported */
    long power, limit;
    int mig; /* -1: cannot be sliced */
    int processes, clients, drawings, busies, failures;
    process_t process[MAX_PROCESSES], client[MAX_PROCESSES], drawing[MAX_PROCESSES];
    busy_t busy[MAX_PROCESSES];
    failure_t failure[MAX_FAILURES];
} part_t;

typedef struct {
    int init, cuda, delay_ms, epoch, gpus, failures;
    char driver[96], log[512];
    failure_t failure[MAX_FAILURES];
    /* Of the GPU and the slice (place -1: the GPU itself) that a call is about, and of no others: a call
     * costs microseconds, so that what a test measures is its client. */
    int gpu, place;
    int lost, made; /* of the GPU; `made` has a bit for every place with a slice */
    part_t part;
} machine_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users, under_way;

/* A handle is never looked into by a caller: it is a number, of GPU + 1, place + 1 and epoch. */
static device_t handle_of(int gpu, int place, int epoch) {
    return (device_t)(size_t)((gpu + 1) | (place + 1) << 8 | epoch << 16);
}
static int gpu_of(device_t handle) { return (int)((size_t)handle & 0xFF) - 1; }
static int place_of(device_t handle) { return (int)((size_t)handle >> 8 & 0xFF) - 1; }
static int epoch_of(device_t handle) { return (int)((size_t)handle >> 16); }

static void empty(part_t *part) {
    part->exists = 1;
    part->utilization = part->temperature = part->mig = -1;
    part->power = part->limit = -1;
}

static void rest_of_line(char *into, size_t size, const char *from) {
    size_t length = strcspn(from, "\n");
    if (length >= size)
        length = size - 1;
    memcpy(into, from, length);
    into[length] = 0;
}

static void note_failure(failure_t *list, int *count, const char *words) {
    if (*count < MAX_FAILURES && sscanf(words, "%63s %d", list[*count].call, &list[*count].code) == 2)
        ++*count;
}

static void note_process(process_t *list, int *count, const char *words) {
    unsigned pid;
    char bytes[32];
    if (*count == MAX_PROCESSES || sscanf(words, "%u %31s", &pid, bytes) != 2)
        return;
    list[*count].pid = pid;
    list[(*count)++].bytes = strcmp(bytes, "hidden") ? strtoull(bytes, NULL, 10) : HIDDEN;
}

static void note_busy(part_t *part, const char *words) {
    busy_t *next = &part->busy[part->busies];
    if (part->busies < MAX_PROCESSES && sscanf(words, "%u %d", &next->pid, &next->percent) == 2)
        part->busies++;
}

/* Where in the file a line stands: before the first GPU, in the part that was asked for, or elsewhere. */
typedef enum { HEAD, HERE, ELSEWHERE } where_t;

static where_t take_line(machine_t *machine, where_t where, const char *line) {
    int this_gpu = machine->gpus - 1 == machine->gpu;
    if (!strncmp(line, "gpu", 3) && strchr("\n ", line[3])) {
        machine->gpus++;
        if (machine->gpus - 1 != machine->gpu || machine->place >= 0)
            return ELSEWHERE;
        empty(&machine->part);
        return HERE;
    }
    if (!strncmp(line, "slice ", 6)) {
        int place = atoi(line + 6);
        if (!this_gpu || place < 0 || place >= MAX_PLACES)
            return ELSEWHERE;
        machine->made |= 1 << place;
        if (place != machine->place)
            return ELSEWHERE;
        empty(&machine->part);
        return HERE;
    }
    if (this_gpu && !strncmp(line, "lost ", 5))
        machine->lost = atoi(line + 5);
    if (where == ELSEWHERE)
        return where;

    char key[32], value[512];
    int used = 0;
    if (sscanf(line, "%31s %n", key, &used) != 1)
        return where;
    rest_of_line(value, sizeof value, line + used);
    part_t *now = &machine->part;
    if (where == HEAD) {
        if (!strcmp(key, "init")) machine->init = atoi(value);
        else if (!strcmp(key, "driver")) rest_of_line(machine->driver, sizeof machine->driver, value);
        else if (!strcmp(key, "cuda")) machine->cuda = atoi(value);
        else if (!strcmp(key, "delay_ms")) machine->delay_ms = atoi(value);
        else if (!strcmp(key, "epoch")) machine->epoch = atoi(value);
        else if (!strcmp(key, "log")) rest_of_line(machine->log, sizeof machine->log, value);
        else if (!strcmp(key, "fail")) note_failure(machine->failure, &machine->failures, value);
    }
    else if (!strcmp(key, "name")) rest_of_line(now->name, sizeof now->name, value);
    else if (!strcmp(key, "uuid")) rest_of_line(now->uuid, sizeof now->uuid, value);
    else if (!strcmp(key, "capability"))
        now->has_capability = sscanf(value, "%d %d", &now->major, &now->minor) == 2;
    else if (!strcmp(key, "memory"))
        now->has_memory = sscanf(value, "%llu %llu %llu %llu", &now->total, &now->reserved, &now->used, &now->free) == 4;
    else if (!strcmp(key, "utilization")) now->utilization = atoi(value);
    else if (!strcmp(key, "temperature")) now->temperature = atoi(value);
    else if (!strcmp(key, "power")) now->power = atol(value);
    else if (!strcmp(key, "limit")) now->limit = atol(value);
    else if (!strcmp(key, "mig")) now->mig = atoi(value);
    else if (!strcmp(key, "process")) note_process(now->process, &now->processes, value);
    else if (!strcmp(key, "client")) note_process(now->client, &now->clients, value);
    else if (!strcmp(key, "drawing")) note_process(now->drawing, &now->drawings, value);
    else if (!strcmp(key, "busy")) note_busy(now, value);
    else if (!strcmp(key, "fail")) note_failure(now->failure, &now->failures, value);
    return where;
}

/* What processes hold on the stand-in for CUDA: its gpus.c keeps these accounts beside the state file. */
#define MAX_ACCOUNTS 256
typedef struct { int pid; size_t held[16]; } account_t;

static const account_t *accounts(void) {
    static const account_t *mapped;
    const char *state = getenv("KGOPS_NVML_STANDIN");
    char path[4096];
    struct stat about;
    if (mapped || !state)
        return mapped;
    snprintf(path, sizeof path, "%s.accounts", state);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    size_t size = MAX_ACCOUNTS * sizeof *mapped;
    void *at = fstat(file, &about) || (size_t)about.st_size < size ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapped = at == MAP_FAILED ? NULL : at;
}

/* A slice's processes are those of its GPU: a process on the stand-in for CUDA sees the first slice alone. */
static void add_accounts(part_t *part, int gpu) {
    const account_t *all = accounts();
    for (int i = 0; all && i < MAX_ACCOUNTS && part->processes < MAX_PROCESSES; i++) {
        u64 held = all[i].held[gpu];
        if (!all[i].pid || !held || kill(all[i].pid, 0) != 0)
            continue;
        part->process[part->processes++] = (process_t){(unsigned)all[i].pid, held};
        part->used += held;
        part->free -= held < part->free ? held : part->free;
    }
}

static void read_machine(machine_t *machine, int gpu, int place) {
    memset(machine, 0, sizeof *machine);
    machine->gpu = gpu;
    machine->place = place;
    machine->init = DRIVER_NOT_LOADED;
    const char *path = getenv("KGOPS_NVML_STANDIN");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return;
    machine->init = SUCCESS;
    where_t where = HEAD;
    char line[640];
    while (fgets(line, sizeof line, file))
        where = take_line(machine, where, line);
    fclose(file);
    int first_slice = machine->made && place == __builtin_ctz((unsigned)machine->made);
    if (gpu >= 0 && gpu < 16 && (place < 0 || first_slice))
        add_accounts(&machine->part, gpu);
}

/* One call under way: the machine as it is now, and what was asked about. */
typedef struct {
    const char *name;
    device_t handle;
    part_t *part;
    int early; /* the answer, where it does not depend on the question */
    machine_t machine;
} call_t;

static int failure_for(const failure_t *list, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].call, name))
            return list[i].code;
    return SUCCESS;
}

/* Init and shutdown need no open driver; the giving of a handle needs none from this epoch. */
typedef enum { THE_SYSTEM, A_DEVICE, A_NEW_DEVICE, OPEN_OR_SHUT } about_t;

static call_t *begin(const char *name, about_t about, device_t handle) {
    call_t *call = malloc(sizeof *call);
    if (!call)
        abort();
    call->name = name;
    call->handle = handle;
    call->part = &call->machine.part;
    call->early = SUCCESS;
    read_machine(&call->machine, gpu_of(handle), place_of(handle));
    machine_t *machine = &call->machine;

    pthread_mutex_lock(&lock);
    under_way += about != OPEN_OR_SHUT;
    int open = users > 0;
    pthread_mutex_unlock(&lock);

    if (machine->delay_ms) {
        struct timespec wait = {machine->delay_ms / 1000, machine->delay_ms % 1000 * 1000000L};
        nanosleep(&wait, NULL);
    }
    if (about == OPEN_OR_SHUT)
        return call;
    if (!open) {
        call->early = UNINITIALIZED;
        return call;
    }
    if (about == A_DEVICE || about == A_NEW_DEVICE) {
        const part_t *part = call->part;
        int stale = about == A_DEVICE && epoch_of(handle) != machine->epoch;
        if (stale || machine->gpu < 0 || machine->gpu >= machine->gpus) {
            call->early = INVALID_ARGUMENT;
            return call;
        }
        call->early = machine->lost ? machine->lost : part->exists ? SUCCESS : NOT_FOUND;
        if (call->early == SUCCESS)
            call->early = failure_for(part->failure, part->failures, name);
    }
    if (call->early == SUCCESS)
        call->early = failure_for(machine->failure, machine->failures, name);
    return call;
}

static void write_log(const call_t *call, const char *format, ...) {
    if (!call->machine.log[0])
        return;
    FILE *file = fopen(call->machine.log, "ae");
    if (!file)
        return;
    va_list words;
    va_start(words, format);
    vfprintf(file, format, words);
    va_end(words);
    fclose(file);
}

static int end(call_t *call, int answer) {
    write_log(call, "%s %d %d\n", call->name, call->handle ? gpu_of(call->handle) : -1, answer);
    pthread_mutex_lock(&lock);
    --under_way;
    pthread_mutex_unlock(&lock);
    free(call);
    return answer;
}

#define API __attribute__((visibility("default")))
#define BEGIN(about, handle) \
    call_t *call = begin(__func__, about, handle); \
    if (call->early) return end(call, call->early)
#define SYSTEM BEGIN(THE_SYSTEM, NULL)
#define DEVICE BEGIN(A_DEVICE, handle); part_t *part = call->part
#define NEED(given) if (!(given)) return end(call, NOT_SUPPORTED)

static int text(char *into, unsigned size, const char *from) {
    if (!into || strlen(from) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(into, from);
    return SUCCESS;
}

/* ---- the system ---- */

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    call_t *call = begin(__func__, OPEN_OR_SHUT, NULL);
    int answer = call->machine.init;
    pthread_mutex_lock(&lock);
    users += answer == SUCCESS; /* as the real one: every init needs its own shutdown */
    ++under_way;                /* taken off again by end() */
    pthread_mutex_unlock(&lock);
    return end(call, answer);
}

API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API int nvmlShutdown(void) {
    call_t *call = begin(__func__, OPEN_OR_SHUT, NULL);
    pthread_mutex_lock(&lock);
    int answer = users > 0 ? SUCCESS : UNINITIALIZED;
    users -= users > 0;
    /* The real library may crash here; the stand-in tells on the caller instead. */
    if (!users && under_way)
        write_log(call, "shutdown while %d calls were under way\n", under_way);
    ++under_way;
    pthread_mutex_unlock(&lock);
    return end(call, answer);
}

API const char *nvmlErrorString(int code) {
    return code == 999 ? "Unknown Error" : "An error of the stand-in";
}

API int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    SYSTEM;
    NEED(call->machine.driver[0]);
    return end(call, text(into, size, call->machine.driver));
}

API int nvmlSystemGetCudaDriverVersion(int *version) {
    SYSTEM;
    NEED(call->machine.cuda);
    *version = call->machine.cuda;
    return end(call, SUCCESS);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

API int nvmlDeviceGetCount_v2(unsigned *count) {
    SYSTEM;
    *count = (unsigned)call->machine.gpus;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *into) {
    BEGIN(A_NEW_DEVICE, handle_of((int)index, -1, 0));
    *into = handle_of((int)index, -1, call->machine.epoch);
    return end(call, SUCCESS);
}

/* ---- a device ---- */

API int nvmlDeviceGetName(device_t handle, char *into, unsigned size) {
    DEVICE;
    NEED(part->name[0]);
    return end(call, text(into, size, part->name));
}

API int nvmlDeviceGetUUID(device_t handle, char *into, unsigned size) {
    DEVICE;
    NEED(part->uuid[0]);
    return end(call, text(into, size, part->uuid));
}

API int nvmlDeviceGetIndex(device_t handle, unsigned *index) {
    DEVICE;
    (void)part;
    *index = (unsigned)gpu_of(handle);
    return end(call, SUCCESS);
}

API int nvmlDeviceGetCudaComputeCapability(device_t handle, int *major, int *minor) {
    DEVICE;
    NEED(part->has_capability);
    *major = part->major;
    *minor = part->minor;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetMemoryInfo(device_t handle, memory_v1_t *memory) {
    DEVICE;
    NEED(part->has_memory);
    /* The old accounting: what the driver keeps for itself counts as used. */
    *memory = (memory_v1_t){part->total, part->free, part->used + part->reserved};
    return end(call, SUCCESS);
}

#ifndef OLD_DRIVER
API int nvmlDeviceGetMemoryInfo_v2(device_t handle, memory_v2_t *memory) {
    DEVICE;
    if (memory->version != (sizeof(memory_v2_t) | 2u << 24))
        return end(call, VERSION_MISMATCH_OF_ARGUMENT);
    NEED(part->has_memory);
    *memory = (memory_v2_t){memory->version, part->total, part->reserved, part->free, part->used};
    return end(call, SUCCESS);
}

API int nvmlDeviceGetTemperatureV(device_t handle, temperature_v1_t *temperature) {
    DEVICE;
    if (temperature->version != (sizeof(temperature_v1_t) | 1u << 24))
        return end(call, VERSION_MISMATCH_OF_ARGUMENT);
    NEED(part->temperature >= 0);
    temperature->celsius = part->temperature;
    return end(call, SUCCESS);
}
#endif

API int nvmlDeviceGetTemperature(device_t handle, unsigned sensor, unsigned *celsius) {
    DEVICE;
    NEED(part->temperature >= 0 && sensor == 0);
    *celsius = (unsigned)part->temperature;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetUtilizationRates(device_t handle, utilization_t *rates) {
    DEVICE;
    NEED(part->utilization >= 0);
    *rates = (utilization_t){(unsigned)part->utilization, (unsigned)part->utilization / 2};
    return end(call, SUCCESS);
}

static int milliwatts(call_t *call, long value, unsigned *into) {
    NEED(value >= 0);
    *into = (unsigned)value;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetPowerUsage(device_t handle, unsigned *into) {
    DEVICE;
    return milliwatts(call, part->power, into);
}

API int nvmlDeviceGetEnforcedPowerLimit(device_t handle, unsigned *into) {
    DEVICE;
    return milliwatts(call, part->limit, into);
}

API int nvmlDeviceGetPowerManagementLimit(device_t handle, unsigned *into) {
    DEVICE;
    return milliwatts(call, part->limit, into);
}

#ifndef OLD_DRIVER
static int copy_processes(const process_t *from, int many, unsigned *count, process_v3_t *list) {
    unsigned room = list ? *count : 0;
    *count = (unsigned)many;
    if (room < (unsigned)many)
        return INSUFFICIENT_SIZE;
    for (int i = 0; i < many; i++)
        list[i] = (process_v3_t){from[i].pid, from[i].bytes, ~0u, ~0u};
    return SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(device_t handle, unsigned *count, process_v3_t *list) {
    DEVICE;
    return end(call, copy_processes(part->process, part->processes, count, list));
}

API int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t handle, unsigned *count, process_v3_t *list) {
    DEVICE;
    return end(call, copy_processes(part->client, part->clients, count, list));
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t handle, unsigned *count, process_v3_t *list) {
    DEVICE;
    return end(call, copy_processes(part->drawing, part->drawings, count, list));
}
#endif

/* The newest sample of each process, taken now; a real driver has several, and forgets them after seconds. */
API int nvmlDeviceGetProcessUtilization(device_t handle, process_sample_t *list, unsigned *count, u64 since_us) {
    DEVICE;
    NEED(part->busies);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 now_us = (u64)now.tv_sec * 1000000ULL + (u64)now.tv_nsec / 1000ULL;
    int idle = part->busies == 1 && !part->busy[0].pid;
    if (idle || now_us <= since_us)
        return end(call, NOT_FOUND);
    unsigned room = list ? *count : 0;
    *count = (unsigned)part->busies;
    if (room < *count)
        return end(call, INSUFFICIENT_SIZE);
    for (int i = 0; i < part->busies; i++)
        list[i] = (process_sample_t){part->busy[i].pid, now_us, (unsigned)part->busy[i].percent, 0, 0, 0};
    return end(call, SUCCESS);
}

/* As torch asks, to say who holds a GPU that is full. */
API int nvmlDeviceGetComputeRunningProcesses(device_t handle, unsigned *count, process_v1_t *list) {
    DEVICE;
    unsigned room = list ? *count : 0;
    *count = (unsigned)part->processes;
    if (room < (unsigned)part->processes)
        return end(call, INSUFFICIENT_SIZE);
    for (int i = 0; i < part->processes; i++)
        list[i] = (process_v1_t){part->process[i].pid, part->process[i].bytes};
    return end(call, SUCCESS);
}

/* ---- slices ---- */

API int nvmlDeviceGetMigMode(device_t handle, unsigned *now, unsigned *pending) {
    DEVICE;
    NEED(part->mig >= 0);
    *now = *pending = (unsigned)part->mig;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetMaxMigDeviceCount(device_t handle, unsigned *count) {
    DEVICE;
    *count = part->mig > 0 ? MAX_PLACES - 1 : 0;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetMigDeviceHandleByIndex(device_t handle, unsigned place, device_t *into) {
    DEVICE;
    if (part->mig <= 0 || place >= MAX_PLACES)
        return end(call, INVALID_ARGUMENT);
    if (!(call->machine.made >> place & 1))
        return end(call, NOT_FOUND);
    *into = handle_of(gpu_of(handle), (int)place, call->machine.epoch);
    return end(call, SUCCESS);
}

API int nvmlDeviceIsMigDeviceHandle(device_t handle, unsigned *is) {
    DEVICE;
    (void)part;
    *is = place_of(handle) >= 0;
    return end(call, SUCCESS);
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t handle, device_t *into) {
    DEVICE;
    (void)part;
    *into = handle_of(gpu_of(handle), -1, call->machine.epoch);
    return end(call, SUCCESS);
}

/* ---- what gpustat, nvitop and torch ask besides; kgops does not ---- */

API int nvmlDeviceGetPciInfo_v3(device_t handle, pci_t *pci) {
    DEVICE;
    (void)part;
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)gpu_of(handle) + 1;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return end(call, SUCCESS);
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, device_t *into) {
    unsigned domain, bus;
    return sscanf(bus_id, "%x:%x", &domain, &bus) == 2 && bus ? nvmlDeviceGetHandleByIndex_v2(bus - 1, into) : NOT_FOUND;
}

#define UNSUPPORTED(name) API int name(device_t handle) { DEVICE; (void)part; return end(call, NOT_SUPPORTED); }
UNSUPPORTED(nvmlDeviceGetPerformanceState)
UNSUPPORTED(nvmlDeviceGetPersistenceMode)
UNSUPPORTED(nvmlDeviceGetDisplayActive)
UNSUPPORTED(nvmlDeviceGetComputeMode)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetEncoderUtilization)
UNSUPPORTED(nvmlDeviceGetDecoderUtilization)
UNSUPPORTED(nvmlDeviceGetFanSpeed)
UNSUPPORTED(nvmlDeviceGetClockInfo)
UNSUPPORTED(nvmlDeviceGetMaxClockInfo)
UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)

/* torch's expandable segments ask whether other machines' GPUs are near, and stop where they get no answer. */
API int nvmlDeviceGetGpuFabricInfoV(device_t handle, fabric_v2_t *fabric) {
    DEVICE;
    (void)part;
    fabric->state = 0; /* there is none */
    return end(call, SUCCESS);
}
