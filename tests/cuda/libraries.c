/* What torch asks of cuBLAS, cuDNN and the rest around their kernels, which do nothing. One source for all, compiled once
 * for each library with -DIN_<library>. What is not written here answers that it is not supported: see build.py. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle_t; /* a handle or descriptor: memory that nobody reads but the calls here */
__attribute__((unused)) static int make(handle_t *out) { *out = calloc(1, 256); return 0; }
#define DOES_NOTHING(call) int call(void) { return 0; }
#define ONE_KERNEL(call) int call(void) { standin_kernel(); return 0; }
extern void standin_kernel(void); /* counts a launch; how many a real library makes is its own secret */

#ifdef IN_cublas
typedef struct { int math_mode, pointer_mode; } state_t;
int cublasCreate_v2(handle_t *out) { return make(out); }
int cublasDestroy_v2(handle_t handle) { free(handle); return 0; }
int cublasSetMathMode(state_t *of, int mode) { of->math_mode = mode; return 0; }
int cublasGetMathMode(state_t *of, int *out) { *out = of->math_mode; return 0; }
int cublasSetPointerMode_v2(state_t *of, int mode) { of->pointer_mode = mode; return 0; }
int cublasGetPointerMode_v2(state_t *of, int *out) { *out = of->pointer_mode; return 0; }
DOES_NOTHING(cublasSetStream_v2)
DOES_NOTHING(cublasSetWorkspace_v2)
#define OF_EVERY_TYPE(product) ONE_KERNEL(cublasS##product) ONE_KERNEL(cublasD##product) ONE_KERNEL(cublasC##product) ONE_KERNEL(cublasZ##product)
OF_EVERY_TYPE(gemm_v2)
OF_EVERY_TYPE(gemmStridedBatched)
OF_EVERY_TYPE(gemmBatched)
OF_EVERY_TYPE(gemv_v2)
OF_EVERY_TYPE(trsm_v2)
OF_EVERY_TYPE(trsmBatched)
ONE_KERNEL(cublasGemmEx)
ONE_KERNEL(cublasGemmStridedBatchedEx)
ONE_KERNEL(cublasSgemmEx)
ONE_KERNEL(cublasDotEx)
ONE_KERNEL(cublasSdot_v2)
ONE_KERNEL(cublasDdot_v2)
ONE_KERNEL(cublasCdotu_v2)
ONE_KERNEL(cublasCdotc_v2)
ONE_KERNEL(cublasZdotu_v2)
ONE_KERNEL(cublasZdotc_v2)
#endif

#ifdef IN_cublasLt
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } heuristic_t;
size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtMatmulDescCreate(handle_t *out, int compute, int scale) { return make(out); }
int cublasLtMatmulDescDestroy(handle_t gone) { free(gone); return 0; }
int cublasLtMatmulPreferenceCreate(handle_t *out) { return make(out); }
int cublasLtMatmulPreferenceDestroy(handle_t gone) { free(gone); return 0; }
int cublasLtMatrixLayoutCreate(handle_t *out, int type, uint64_t rows, uint64_t columns, int64_t leading) { return make(out); }
int cublasLtMatrixLayoutDestroy(handle_t gone) { free(gone); return 0; }
DOES_NOTHING(cublasLtMatmulDescSetAttribute)
DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
ONE_KERNEL(cublasLtMatmul)
int cublasLtMatmulAlgoGetHeuristic(handle_t handle, handle_t what, handle_t a, handle_t b, handle_t c, handle_t d, handle_t preference,
                                   int wanted, heuristic_t *out, int *found) {
    memset(out, 0, sizeof *out); /* one that needs no workspace */
    *found = 1;
    return 0;
}
#endif

#ifdef IN_cudnn
size_t cudnnGetVersion(void) { return CUDNN; }
size_t cudnnGetCudartVersion(void) { return CUDART; }
int cudnnGetProperty(int which, int *out) {
    *out = which == 0 ? CUDNN / 10000 : which == 1 ? CUDNN / 100 % 100 : CUDNN % 100;
    return 0;
}
const char *cudnnGetErrorString(int error) { return error ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *out, size_t size) { snprintf(out, size, "not emulated"); }
int cudnnCreate(handle_t *out) { return make(out); }
int cudnnSetStream(handle_t *of, handle_t stream) { *of = stream; return 0; }
int cudnnGetStream(handle_t *of, handle_t *out) { *out = *of; return 0; }
#define DESCRIPTOR(kind) \
    int cudnnCreate##kind##Descriptor(handle_t *out) { return make(out); } \
    int cudnnDestroy##kind##Descriptor(handle_t gone) { free(gone); return 0; }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(Dropout)
