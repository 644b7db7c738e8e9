/* Opening a device of this machine, adopting a caller's, and what is refused. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "device/device.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_device *open_default(void) {
    ist_device *d = NULL;
    ist_error err = {0};
    cr_assert_eq(ist_device_open(NULL, &d, &err), IST_OK, "%s", err.text);
    return d;
}

Test(device_open, list_is_numbered_and_marks_one_default) {
    ist_device_info *list;
    int count, defaults = 0, last_platform = 0;
    ist_error err = {0};
    cr_assert_eq(ist_device_list(&list, &count, &err), IST_OK, "%s", err.text);
    cr_assert_gt(count, 0);
    for (int i = 0; i < count; i++) {
        cr_expect_eq(list[i].index, i);
        cr_expect_geq(list[i].platform, last_platform);
        last_platform = list[i].platform;
        cr_expect_gt(strlen(list[i].name), 0u);
        cr_expect_gt(strlen(list[i].platform_name), 0u);
        cr_expect_gt(list[i].global_bytes, 0u);
        cr_expect_gt(list[i].max_alloc_bytes, 0u);
        cr_expect_gt(list[i].compute_units, 0);
        defaults += list[i].is_default;
    }
    cr_expect_eq(defaults, 1);
    free(list);
}

Test(device_open, facts_and_capabilities) {
    ist_device *d = open_default();
    unsigned caps = ist_device_caps(d);
    bool cpu = ist_device_facts(d)->type == IST_DEVICE_CPU;
    cr_expect_eq(ist_device_facts(d)->is_default, 1);
    if (!cpu) cr_expect_eq(caps & IST_CAP_CPU, 0u);
    if (!strcmp(ist_device_facts(d)->platform_name, "Portable Computing Language") && cpu)
        cr_expect(caps & IST_CAP_CPU);
    /* What every kernel of the project needs, on any device. */
    cr_expect(caps & IST_CAP_VEC16);
    cr_expect(caps & IST_CAP_LOCAL);
    cr_expect(caps & IST_CAP_ATOMICS);
    cr_expect(caps & IST_CAP_INT64);
    cr_expect_geq(ist_device_alignment(d), 64u);
    cr_expect_eq(ist_device_alignment(d) & (ist_device_alignment(d) - 1), 0u);
    cr_expect_geq(ist_device_local_bytes(d), 16384u);
    uint64_t now = 1;
    ist_device_memory(d, &now, NULL);
    cr_expect_eq(now, 0u, "probes leave no buffer behind");
    ist_device_close(&d);
    cr_expect_null(d);
    ist_device_close(&d);
    ist_device_close(NULL);
}

Test(device_open, capabilities_can_be_overruled) {
    ist_device *d = open_default();
    unsigned caps = ist_device_caps(d);
    ist_device_close(&d);
    setenv("ISTHMUS_CAPS", "-INT64,+CPU,-CPU", 1);
    d = open_default();
    cr_expect_eq(ist_device_caps(d), caps & ~(unsigned)(IST_CAP_INT64 | IST_CAP_CPU));
    ist_device_close(&d);
    setenv("ISTHMUS_CAPS", "+CPU", 1);
    d = open_default();
    cr_expect_eq(ist_device_caps(d), caps | IST_CAP_CPU);
    ist_device_close(&d);
    static const char *const wrong[] = {"CPU", "-CP", "+CPUS", "-", ",", "-CPU,,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ist_error err = {0};
        setenv("ISTHMUS_CAPS", wrong[i], 1);
        cr_expect_eq(ist_device_open(NULL, &d, &err), IST_E_ARGUMENT, "%s", wrong[i]);
        cr_expect(strstr(err.text, "ISTHMUS_CAPS: "), "%s", err.text);
    }
}

