/* NumPy, CuPy and PyOpenCL. */
#include "audit/source_py_call.h"

#include <stdio.h>
#include <string.h>

/* ---- NumPy and CuPy ---- */

ist_src_value ist_py_numpy_function(ist_py_reader *r, const ist_py_call *c) {
    static const char copies[] = " asarray array ascontiguousarray copy reshape transpose squeeze stack concatenate "
                                 "asfortranarray expand_dims vstack hstack ";
    ist_src_value args = ist_py_all_args(c), first = ist_py_value_of(ist_py_positional(c, 0));
    char label[IST_SRC_LABEL];
    bool copy = ist_py_one_of(c, copies);
    if (ist_py_is_sure(first) || (first.kind == IST_PY_TENSOR && ist_py_one_of(c, " asarray array "))) {
        snprintf(label, sizeof label, "np.%.*s()", (int)c->name_length, c->name);
        return ist_py_download(r, c, label, 0, IST_PY_HOST);
    }
    args.kind = IST_PY_HOST;
    args.flags = (uint8_t)((args.flags & IST_PY_DERIVED) | (args.origin && !copy ? IST_PY_DERIVED : 0) |
                           (copy ? args.flags & IST_PY_CONST : 0));
    return args;
}

ist_src_value ist_py_image_function(const ist_py_call *c) {
    ist_src_value first = ist_py_value_of(ist_py_positional(c, 0));
    unsigned changed = first.origin && !ist_py_one_of(c, " fromarray ") ? IST_PY_DERIVED : 0;
    return (ist_src_value){.kind = IST_PY_HOST,
                           .flags = (uint8_t)((first.flags & IST_PY_DERIVED) | changed),
                           .origin = first.kind <= IST_PY_HOST_TENSOR ? first.origin : 0};
}

ist_src_value ist_py_cupy_function(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value args = ist_py_all_args(c), first = ist_py_value_of(ist_py_positional(c, 0));
    ist_src_value array = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_PLACED | IST_PY_ARRAY);
    if (ist_py_named(c, "synchronize")) {
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "cupy synchronize()");
        return ist_py_of(IST_PY_HOST, 0);
    }
    if (ist_py_named(c, "asnumpy")) return ist_py_download(r, c, "cupy.asnumpy()", 0, IST_PY_HOST);
    if (ist_py_one_of(c, " asarray array ")) {
        if (first.kind == IST_PY_TENSOR) return array;
        unsigned flags = IST_SRC_BLOCKING | (first.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0) |
                         (first.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0);
        uint32_t hit =
            ist_py_hit(r, IST_SRC_UP, flags, c->line, ist_py_named(c, "array") ? "cupy.array()" : "cupy.asarray()");
        ist_py_uploaded(r, hit, first);
        return array;
    }
    if (ist_py_is_capital(c) || strstr(c->path, ".cuda.")) return (ist_src_value){0};
    if (ist_py_one_of(c, " nonzero unique argwhere flatnonzero ") || (ist_py_named(c, "where") && c->arg_count == 1)) {
        args.flags |= IST_PY_ARRAY;
        return ist_py_dynamic(r, c, args, c->path);
    }
    ist_py_launch(r, c, false);
    if (ist_py_one_of(c, " isnan isinf isfinite logical_and logical_or logical_not ")) array.flags |= IST_PY_MASK;
    return array;
}

/* PyCUDA's copies; the second argument of an upload is the host's. */
ist_src_value ist_py_pycuda_function(ist_py_reader *r, const ist_py_call *c) {
    bool waits = c->name_length < 6 || memcmp(c->name + c->name_length - 6, "_async", 6) != 0;
    if (ist_py_one_of(c, " memcpy_htod memcpy_htod_async ")) {
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, waits ? IST_SRC_BLOCKING : 0, c->line, c->path);
        ist_py_uploaded(r, hit, ist_py_value_of(ist_py_positional(c, 1)));
    } else if (ist_py_one_of(c, " memcpy_dtoh memcpy_dtoh_async ")) {
        ist_py_hit(r, IST_SRC_DOWN, waits ? IST_SRC_BLOCKING : 0, c->line, c->path);
    } else if (ist_py_named(c, "synchronize")) {
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, c->path);
    }
    return (ist_src_value){0};
}

/* ---- PyOpenCL ---- */

static bool is_false(const ist_py_reader *r, const ist_py_arg *a) {
    return a && ist_py_is(&r->tokens[a->first], "False");
}

