/* Streams: one thread feeds an engine and looks for results, gives up on what it no longer wants, and hands results to
 * kernels of its own where they lie.
 *
 * The device is held by an event in a queue of the test's, so that "not yet" is no matter of time. */
#include "support/engines.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

/* A context and queue of the caller's, on the engine's default device. */
typedef struct own {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    cl_event hold;
} own;

static own own_open(ist_config *c) {
    own o = {0};
    ist_engine *e = NULL;
    ist_engine_info info;
    const ist_config bare = {.struct_size = sizeof bare.struct_size};
    cl_platform_id platforms[16];
    cl_device_id devices[16];
    cr_assert_eq(ist_open(&bare, &e, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    ist_close(&e);
    cr_assert_eq(clGetPlatformIDs(16, platforms, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platforms[info.device.platform], CL_DEVICE_TYPE_ALL, 16, devices, NULL), CL_SUCCESS);
    o.device = devices[info.device.device];
    o.context = clCreateContext(NULL, 1, &o.device, NULL, NULL, NULL);
    o.queue = clCreateCommandQueueWithProperties(o.context, o.device, NULL, NULL);
    c->cl_context = o.context, c->cl_device = o.device, c->cl_queue = o.queue;
    return o;
}

static void own_close(own *o) {
    clReleaseCommandQueue(o->queue);
    clReleaseContext(o->context);
}

/* What is enqueued from now on waits for `let_go`. */
static void hold(own *o) {
    o->hold = clCreateUserEvent(o->context, NULL);
    cr_assert_eq(clEnqueueBarrierWithWaitList(o->queue, 1, &o->hold, NULL), CL_SUCCESS);
}

static void let_go(own *o) {
    cr_assert_eq(clSetUserEventStatus(o->hold, CL_COMPLETE), CL_SUCCESS);
    clReleaseEvent(o->hold);
}

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = 4;
    c.frames_in_flight = 3;
    return c;
}

Test(api_stream, a_result_that_is_not_there_yet, .timeout = 600) {
    ist_config c = small_config();
    own o = own_open(&c);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(64, 48, 5);
    const ist_result *r = NULL;
    m.timestamp = UINT64_C(0x1234567890abcdef);
    cr_assert_eq(ist_try_receive(e, &r, &err), IST_E_STATE);
    cr_assert_str_eq(err.text, "receive: nothing is in flight");
    hold(&o);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        r = (const ist_result *)&err;
        cr_assert_eq(i ? ist_receive_for(e, i, &r, &err) : ist_try_receive(e, &r, &err), IST_OK, "%s", err.text);
        cr_assert_null(r);
    }
    let_go(&o);
    cr_assert_eq(ist_receive_for(e, 86400000, &r, &err), IST_OK, "%s", err.text);
    cr_assert_not_null(r);
    cr_assert_eq(r->frames[0].tag, 5);
    cr_assert_eq(r->frames[0].timestamp, m.timestamp);
    cr_assert_eq(r->frames[0].object_count, 4);
    cr_assert(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
    ist_release(e, &r);
    static const double bad[] = {-1, 86400001, 0.0 / 0.0};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(ist_receive_for(e, bad[i], &r, &err), IST_E_ARGUMENT);
        cr_assert_not_null(strstr(err.text, "want 0..86400000"), "%s", err.text);
    }
    cr_assert_eq(ist_receive_for(NULL, 1, &r, &err), IST_E_ARGUMENT);
    cr_assert_eq(ist_try_receive(e, NULL, &err), IST_E_ARGUMENT);
    ist_close(&e);
    own_close(&o);
    free((void *)m.pixels);
}

