/* The allow list. A global that is not a row here cannot be named by a checkpoint. */
#include "weights/pickle_globals.h"

#include <string.h>

#define STORAGE(name, id)                                                                                              \
    { "torch", name, IS_STORAGE, IST_WEIGHT_##id }
#define DTYPE(name, id)                                                                                                \
    { "torch", name, IS_DTYPE, IST_WEIGHT_##id }
static const ist_pickle_global allow_list[] = {
    {"collections", "OrderedDict", BUILDS_DICT, 0},
    {"collections", "defaultdict", BUILDS_DICT, 0},
    {"collections", "Counter", BUILDS_DICT, 0},
    {"__builtin__", "dict", BUILDS_DICT, 0},
    {"builtins", "dict", BUILDS_DICT, 0},
    {"__builtin__", "set", BUILDS_LIST, 0},
    {"builtins", "set", BUILDS_LIST, 0},
    {"__builtin__", "list", BUILDS_LIST, 0},
    {"builtins", "list", BUILDS_LIST, 0},
    {"torch", "Size", BUILDS_LIST, 0},
    {"__builtin__", "int", BUILDS_OTHER, 0},
    {"builtins", "int", BUILDS_OTHER, 0},
    {"__builtin__", "float", BUILDS_OTHER, 0},
    {"builtins", "float", BUILDS_OTHER, 0},
    {"_codecs", "encode", BUILDS_OTHER, 0},
    {"torch", "device", BUILDS_OTHER, 0},
    {"torch", "Tensor", BUILDS_OTHER, 0},
    {"torch.nn.parameter", "Parameter", BUILDS_OTHER, 0},
    {"torch._utils", "_rebuild_tensor", BUILDS_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v2", BUILDS_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v3", BUILDS_TENSOR_OF_TYPE, 0},
    {"torch._utils", "_rebuild_parameter", BUILDS_FIRST_ARGUMENT, 0},
    {"torch._utils", "_rebuild_parameter_with_state", BUILDS_FIRST_ARGUMENT, 0},
    {"torch._tensor", "_rebuild_from_type_v2", BUILDS_CALL, 0},
    {"torch.storage", "UntypedStorage", IS_UNTYPED, IST_WEIGHT_U8},
    {"torch.storage", "TypedStorage", IS_UNTYPED, IST_WEIGHT_U8},
    STORAGE("DoubleStorage", F64),
    STORAGE("FloatStorage", F32),
    STORAGE("HalfStorage", F16),
    STORAGE("BFloat16Storage", BF16),
    STORAGE("LongStorage", I64),
    STORAGE("IntStorage", I32),
    STORAGE("ShortStorage", I16),
    STORAGE("CharStorage", I8),
    STORAGE("ByteStorage", U8),
    STORAGE("BoolStorage", BOOL),
    DTYPE("float64", F64),
    DTYPE("float32", F32),
    DTYPE("float16", F16),
    DTYPE("bfloat16", BF16),
    DTYPE("int64", I64),
    DTYPE("int32", I32),
    DTYPE("int16", I16),
    DTYPE("int8", I8),
    DTYPE("uint8", U8),
    DTYPE("bool", BOOL),
};

static bool same(const char *text, size_t length, const char *name) {
    return strlen(name) == length && !memcmp(text, name, length);
}

int ist_pickle_global_find(const char *module, size_t module_length, const char *name, size_t name_length) {
    for (size_t i = 0; i < sizeof allow_list / sizeof *allow_list; i++)
        if (same(module, module_length, allow_list[i].module) && same(name, name_length, allow_list[i].name))
            return (int)i;
    return -1;
}

const ist_pickle_global *ist_pickle_global_at(int64_t row) {
    return &allow_list[row];
}