/* enqueue_copy(queue, dest, src): the side that is host memory shows the direction. */
static ist_src_value opencl_copy(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value to = ist_py_value_of(ist_py_positional(c, 1)), from = ist_py_value_of(ist_py_positional(c, 2));
    unsigned flags = is_false(r, ist_py_keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING;
    bool to_device = to.kind == IST_PY_BUFFER || to.kind == IST_PY_TENSOR;
    bool from_device = from.kind == IST_PY_BUFFER || from.kind == IST_PY_TENSOR;
    const char *label = "pyopencl.enqueue_copy()";
    if (to_device && from_device) {
        ist_py_hit(r, IST_SRC_COPY, 0, c->line, label);
    } else if (from_device || to.kind == IST_PY_HOST) {
        const ist_py_arg *a = ist_py_positional(c, 1);
        ist_py_hit(r, IST_SRC_DOWN, flags, c->line, label);
        if (a && a->end == a->first + 1 && r->tokens[a->first].kind == IST_PY_NAME)
            ist_py_bind(r, ist_src_intern(r->u, r->tokens[a->first].at, r->tokens[a->first].length),
                        (ist_src_value){.kind = IST_PY_HOST, .origin = ist_py_downloaded(r, c->line)});
    } else {
        if (from.flags & IST_PY_DERIVED) flags |= IST_SRC_DERIVED;
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
        ist_py_uploaded(r, hit, from);
    }
    return ist_py_of(IST_PY_EVENT, 0);
}

static bool mentions(const ist_py_reader *r, const ist_py_call *c, const char *word) {
    for (uint32_t i = 0; i < c->arg_count; i++)
        for (uint32_t k = c->args[i].first; k < c->args[i].end; k++)
            if (ist_py_is(&r->tokens[k], word)) return true;
    return false;
}

static ist_src_value opencl_buffer(ist_py_reader *r, const ist_py_call *c) {
    bool host = mentions(r, c, "COPY_HOST_PTR") || mentions(r, c, "USE_HOST_PTR");
    uint32_t hit = ist_py_hit(r, IST_SRC_CREATE, host ? IST_SRC_HOST_POINTER | IST_SRC_BLOCKING : 0, c->line, c->path);
    if (host) ist_py_uploaded(r, hit, ist_py_value_of(ist_py_keyword(r, c, "hostbuf")));
    return ist_py_of(IST_PY_BUFFER, 0);
}

ist_src_value ist_py_opencl_function(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value array = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_PLACED | IST_PY_ARRAY);
    if (ist_py_named(c, "CommandQueue")) return ist_py_of(IST_PY_QUEUE, 0);
    if (ist_py_named(c, "Program")) return ist_py_of(IST_PY_PROGRAM, 0);
    if (ist_py_one_of(c, " Buffer Image image_from_array ")) return opencl_buffer(r, c);
    if (ist_py_named(c, "enqueue_copy")) return opencl_copy(r, c);
    if (ist_py_one_of(c, " enqueue_read_buffer enqueue_read_image enqueue_map_buffer enqueue_map_image "))
        ist_py_hit(r, IST_SRC_DOWN, is_false(r, ist_py_keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING, c->line,
                   c->path);
    else if (ist_py_one_of(c, " enqueue_write_buffer enqueue_write_image enqueue_migrate_mem_objects "))
        ist_py_hit(r, IST_SRC_UP, is_false(r, ist_py_keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING, c->line,
                   c->path);
    else if (ist_py_one_of(c, " enqueue_copy_buffer enqueue_copy_image enqueue_fill_buffer enqueue_fill_image "))
        ist_py_hit(r, IST_SRC_COPY, 0, c->line, c->path);
    else if (ist_py_named(c, "wait_for_events"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, c->path);
    else if (ist_py_one_of(c, " enqueue_nd_range_kernel enqueue_task "))
        ist_py_launch(r, c, true);
    else if (ist_py_named(c, "to_device")) {
        ist_src_value from = ist_py_value_of(ist_py_positional(c, 1));
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, IST_SRC_BLOCKING | (from.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0),
                                  c->line, "pyopencl.array.to_device()");
        ist_py_uploaded(r, hit, from);
        return array;
    } else if (ist_py_starts(c->path, "pyopencl.array.") || ist_py_starts(c->path, "pyopencl.clrandom.") ||
               ist_py_starts(c->path, "pyopencl.clmath."))
        return array;
    else
        return (ist_src_value){0};
    return ist_py_of(IST_PY_EVENT, 0);
}

/* Methods of queues, events and programs; a method that takes a queue first is a kernel. */
bool ist_py_opencl_method(ist_py_reader *r, const ist_py_call *c, ist_src_value *v) {
    bool queue = c->on.kind == IST_PY_QUEUE, event = c->on.kind == IST_PY_EVENT;
    const char *dot = c->method ? strrchr(c->path, '.') : NULL;
    size_t n = dot ? (size_t)(dot - c->path) : 0;
    if (!queue && r->opencl && n) queue = ist_src_has_word(c->path, n, " queue ");
    *v = ist_py_of(IST_PY_HOST, 0);
    if (queue && ist_py_named(c, "finish"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "queue.finish()");
    else if (queue && ist_py_named(c, "flush"))
        ist_py_hit(r, IST_SRC_FLUSH, 0, c->line, "queue.flush()");
    else if (event && ist_py_named(c, "wait"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "event.wait()");
    else if (c->on.kind == IST_PY_PROGRAM && ist_py_named(c, "build")) {
        ist_py_hit(r, IST_SRC_BUILD, 0, c->line, "Program.build()");
        *v = c->on;
    } else if (r->opencl && ist_py_value_of(ist_py_positional(c, 0)).kind == IST_PY_QUEUE &&
               c->on.kind != IST_PY_BUFFER && !c->imported) {
        ist_py_launch(r, c, true);
        *v = ist_py_of(IST_PY_EVENT, 0);
    } else
        return false;
    return true;
}