/* Feeds whenever there is room and looks whenever something flies: every frame comes, once, in order, as alone. */
Test(api_stream, one_thread_feeds_and_polls, .timeout = 600) {
    enum { PICTURES = 3 };
    ist_config c = small_config();
    ist_engine *e = engines_open(&c), *reference = engines_open(&c);
    ist_image pictures[PICTURES];
    const ist_result *want[PICTURES], *r;
    int submitted = 0, received = 0, count = engines_lack_cpu() ? 9 : 60;
    for (int i = 0; i < PICTURES; i++) {
        pictures[i] = engines_image(64 + 13 * i, 48 - 7 * i, (uint64_t)(40 + i));
        want[i] = engines_run(reference, &pictures[i], 1);
    }
    while (received < count) {
        if (submitted < count && submitted - received < c.frames_in_flight) {
            ist_image m = pictures[submitted % PICTURES];
            m.tag = (uint64_t)submitted, m.timestamp = (uint64_t)submitted * 1000;
            cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
            submitted++;
        }
        bool full = submitted == count || submitted - received == c.frames_in_flight;
        cr_assert_eq(full ? ist_receive_for(e, 1, &r, &err) : ist_try_receive(e, &r, &err), IST_OK, "%s", err.text);
        if (!r) continue;
        cr_assert_eq(r->frames[0].tag, (uint64_t)received);
        cr_assert_eq(r->frames[0].timestamp, (uint64_t)received * 1000);
        engines_same(&want[received % PICTURES]->frames[0], &r->frames[0]);
        ist_release(e, &r);
        received++;
    }
    cr_assert_eq(ist_try_receive(e, &r, &err), IST_E_STATE);
    ist_close(&e);
    ist_close(&reference);
    for (int i = 0; i < PICTURES; i++) free((void *)pictures[i].pixels);
}

Test(api_stream, what_is_cancelled_is_not_delivered, .timeout = 600) {
    ist_config c = small_config();
    own o = own_open(&c);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(64, 48, 1);
    const ist_result *out, *r;
    int cancelled = -1;
    cr_assert_eq(ist_cancel(NULL, &cancelled, &err), IST_E_ARGUMENT);
    cr_assert_eq(ist_cancel(e, &cancelled, &err), IST_OK);
    cr_assert_eq(cancelled, 0);
    out = engines_run(e, &m, 1);
    hold(&o);
    for (m.tag = 10; m.tag < 12; m.tag++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_E_STATE); /* three are out: one result, two in flight */
    cr_assert_eq(ist_cancel(e, &cancelled, &err), IST_OK, "%s", err.text);
    cr_assert_eq(cancelled, 2);
    cr_assert_eq(ist_receive(e, &r, &err), IST_E_STATE);
    ist_device_packet packet;
    cr_assert_eq(ist_submitted(e, &packet, &err), IST_E_STATE);
    cr_assert_eq(out->frames[0].tag, 1); /* what is out stays */
    cr_assert_eq(out->frames[0].object_count, 4);
    let_go(&o);
    for (m.tag = 20; m.tag < 24; m.tag++) { /* more than there are slots: those of the cancelled ones serve again */
        cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
        cr_assert_eq(r->frames[0].tag, m.tag);
        engines_same(&out->frames[0], &r->frames[0]);
        cr_assert(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
        ist_release(e, &r);
    }
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK);
    cr_assert_eq(ist_cancel(e, NULL, &err), IST_OK);
    ist_close(&e); /* with a result that is out and a batch that nobody wants */
    own_close(&o);
    free((void *)m.pixels);
}

/* ---- results where they lie ---- */

/* Of object k: label, score's bits, the first corner's, and the set pixels of its mask, counted from its words. */
static const char *const kernel_text =
    "kernel void look(global const uint *packet, global const uint *store, global uint *out, uint at, uint words,\n"
    "                 uint masks, uint label, uint score, uint box, uint columns, uint column_words, uint mask_at,\n"
    "                 uint stored_at) {\n"
    "    uint k = get_global_id(0), area = 0, stored = packet[stored_at];\n"
    "    global const uint *o = packet + at + k * words;\n"
    "    for (uint i = o[mask_at]; i < o[mask_at] + o[columns] * o[column_words]; i++)\n"
    "        area += popcount(i < stored ? packet[masks + i] : store[i - stored]);\n"
    "    out[4 * k] = o[label], out[4 * k + 1] = o[score], out[4 * k + 2] = o[box], out[4 * k + 3] = area;\n"
    "}\n";

