/* Calls of OpenCL (C and C++ bindings) and of CUDA's runtime and driver interfaces, by the specification of each. */
#include "audit/source_c_rules.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS IST_SRC_BLOCKING

/* Sorted by name (strcmp). */
static const ist_c_rule rules[] = {
    {"Buffer", IST_SRC_CREATE, IST_C_POINTER, IST_C_MEMORY, 0, -1, 3, 2, 1},
    {"Image2D", IST_SRC_CREATE, IST_C_POINTER, IST_C_MEMORY, 0, -1, 6, -1, 1},
    {"Image3D", IST_SRC_CREATE, IST_C_POINTER, IST_C_MEMORY, 0, -1, 8, -1, 1},
    {"WaitForEvents", IST_SRC_WAIT, IST_C_PLAIN, IST_C_SPACE, 0, -1, -1, -1, -1},
    {"build", IST_SRC_BUILD, IST_C_PLAIN, IST_C_PROGRAM, 0, -1, -1, -1, -1},
    {"clBuildProgram", IST_SRC_BUILD, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCompileProgram", IST_SRC_BUILD, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreateBuffer", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 3, 2, 1},
    {"clCreateBufferWithProperties", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 4, 3, 2},
    {"clCreateCommandQueue", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreateCommandQueueWithProperties", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreateContext", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreateContextFromType", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreateImage", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 4, -1, 1},
    {"clCreateImage2D", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 6, -1, 1},
    {"clCreateImage3D", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 8, -1, 1},
    {"clCreateImageWithProperties", IST_SRC_CREATE, IST_C_POINTER, 0, 0, -1, 5, -1, 2},
    {"clCreateKernel", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clCreatePipe", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueCopyBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueCopyBufferRect", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueCopyBufferToImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueCopyImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueCopyImageToBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueFillBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueFillImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueMapBuffer", IST_SRC_DOWN, IST_C_MAP, 0, 0, 2, -1, 5, 3},
    {"clEnqueueMapImage", IST_SRC_DOWN, IST_C_MAP, 0, 0, 2, -1, -1, 3},
    {"clEnqueueMigrateMemObjects", IST_SRC_UP, IST_C_KIND, 0, 0, -1, -1, -1, 3},
    {"clEnqueueNDRangeKernel", IST_SRC_LAUNCH, IST_C_PLAIN, 0, IST_SRC_MODEL, -1, -1, -1, -1},
    {"clEnqueueNativeKernel", IST_SRC_LAUNCH, IST_C_PLAIN, 0, IST_SRC_MODEL, -1, -1, -1, -1},
    {"clEnqueueReadBuffer", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 2, 5, 4, -1},
    {"clEnqueueReadBufferRect", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 2, 10, -1, -1},
    {"clEnqueueReadImage", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 2, 7, -1, -1},
    {"clEnqueueSVMMap", IST_SRC_DOWN, IST_C_MAP, 0, 0, 1, 3, 4, 2},
    {"clEnqueueSVMMemFill", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clEnqueueSVMMemcpy", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 1, 2, 4, -1},
    {"clEnqueueSVMMigrateMem", IST_SRC_UP, IST_C_KIND, 0, 0, -1, -1, -1, 4},
    {"clEnqueueSVMUnmap", IST_SRC_UP, IST_C_PLAIN, 0, 0, -1, 1, -1, -1},
    {"clEnqueueTask", IST_SRC_LAUNCH, IST_C_PLAIN, 0, IST_SRC_MODEL, -1, -1, -1, -1},
    {"clEnqueueUnmapMemObject", IST_SRC_UP, IST_C_PLAIN, 0, 0, -1, 2, -1, -1},
    {"clEnqueueWriteBuffer", IST_SRC_UP, IST_C_PLAIN, 0, 0, 2, 5, 4, -1},
    {"clEnqueueWriteBufferRect", IST_SRC_UP, IST_C_PLAIN, 0, 0, 2, 10, -1, -1},
    {"clEnqueueWriteImage", IST_SRC_UP, IST_C_PLAIN, 0, 0, 2, 7, -1, -1},
    {"clFinish", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clFlush", IST_SRC_FLUSH, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clGetEventInfo", IST_SRC_POLL, IST_C_STATUS, 0, 0, -1, -1, -1, 1},
    {"clLinkProgram", IST_SRC_BUILD, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clSVMAlloc", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"clWaitForEvents", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"copy", IST_SRC_DOWN, IST_C_RANGE, IST_C_SPACE, BLOCKS, -1, -1, -1, -1},
    {"cuCtxSynchronize", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cuMemcpyDtoH", IST_SRC_DOWN, IST_C_PLAIN, 0, BLOCKS, -1, 0, 2, -1},
    {"cuMemcpyDtoHAsync", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, -1, 0, 2, -1},
    {"cuMemcpyHtoD", IST_SRC_UP, IST_C_PLAIN, 0, BLOCKS, -1, 1, 2, -1},
    {"cuMemcpyHtoDAsync", IST_SRC_UP, IST_C_PLAIN, 0, 0, -1, 1, 2, -1},
    {"cuStreamSynchronize", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaDeviceSynchronize", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaEventQuery", IST_SRC_POLL, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaEventSynchronize", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaMalloc", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaMallocHost", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaMallocManaged", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaMemcpy", IST_SRC_UP, IST_C_KIND, 0, BLOCKS, -1, 0, 2, 3},
    {"cudaMemcpy2D", IST_SRC_UP, IST_C_KIND, 0, BLOCKS, -1, 0, -1, 6},
    {"cudaMemcpy2DAsync", IST_SRC_UP, IST_C_KIND, 0, 0, -1, 0, -1, 6},
    {"cudaMemcpyAsync", IST_SRC_UP, IST_C_KIND, 0, 0, -1, 0, 2, 3},
    {"cudaMemcpyFromSymbol", IST_SRC_DOWN, IST_C_PLAIN, 0, BLOCKS, -1, 0, 2, -1},
    {"cudaMemcpyToSymbol", IST_SRC_UP, IST_C_PLAIN, 0, BLOCKS, -1, 1, 2, -1},
    {"cudaMemset", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaStreamCreate", IST_SRC_CREATE, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaStreamQuery", IST_SRC_POLL, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"cudaStreamSynchronize", IST_SRC_WAIT, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueCopyBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueCopyBufferRect", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueCopyBufferToImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueCopyImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueCopyImageToBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueFillBuffer", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueFillImage", IST_SRC_COPY, IST_C_PLAIN, 0, 0, -1, -1, -1, -1},
    {"enqueueMapBuffer", IST_SRC_DOWN, IST_C_MAP, 0, 0, 1, -1, 4, 2},
    {"enqueueMapImage", IST_SRC_DOWN, IST_C_MAP, 0, 0, 1, -1, -1, 2},
    {"enqueueMapSVM", IST_SRC_DOWN, IST_C_MAP, 0, 0, 1, 0, 3, 2},
    {"enqueueMigrateMemObjects", IST_SRC_UP, IST_C_KIND, 0, 0, -1, -1, -1, 1},
    {"enqueueNDRangeKernel", IST_SRC_LAUNCH, IST_C_PLAIN, 0, IST_SRC_MODEL, -1, -1, -1, -1},
    {"enqueueReadBuffer", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 1, 4, 3, -1},
    {"enqueueReadBufferRect", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 1, 9, -1, -1},
    {"enqueueReadImage", IST_SRC_DOWN, IST_C_PLAIN, 0, 0, 1, 6, -1, -1},
    {"enqueueTask", IST_SRC_LAUNCH, IST_C_PLAIN, 0, IST_SRC_MODEL, -1, -1, -1, -1},
    {"enqueueUnmapMemObject", IST_SRC_UP, IST_C_PLAIN, 0, 0, -1, 1, -1, -1},
    {"enqueueUnmapSVM", IST_SRC_UP, IST_C_PLAIN, 0, 0, -1, 0, -1, -1},
    {"enqueueWriteBuffer", IST_SRC_UP, IST_C_PLAIN, 0, 0, 1, 4, 3, -1},
    {"enqueueWriteBufferRect", IST_SRC_UP, IST_C_PLAIN, 0, 0, 1, 9, -1, -1},
    {"enqueueWriteImage", IST_SRC_UP, IST_C_PLAIN, 0, 0, 1, 6, -1, -1},
    {"finish", IST_SRC_WAIT, IST_C_PLAIN, IST_C_QUEUE, 0, -1, -1, -1, -1},
    {"flush", IST_SRC_FLUSH, IST_C_PLAIN, IST_C_QUEUE, 0, -1, -1, -1, -1},
    {"getInfo", IST_SRC_POLL, IST_C_STATUS, IST_C_ANY, 0, -1, -1, -1, 0},
    {"wait", IST_SRC_WAIT, IST_C_PLAIN, IST_C_EVENT, 0, -1, -1, -1, -1},
};

typedef struct key {
    const char *text;
    size_t length;
} key;

static int compare(const void *wanted, const void *rule) {
    const key *k = wanted;
    const char *name = ((const ist_c_rule *)rule)->name;
    int c = strncmp(k->text, name, k->length);
    return c ? c : name[k->length] ? -1 : 0;
}

const ist_c_rule *ist_c_find_rule(const char *name, size_t length) {
    key k = {name, length};
    return bsearch(&k, rules, sizeof rules / sizeof *rules, sizeof *rules, compare);
}

static bool is_one_of(const char *word, size_t length, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == length && !memcmp(word, list[i], length)) return true;
    return false;
}

ist_c_type ist_c_type_of(const char *word, size_t length) {
    static const char *const queues[] = {"CommandQueue", "cl_command_queue"}, *const events[] = {"Event", "cl_event"},
                             *const programs[] = {"Program", "cl_program"},
                             *const memory[] = {"Buffer", "Image2D", "Image3D"};
    if (is_one_of(word, length, queues, 2)) return IST_C_QUEUE;
    if (is_one_of(word, length, events, 2)) return IST_C_EVENT;
    if (is_one_of(word, length, programs, 2)) return IST_C_PROGRAM;
    return is_one_of(word, length, memory, 3) ? IST_C_MEMORY : IST_C_ANY;
}

bool ist_c_is_scalar(const char *word, size_t length) {
    static const char *const types[] = {"char",     "short",     "int",      "long",      "unsigned", "float",
                                        "double",   "bool",      "size_t",   "half",      "int8_t",   "uint8_t",
                                        "int16_t",  "uint16_t",  "int32_t",  "uint32_t",  "int64_t",  "uint64_t",
                                        "cl_char",  "cl_uchar",  "cl_int",   "cl_uint",   "cl_long",  "cl_ulong",
                                        "cl_short", "cl_ushort", "cl_float", "cl_double", "cl_half",  "cl_bool"};
    return is_one_of(word, length, types, sizeof types / sizeof *types);
}