/* As where the compiler finds no room on the disk: a device on which nothing builds is none. */
Test(device_open, nothing_builds) {
    ist_error err;
    ist_device *d = NULL;
    ist_device_options o = {.cache_dir = "off"};
    cr_assert_eq(ist_device_open(&o, &d, &err), IST_OK, "%s", err.text);
    bool cpu = ist_device_facts(d)->type == IST_DEVICE_CPU;
    ist_device_close(&d);
    if (!cpu) cr_skip_test("not a CPU: its compiler takes no options of ours");
    setenv("ISTHMUS_CPU_BUILD_OPTIONS", "-Duint=?", 1);
    cr_expect_eq(ist_device_open(&o, &d, &err), IST_E_NO_DEVICE);
    unsetenv("ISTHMUS_CPU_BUILD_OPTIONS");
    cr_expect_not_null(strstr(err.text, "not even small kernels can be built: probe/"), "%s", err.text);
    cr_expect_null(d);
}

/* As llvmpipe of Mesa 22.3 and PoCL 7.1: a device that is named is refused with a sentence, and one that is not named
 * is passed over, here until none is left. */
static void refused(const char *without, const char *says) {
    static const char *const specs[] = {NULL, "0", "cpu"};
    const char *named = getenv("ISTHMUS_DEVICE");
    char *before = named ? strdup(named) : NULL;
    ist_device *d = NULL;
    setenv("ISTHMUS_CAPS", without, 1);
    unsetenv("ISTHMUS_ANY_DEVICE");
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ist_error err = {0};
        ist_device_options o = {.spec = specs[i]};
        if (!specs[i]) unsetenv("ISTHMUS_DEVICE");
        ist_status status = ist_device_open(&o, &d, &err);
        cr_expect_eq(status, IST_E_NO_DEVICE);
        cr_expect_eq(err.code, status);
        cr_expect_null(d);
        if (specs[i] && !strcmp(specs[i], "cpu") && strstr(err.text, "no device matches")) continue; /* none here */
        cr_expect(strstr(err.text, says), "%s", err.text);
    }
    ist_error err = {0};
    if (before) setenv("ISTHMUS_DEVICE", before, 1);
    setenv("ISTHMUS_ANY_DEVICE", "1", 1);
    cr_expect_eq(ist_device_open(NULL, &d, &err), IST_OK, "%s", err.text);
    ist_device_close(&d);
    free(before);
}

Test(device_open, wrong_results_are_no_device) {
    refused("-LONG_LOOPS", " computes wrong results: it leaves long loops early; use another device");
    refused("-LOOP_BODIES", " computes wrong results: it runs parts of loops a second time; use another device");
}

Test(device_open, capability_names) {
    cr_expect_str_eq(ist_cap_name(IST_CAP_BIT_CPU), "CPU");
    cr_expect_str_eq(ist_cap_name(IST_CAP_BIT_FP64), "FP64");
    cr_expect_str_eq(ist_cap_name(-1), "?");
    cr_expect_str_eq(ist_cap_name(IST_CAP_COUNT), "?");
}

Test(device_open, unknown_spec_is_an_error) {
    ist_device *d = (ist_device *)1;
    ist_error err = {0};
    ist_device_options o = {.spec = "no such device"};
    cr_expect_eq(ist_device_open(&o, &d, &err), IST_E_NO_DEVICE);
    cr_expect_null(d);
    cr_expect(strstr(err.text, "no such device"), "%s", err.text);
}

Test(device_open, environment_selects) {
    setenv("ISTHMUS_DEVICE", "no such device", 1);
    ist_device *d = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_device_open(NULL, &d, &err), IST_E_NO_DEVICE);
    ist_device_options o = {.spec = "0"};
    cr_expect_eq(ist_device_open(&o, &d, &err), IST_OK, "an explicit SPEC wins: %s", err.text);
    ist_device_close(&d);
}

/* A machine without drivers: the ICD loader looks into an empty place. */
Test(device_open, no_platform) {
    setenv("OCL_ICD_VENDORS", "/nonexistent/", 1);
    unsetenv("OCL_ICD_FILENAMES");
    ist_device_info *list = (ist_device_info *)1;
    int count = -1;
    ist_error err = {0};
    cr_expect_eq(ist_device_list(&list, &count, &err), IST_OK, "%s", err.text);
    cr_expect_eq(count, 0);
    free(list);
    ist_device *d = NULL;
    cr_expect_eq(ist_device_open(NULL, &d, &err), IST_E_NO_DEVICE);
    cr_expect(strstr(err.text, "no OpenCL device"), "%s", err.text);
}

