/* NCCL's collectives between processes of one machine, really done: each rank lays its part into a file that all have mapped,
 * all meet, each takes what it wants, all meet again. Send and receive are not here. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

extern void *standin_bytes(const void *address);

#define MAX_RANKS 8
#define PART (4UL << 20) /* bytes of one rank in one round */
enum { OK = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6 };

typedef struct { char path[128]; } id_t_;
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int waiting, aborted;
    unsigned round;
    char part[MAX_RANKS][PART];
} room_t;
typedef struct { int ranks, rank; room_t *room; } comm_t;

static room_t *enter(const char *path, int flags) {
    int file = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (file < 0)
        return NULL;
    void *at = ftruncate(file, sizeof(room_t)) ? MAP_FAILED : mmap(NULL, sizeof(room_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

int ncclGetVersion(int *out) { *out = NCCL; return OK; }
const char *ncclGetErrorString(int error) { return error ? "an error of the stand-in" : "no error"; }
const char *ncclGetLastError(comm_t *of) { return ""; }

int ncclGetUniqueId(id_t_ *out) {
    static int made;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(out, 0, sizeof *out);
    snprintf(out->path, sizeof out->path, "/dev/shm/nccl-standin-%d-%d-%lx", getpid(), made++, (long)now.tv_nsec);
    room_t *room = enter(out->path, O_CREAT | O_EXCL);
    if (!room)
        return SYSTEM_ERROR;
    pthread_mutexattr_t shared;
    pthread_condattr_t shared_too;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&shared_too);
    pthread_condattr_setpshared(&shared_too, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&room->lock, &shared);
    pthread_cond_init(&room->changed, &shared_too);
    munmap(room, sizeof *room);
    return OK;
}

static int meet(comm_t *of) {
    room_t *room = of->room;
    pthread_mutex_lock(&room->lock);
    unsigned round = room->round;
    if (++room->waiting == of->ranks) {
        room->waiting = 0;
        room->round++;
        pthread_cond_broadcast(&room->changed);
    }
    while (room->round == round && !room->aborted)
        pthread_cond_wait(&room->changed, &room->lock);
    int answer = room->aborted ? REMOTE_ERROR : OK;
    pthread_mutex_unlock(&room->lock);
    return answer;
}

int ncclCommInitRankConfig(comm_t **out, int ranks, id_t_ id, int rank, void *config) {
    if (ranks > MAX_RANKS)
        return INVALID_ARGUMENT;
    comm_t *made = calloc(1, sizeof *made);
    *made = (comm_t){ranks, rank, enter(id.path, 0)};
    *out = made;
    if (!made->room)
        return SYSTEM_ERROR;
    int error = meet(made);
    if (rank == 0)
        unlink(id.path); /* all are in: what is mapped stays */
    return error;
}
int ncclCommInitRank(comm_t **out, int ranks, id_t_ id, int rank) { return ncclCommInitRankConfig(out, ranks, id, rank, NULL); }
int ncclCommInitRankScalable(comm_t **out, int ranks, int rank, int ids, id_t_ *id, void *config) { return ncclCommInitRankConfig(out, ranks, *id, rank, config); }
int ncclCommCount(comm_t *of, int *out) { *out = of->ranks; return OK; }
int ncclCommUserRank(comm_t *of, int *out) { *out = of->rank; return OK; }
int ncclCommGetAsyncError(comm_t *of, int *out) { *out = of->room->aborted ? REMOTE_ERROR : OK; return OK; }
int ncclCommAbort(comm_t *of) {
    pthread_mutex_lock(&of->room->lock);
    of->room->aborted = 1;
    pthread_cond_broadcast(&of->room->changed);
    pthread_mutex_unlock(&of->room->lock);
    return OK;
}
int ncclCommDestroy(comm_t *of) { return OK; }
int ncclCommFinalize(comm_t *of) { return OK; }
int ncclGroupStart(void) { return OK; }
int ncclGroupEnd(void) { return OK; }

/* ---- values: ncclDataType_t and ncclRedOp_t by their numbers ---- */

enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 };
enum { SUM, PRODUCT, MAXIMUM, MINIMUM, AVERAGE };
static const size_t width[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static double value(const char *at, int type, size_t i) {
    switch (type) {
    case INT8: return ((const int8_t *)at)[i];
    case UINT8: return ((const uint8_t *)at)[i];
    case INT32: return ((const int32_t *)at)[i];
    case UINT32: return ((const uint32_t *)at)[i];
    case INT64: return (double)((const int64_t *)at)[i];
    case UINT64: return (double)((const uint64_t *)at)[i];
    case FLOAT16: return (double)((const _Float16 *)at)[i];
    case FLOAT32: return ((const float *)at)[i];
    case FLOAT64: return ((const double *)at)[i];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}
static void set(char *at, int type, size_t i, double to) {
    switch (type) {
    case INT8: ((int8_t *)at)[i] = (int8_t)to; return;
    case UINT8: ((uint8_t *)at)[i] = (uint8_t)to; return;
    case INT32: ((int32_t *)at)[i] = (int32_t)to; return;
    case UINT32: ((uint32_t *)at)[i] = (uint32_t)to; return;
    case INT64: ((int64_t *)at)[i] = (int64_t)to; return;
    case UINT64: ((uint64_t *)at)[i] = (uint64_t)to; return;
    case FLOAT16: ((_Float16 *)at)[i] = (_Float16)to; return;
    case FLOAT32: ((float *)at)[i] = (float)to; return;
    case FLOAT64: ((double *)at)[i] = to; return;
    }
    float narrow = (float)to;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    ((uint16_t *)at)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to the nearest, ties to even */
}
static double reduced(const comm_t *of, int type, int operation, size_t i) {
    double all = value(of->room->part[0], type, i);
    for (int rank = 1; rank < of->ranks; rank++) {
        double one = value(of->room->part[rank], type, i);
        all = operation == PRODUCT ? all * one : operation == MAXIMUM ? (one > all ? one : all)
            : operation == MINIMUM ? (one < all ? one : all) : all + one;
    }
    return operation == AVERAGE ? all / of->ranks : all;
}

/* Of `count` elements that every rank shows: those from `first` on, `mine` of them, come to `to`. */
typedef struct { const void *from; void *to; size_t count, first, mine; int type, operation, root; } work_t;
#define NO_ROOT -1

static int together(comm_t *of, work_t work) {
    const char *source = standin_bytes(work.from);
    char *target = standin_bytes(work.to);
    size_t size = width[work.type], most = PART / size;
    for (size_t done = 0; done < work.count; done += most) {
        size_t now = work.count - done < most ? work.count - done : most;
        memcpy(of->room->part[of->rank], source + done * size, now * size);
        if (meet(of))
            return REMOTE_ERROR;
        for (size_t i = 0; i < now; i++) {
            size_t place = done + i - work.first;
            if (done + i < work.first || place >= work.mine)
                continue;
            if (work.root == NO_ROOT)
                set(target, work.type, place, reduced(of, work.type, work.operation, i));
            else
                memcpy(target + place * size, of->room->part[work.root] + i * size, size);
        }
        if (meet(of))
            return REMOTE_ERROR;
    }
    return OK;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, comm_t *of, void *stream) {
    return together(of, (work_t){from, to, count, 0, count, type, operation, NO_ROOT});
}
int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, comm_t *of, void *stream) {
    return together(of, (work_t){from, to, count, 0, of->rank == root ? count : 0, type, operation, NO_ROOT});
}
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, comm_t *of, void *stream) {
    return together(of, (work_t){from, to, count * (size_t)of->ranks, count * (size_t)of->rank, count, type, operation, NO_ROOT});
}
/* Only the root need show anything: the others show what they will overwrite. */
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm_t *of, void *stream) {
    return together(of, (work_t){of->rank == root ? from : to, to, count, 0, count, type, SUM, root});
}
int ncclBcast(void *both, size_t count, int type, int root, comm_t *of, void *stream) { return ncclBroadcast(both, both, count, type, root, of, stream); }
int ncclAllGather(const void *from, void *to, size_t count, int type, comm_t *of, void *stream) {
    for (int rank = 0; rank < of->ranks; rank++) {
        int error = together(of, (work_t){from, (char *)to + (size_t)rank * count * width[type], count, 0, count, type, SUM, rank});
        if (error)
            return error;
    }
    return OK;
}
