/* The interface of matrix/matrix where there are no such instructions: its plain form through the kernel of the probes,
 * whose numbers are computed here. A layout that the kernel, the packing and the emulation do not agree on shows. */
#include "device/device.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

enum { WORDS = 256, THREADS = 64 };

static void check(const char *defines, int rows, int depth, int cols) {
    ist_error err;
    ist_device *d = NULL;
    ist_frame_scope setup = {0};
    cl_mem in = NULL, out = NULL;
    cl_kernel kernel = NULL;
    uint32_t words[WORDS];
    float got[WORDS];
    size_t size = THREADS;
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i * 2246822519u >> 7;
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &d, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_kernel_create(d, "probe/matrix", "matrix/matrix", defines, "probe", &kernel, &err), IST_OK, "%s",
                 err.text);
    cr_assert_eq(ist_buffer_create(d, sizeof words, "in", &in, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, sizeof got, "out", &out, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_write(d, setup, in, 0, sizeof words, words, true, "in", &err), IST_OK, "%s", err.text);
    cr_assert_eq(clSetKernelArg(kernel, 0, sizeof out, &out), CL_SUCCESS);
    cr_assert_eq(clSetKernelArg(kernel, 1, sizeof in, &in), CL_SUCCESS);
    cr_assert_eq(ist_enqueue(d, kernel, 1, &size, &size, "probe", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, setup, out, 0, sizeof got, got, NULL, "out", &err), IST_OK, "%s", err.text);
    for (int i = 0; i < rows * cols; i++) {
        float want = 0;
        for (int k = 0; k < depth; k++)
            want += (float)(words[(i / cols * depth + k) % WORDS] % 16u) *
                    (float)(words[(k * cols + i % cols) % WORDS] / 16u % 16u);
        cr_expect_eq(got[i], want, "%s: [%d][%d] is %g, want %g", defines, i / cols, i % cols, got[i], want);
    }
    ist_kernel_release(&kernel);
    ist_buffer_release(d, &in);
    ist_buffer_release(d, &out);
    ist_device_close(&d);
}

Test(device_matrix, mfma) {
    check("-DMATRIX_MFMA -DEMULATED", 16, 32, 16);
}
Test(device_matrix, wmma) {
    check("-DMATRIX_WMMA -DEMULATED", 16, 16, 16);
}
Test(device_matrix, dpas) {
    check("-DMATRIX_DPAS -DEMULATED", 8, 16, 8);
}

/* A device that cannot compile the instructions has no capability for them, though the plain form computes. */
Test(device_matrix, the_plain_form_is_no_capability) {
    ist_error err;
    ist_device *d = NULL;
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &d, &err), IST_OK, "%s", err.text);
    bool cpu = ist_device_facts(d)->type == IST_DEVICE_CPU;
    unsigned matrix = ist_device_caps(d) & (IST_CAP_AMD_MFMA | IST_CAP_AMD_WMMA | IST_CAP_INTEL_DPAS);
    cr_expect(!cpu || !matrix);
    cr_expect(!(matrix & (matrix - 1)), "one maker's instructions at most, not %#x", matrix);
    ist_device_close(&d);
}
