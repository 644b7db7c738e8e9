/* Devices that compute wrongly beside one that does not: the list has this machine's first device three times, and
 * those whose bits are set in `wrong` are not to be relied on. */
#include "device/state.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 3 };
static unsigned wrong, tried;

ist_status __real_ist_device_enumerate(ist_device_info **list, cl_device_id **ids, int *count, ist_error *err);
ist_status __wrap_ist_device_enumerate(ist_device_info **list, cl_device_id **ids, int *count, ist_error *err);
ist_status __wrap_ist_device_enumerate(ist_device_info **list, cl_device_id **ids, int *count, ist_error *err) {
    ist_status status = __real_ist_device_enumerate(list, ids, count, err);
    if (status || !*count) return status;
    ist_device_info *infos = calloc(COPIES, sizeof *infos);
    cl_device_id *handles = calloc(COPIES, sizeof *handles);
    for (int i = 0; i < COPIES; i++) {
        infos[i] = (*list)[0];
        infos[i].index = i;
        infos[i].type = i ? IST_DEVICE_CPU : IST_DEVICE_GPU;
        handles[i] = (*ids)[0];
    }
    free(*list);
    free(*ids);
    *list = infos;
    *ids = handles;
    *count = COPIES;
    return IST_OK;
}

ist_status __wrap_ist_device_rely_on(const ist_device *d, ist_error *err);
ist_status __wrap_ist_device_rely_on(const ist_device *d, ist_error *err) {
    unsigned bit = 1u << d->facts.index;
    tried |= bit;
    return wrong & bit ? ist_fail(err, IST_E_NO_DEVICE, "device %d computes wrongly", d->facts.index) : IST_OK;
}

/* The number of the device that opens; -1: none, and `text` has why. */
static int opened(const char *spec, unsigned these_are_wrong, char text[256]) {
    ist_device_options o = {.spec = spec};
    ist_device *d = NULL;
    ist_error err = {0};
    unsetenv("ISTHMUS_DEVICE");
    wrong = these_are_wrong;
    tried = 0;
    ist_status status = ist_device_open(&o, &d, &err);
    snprintf(text, 256, "%s", status ? err.text : "");
    cr_expect_eq(status, d ? IST_OK : IST_E_NO_DEVICE);
    int index = d ? ist_device_facts(d)->index : -1;
    ist_device_close(&d);
    return index;
}

Test(device_rely, the_next_is_taken_where_none_is_named) {
    char why[256];
    cr_expect_eq(opened(NULL, 0, why), 0, "%s", why);
    cr_expect_eq(opened(NULL, 1, why), 1, "%s", why);
    cr_expect_eq(opened(NULL, 3, why), 2, "%s", why);
    cr_expect_eq(opened("cpu", 2, why), 2, "%s", why);
    cr_expect_eq(tried, 6u);
}

Test(device_rely, a_gpu_is_asked_for_and_no_cpu_given) {
    char why[256];
    cr_expect_eq(opened("gpu", 1, why), -1);
    cr_expect_str_eq(why, "device 0 computes wrongly");
}

Test(device_rely, where_all_are_wrong_the_first_says_so) {
    char why[256];
    cr_expect_eq(opened(NULL, 7, why), -1);
    cr_expect_str_eq(why, "device 0 computes wrongly");
    cr_expect_eq(tried, 7u);
}

Test(device_rely, one_that_is_named_is_refused) {
    char why[256];
    cr_expect_eq(opened("0", 1, why), -1);
    cr_expect_str_eq(why, "device 0 computes wrongly");
    cr_expect_eq(opened("1", 1, why), 1, "%s", why);
    cr_expect_eq(tried, 2u);
}
