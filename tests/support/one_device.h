/* Tests that have the default device open, each for itself and without a cache of ours: TestSuite(name, .init =
 * open_one, .fini = close_one). */
#ifndef ONE_DEVICE_H
#define ONE_DEVICE_H

#include "device/state.h"

#include <criterion/criterion.h>

static ist_device *d;
static ist_error err;

static inline void open_one(void) {
    ist_device_options o = {.cache_dir = "off"};
    cr_assert_eq(ist_device_open(&o, &d, &err), IST_OK, "%s", err.text);
}

static inline void close_one(void) {
    ist_device_close(&d);
}

#endif
