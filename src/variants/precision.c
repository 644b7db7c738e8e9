/* See precision.h. */
#include "variants/precision.h"

bool ist_device_stores_half(const ist_device *device) {
    return ist_device_caps(device) & IST_CAP_HALF_STORAGE;
}

bool ist_device_multiplies_bf16(const ist_device *device) {
    return ist_device_caps(device) & IST_CAP_X86_BF16;
}
