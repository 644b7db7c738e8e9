/* Planted faults of OpenCL in C. A line with "expect" has exactly that finding, every other line has none. */
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#define READ_BACK clEnqueueReadBuffer /* no call */

typedef struct job {
    cl_context context;
    cl_command_queue queue;
    cl_kernel first, second;
    cl_mem in, out, state;
    float *host, *kept;
} job;

static float shared[64];

/* ---- set-up: nothing here is above necessary ---- */

void job_init(job *j, cl_program program, cl_device_id device, float *weights) {
    clBuildProgram(program, 1, &device, "", NULL, NULL);
    j->first = clCreateKernel(program, "first", NULL);
    j->in = clCreateBuffer(j->context, CL_MEM_READ_ONLY, 4096, NULL, NULL);
    j->out = clCreateBuffer(j->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 4096, weights, NULL); // expect: upload necessary
    clEnqueueWriteBuffer(j->queue, j->in, CL_TRUE, 0, 4096, weights, 0, NULL, NULL); // expect: upload necessary
    clEnqueueFillBuffer(j->queue, j->in, &weights[0], 4, 0, 4096, 0, NULL, NULL);   // expect: device_copy necessary
    clFinish(j->queue);                                                            // expect: wait necessary
}

/* ---- migration ---- */

void detect_migrated(job *j) {
    clEnqueueMigrateMemObjects(j->queue, 1, &j->in, 0, 0, NULL, NULL); // expect: upload necessary
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueMigrateMemObjects(j->queue, 1, &j->out, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL); // expect: download necessary
    clEnqueueMigrateMemObjects(j->queue, 1, &j->in, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL); // expect: device_copy necessary
}

/* ---- chains ---- */

void infer_chain(job *j) {
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueReadBuffer(j->queue, j->out, CL_TRUE, 0, 4096, j->host, 0, NULL, NULL); // expect: read_write_chain critical
    clEnqueueWriteBuffer(j->queue, j->in, CL_FALSE, 0, 4096, j->host, 0, NULL, NULL);
    clEnqueueNDRangeKernel(j->queue, j->second, 1, NULL, NULL, NULL, 0, NULL, NULL);
}

void infer_round_trip(job *j, size_t n) {
    float boxes[256];
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueReadBuffer(j->queue, j->out, CL_TRUE, 0, sizeof boxes, boxes, 0, NULL, NULL); // expect: host_round_trip critical
    for (size_t i = 0; i < n; i++) boxes[i] = boxes[i] * 2;
    clEnqueueWriteBuffer(j->queue, j->in, CL_FALSE, 0, sizeof boxes, boxes, 0, NULL, NULL);
    clEnqueueNDRangeKernel(j->queue, j->second, 1, NULL, NULL, NULL, 0, NULL, NULL);
}

/* Across functions: one reads, its caller gives the memory to another that writes. */
static void fetch(job *j, float *to) {
    clEnqueueReadBuffer(j->queue, j->out, CL_FALSE, 0, 4096, to, 0, NULL, NULL); // expect: read_write_chain critical
}

static void put(job *j, const float *from) {
    clEnqueueWriteBuffer(j->queue, j->in, CL_FALSE, 0, 4096, from, 0, NULL, NULL);
}

void process_frame_across(job *j) {
    float *between = malloc(4096);
    fetch(j, between);
    put(j, between);
    free(between);
}

static float *read_state(job *j) {
    clEnqueueReadBuffer(j->queue, j->state, CL_FALSE, 0, 4096, shared, 0, NULL, NULL); // expect: read_write_chain critical
    return shared;
}

void step_state(job *j) {
    float *state = read_state(j);
    clEnqueueWriteBuffer(j->queue, j->state, CL_FALSE, 0, 4096, state, 0, NULL, NULL);
}

/* ---- scalars, pieces ---- */

void infer_scalars(job *j, int n) {
    float scores[100];
    for (int i = 0; i < n; i++) {
        clEnqueueReadBuffer(j->queue, j->out, CL_TRUE, i * sizeof(float), sizeof(float), &scores[i], 0, NULL, NULL); // expect: scalar_read critical
    }
    for (int i = 0; i < n; i++)
        clEnqueueWriteBuffer(j->queue, j->in, CL_FALSE, i * 4, sizeof(cl_int), &n, 0, NULL, NULL); // expect: scalar_write critical
    int row = 0;
    while (row < n)
        clEnqueueReadImage(j->queue, j->out, CL_TRUE, 0, 0, 0, 0, j->kept + 64 * row++, 0, NULL, NULL); // expect: transfer_in_loop critical
}

