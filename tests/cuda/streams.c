/* Streams, events, graph capture, and what is counted. Work is done at once, in the order in which it is asked for; what
 * stays true is what may be asked when: most of all, what a capture forbids. */
#include "standin.h"
#include <time.h>

/* ---- counts ---- */

static atomic_ullong counts[COUNTS];
void count(int what, unsigned long long how_many) { counts[what] += how_many; }
EXPORT void standin_counts(unsigned long long *out) { for (int i = 0; i < COUNTS; i++) out[i] = counts[i]; }

/* ---- captures ---- */

struct CUgraph_st { copy_t *copies; int copy_count, copy_room, nodes, kernels; };
struct CUgraphExec_st { struct CUgraph_st graph; };

typedef struct capture {
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    int broken;
    cudaGraph_t graph;
    pthread_t begun_by;
    struct capture *next;
} capture_t;

struct CUstream_st { int device, priority; unsigned flags; capture_t *capture; };
struct CUevent_st { int device, recorded; unsigned flags; struct timespec at; capture_t *capture; };

static capture_t *under_way;
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* NULL, 1 and 2 are the legacy and the per-thread default streams. */
static int is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

static int goes_on(capture_t *capture) {
    for (capture_t *one = under_way; capture && one; one = one->next)
        if (one == capture)
            return 1;
    return 0;
}

/* A stream that joined by an event keeps its mark after the capture ended elsewhere. */
static capture_t *capture_of(cudaStream_t stream) {
    if (is_default(stream) || !stream->capture)
        return NULL;
    if (!goes_on(stream->capture))
        stream->capture = NULL;
    return stream->capture;
}

int is_captured(cudaStream_t stream) { return capture_of(stream) != NULL; }

void capture_copy(cudaStream_t stream, copy_t copy) {
    cudaGraph_t graph = capture_of(stream)->graph;
    if (graph->copy_count == graph->copy_room) {
        graph->copy_room = graph->copy_room ? 2 * graph->copy_room : 64;
        graph->copies = realloc(graph->copies, (size_t)graph->copy_room * sizeof *graph->copies);
    }
    graph->copies[graph->copy_count++] = copy;
    graph->nodes++;
}
static void record_kernel(cudaGraph_t graph) {
    graph->nodes++;
    graph->kernels++;
}
void capture_kernel(cudaStream_t stream) { record_kernel(capture_of(stream)->graph); }
/* A library's kernel, whose stream its handle knows: while anything is captured, all that runs belongs to the capture. */
EXPORT void standin_kernel(void) {
    if (under_way)
        record_kernel(under_way->graph);
    else
        count(LAUNCHES, 1);
}

static cudaError_t broken(capture_t *capture, cudaError_t error) {
    capture->broken = 1;
    return fail(error);
}

cudaError_t forbidden_while_capturing(void) {
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (capture_t *one = under_way; one; one = one->next) {
        if (one->mode == cudaStreamCaptureModeRelaxed)
            continue;
        int everywhere = one->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        if (everywhere || pthread_equal(one->begun_by, pthread_self()))
            return broken(one, cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

static cudaError_t begin(cudaStream_t stream, enum cudaStreamCaptureMode mode, cudaGraph_t graph) {
    static atomic_ullong next_id = 1;
    if (is_default(stream))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (capture_of(stream))
        return fail(cudaErrorIllegalState);
    capture_t *made = calloc(1, sizeof *made);
    *made = (capture_t){next_id++, mode, 0, graph ? graph : calloc(1, sizeof *graph), pthread_self(), NULL};
    LOCKED(made->next = under_way; under_way = made);
    stream->capture = made;
    note("capture begins");
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) { return begin(stream, mode, NULL); }
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
                                          const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode) {
    return begin(stream, mode, graph);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    capture_t *ended = capture_of(stream);
    *graph = NULL;
    if (!ended)
        return fail(cudaErrorIllegalState);
    LOCKED(
        capture_t **place = &under_way;
        while (*place != ended) place = &(*place)->next;
        *place = ended->next);
    stream->capture = NULL;
    note("capture ends nodes=%d%s", ended->graph->nodes, ended->broken ? " broken" : "");
    if (ended->broken)
        return fail(cudaErrorStreamCaptureInvalidated);
    *graph = ended->graph; /* the capture itself stays: events may still point to it */
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    capture_t *capture = capture_of(stream);
    *status = !capture ? cudaStreamCaptureStatusNone
            : capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *count) {
    capture_t *capture = capture_of(stream);
    cudaStreamIsCapturing(stream, status);
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = capture ? capture->graph : NULL;
    if (nodes) *nodes = NULL;
    if (count) *count = 0;
    return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count) {
    if (edges) *edges = NULL;
    return capture_info(stream, status, id, graph, nodes, count);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges,
                                                size_t count, unsigned flags) { return cudaSuccess; }
#else
#undef cudaStreamGetCaptureInfo
#undef cudaStreamGetCaptureInfo_v2
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes, size_t *count) { return capture_info(stream, status, id, graph, nodes, count); }
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id) {
    return capture_info(stream, status, id, NULL, NULL, NULL);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes, size_t count, unsigned flags) { return cudaSuccess; }
