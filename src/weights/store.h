/* The inside of ist_weights: what readers fill and nobody outside this layer sees.
 *
 * A reader appends tensors whose data lie in blocks the store owns, then the store is finished once: names become the
 * official ones, tensors are sorted, repeated names are refused. */
#ifndef IST_WEIGHTS_STORE_H
#define IST_WEIGHTS_STORE_H

#include "weights/weights.h"

#include <stdio.h>

/* Largest file, and largest sum of tensor bytes, that is read. The largest official checkpoint is under 1 GiB. */
#define IST_WEIGHTS_BYTES_MAX ((size_t)4 << 30)
/* Most tensors in one file; official checkpoints have up to 1,441. */
#define IST_WEIGHTS_TENSORS_MAX 65536
#define IST_WEIGHTS_NAME_MAX    256

typedef struct ist_metadata {
    char *key, *value;
} ist_metadata;

struct ist_weights {
    ist_weight *items; /* names are owned, one allocation each (and in_file) */
    size_t count, capacity;
    void **blocks; /* owned memory that tensor data point into */
    size_t block_count, block_capacity;
    ist_metadata *metadata;
    size_t metadata_count, metadata_capacity;
    char **classes;
    size_t class_count, class_capacity;
    const char *format, *naming;
    bool listed; /* SHA256SUMS beside the file names it */
};

/* malloc'd block of `bytes` (at least 1) that the store frees; NULL when out of memory. */
void *ist_store_block(ist_weights *weights, size_t bytes);

/* Appends a tensor over `data` (inside a block, or NULL for 0 bytes). The name is copied; type, rank and dims must give
 * exactly `bytes`. */
ist_status ist_store_tensor(ist_weights *weights, const char *name, ist_weight_type type, int rank, const int64_t *dims,
                            const void *data, size_t bytes, ist_error *err);

/* Elements and bytes of a shape. False when rank or a dim is out of range or the product does not fit. */
bool ist_shape_size(ist_weight_type type, int rank, const int64_t *dims, size_t *count, size_t *bytes);

/* Appends one class name (copied). */
ist_status ist_store_class(ist_weights *weights, const char *name, ist_error *err);

/* Official names, sorted, unique; class names from metadata when the reader found none. */
ist_status ist_store_finish(ist_weights *weights, ist_error *err);

/* Rewrites every name to its official form and merges split projections (names.c). */
ist_status ist_names_official(ist_weights *weights, ist_error *err);

/* Readers: fill an empty store. `bytes` is a block of the store. */
ist_status ist_safetensors_read(ist_weights *weights, const uint8_t *bytes, size_t size, ist_error *err);
/* From `file` (its `size` bytes; closed on every path) or, with file NULL, from memory. */
ist_status ist_torch_zip_read(ist_weights *weights, FILE *file, const void *bytes, size_t size, ist_error *err);
/* The same for files that are no zip; `file` stays open. */
ist_status ist_torch_legacy_read(ist_weights *weights, FILE *file, const void *bytes, size_t size, ist_error *err);

#endif