/* ---- adopting ---- */

typedef struct own {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
} own;

static own make(cl_command_queue_properties properties, cl_int *rc) {
    own o = {0};
    ist_device *d = open_default(); /* for a device that exists */
    cr_assert_eq(clGetCommandQueueInfo(ist_device_queue(d), CL_QUEUE_DEVICE, sizeof o.device, &o.device, NULL),
                 CL_SUCCESS);
    ist_device_close(&d);
    o.context = clCreateContext(NULL, 1, &o.device, NULL, NULL, rc);
    cr_assert_eq(*rc, CL_SUCCESS);
    o.queue = clCreateCommandQueue(o.context, o.device, properties, rc);
    return o;
}

static cl_uint context_references(cl_context context) {
    cl_uint n = 0;
    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof n, &n, NULL);
    return n;
}

Test(device_open, adopts_and_retains) {
    cl_int rc;
    own o = make(0, &rc);
    cr_assert_eq(rc, CL_SUCCESS);
    cl_uint before = context_references(o.context);
    ist_device *d = NULL;
    ist_error err = {0};
    ist_device_options options = {.cl_context = o.context, .cl_device = o.device, .cl_queue = o.queue};
    cr_assert_eq(ist_device_open(&options, &d, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_device_context(d), o.context);
    cr_expect_eq(ist_device_queue(d), o.queue);
    cr_expect_geq(ist_device_facts(d)->index, 0);
    cr_expect_gt(context_references(o.context), before);
    /* The caller may drop its references while the device lives. */
    clReleaseCommandQueue(o.queue);
    clReleaseContext(o.context);
    cl_mem mem;
    cr_expect_eq(ist_buffer_create(d, 1024, "after adoption", &mem, &err), IST_OK, "%s", err.text);
    ist_buffer_release(d, &mem);
    ist_device_close(&d);
}

Test(device_open, refuses_to_adopt_two_of_three) {
    cl_int rc;
    own o = make(0, &rc);
    ist_error err = {0};
    ist_device *d = NULL;
    ist_device_options no_queue = {.cl_context = o.context, .cl_device = o.device};
    cr_expect_eq(ist_device_open(&no_queue, &d, &err), IST_E_ARGUMENT);
    cr_expect(strstr(err.text, "the queue is missing"), "%s", err.text);
    ist_device_options no_context = {.cl_device = o.device, .cl_queue = o.queue};
    cr_expect_eq(ist_device_open(&no_context, &d, &err), IST_E_ARGUMENT);
    cr_expect_null(d);
    clReleaseCommandQueue(o.queue);
    clReleaseContext(o.context);
}

Test(device_open, refuses_a_queue_of_another_context) {
    cl_int rc;
    own a = make(0, &rc), b = make(0, &rc);
    ist_error err = {0};
    ist_device *d = NULL;
    ist_device_options mixed = {.cl_context = a.context, .cl_device = a.device, .cl_queue = b.queue};
    cr_expect_eq(ist_device_open(&mixed, &d, &err), IST_E_ARGUMENT);
    cr_expect(strstr(err.text, "another context"), "%s", err.text);
    clReleaseCommandQueue(a.queue);
    clReleaseCommandQueue(b.queue);
    clReleaseContext(a.context);
    clReleaseContext(b.context);
}

Test(device_open, refuses_an_out_of_order_queue) {
    cl_int rc;
    own o = make(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &rc);
    if (rc != CL_SUCCESS) cr_skip("this device has no out-of-order queues");
    ist_error err = {0};
    ist_device *d = NULL;
    ist_device_options options = {.cl_context = o.context, .cl_device = o.device, .cl_queue = o.queue};
    cr_expect_eq(ist_device_open(&options, &d, &err), IST_E_ARGUMENT);
    cr_expect(strstr(err.text, "out of order"), "%s", err.text);
    clReleaseCommandQueue(o.queue);
    clReleaseContext(o.context);
}
