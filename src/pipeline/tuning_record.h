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
/* The record that comes with the library for the device of the key's first line, whatever its driver and the sources
 * were when it was made: what it names is a row that agrees with the others, at worst a slower one. Empty when there is
 * none. */
void ist_tuning_shipped(const char *key, ist_tuning *tuning);
/* The device's own record, else the one that comes with the library; empty when there is none that can be used. */
void ist_tuning_load(const ist_device *device, const char *cache_dir, ist_tuning *tuning);

#endif
