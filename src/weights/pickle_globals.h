/* The globals that a pickle may name, and what each stands for. */
#ifndef IST_WEIGHTS_PICKLE_GLOBALS_H
#define IST_WEIGHTS_PICKLE_GLOBALS_H

#include "weights/weights.h"

/* What calling a global builds. */
typedef enum ist_pickle_builds {
    BUILDS_DICT,           /* a new dictionary, or the one given */
    BUILDS_LIST,           /* the elements given */
    BUILDS_OTHER,          /* something nobody reads */
    BUILDS_TENSOR,         /* (storage, offset, size, stride, ..) */
    BUILDS_TENSOR_OF_TYPE, /* (storage, offset, size, stride, requires_grad, hooks, dtype, ..) */
    BUILDS_FIRST_ARGUMENT, /* a parameter is its tensor */
    BUILDS_CALL,           /* (callable, type, arguments, state): calls the callable */
    IS_STORAGE,            /* a storage class: not callable, names an element type */
    IS_UNTYPED,            /* storage class whose count is in bytes */
    IS_DTYPE               /* a constant */
} ist_pickle_builds;

typedef struct ist_pickle_global {
    const char *module, *name;
    ist_pickle_builds builds;
    ist_weight_type type;
} ist_pickle_global;

/* Row of a global in the allow list, -1 when it is not there. Texts are not terminated. */
int ist_pickle_global_find(const char *module, size_t module_length, const char *name, size_t name_length);
const ist_pickle_global *ist_pickle_global_at(int64_t row);

#endif
