/* Tuning records: which kernel variant measured fastest for a problem on one device. What a family calls its problems and variants is
 * its own business; here they are words.
 *
 * As text: a first line with the format's version, the key's lines (device, driver, sources), a line "FAMILY SHAPE ROW
 * PARAM" per choice, and a last line with a checksum of all before it. A record that is damaged or has another key is
 * refused as a whole. */
#ifndef IST_CORE_TUNING_H
#define IST_CORE_TUNING_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* One choice. No word has white space in it. */
typedef struct ist_tuned {
    char family[12], shape[88], variant[24];
    int param; /* the way's number: groups that share a sum; of a noted problem, how many launches it has */
} ist_tuned;

typedef struct ist_tuning {
    ist_tuned *items;
    size_t count, capacity;
} ist_tuning;

void ist_tuning_free(ist_tuning *tuning);

/* NULL when there is none; `tuning` may be NULL. */
const ist_tuned *ist_tuning_find(const ist_tuning *tuning, const char *family, const char *shape);

/* Adds the choice, in place of one for the same problem. */
ist_status ist_tuning_set(ist_tuning *tuning, const ist_tuned *choice, ist_error *err);

/* The text (the caller's to free). `key`: lines, each ended. */
ist_status ist_tuning_write(const ist_tuning *tuning, const char *key, char **text, ist_error *err);

/* Fills an empty `tuning`; on failure it stays empty. */
ist_status ist_tuning_read(ist_tuning *tuning, const char *text, const char *key, ist_error *err);

#endif