static void look(const own *o, cl_command_queue queue, const ist_device_packet *p, int objects, cl_event after,
                 uint32_t *out) {
    cl_program program = clCreateProgramWithSource(o->context, 1, (const char **)&kernel_text, NULL, NULL);
    cr_assert_eq(clBuildProgram(program, 1, &o->device, "-cl-std=CL1.2", NULL, NULL), CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "look", NULL);
    size_t bytes = (size_t)objects * 4 * sizeof(uint32_t), count = (size_t)objects;
    cl_mem result = clCreateBuffer(o->context, CL_MEM_READ_WRITE, bytes, NULL, NULL), packet = p->packet,
           store = p->store;
    const cl_uint numbers[] = {
        (cl_uint)p->objects_at, (cl_uint)p->object_words, (cl_uint)p->masks_at,    IST_PACKET_LABEL,
        IST_PACKET_SCORE,       IST_PACKET_BOX,           IST_PACKET_MASK_COLUMNS, IST_PACKET_MASK_COLUMN_WORDS,
        IST_PACKET_MASK_AT,     IST_PACKET_STORED_WORDS};
    cr_assert_eq(clSetKernelArg(kernel, 0, sizeof packet, &packet), CL_SUCCESS);
    cr_assert_eq(clSetKernelArg(kernel, 1, sizeof store, &store), CL_SUCCESS);
    cr_assert_eq(clSetKernelArg(kernel, 2, sizeof result, &result), CL_SUCCESS);
    for (cl_uint i = 0; i < 10; i++)
        cr_assert_eq(clSetKernelArg(kernel, 3 + i, sizeof numbers[i], &numbers[i]), CL_SUCCESS);
    cl_uint waits = after != NULL;
    cr_assert_eq(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, waits, waits ? &after : NULL, NULL),
                 CL_SUCCESS);
    cr_assert_eq(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, bytes, out, 0, NULL, NULL), CL_SUCCESS);
    clReleaseMemObject(result);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
}

static void same_as(const ist_frame *want, const uint32_t *seen) {
    for (int k = 0; k < want->object_count; k++, seen += 4) {
        const ist_object *o = &want->objects[k];
        cr_assert_eq(seen[0], (uint32_t)o->label, "object %d", k);
        cr_assert_arr_eq(&seen[1], &o->score, sizeof o->score, "object %d", k);
        cr_assert_arr_eq(&seen[2], &o->box[0], sizeof o->box[0], "object %d", k);
        cr_assert_eq(seen[3], (uint32_t)o->area, "object %d: %u pixels set, area %d", k, seen[3], o->area);
    }
}

/* Kernels of the caller's find the results in device memory before the host knows of them: in the engine's queue by its
 * order, in another by the event; with a picture whose masks exceed the packet. Without the readback nothing is read.
 */
Test(api_stream, results_stay_on_the_device, .timeout = 600) {
    enum { OBJECTS = 12 };
    ist_config c = engines_config("n", true);
    c.conf = 0;
    c.max_objects = OBJECTS;
    c.segmenter_size = 256;
    ist_engine *reference = engines_open(&c);
    own o = own_open(&c);
    c.readback = IST_READBACK_NONE;
    ist_engine *e = engines_open(&c);
    cl_command_queue other = clCreateCommandQueueWithProperties(o.context, o.device, NULL, NULL);
    const int sides[2][2] = {{160, 120}, {2600, 2400}};
    ist_device_packet p;
    cr_assert_eq(ist_submitted(e, &p, &err), IST_E_STATE);
    cr_assert_str_eq(err.text, "ist_submitted: nothing is in flight");
    cr_assert_eq(ist_submitted(e, NULL, &err), IST_E_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        ist_image m = engines_image(sides[i][0], sides[i][1], 4);
        const ist_result *want = engines_run(reference, &m, 1), *r;
        uint32_t seen[OBJECTS * 4];
        cr_assert_eq(want->frames[0].object_count, OBJECTS);
        cr_assert_eq(want->transfers.reads, 1 + i, "the second picture needs more mask words than a packet holds");
        cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_submitted(e, &p, &err), IST_OK, "%s", err.text);
        cr_assert_eq(p.image_count, 1);
        cr_assert_eq(p.queue, (void *)o.queue);
        look(&o, o.queue, &p, OBJECTS, NULL, seen);
        same_as(&want->frames[0], seen);
        memset(seen, 0, sizeof seen);
        look(&o, other, &p, OBJECTS, p.done, seen);
        same_as(&want->frames[0], seen);
        cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
        cr_assert(r->transfers.writes == 1 && r->transfers.reads == 0 && r->transfers.d2h_bytes == 0);
        cr_assert_eq(r->frame_count, 1);
        cr_assert_eq(r->frames[0].tag, 4);
        cr_assert_eq(r->frames[0].object_count, 0);
        cr_assert_null(r->device.done);
        cr_assert_eq(r->device.packet, p.packet);
        memset(seen, 0, sizeof seen);
        look(&o, other, &r->device, OBJECTS, NULL, seen); /* what has been received is finished */
        same_as(&want->frames[0], seen);
        ist_release(e, &r);
        ist_release(reference, &want);
        free((void *)m.pixels);
    }
    clReleaseCommandQueue(other);
    ist_close(&e);
    ist_close(&reference);
    own_close(&o);
}
