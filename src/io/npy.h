/* One map of 32-bit floats from a NumPy file (numpy/lib/format.py): version 1 to 3, little-endian float32 in C order,
 * of shape (h, w) or (1, h, w). Anything else is IST_E_INPUT. */
#ifndef IST_IO_NPY_H
#define IST_IO_NPY_H

#include "base/status.h"

#include <stddef.h>

enum { IST_NPY_SIDE = 4096 /* at most */ };

typedef struct ist_npy {
    int width, height;
    float *values; /* row by row; owned */
} ist_npy;

ist_status ist_npy_parse(const void *bytes, size_t count, const char *source, ist_npy *map, ist_error *err);
ist_status ist_npy_read(const char *path, ist_npy *map, ist_error *err);
void ist_npy_free(ist_npy *map);

#endif
