/* An allow-list interpreter for the pickles that torch.save writes.
 *
 * Nothing is imported or called: the interpreter knows the opcodes, the handful of globals below and what they would
 * have built, and keeps the result as plain values. Any other global is opaque: it is never looked up, and what a call
 * of it would have built, or what holds data of it that matter here, is opaque too. Any other opcode is an error that
 * names it and its byte.
 * Stack, memo, nesting and memory are bounded by the size of the pickle. */
#ifndef IST_WEIGHTS_PICKLE_H
#define IST_WEIGHTS_PICKLE_H

#include "weights/weights.h"

typedef enum ist_pickle_kind {
    IST_PICKLE_NONE,
    IST_PICKLE_BOOL,
    IST_PICKLE_INT, /* 64 bit; longer integers are IST_PICKLE_OTHER */
    IST_PICKLE_FLOAT,
    IST_PICKLE_STRING,
    IST_PICKLE_TUPLE, /* also torch.Size */
    IST_PICKLE_LIST,  /* also sets */
    IST_PICKLE_DICT,  /* items alternate key, value; also OrderedDict and the like */
    IST_PICKLE_GLOBAL,
    IST_PICKLE_STORAGE,
    IST_PICKLE_TENSOR,
    IST_PICKLE_OTHER, /* allowed and of no interest */
    IST_PICKLE_OPAQUE /* depends on a global that is not on the allow list */
} ist_pickle_kind;

/* Index of a value; containers hold these, so shared values and cycles are harmless. */
typedef uint32_t ist_pickle_ref;

typedef struct ist_pickle_tensor {
    ist_pickle_ref storage;
    ist_weight_type type;
    int rank;
    int64_t dims[IST_WEIGHT_RANK_MAX], strides[IST_WEIGHT_RANK_MAX]; /* in elements, >= 0 */
    int64_t offset;                                                  /* first element within the storage */
} ist_pickle_tensor;

typedef struct ist_pickle_value {
    ist_pickle_kind kind;
    union {
        int64_t integer; /* BOOL, INT; for GLOBAL its row in the allow list, for OPAQUE its entry in unknown */
        double number;
        struct { /* STRING: not terminated, inside the pickle's bytes */
            const char *text;
            size_t length;
        } string;
        struct { /* TUPLE, LIST, DICT */
            ist_pickle_ref *items;
            size_t count, capacity;
        } list;
        struct { /* STORAGE: KEY holds count elements of type (bytes when untyped) */
            ist_pickle_ref key;
            int64_t count;
            ist_weight_type type;
            bool untyped, view;    /* a view is a part of what KEY holds: */
            int64_t first, length; /* elements */
        } storage;
        ist_pickle_tensor *tensor;
    } as;
} ist_pickle_value;

/* A global that is not on the allow list; texts as those of STRING. */
typedef struct ist_pickle_unknown {
    const char *module, *name;
    size_t module_length, name_length;
    size_t at; /* byte of the opcode */
} ist_pickle_unknown;

/* A storage as it was referred to, also of a class that is not known; references are in the pickle's order. */
typedef struct ist_pickle_stored {
    ist_pickle_ref key, class;
    int64_t count; /* elements */
} ist_pickle_stored;

typedef struct ist_pickle {
    ist_pickle_value *values;
    size_t count, capacity;
    ist_pickle_unknown *unknown;
    size_t unknown_count, unknown_capacity;
    ist_pickle_stored *stored;
    size_t stored_count, stored_capacity;
    ist_pickle_ref root;
    size_t end; /* bytes read, STOP included */
} ist_pickle;

/* Interprets `size` bytes, which must outlive `out`: strings point into them. The caller frees *out after success and
 * after failure. */
ist_status ist_pickle_read(const uint8_t *bytes, size_t size, ist_pickle *out, ist_error *err);
void ist_pickle_free(ist_pickle *pickle);

/* "os.system at byte 2" into `text`, printable: what made a value opaque. Returns text. */
char *ist_pickle_unknown_text(const ist_pickle_unknown *unknown, char *text, size_t size);

/* The value stored under a string key, NULL when `dict` is no dictionary or has no such key (the last one wins). */
const ist_pickle_value *ist_pickle_get(const ist_pickle *pickle, const ist_pickle_value *dict, const char *key);

#endif
