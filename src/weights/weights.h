/* A checkpoint in memory: named tensors and metadata, whatever file they came from.
 *
 * Reads safetensors and PyTorch files (.pth/.pt; zip or the format before 1.6), told apart by content. A pickle is
 * interpreted by an allow-list and never executed. Names are the official ones after opening: a leading `module.` is
 * stripped, `ema.module` or `model` is unwrapped, Hugging Face D-FINE names are translated (split q/k/v projections
 * come back merged). Every failure is IST_E_WEIGHTS, IST_E_IO or IST_E_MEMORY with a sentence that names the tensor or
 * the byte offset. */
#ifndef IST_WEIGHTS_WEIGHTS_H
#define IST_WEIGHTS_WEIGHTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types: enumerator suffix, safetensors name, bytes. */
#define IST_WEIGHT_TYPE_LIST(X)                                                                                        \
    X(F64, "F64", 8)                                                                                                   \
    X(F32, "F32", 4)                                                                                                   \
    X(F16, "F16", 2)                                                                                                   \
    X(BF16, "BF16", 2)                                                                                                 \
    X(I64, "I64", 8)                                                                                                   \
    X(I32, "I32", 4)                                                                                                   \
    X(I16, "I16", 2)                                                                                                   \
    X(I8, "I8", 1)                                                                                                     \
    X(U8, "U8", 1)                                                                                                     \
    X(BOOL, "BOOL", 1)

typedef enum ist_weight_type {
#define X(id, name, bytes) IST_WEIGHT_##id,
    IST_WEIGHT_TYPE_LIST(X)
#undef X
        IST_WEIGHT_TYPES
} ist_weight_type;

enum { IST_WEIGHT_RANK_MAX = 8 };

/* One tensor, contiguous in C order, little endian as stored. Owned by its ist_weights. `data` has no alignment
 * promise: read it through the functions below. */
typedef struct ist_weight {
    const char *name;
    ist_weight_type type;
    int rank;
    int64_t dims[IST_WEIGHT_RANK_MAX];
    const void *data;
    size_t count; /* elements */
    size_t bytes;
    const char
        *in_file; /* its name in the file where that is another one, else NULL; of q where q, k and v became one */
} ist_weight;

typedef struct ist_weights ist_weights;

/* Reads the whole file. Where SHA256SUMS in its folder names it, another digest than the one there is IST_E_WEIGHTS; a
 * list that cannot be read is IST_E_IO; no list, or no line for this file, is fine. On success *out is the caller's to
 * close. */
ist_status ist_weights_open(const char *path, ist_weights **out, ist_error *err);

/* The same from `size` bytes in memory, which must stay valid until this returns (not longer). */
ist_status ist_weights_open_memory(const void *bytes, size_t size, ist_weights **out, ist_error *err);

/* Frees the handle and every tensor; accepts NULL and a pointer to NULL; nulls *weights. */
void ist_weights_close(ist_weights **weights);

/* Tensors, sorted by name. */
size_t ist_weights_count(const ist_weights *weights);
const ist_weight *ist_weights_at(const ist_weights *weights, size_t index);
const ist_weight *ist_weights_find(const ist_weights *weights, const char *name); /* NULL when absent */

/* "safetensors", "torch zip" or "torch legacy"; "official" or "huggingface". */
const char *ist_weights_format(const ist_weights *weights);
const char *ist_weights_naming(const ist_weights *weights);

/* Whether SHA256SUMS beside the file names it, and so holds its digest. */
bool ist_weights_listed(const ist_weights *weights);

/* Metadata strings (safetensors __metadata__), by key (NULL when absent) or by position. */
const char *ist_weights_metadata(const ist_weights *weights, const char *key);
size_t ist_weights_metadata_count(const ist_weights *weights);
void ist_weights_metadata_at(const ist_weights *weights, size_t index, const char **key, const char **value);

/* Class names, from metadata "names" or "class_names" (a JSON array or a comma list) or from a list or dictionary of
 * that name next to the state dict of a torch file. 0 and NULL when there are none. */
int ist_weights_class_count(const ist_weights *weights);
const char *ist_weights_class_name(const ist_weights *weights, int label);

/* "F32" and the like; bytes of one element. */
const char *ist_weight_type_name(ist_weight_type type);
size_t ist_weight_type_bytes(ist_weight_type type);

/* Writes "[16,3,3,3]" (or "[*,4]" for a negative dim) into `text`, always terminated; returns text. */
char *ist_weight_shape_text(int rank, const int64_t *dims, char *text, size_t size);

/* Fails with "NAME: want [..], file has [..]" unless the tensor has this rank and these dims (-1: any). */
ist_status ist_weight_check_shape(const ist_weight *weight, int rank, const int64_t *dims, ist_error *err);

/* weight->count elements converted to float32. NaN, infinity and values beyond float32 fail, naming tensor, the
 * first index and how many more there are. */
ist_status ist_weight_read_f32(const ist_weight *weight, float *dst, ist_error *err);
/* The same without a check: NaN and infinity stay what they are. */
void ist_weight_to_f32(const ist_weight *weight, float *dst);
/* The same failure without the values. */
ist_status ist_weight_check_finite(const ist_weight *weight, ist_error *err);

/* Finds and checks the shape; *out is NULL where it is missing or misshapen. */
ist_status ist_weights_need(const ist_weights *weights, const char *name, int rank, const int64_t *dims,
                            const ist_weight **out, ist_error *err);

/* Finds, checks the shape and converts. *out is malloc'd and the caller's to free. */
ist_status ist_weights_f32(const ist_weights *weights, const char *name, int rank, const int64_t *dims, float **out,
                           ist_error *err);

/* A tensor with exactly one element, of any rank and type. */
ist_status ist_weights_scalar(const ist_weights *weights, const char *name, float *out, ist_error *err);

/* Writes every tensor and the metadata as safetensors: to a temporary name beside `path`, then renamed. With `half`,
 * floating tensors become F16; a finite value that F16 cannot hold fails, naming it. */
ist_status ist_weights_save_safetensors(const ist_weights *weights, const char *path, bool half, ist_error *err);

/* Building a checkpoint in memory (writers, tests). Copies name and data; a repeated name fails. */
ist_status ist_weights_create(ist_weights **out, ist_error *err);
ist_status ist_weights_add(ist_weights *weights, const char *name, ist_weight_type type, int rank, const int64_t *dims,
                           const void *data, ist_error *err);
ist_status ist_weights_set_metadata(ist_weights *weights, const char *key, const char *value, ist_error *err);

#endif
