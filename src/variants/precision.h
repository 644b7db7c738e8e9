/* Which precisions a device has kernel variants for: what an engine asks before it chooses one. */
#ifndef IST_VARIANTS_PRECISION_H
#define IST_VARIANTS_PRECISION_H

#include "device/device.h"

/* Whether tensors can be stored as half: the device rounds as the half_storage probe wants. */
bool ist_device_stores_half(const ist_device *device);
/* Whether the device has instructions that multiply bfloat16, which reduced precision on CPUs is made of. */
bool ist_device_multiplies_bf16(const ist_device *device);

#endif
