/* What a SPEC selects, on lists made up here. */
#include "device/device.h"

#include <criterion/criterion.h>
#include <string.h>

static const ist_device_info machines[] = {
    {.index = 0,
     .platform = 0,
     .device = 0,
     .type = IST_DEVICE_CPU,
     .name = "pthread-haswell",
     .platform_name = "Portable Computing Language"},
    {.index = 1,
     .platform = 2,
     .device = 0,
     .type = IST_DEVICE_GPU,
     .name = "GeForce RTX 5090",
     .platform_name = "NVIDIA CUDA",
     .uuid = "00112233445566778899aabbccddeeff"},
    {.index = 2,
     .platform = 2,
     .device = 1,
     .type = IST_DEVICE_GPU,
     .name = "Tesla T4",
     .platform_name = "NVIDIA CUDA",
     .uuid = "ffeeddccbbaa99887766554433221100"},
    {.index = 3,
     .platform = 3,
     .device = 0,
     .type = IST_DEVICE_OTHER,
     .name = "Accelerator",
     .platform_name = "Vendor X"},
};

static int select_from(int first, int count, const char *spec) {
    ist_error err = {0};
    int index = -7;
    ist_status status = ist_device_select(machines + first, count, spec, &index, &err);
    if (status == IST_OK) return index;
    cr_expect_eq(status, IST_E_NO_DEVICE);
    cr_expect_eq(err.code, IST_E_NO_DEVICE);
    cr_expect_eq(index, -7, "a failed selection must leave index alone");
    return -1;
}

Test(device_list, empty_spec_prefers_gpu_then_cpu_then_first) {
    cr_expect_eq(select_from(0, 4, NULL), 1);
    cr_expect_eq(select_from(0, 4, ""), 1);
    cr_expect_eq(select_from(0, 1, NULL), 0);
    cr_expect_eq(select_from(3, 1, NULL), 0);
    cr_expect_eq(select_from(0, 0, NULL), -1);
}

Test(device_list, numbers) {
    cr_expect_eq(select_from(0, 4, "0"), 0);
    cr_expect_eq(select_from(0, 4, "3"), 3);
    cr_expect_eq(select_from(0, 4, "4"), -1);
    cr_expect_eq(select_from(0, 4, "-1"), -1);
    cr_expect_eq(select_from(0, 4, "99999999999999999999"), -1);
    cr_expect_eq(select_from(0, 4, "2:1"), 2);
    cr_expect_eq(select_from(0, 4, "0:0"), 0);
    cr_expect_eq(select_from(0, 4, "1:0"), -1);
    cr_expect_eq(select_from(0, 4, "2:1x"), -1);
}

Test(device_list, types) {
    cr_expect_eq(select_from(0, 4, "gpu"), 1);
    cr_expect_eq(select_from(0, 4, "CPU"), 0);
    cr_expect_eq(select_from(1, 2, "cpu"), -1);
}

Test(device_list, names) {
    cr_expect_eq(select_from(0, 4, "t4"), 2);
    cr_expect_eq(select_from(0, 4, "5090"), 1, "a number that is no index can be part of a name");
    cr_expect_eq(select_from(0, 4, "nvidia"), 1, "the first device of a platform");
    cr_expect_eq(select_from(0, 4, "portable"), 0);
    cr_expect_eq(select_from(0, 4, "Radeon"), -1);
}

Test(device_list, uuids) {
    cr_expect_eq(select_from(0, 4, "uuid:ffeeddccbbaa99887766554433221100"), 2);
    cr_expect_eq(select_from(0, 4, "UUID:00112233-4455-6677-8899-AABBCCDDEEFF"), 1);
    cr_expect_eq(select_from(0, 4, "uuid:ffee"), 2);
    cr_expect_eq(select_from(0, 4, "uuid:"), -1);
    cr_expect_eq(select_from(0, 4, "uuid:ffeeddccbbaa998877665544332211000"), -1, "longer than any");
}

Test(device_list, the_sentence_names_what_there_is) {
    ist_error err = {0};
    int index;
    cr_assert_eq(ist_device_select(machines, 4, "Radeon", &index, &err), IST_E_NO_DEVICE);
    cr_expect(strstr(err.text, "\"Radeon\""), "%s", err.text);
    cr_expect(strstr(err.text, "1 = GeForce RTX 5090 (NVIDIA CUDA)"), "%s", err.text);
    cr_assert_eq(ist_device_select(machines, 1, "Radeon", &index, &err), IST_E_NO_DEVICE);
    cr_assert(strstr(err.text, "no device matches \"Radeon\"; there is 1: "), "%s", err.text);
    cr_assert_eq(ist_device_select(machines, 0, NULL, &index, &err), IST_E_NO_DEVICE);
    cr_expect(strstr(err.text, "no OpenCL device"), "%s", err.text);
}
