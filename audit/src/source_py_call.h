/* What the files about Python calls share: questions about a call, and what it does. Private to source_py*.c. */
#ifndef IST_AUDIT_SOURCE_PY_CALL_H
#define IST_AUDIT_SOURCE_PY_CALL_H

#include "audit/source_py.h"

/* Whether the name called is this one; one of " these ones ". */
bool ist_py_named(const ist_py_call *c, const char *name);

/* `list` is " word word "; whole names only. */
bool ist_py_in(const char *name, size_t length, const char *list);
bool ist_py_one_of(const ist_py_call *c, const char *list);

/* Adds ".name(arguments)" to the calls of the chain that transfer; the whole label. */
const char *ist_py_chained(const ist_py_call *c, const char *arguments);

/* A further step of a download on the same line: one hit, all calls named. */
bool ist_py_extends_hit(ist_py_reader *r, const ist_py_call *c);

/* NULL when it was not given. */
const ist_py_arg *ist_py_keyword(const ist_py_reader *r, const ist_py_call *c, const char *name);
const ist_py_arg *ist_py_positional(const ist_py_call *c, uint32_t at);
ist_src_value ist_py_value_of(const ist_py_arg *a);

/* Whether it is spelled out as a number. */
bool ist_py_is_number(const ist_py_reader *r, const ist_py_arg *a);

/* What the arguments are together. */
ist_src_value ist_py_all_args(const ist_py_call *c);

/* What .to(argument) means: DEVICE, HOST_DEVICE, DTYPE or UNKNOWN. */
uint8_t ist_py_target_of(const ist_py_reader *r, const ist_py_arg *a);

/* A class by its name. */
bool ist_py_is_capital(const ist_py_call *c);

/* The size of the result depends on the data of `on`. */
ist_src_value ist_py_dynamic(ist_py_reader *r, const ist_py_call *c, ist_src_value on, const char *label);

/* The call gives the device work; `model`: as a kernel or a whole model does. */
void ist_py_launch(ist_py_reader *r, const ist_py_call *c, bool model);

/* The value comes to the host as `kind`. */
ist_src_value ist_py_download(ist_py_reader *r, const ist_py_call *c, const char *label, unsigned flags, unsigned kind);

/* Any function of tensors: the result is where they are. */
ist_src_value ist_py_computed(ist_py_reader *r, const ist_py_call *c, ist_src_value args);

/* source_py_torch.c: functions of torch; methods, false when it is none of them. */
ist_src_value ist_py_torch_function(ist_py_reader *r, const ist_py_call *c);
bool ist_py_transfer_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v);
bool ist_py_tensor_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v);

/* Everything else that is called on a value. */
ist_src_value ist_py_other_method(ist_py_reader *r, ist_py_call *c);

/* source_py_arrays.c */
ist_src_value ist_py_numpy_function(ist_py_reader *r, const ist_py_call *c);
/* cv2, PIL and the like: host memory, made of the first argument. */
ist_src_value ist_py_image_function(const ist_py_call *c);
ist_src_value ist_py_cupy_function(ist_py_reader *r, const ist_py_call *c);
ist_src_value ist_py_pycuda_function(ist_py_reader *r, const ist_py_call *c);
ist_src_value ist_py_opencl_function(ist_py_reader *r, const ist_py_call *c);
bool ist_py_opencl_method(ist_py_reader *r, const ist_py_call *c, ist_src_value *v);
bool ist_py_starts(const char *text, const char *with);

#endif
