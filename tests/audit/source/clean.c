/* A pipeline as it should be, and everything that only looks like a fault. Nothing here is above necessary. */
#include <CL/cl.h>
#include <stdio.h>

/* clFinish(queue); in a comment
   clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &x, 0, NULL, NULL); */
// for (;;) clFinish(queue); \
   clFinish(queue); the line above goes on here

static const char *source = "for (;;) clFinish(queue); \" clWaitForEvents(1, &e);"
                            "clBuildProgram(p, 0, 0, 0, 0, 0);";
#define WAIT(queue) \
    do {            \
        clFinish(queue); \
    } while (0)
#if 0
void process_frame(cl_command_queue queue) {
#if 1
    for (;;) clFinish(queue);
#endif
}
#else
static const char quote = '"', slash = '\\', tick = '\'';
#endif
# /* a directive with a comment
   clFinish(queue); */ pragma once

extern cl_int clFinish(cl_command_queue queue);
cl_int (*finish)(cl_command_queue) = clFinish;

typedef struct pipeline {
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem in, out;
} pipeline;

void pipeline_setup(pipeline *p, cl_context context, cl_program program) {
    clBuildProgram(program, 0, NULL, NULL, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        p->in = clCreateBuffer(context, CL_MEM_READ_ONLY, 4096, NULL, NULL);
        clFinish(p->queue); // expect: wait necessary
    }
}

void process_frame(pipeline *p, const float *pixels, float *result) {
    clEnqueueWriteBuffer(p->queue, p->in, CL_FALSE, 0, 4096, pixels, 0, NULL, NULL); // expect: upload necessary
    for (int layer = 0; layer < 50; layer++)
        clEnqueueNDRangeKernel(p->queue, p->kernel, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueReadBuffer(p->queue, p->out, CL_TRUE, 0, 4096, result, 0, NULL, NULL); // expect: download necessary
    printf("%f %s clFinish(queue)\n", result[0], source);
}

/* A pointer that is read into anew is not what was read before. */
void detect_reuse(pipeline *p, float *host) {
    clEnqueueNDRangeKernel(p->queue, p->kernel, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueReadBuffer(p->queue, p->out, CL_FALSE, 0, 4096, host, 0, NULL, NULL); // expect: download necessary
    host = source_of_next_frame();
    clEnqueueWriteBuffer(p->queue, p->in, CL_FALSE, 0, 4096, host, 0, NULL, NULL); // expect: upload necessary
}