DESCRIPTOR(Pooling)
DOES_NOTHING(cudnnDestroy)
DOES_NOTHING(cudnnSetTensorNdDescriptor)
DOES_NOTHING(cudnnSetFilterNdDescriptor)
DOES_NOTHING(cudnnSetConvolutionNdDescriptor)
DOES_NOTHING(cudnnSetConvolutionGroupCount)
DOES_NOTHING(cudnnSetConvolutionMathType)
DOES_NOTHING(cudnnSetActivationDescriptor)
DOES_NOTHING(cudnnSetDropoutDescriptor)
DOES_NOTHING(cudnnRestoreDropoutDescriptor)
DOES_NOTHING(cudnnSetPooling2dDescriptor)
ONE_KERNEL(cudnnPoolingForward)
ONE_KERNEL(cudnnBatchNormalizationForwardTrainingEx)
ONE_KERNEL(cudnnBatchNormalizationForwardInference)
ONE_KERNEL(cudnnBatchNormalizationBackwardEx)
ONE_KERNEL(cudnnConvolutionForward)
ONE_KERNEL(cudnnConvolutionBiasActivationForward)
ONE_KERNEL(cudnnConvolutionBackwardData)
ONE_KERNEL(cudnnConvolutionBackwardFilter)
int cudnnDropoutGetStatesSize(handle_t handle, size_t *out) { *out = 1 << 20; return 0; }
typedef handle_t H;
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(H h, int mode, int ops, H x, H z, H y, H scale, H act, size_t *out) { *out = 0; return 0; }
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(H h, int mode, int ops, H x, H y, H dy, H dz, H dx, H scale, H act, size_t *out) { *out = 0; return 0; }
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(H h, int mode, int ops, H act, H x, size_t *out) { *out = 0; return 0; }
/* Every convolution has one algorithm, which needs no workspace. */
typedef struct { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; } algorithm_t;
static int only(int *found, algorithm_t *out) {
    *out = (algorithm_t){.algorithm = 1, .determinism = 1, .math = 3};
    *found = 1;
    return 0;
}
#define ALGORITHM_OF(pass) \
    int cudnnGetConvolution##pass##Algorithm_v7(H h, H a, H b, H c, H d, int wanted, int *found, algorithm_t *out) { return only(found, out); } \
    int cudnnFindConvolution##pass##AlgorithmEx(H h, H a, H b, H c, H d, H e, H f, H g, int wanted, int *found, algorithm_t *out, H workspace, \
                                                size_t size) { return only(found, out); } \
    int cudnnGetConvolution##pass##WorkspaceSize(H h, H a, H b, H c, H d, int algorithm, size_t *out) { *out = 0; return 0; }
ALGORITHM_OF(Forward)
ALGORITHM_OF(BackwardData)
ALGORITHM_OF(BackwardFilter)
#endif

#ifdef IN_nvrtc
extern void standin_note(const char *);
int nvrtcVersion(int *major, int *minor) { *major = CUDART / 1000; *minor = CUDART % 1000 / 10; return 0; }
int nvrtcCreateProgram(handle_t *out, const char *source, const char *name, int count, const char **headers, const char **includes) { return make(out); }
int nvrtcDestroyProgram(handle_t *gone) { free(*gone); return 0; }
int nvrtcCompileProgram(handle_t of, int count, const char **options) { standin_note("nvrtc compiles"); return 0; }
static int nothing_in(char *out, size_t size) { memset(out, 0, size); return 0; }
int nvrtcGetCUBINSize(handle_t of, size_t *out) { *out = 8; return 0; }
int nvrtcGetCUBIN(handle_t of, char *out) { return nothing_in(out, 8); }
int nvrtcGetPTXSize(handle_t of, size_t *out) { *out = 8; return 0; }
int nvrtcGetPTX(handle_t of, char *out) { return nothing_in(out, 8); }
int nvrtcGetProgramLogSize(handle_t of, size_t *out) { *out = 1; return 0; }
int nvrtcGetProgramLog(handle_t of, char *out) { return nothing_in(out, 1); }
int nvrtcGetLoweredName(handle_t of, const char *expression, const char **out) { *out = expression; return 0; }
const char *nvrtcGetErrorString(int error) { return "not emulated"; }
DOES_NOTHING(nvrtcAddNameExpression)
#endif

#ifdef IN_cusparse
int cusparseCreate(handle_t *out) { return make(out); }
DOES_NOTHING(cusparseDestroy)
DOES_NOTHING(cusparseSetStream)
#endif

#ifdef IN_cusolver
int cusolverDnCreate(handle_t *out) { return make(out); }
DOES_NOTHING(cusolverDnDestroy)
DOES_NOTHING(cusolverDnSetStream)
#endif

#ifdef IN_cufft
int cufftCreate(int *plan) { static int last; *plan = ++last; return 0; }
int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *in, long long in_stride, long long in_batch, int in_type, long long *out,
                        long long out_stride, long long out_batch, int out_type, long long batch, size_t *workspace, int type) {
    *workspace = 0;
    return 0;
}
DOES_NOTHING(cufftDestroy)
DOES_NOTHING(cufftSetAutoAllocation)
DOES_NOTHING(cufftSetStream)
DOES_NOTHING(cufftSetWorkArea)
ONE_KERNEL(cufftXtExec)
#endif

#ifdef IN_cupti
int cuptiGetVersion(uint32_t *out) { *out = 0; return 0; }
int cuptiGetResultString(int error, const char **out) { *out = "not emulated"; return 0; }
#endif
