/* The layer's door: what ocl-icd asks for. */
#include "layer.h"

#include <string.h>

const cl_icd_dispatch *layer_next;

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret) {
    static const char layer_name[] = "isthmus audit";
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    const void *from = name == CL_LAYER_API_VERSION ? (const void *)&version : layer_name;
    size_t need = name == CL_LAYER_API_VERSION ? sizeof version : sizeof layer_name;
    if (name != CL_LAYER_API_VERSION && name != CL_LAYER_NAME) return CL_INVALID_VALUE;
    if (value && size < need) return CL_INVALID_VALUE;
    if (value) memcpy(value, from, need);
    if (size_ret) *size_ret = need;
    return CL_SUCCESS;
}

enum { WRAPPERS = 128 };

typedef struct named_wrapper {
    const char *name;
    void *wrapper;
} named_wrapper;

static named_wrapper wrappers[WRAPPERS];
static size_t wrapper_count;

void layer_note_wrapper(const char *name, void *wrapper) {
    if (wrapper_count < WRAPPERS) wrappers[wrapper_count++] = (named_wrapper){name, wrapper};
}

void *layer_wrapper(const char *name) {
    for (size_t k = 0; k < wrapper_count; k++)
        if (!strcmp(wrappers[k].name, name)) return wrappers[k].wrapper;
    return NULL;
}

/* Entries that stay NULL go straight to the table below. */
CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *next, cl_uint *entries_ret,
                                            const cl_icd_dispatch **dispatch) {
    static cl_icd_dispatch table;
    cl_uint known = (cl_uint)(sizeof table / sizeof(void *));
    if (!next || !entries_ret || !dispatch) return CL_INVALID_VALUE;
    layer_next = next;
    *entries_ret = entries < known ? entries : known;
    *dispatch = &table;
    if (!layer_open()) return CL_SUCCESS; /* an empty table: the program runs as without the layer */
    layer_table t = {&table, next, *entries_ret};
    layer_wrap_transfers(&t);
    layer_wrap_maps(&t);
    layer_wrap_objects(&t);
    layer_wrap_kernels(&t);
    layer_wrap_waits(&t);
    layer_wrap_extensions(&t);
    return CL_SUCCESS;
}
