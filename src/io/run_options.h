/* run.json: the options of the run whose results are in a folder, so that --resume never mixes two.
 *
 * Written, and on the disk, before the first result is; only the options count that change what an image's results are,
 * by name and value. A folder of an earlier version has none and is taken as it is. */
#ifndef IST_IO_RUN_OPTIONS_H
#define IST_IO_RUN_OPTIONS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define IST_RUN_OPTIONS_NAME "run.json"

typedef struct ist_run_option {
    const char *name; /* without dashes */
    char value[128];
    bool part; /* a list, of which a later run may name a part */
} ist_run_option;

/* Fills in the value of an option that names a file (NULL: "none"): its size and a hash of its first and last
 * megabyte, so that the file may move but not change. */
ist_status ist_run_option_file(const char *path, ist_run_option *option, ist_error *err);

/* IST_E_ARGUMENT, with the first option that differs, when the folder's run had others. */
ist_status ist_run_options_check(const char *folder, const ist_run_option *options, size_t count, ist_error *err);

/* Writes them; with `keep`, only where there are none. `lazy` as in ist_atomic_file. */
ist_status ist_run_options_write(const char *folder, const ist_run_option *options, size_t count, bool keep, bool lazy,
                                 ist_error *err);

#endif
