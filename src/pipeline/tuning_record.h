/* The tuning record of a device: where it is kept, what it must say, reading it. */
#ifndef IST_PIPELINE_TUNING_RECORD_H
#define IST_PIPELINE_TUNING_RECORD_H

#include "core/tuning.h"
#include "device/device.h"
#include "pipeline/tune.h"

enum { IST_TUNING_KEY = 900 };

/* Path of the device's record; false when no folder keeps things. `cache_dir` as in ist_config. */
bool ist_tuning_path(const ist_device *device, const char *cache_dir, char path[IST_TUNING_PATH]);
/* The lines a record of the device must have: name, driver, kernel sources. */
void ist_tuning_key(const ist_device *device, char key[IST_TUNING_KEY]);
/* The device's record; empty when there is none that can be used. */
void ist_tuning_load(const ist_device *device, const char *cache_dir, ist_tuning *tuning);

#endif
