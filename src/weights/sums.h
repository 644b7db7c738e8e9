/* SHA256SUMS beside a checkpoint, as sha256sum writes it: where it names the file, the file must be the one it names.
 */
#ifndef IST_WEIGHTS_SUMS_H
#define IST_WEIGHTS_SUMS_H

#include "base/sha256.h"

#include <stdbool.h>

/* The digest that SHA256SUMS in the folder of `path` gives for that file's name, into `want`; "" where there is no list
 * or no line for it. A list that is there and cannot be read is IST_E_IO. Sentences start with the list's path. */
ist_status ist_sums_find(const char *path, char want[IST_SHA256_TEXT], ist_error *err);

/* IST_E_WEIGHTS with both digests, without the path, unless they are equal or `want` is "". */
ist_status ist_sums_compare(const char *want, const char *have, ist_error *err);

#endif