#endif
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    cudaGraphExec_t made = calloc(1, sizeof *made);
    made->graph = *graph;
    size_t bytes = (size_t)graph->copy_count * sizeof *graph->copies;
    made->graph.copies = malloc(bytes + 1);
    if (bytes)
        memcpy(made->graph.copies, graph->copies, bytes);
    *out = made;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(out, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t stream) {
    if (gpu_count() && is_lost(current_gpu))
        return fail(cudaErrorUnknown);
    for (int i = 0; i < run->graph.copy_count; i++) {
        copy_t *one = &run->graph.copies[i];
        if (one->from) memmove(one->to, one->from, one->bytes);
        else memset(one->to, one->value, one->bytes);
    }
    count(LAUNCHES, 1);
    note("replay nodes=%d", run->graph.nodes);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { if (graph) { free(graph->copies); free(graph); } return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) { if (run) { free(run->graph.copies); free(run); } return cudaSuccess; }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) { /* torch asks how many, to warn of none */
    if (!nodes)
        *count = (size_t)graph->nodes;
    return nodes ? fail(cudaErrorNotSupported) : cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    cudaStream_t made = calloc(1, sizeof *made);
    *made = (struct CUstream_st){current_gpu, priority, flags, NULL};
    *out = made;
    return gpu_count() ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { if (!is_default(stream)) free(stream); return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out) { *out = is_default(stream) ? 0 : stream->priority; return cudaSuccess; }
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *out) { *out = is_default(stream) ? 0 : stream->flags; return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }

static cudaError_t ask(cudaStream_t stream) {
    if (is_captured(stream))
        return broken(capture_of(stream), cudaErrorStreamCaptureUnsupported);
    return gpu_count() && is_lost(current_gpu) ? fail(cudaErrorUnknown) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return ask(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { count(SYNCHRONISATIONS, 1); note("synchronise stream"); return ask(stream); }
cudaError_t cudaDeviceSynchronize(void) {
    count(SYNCHRONISATIONS, 1);
    note("synchronise gpu");
    return gpu_count() && is_lost(current_gpu) ? fail(cudaErrorUnknown) : forbidden_while_capturing();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (!event || !goes_on(event->capture))
        return cudaSuccess;
    if (is_default(stream)) /* the legacy stream cannot join a capture */
        return broken(event->capture, cudaErrorStreamCaptureImplicit);
    stream->capture = event->capture;
    return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void *data, unsigned flags) {
    call(stream, cudaSuccess, data);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data) {
    if (!is_captured(stream))
        call(data);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    cudaEvent_t made = calloc(1, sizeof *made);
    made->device = current_gpu;
    made->flags = flags;
    *out = made;
    return gpu_count() ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (!is_default(stream) && stream->device != event->device)
        return fail(cudaErrorInvalidResourceHandle);
    event->capture = capture_of(stream);
    event->recorded = 1;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
static cudaError_t ask_event(cudaEvent_t event) {
    return goes_on(event->capture) ? broken(event->capture, cudaErrorCapturedEvent) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = ask_event(event);
    return error ? error : forbidden_while_capturing();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { count(SYNCHRONISATIONS, 1); note("synchronise event"); return ask_event(event); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & cudaEventDisableTiming))
        return fail(cudaErrorInvalidResourceHandle);
    *ms = (float)(end->at.tv_sec - start->at.tv_sec) * 1e3f + (float)(end->at.tv_nsec - start->at.tv_nsec) / 1e6f;
    return cudaSuccess;
}
