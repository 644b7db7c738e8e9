/* What the programs under audit share: a device, a queue, kernels. Calls that are to be found stand in the programs
 * themselves, each on one line that ends with FAULT and the category; lines without it must give no finding. */
#ifndef AUDIT_COMMON_H
#define AUDIT_COMMON_H

#undef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 32768, PASSES = 6, MANY = 8 }; /* launches of slow, 15 to 20 ms behind measure() */

typedef struct bench {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_kernel add, slow; /* add(out, in): out = in + 1; slow(out, in, turns): so many steps */
    cl_mem a, b;         /* N floats each */
    float host[N], result[N];
} bench;

static inline void check(cl_int code, const char *what) {
    if (code == CL_SUCCESS) return;
    fprintf(stderr, "%s failed: %d\n", what, (int)code);
    exit(1);
}

static inline cl_kernel make_kernel(bench *s, const char *name, cl_mem out, cl_mem in) {
    cl_int code;
    cl_kernel kernel = clCreateKernel(s->program, name, &code);
    check(code, name);
    check(clSetKernelArg(kernel, 0, sizeof out, &out), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof in, &in), "clSetKernelArg");
    return kernel;
}

static inline void set_turns(bench *s, cl_int turns) {
    check(clSetKernelArg(s->slow, 2, sizeof turns, &turns), "clSetKernelArg");
}

/* The device whose platform's name holds ISTHMUS_DEVICE, else the first. */
static inline void choose_device(bench *s) {
    cl_platform_id list[16];
    cl_uint count = 0;
    const char *want = getenv("ISTHMUS_DEVICE");
    check(clGetPlatformIDs(16, list, &count), "clGetPlatformIDs");
    for (cl_uint k = 0; k < count && k < 16; k++) {
        char name[256] = "";
        cl_device_id device;
        clGetPlatformInfo(list[k], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (clGetDeviceIDs(list[k], CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS) continue;
        int fits = !want || !*want;
        for (const char *p = name; !fits && *p; p++) {
            const char *q = p, *w = want;
            while (*w && *q == *w) q++, w++;
            fits = !*w;
        }
        if (s->device && !fits) continue;
        s->platform = list[k];
        s->device = device;
        if (fits) return;
    }
    if (!s->device) check(CL_DEVICE_NOT_FOUND, "clGetDeviceIDs");
}

static inline bench *open_bench(void) {
    static const char *const source =
        "__kernel void add(__global float *o, __global const float *i) { int k = get_global_id(0); o[k] = i[k] + 1; }"
        "__kernel void slow(__global float *o, __global const float *i, int turns) { int k = get_global_id(0);"
        " float v = i[k]; for (int n = 0; n < turns; n++) v = v * 0.999f + 1; o[k] = v; }";
    cl_int code;
    bench *s = calloc(1, sizeof *s);
    if (!s) check(CL_OUT_OF_HOST_MEMORY, "calloc");
    choose_device(s);
    s->context = clCreateContext(NULL, 1, &s->device, NULL, NULL, &code);
    check(code, "clCreateContext");
    s->queue = clCreateCommandQueue(s->context, s->device, 0, &code);
    check(code, "clCreateCommandQueue");
    s->program = clCreateProgramWithSource(s->context, 1, (const char **)(size_t)&source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(s->program, 1, &s->device, "", NULL, NULL), "clBuildProgram");
    s->a = clCreateBuffer(s->context, CL_MEM_READ_WRITE, sizeof s->host, NULL, &code);
    check(code, "clCreateBuffer");
    s->b = clCreateBuffer(s->context, CL_MEM_READ_WRITE, sizeof s->host, NULL, &code);
    check(code, "clCreateBuffer");
    s->add = make_kernel(s, "add", s->b, s->a);
    s->slow = make_kernel(s, "slow", s->b, s->a);
    set_turns(s, 200);
    return s;
}

/* New data for every pass. */
static inline void fill(bench *s, int pass) {
    for (int k = 0; k < N; k++) s->host[k] = (float)(pass * 31 + k % 1000);
}

static inline void run(bench *s, cl_kernel kernel) {
    size_t global = N;
    check(clEnqueueNDRangeKernel(s->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
}

/* Sets slow's turns for some 2 ms a launch: more launches instead would keep the host longer than a fast device. */
static inline void measure(bench *s) {
    enum { TURNS = 20000 };
    struct timespec from, to;
    run(s, s->slow);
    check(clFinish(s->queue), "clFinish");
    set_turns(s, TURNS);
    clock_gettime(CLOCK_MONOTONIC, &from);
    run(s, s->slow);
    check(clFinish(s->queue), "clFinish");
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    set_turns(s, ms > 250 ? TURNS / 100 : ms < 0.05 ? 50 * TURNS : (cl_int)(TURNS * 2.5 / ms));
}

static inline void close_bench(bench *s) {
    clReleaseKernel(s->add);
    clReleaseKernel(s->slow);
    clReleaseMemObject(s->a);
    clReleaseMemObject(s->b);
    clReleaseProgram(s->program);
    clReleaseCommandQueue(s->queue);
    clReleaseContext(s->context);
    free(s);
}

#endif