/* ---- waits ---- */

void detect_waits(job *j, cl_event done) {
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, &done);
    clFinish(j->queue); // expect: wait_mid_frame medium
    clEnqueueNDRangeKernel(j->queue, j->second, 1, NULL, NULL, NULL, 0, NULL, NULL);
    for (int layer = 0; layer < 8; layer++) {
        clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
        clFlush(j->queue);            // expect: flush_in_loop minor
        clWaitForEvents(1, &done);    // expect: wait_in_loop critical
    }
    cl_int status = CL_QUEUED;
    while (status != CL_COMPLETE)
        clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL); // expect: poll_loop critical
    clEnqueueReadBuffer(j->queue, j->out, CL_TRUE, 0, 4096, j->kept, 0, NULL, NULL); // expect: download necessary
    clFinish(j->queue); // expect: redundant_wait medium
}

/* ---- what belongs to set-up ---- */

void process_objects(job *j, cl_program program, float *pixels) {
    cl_int e;
    clBuildProgram(program, 0, NULL, "-DN=4", NULL, NULL);                                     // expect: build_in_frame critical
    cl_mem a = clCreateBuffer(j->context, CL_MEM_READ_WRITE, 4096, NULL, &e);                   // expect: creation_in_frame medium
    cl_mem b = clCreateBuffer(j->context, CL_MEM_USE_HOST_PTR, 4096, pixels, &e);               // expect: host_pointer medium
    clEnqueueWriteBuffer(j->queue, a, CL_TRUE, 0, 4096, pixels, 0, NULL, NULL);                 // expect: blocking_transfer medium
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueCopyBuffer(j->queue, a, b, 0, 0, 4096, 0, NULL, NULL);                             // expect: device_copy necessary
    clReleaseMemObject(b);
}

/* ---- maps and shared memory ---- */

void render_maps(job *j, void *svm, void *plain) {
    clEnqueueNDRangeKernel(j->queue, j->first, 1, NULL, NULL, NULL, 0, NULL, NULL);
    float *p = clEnqueueMapBuffer(j->queue, j->out, CL_TRUE, CL_MAP_READ, 0, 4096, 0, NULL, NULL, NULL); // expect: blocking_transfer medium
    clEnqueueUnmapMemObject(j->queue, j->out, p, 0, NULL, NULL); // expect: upload necessary
    clEnqueueSVMMemcpy(j->queue, CL_TRUE, plain, svm, 4096, 0, NULL, NULL); // expect: blocking_transfer medium
    clEnqueueNDRangeKernel(j->queue, j->second, 1, NULL, NULL, NULL, 0, NULL, NULL);
    clEnqueueSVMMap(j->queue, CL_FALSE, CL_MAP_READ, svm, 4096, 0, NULL, NULL); // expect: download necessary
}

/* ---- called from a loop: hot; a loop over frames in main ---- */

static void per_item(job *j) {
    clFinish(j->queue); // expect: wait necessary
}

int main(int argc, char **argv) {
    job j = {0};
    job_init(&j, NULL, NULL, NULL);
    for (int i = 0; i < argc; i++) per_item(&j);
    for (int frame = 0; frame < 100; frame++) {
        clEnqueueWriteBuffer(j.queue, j.in, CL_FALSE, 0, 4096, argv[0], 0, NULL, NULL); // expect: upload necessary
        clEnqueueWriteBuffer(j.queue, j.state, CL_FALSE, 0, 4096, argv[1], 0, NULL, NULL); // expect: split_transfer minor
        clEnqueueNDRangeKernel(j.queue, j.first, 1, NULL, NULL, NULL, 0, NULL, NULL);
        clEnqueueReadBuffer(j.queue, j.out, CL_FALSE, 0, 4096, j.host, 0, NULL, NULL); // expect: download necessary
        clEnqueueReadBuffer(j.queue, j.state, CL_FALSE, 0, 4096, j.kept, 0, NULL, NULL); // expect: split_transfer minor
        clFinish(j.queue); // expect: wait necessary
    }
    return 0;
}
