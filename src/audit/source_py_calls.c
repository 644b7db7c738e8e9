/* What functions and methods of PyTorch, CuPy, NumPy, PyOpenCL and Python itself do with their arguments. */
#include "audit/source_py.h"

#include <stdio.h>
#include <string.h>

static bool is(const ist_py_call *c, const char *name) {
    return c->name_length == strlen(name) && !memcmp(c->name, name, c->name_length);
}

/* `list` is " word word "; whole names only. */
static bool is_in(const char *name, size_t length, const char *list) {
    char key[48];
    if (length + 3 > sizeof key) return false;
    key[0] = ' ';
    memcpy(key + 1, name, length);
    memcpy(key + 1 + length, " ", 2);
    return strstr(list, key) != NULL;
}

static bool any_of(const ist_py_call *c, const char *list) {
    return is_in(c->name, c->name_length, list);
}

static bool starts(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

/* ---- hits ---- */

uint32_t ist_py_hit(ist_py_reader *r, ist_src_op op, unsigned flags, uint32_t line, const char *label) {
    ist_src_hit h = {.line = line,
                     .function = r->function,
                     .loop = r->loop,
                     .op = (uint16_t)op,
                     .flags = (uint16_t)(flags | (r->training ? IST_SRC_TRAINING : 0)),
                     .calls = 1};
    const ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (f && r->module_class && !strcmp(ist_src_text(r->u, f->name), "forward")) h.flags |= IST_SRC_FOLLOWED;
    snprintf(h.label, sizeof h.label, "%s", label);
    return ist_src_add_hit(r->u, &h);
}

void ist_py_truth(ist_py_reader *r, ist_src_value v, uint32_t line) {
    if (ist_py_is_sure(v)) ist_py_hit(r, IST_SRC_IMPLICIT, 0, line, "truth of a tensor");
}

void ist_py_format(ist_py_reader *r, ist_src_value v, uint32_t line, const char *label) {
    if (ist_py_is_sure(v)) ist_py_hit(r, IST_SRC_IMPLICIT, 0, line, label);
}

/* Adds ".name()" to the calls of the chain that transfer. */
static const char *chained(const ist_py_call *c, const char *arguments) {
    size_t n = strlen(c->chain);
    if (n + c->name_length + strlen(arguments) + 4 < IST_SRC_LABEL)
        snprintf(c->chain + n, IST_SRC_LABEL - n, ".%.*s(%s)", (int)c->name_length, c->name, arguments);
    return c->chain;
}

/* A further step of a download on the same line: one hit, all calls named. */
static bool extends_hit(ist_py_reader *r, const ist_py_call *c) {
    ist_src_hit *h = c->on.hit && c->on.hit <= r->u->hit_count ? &r->u->hits[c->on.hit - 1] : NULL;
    if (!h || h->line != c->line) return false;
    snprintf(h->label, sizeof h->label, "%s", chained(c, ""));
    h->calls++;
    return true;
}

/* ---- arguments ---- */

static const ist_py_arg *keyword(const ist_py_reader *r, const ist_py_call *c, const char *name) {
    for (uint32_t i = 0; i < c->arg_count; i++)
        if (c->args[i].keyword && !strcmp(ist_src_text(r->u, c->args[i].keyword), name)) return &c->args[i];
    return NULL;
}

static const ist_py_arg *positional(const ist_py_call *c, uint32_t at) {
    return at < c->arg_count && !c->args[at].keyword ? &c->args[at] : NULL;
}

static ist_src_value value_of(const ist_py_arg *a) {
    return a ? a->value : (ist_src_value){0};
}

/* What all arguments by position have in common, and those of torch.stack([..]). */
static ist_src_value all_args(const ist_py_call *c) {
    ist_src_value v = {0};
    bool first = true;
    for (uint32_t i = 0; i < c->arg_count; i++) {
        uint8_t kind = c->args[i].value.kind;
        if (kind == IST_PY_DEVICE || kind == IST_PY_HOST_DEVICE || kind == IST_PY_DTYPE) continue;
        v = first ? c->args[i].value : ist_py_combine(v, c->args[i].value);
        first = false;
    }
    v.hit = 0;
    return v;
}

static bool is_number(const ist_py_reader *r, const ist_py_arg *a) {
    return a->end == a->first + 1 && r->tokens[a->first].kind == IST_PY_NUMBER;
}

/* DEVICE, HOST_DEVICE, DTYPE or UNKNOWN. */
static uint8_t target_of(const ist_py_reader *r, const ist_py_arg *a) {
    if (!a) return IST_PY_UNKNOWN;
    uint8_t kind = a->value.kind;
    const ist_py_token *last = &r->tokens[a->end > a->first ? a->end - 1 : a->first];
    if (kind == IST_PY_DEVICE || kind == IST_PY_HOST_DEVICE || kind == IST_PY_DTYPE) return kind;
    if (is_number(r, a)) return IST_PY_DEVICE; /* .to(0) */
    if (last->kind != IST_PY_NAME) return IST_PY_UNKNOWN;
    if (ist_src_has_word(last->at, last->length, " dtype ")) return IST_PY_DTYPE;
    return ist_src_has_word(last->at, last->length, " device dev gpu rank ") ? IST_PY_DEVICE : IST_PY_UNKNOWN;
}

/* ---- PyTorch ---- */

/* Where a tensor goes that is made with device=...; its line. */
static ist_src_value made_on(ist_py_reader *r, const ist_py_call *c, ist_src_value from, bool from_host) {
    const ist_py_arg *device = keyword(r, c, "device");
    uint8_t to = target_of(r, device);
    char label[IST_SRC_LABEL];
    if (to != IST_PY_DEVICE) {
        bool unknown = device && to == IST_PY_UNKNOWN && from_host; /* device=x: may be one */
        return (ist_src_value){.kind = unknown ? IST_PY_TENSOR : IST_PY_HOST_TENSOR,
                               .flags = (uint8_t)(IST_PY_SURE | (from.flags & IST_PY_DERIVED)),
                               .origin = from.origin};
    }
    if (from_host) {
        snprintf(label, sizeof label, "torch.%.*s(device=)", (int)c->name_length, c->name);
        unsigned flags = IST_SRC_BLOCKING | IST_SRC_HOST_POINTER | (from.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0) |
                         (from.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0);
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
        if (hit) r->u->hits[hit - 1].from = from.origin;
    }
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
}

/* A function whose result's size depends on data. */
static ist_src_value dynamic(ist_py_reader *r, const ist_py_call *c, ist_src_value on, const char *label) {
    if (on.kind == IST_PY_HOST || on.kind == IST_PY_HOST_TENSOR) return on;
    ist_py_hit(r, IST_SRC_DYNAMIC, 0, c->line, label);
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | (on.flags & IST_PY_ARRAY));
}

static void launch(ist_py_reader *r, const ist_py_call *c, bool model) {
    ist_py_hit(r, IST_SRC_LAUNCH, model ? IST_SRC_MODEL : 0, c->line, "");
}

/* Any other function of tensors: the result is where they are. */
static ist_src_value computed(ist_py_reader *r, const ist_py_call *c, ist_src_value args) {
    static const char truths[] =
        " isnan isinf isfinite logical_and logical_or logical_not logical_xor eq ne gt lt ge le "
        "any all isin zeros_like_bool ";
    if (args.kind == IST_PY_TENSOR) launch(r, c, false);
    if (args.kind == IST_PY_HOST_TENSOR || (args.kind == IST_PY_HOST && c->arg_count)) {
        args.kind = IST_PY_HOST_TENSOR;
        args.flags = (uint8_t)((args.flags & IST_PY_DERIVED) | IST_PY_SURE | (args.origin ? IST_PY_DERIVED : 0));
        return args;
    }
    if (args.kind != IST_PY_TENSOR && r->u->host_data) return ist_py_of(IST_PY_HOST_TENSOR, IST_PY_SURE);
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | (any_of(c, truths) ? IST_PY_MASK : 0) | (args.flags & IST_PY_ARRAY));
}

static bool is_capital(const ist_py_call *c) {
    return c->name_length && *c->name >= 'A' && *c->name <= 'Z';
}

static ist_src_value torch_function(ist_py_reader *r, const ist_py_call *c) {
    static const char from_host[] = " tensor as_tensor from_numpy asarray sparse_coo_tensor scalar_tensor ";
    static const char made[] = " zeros ones full empty arange linspace logspace rand randn randint randperm eye "
                               "empty_strided normal tril_indices triu_indices ";
    static const char nothing[] = " is_available device_count manual_seed manual_seed_all set_grad_enabled no_grad "
                                  "inference_mode enable_grad autocast is_tensor is_grad_enabled get_default_dtype "
                                  "set_default_dtype empty_cache get_device_name current_device memory_allocated "
                                  "max_memory_allocated set_device get_rank get_world_size is_initialized save "
                                  "init_process_group barrier set_num_threads use_deterministic_algorithms ";
    ist_src_value first = value_of(positional(c, 0)), args = all_args(c);
    if (is(c, "synchronize")) ist_py_hit(r, IST_SRC_WAIT, 0, c->line, c->path);
    if (is(c, "synchronize") || any_of(c, nothing)) return ist_py_of(IST_PY_HOST, 0);
    if (is(c, "device"))
        return ist_py_of(target_of(r, positional(c, 0)) == IST_PY_HOST_DEVICE ? IST_PY_HOST_DEVICE : IST_PY_DEVICE, 0);
    if (any_of(c, from_host)) {
        if (first.kind == IST_PY_TENSOR && (is(c, "as_tensor") || ist_py_is_sure(first))) return first;
        return made_on(r, c, first, true);
    }
    if (any_of(c, made)) return made_on(r, c, first, false);
    if (is_in(c->name, c->name_length, " finfo iinfo Size Generator ")) return ist_py_of(IST_PY_HOST, 0);
    if (starts(c->path, "torch.nn.utils.rnn.") || starts(c->path, "torch.nn.init.")) return first;
    if (is(c, "Parameter")) return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    if (is_capital(c) && c->name_length > 6 && !memcmp(c->name + c->name_length - 6, "Tensor", 6))
        return ist_py_of(IST_PY_HOST_TENSOR, IST_PY_SURE); /* torch.FloatTensor(...) */
    if (is_capital(c)) return ist_py_of(starts(c->path, "torch.nn.") ? IST_PY_MODULE : IST_PY_UNKNOWN, 0);
    if (any_of(c, " compile script trace ") || (is(c, "load") && strstr(c->path, ".hub.")) ||
        (is(c, "load") && strstr(c->path, ".jit.")))
        return ist_py_of(IST_PY_MODULE, 0);
    if (is(c, "load")) return (ist_src_value){0};
    if (any_of(c, " nonzero unique unique_consecutive masked_select argwhere ") ||
        (is(c, "where") && c->arg_count == 1)) {
        return dynamic(r, c, args, c->path);
    }
    if (any_of(c, " equal allclose is_nonzero ") && args.kind == IST_PY_TENSOR) {
        ist_py_hit(r, IST_SRC_IMPLICIT, 0, c->line, c->path);
        return ist_py_of(IST_PY_HOST, 0);
    }
    return computed(r, c, args);
}

/* ---- methods of tensors and of what may be one ---- */

static bool may_be_tensor(const ist_py_reader *r, ist_src_value v, bool only_tensors_have_it) {
    if (v.kind == IST_PY_TENSOR) return true;
    if (v.kind != IST_PY_UNKNOWN) return false;
    return only_tensors_have_it || ((r->torch || r->cupy) && !r->numpy);
}

static ist_src_value download(ist_py_reader *r, const ist_py_call *c, const char *label, unsigned flags,
                              unsigned kind) {
    uint32_t hit = ist_py_hit(r, IST_SRC_DOWN, IST_SRC_BLOCKING | flags, c->line, label);
    return (ist_src_value){
        .kind = (uint8_t)kind, .flags = kind == IST_PY_HOST_TENSOR ? IST_PY_SURE : 0, .origin = c->line, .hit = hit};
}

/* The receiver goes to a device; modules carry their weights. */
static ist_src_value upload(ist_py_reader *r, const ist_py_call *c, const char *arguments) {
    const ist_py_arg *async = keyword(r, c, "non_blocking");
    ist_src_value v = c->on;
    char label[IST_SRC_LABEL];
    snprintf(label, sizeof label, ".%.*s(%s)", (int)c->name_length, c->name, arguments);
    unsigned flags = async && ist_py_is(&r->tokens[async->first], "True") ? 0 : IST_SRC_BLOCKING;
    if (v.flags & IST_PY_CONST) flags |= IST_SRC_CONSTANT;
    if (v.flags & IST_PY_DERIVED) flags |= IST_SRC_DERIVED;
    uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
    if (hit) r->u->hits[hit - 1].from = v.origin;
    if (v.kind == IST_PY_MODULE) return v;
    return ist_py_of(IST_PY_TENSOR, v.kind == IST_PY_UNKNOWN ? IST_PY_SURE : v.flags & IST_PY_SURE);
}

/* .to(...): a device, a type, or something that is not known. */
static ist_src_value to_method(ist_py_reader *r, const ist_py_call *c) {
    const ist_py_arg *device = keyword(r, c, "device");
    const ist_py_arg *a = device ? device : positional(c, 0);
    uint8_t to = target_of(r, a);
    if (to == IST_PY_DEVICE && c->on.kind != IST_PY_HOST) return upload(r, c, "device");
    if (to == IST_PY_HOST_DEVICE && may_be_tensor(r, c->on, true))
        return download(r, c, chained(c, "\"cpu\""), 0, IST_PY_HOST_TENSOR);
    ist_src_value v = c->on;
    v.hit = 0;
    return v;
}

/* Methods that move or wait; false: none of them. */
static bool transfer_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    ist_src_value on = c->on;
    if (is(c, "to")) {
        *v = to_method(r, c);
    } else if (is(c, "cuda")) {
        *v = on.kind == IST_PY_HOST ? on : upload(r, c, "");
    } else if (is(c, "cpu") && !c->arg_count && !c->imported) {
        *v = on.kind == IST_PY_MODULE     ? on
             : may_be_tensor(r, on, true) ? download(r, c, chained(c, ""), 0, IST_PY_HOST_TENSOR)
                                          : on;
    } else if (any_of(c, " numpy tolist ") && on.kind == IST_PY_HOST_TENSOR) {
        bool same = extends_hit(r, c);
        *v = (ist_src_value){
            .kind = IST_PY_HOST, .origin = on.origin, .flags = on.flags & IST_PY_DERIVED, .hit = same ? on.hit : 0};
    } else if (is(c, "tolist") && on.kind == IST_PY_HOST) {
        if (extends_hit(r, c)) on.hit = c->on.hit;
        *v = on;
    } else if (any_of(c, " numpy tolist ") && may_be_tensor(r, on, false) &&
               (on.kind == IST_PY_TENSOR || is(c, "tolist"))) {
        *v = download(r, c, chained(c, ""), 0, IST_PY_HOST);
    } else if (is(c, "item") && !c->arg_count) {
        if (may_be_tensor(r, on, r->torch || r->cupy))
            *v = download(r, c, chained(c, ""), IST_SRC_SCALAR, IST_PY_HOST);
        else if (extends_hit(r, c))
            *v = ist_py_of(IST_PY_HOST, 0);
        else
            *v = (ist_src_value){.kind = IST_PY_HOST, .origin = on.origin, .flags = on.flags & IST_PY_DERIVED};
    } else if (is(c, "get") && on.kind == IST_PY_TENSOR && (on.flags & IST_PY_ARRAY)) {
        *v = download(r, c, chained(c, ""), 0, IST_PY_HOST);
    } else {
        return false;
    }
    return true;
}

/* Methods of tensors whose results are no tensors, or of other sizes, or truth values. */
static bool tensor_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    static const char plain[] =
        " size dim numel nelement stride element_size is_contiguous data_ptr get_device ndimension "
        "is_floating_point storage_offset type __len__ ";
    static const char shows_tensor[] =
        " detach backward requires_grad_ cuda unsqueeze permute sigmoid softmax masked_fill ";
    ist_src_value on = c->on;
    bool tensor = on.kind == IST_PY_TENSOR, truth = any_of(c, " any all ");
    if (tensor && any_of(c, plain)) {
        *v = ist_py_of(IST_PY_HOST, 0);
    } else if (truth && may_be_tensor(r, on, false) && r->torch) {
        *v = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_MASK);
    } else if (any_of(c, " nonzero unique masked_select argwhere unique_consecutive ") && may_be_tensor(r, on, false)) {
        *v = dynamic(r, c, on, chained(c, ""));
    } else if (any_of(c, " new_tensor ") && may_be_tensor(r, on, true)) {
        ist_src_value from = value_of(positional(c, 0));
        uint32_t hit = ist_py_hit(
            r, IST_SRC_UP, IST_SRC_BLOCKING | IST_SRC_HOST_POINTER | (from.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0),
            c->line, ".new_tensor()");
        if (hit) r->u->hits[hit - 1].from = from.origin;
        *v = ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    } else if (is(c, "equal") && tensor) {
        ist_py_hit(r, IST_SRC_IMPLICIT, 0, c->line, ".equal()");
        *v = ist_py_of(IST_PY_HOST, 0);
    } else if (any_of(c, shows_tensor) && on.kind == IST_PY_UNKNOWN) {
        if (c->base && any_of(c, " detach backward requires_grad_ ")) ist_py_hint(r, c->base);
        if (is(c, "detach")) chained(c, "");
        *v = is(c, "detach") || !r->u->host_data ? ist_py_of(IST_PY_TENSOR, IST_PY_SURE) : on;
    } else {
        return false;
    }
    return true;
}

/* Everything else that is called on a value. */
static ist_src_value other_method(ist_py_reader *r, ist_py_call *c) {
    static const char copies[] = " astype copy reshape view ravel flatten squeeze transpose tobytes contiguous ";
    ist_src_value v = c->on;
    v.hit = 0;
    if (is(c, "items") || is(c, "enumerate")) {
        r->elements[0] = ist_py_of(IST_PY_HOST, 0);
        r->elements[1] = v;
        r->element_count = 2;
        r->element_end = r->at;
    }
    if (is(c, "keys")) return ist_py_of(IST_PY_HOST, 0);
    switch (v.kind) {
    case IST_PY_TENSOR:
        if (is(c, "detach"))
            chained(c, "");
        else
            c->chain[0] = '\0';
        if (!any_of(
                c,
                " view reshape detach permute transpose unsqueeze squeeze expand contiguous values items flatten ") &&
            (v.flags & IST_PY_SURE))
            launch(r, c, false);
        if (any_of(c, " eq ne gt lt ge le isnan isinf logical_not ")) v.flags |= IST_PY_MASK;
        return v;
    case IST_PY_HOST:
    case IST_PY_HOST_TENSOR:
        if (v.origin && !any_of(c, copies)) v.flags |= IST_PY_DERIVED;
        v.flags &= (uint8_t)~IST_PY_CONST;
        return v;
    case IST_PY_MODULE:
        if (any_of(c, " eval train half float double requires_grad_ bfloat16 apply share_memory ")) return v;
        if (any_of(c, " parameters state_dict named_parameters modules children load_state_dict named_modules "))
            return (ist_src_value){0};
        launch(r, c, true);
        return all_args(c).kind == IST_PY_TENSOR ? ist_py_of(IST_PY_TENSOR, 0) : (ist_src_value){0};
    default:
        return (ist_src_value){0};
    }
}

/* ---- NumPy and CuPy ---- */

static ist_src_value numpy_function(ist_py_reader *r, const ist_py_call *c) {
    static const char copies[] = " asarray array ascontiguousarray copy reshape transpose squeeze stack concatenate "
                                 "asfortranarray expand_dims vstack hstack ";
    ist_src_value args = all_args(c), first = value_of(positional(c, 0));
    char label[IST_SRC_LABEL];
    bool copy = any_of(c, copies);
    if (ist_py_is_sure(first) || (first.kind == IST_PY_TENSOR && any_of(c, " asarray array "))) {
        snprintf(label, sizeof label, "np.%.*s()", (int)c->name_length, c->name);
        return download(r, c, label, 0, IST_PY_HOST);
    }
    args.kind = IST_PY_HOST;
    args.flags = (uint8_t)((args.flags & IST_PY_DERIVED) | (args.origin && !copy ? IST_PY_DERIVED : 0) |
                           (copy ? args.flags & IST_PY_CONST : 0));
    return args;
}

static ist_src_value cupy_function(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value args = all_args(c), first = value_of(positional(c, 0));
    ist_src_value array = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_ARRAY);
    if (is(c, "synchronize")) {
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "cupy synchronize()");
        return ist_py_of(IST_PY_HOST, 0);
    }
    if (is(c, "asnumpy")) return download(r, c, "cupy.asnumpy()", 0, IST_PY_HOST);
    if (any_of(c, " asarray array ")) {
        if (first.kind == IST_PY_TENSOR) return array;
        unsigned flags = IST_SRC_BLOCKING | (first.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0) |
                         (first.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0);
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, is(c, "array") ? "cupy.array()" : "cupy.asarray()");
        if (hit) r->u->hits[hit - 1].from = first.origin;
        return array;
    }
    if (is_capital(c) || strstr(c->path, ".cuda.")) return (ist_src_value){0};
    if (any_of(c, " nonzero unique argwhere flatnonzero ") || (is(c, "where") && c->arg_count == 1)) {
        args.flags |= IST_PY_ARRAY;
        return dynamic(r, c, args, c->path);
    }
    launch(r, c, false);
    if (any_of(c, " isnan isinf isfinite logical_and logical_or logical_not ")) array.flags |= IST_PY_MASK;
    return array;
}

/* ---- PyOpenCL ---- */

static bool is_false(const ist_py_reader *r, const ist_py_arg *a) {
    return a && ist_py_is(&r->tokens[a->first], "False");
}

/* enqueue_copy(queue, dest, src): the side that is host memory shows the direction. */
static ist_src_value opencl_copy(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value to = value_of(positional(c, 1)), from = value_of(positional(c, 2));
    unsigned flags = is_false(r, keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING;
    bool to_device = to.kind == IST_PY_BUFFER || to.kind == IST_PY_TENSOR;
    bool from_device = from.kind == IST_PY_BUFFER || from.kind == IST_PY_TENSOR;
    const char *label = "pyopencl.enqueue_copy()";
    if (to_device && from_device) {
        ist_py_hit(r, IST_SRC_COPY, 0, c->line, label);
    } else if (from_device || to.kind == IST_PY_HOST) {
        const ist_py_arg *a = positional(c, 1);
        ist_py_hit(r, IST_SRC_DOWN, flags, c->line, label);
        if (a && a->end == a->first + 1 && r->tokens[a->first].kind == IST_PY_NAME)
            ist_py_bind(r, ist_src_intern(r->u, r->tokens[a->first].at, r->tokens[a->first].length),
                        (ist_src_value){.kind = IST_PY_HOST, .origin = c->line});
    } else {
        if (from.flags & IST_PY_DERIVED) flags |= IST_SRC_DERIVED;
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
        if (hit) r->u->hits[hit - 1].from = from.origin;
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
    if (hit && host) r->u->hits[hit - 1].from = value_of(keyword(r, c, "hostbuf")).origin;
    return ist_py_of(IST_PY_BUFFER, 0);
}

static ist_src_value opencl_function(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value array = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_ARRAY);
    if (is(c, "CommandQueue")) return ist_py_of(IST_PY_QUEUE, 0);
    if (is(c, "Program")) return ist_py_of(IST_PY_PROGRAM, 0);
    if (any_of(c, " Buffer Image image_from_array ")) return opencl_buffer(r, c);
    if (is(c, "enqueue_copy")) return opencl_copy(r, c);
    if (any_of(c, " enqueue_read_buffer enqueue_read_image enqueue_map_buffer enqueue_map_image "))
        ist_py_hit(r, IST_SRC_DOWN, is_false(r, keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING, c->line, c->path);
    else if (any_of(c, " enqueue_write_buffer enqueue_write_image enqueue_migrate_mem_objects "))
        ist_py_hit(r, IST_SRC_UP, is_false(r, keyword(r, c, "is_blocking")) ? 0 : IST_SRC_BLOCKING, c->line, c->path);
    else if (any_of(c, " enqueue_copy_buffer enqueue_copy_image enqueue_fill_buffer enqueue_fill_image "))
        ist_py_hit(r, IST_SRC_COPY, 0, c->line, c->path);
    else if (is(c, "wait_for_events"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, c->path);
    else if (any_of(c, " enqueue_nd_range_kernel enqueue_task "))
        launch(r, c, true);
    else if (is(c, "to_device")) {
        ist_src_value from = value_of(positional(c, 1));
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, IST_SRC_BLOCKING | (from.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0),
                                  c->line, "pyopencl.array.to_device()");
        if (hit) r->u->hits[hit - 1].from = from.origin;
        return array;
    } else if (starts(c->path, "pyopencl.array.") || starts(c->path, "pyopencl.clrandom.") ||
               starts(c->path, "pyopencl.clmath."))
        return array;
    else
        return (ist_src_value){0};
    return ist_py_of(IST_PY_EVENT, 0);
}

/* Methods of queues, events and programs; a method that takes a queue first is a kernel. */
static bool opencl_method(ist_py_reader *r, const ist_py_call *c, ist_src_value *v) {
    bool queue = c->on.kind == IST_PY_QUEUE, event = c->on.kind == IST_PY_EVENT;
    const char *dot = c->method ? strrchr(c->path, '.') : NULL;
    size_t n = dot ? (size_t)(dot - c->path) : 0;
    if (!queue && r->opencl && n) queue = ist_src_has_word(c->path, n, " queue ");
    *v = ist_py_of(IST_PY_HOST, 0);
    if (queue && is(c, "finish"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "queue.finish()");
    else if (queue && is(c, "flush"))
        ist_py_hit(r, IST_SRC_FLUSH, 0, c->line, "queue.flush()");
    else if (event && is(c, "wait"))
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, "event.wait()");
    else if (c->on.kind == IST_PY_PROGRAM && is(c, "build")) {
        ist_py_hit(r, IST_SRC_BUILD, 0, c->line, "Program.build()");
        *v = c->on;
    } else if (r->opencl && value_of(positional(c, 0)).kind == IST_PY_QUEUE && c->on.kind != IST_PY_BUFFER &&
               !c->imported) {
        launch(r, c, true);
        *v = ist_py_of(IST_PY_EVENT, 0);
    } else
        return false;
    return true;
}

/* ---- Python's own ---- */

static bool builtin(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    ist_src_value first = value_of(positional(c, 0)), args = all_args(c);
    if (any_of(c, " float int bool ") && c->arg_count == 1) {
        char label[16];
        snprintf(label, sizeof label, "%.*s()", (int)c->name_length, c->name);
        *v = (ist_src_value){
            .kind = IST_PY_HOST, .origin = first.origin, .flags = first.flags & (IST_PY_CONST | IST_PY_DERIVED)};
        if (ist_py_is_sure(first)) *v = download(r, c, label, IST_SRC_SCALAR, IST_PY_HOST);
    } else if (is(c, "print")) {
        for (uint32_t i = 0; i < c->arg_count; i++) ist_py_format(r, c->args[i].value, c->line, "print() of a tensor");
    } else if (any_of(c, " str repr format ")) {
        ist_py_format(r, first, c->line, "str() of a tensor");
        *v = ist_py_of(IST_PY_HOST, IST_PY_STRING_);
    } else if (any_of(c, " len range isinstance hasattr id type issubclass callable hash ord open input ")) {
        *v = ist_py_of(IST_PY_HOST, 0);
        if (is(c, "isinstance") && c->arg_count == 2 && c->args[0].end == c->args[0].first + 1 &&
            ist_py_is(&r->tokens[c->args[1].end - 1], "Tensor"))
            ist_py_bind(r, ist_src_intern(r->u, r->tokens[c->args[0].first].at, r->tokens[c->args[0].first].length),
                        ist_py_of(first.kind == IST_PY_HOST_TENSOR ? IST_PY_HOST_TENSOR : IST_PY_TENSOR, IST_PY_SURE));
    } else if (any_of(c, " list tuple set sorted reversed iter next deepcopy ")) {
        *v = first;
        v->flags &= (uint8_t)~IST_PY_SURE;
    } else if (any_of(c, " zip enumerate ")) {
        uint32_t offset = is(c, "enumerate");
        *v = args;
        r->elements[0] = ist_py_of(IST_PY_HOST, 0);
        for (uint32_t i = 0; i < c->arg_count && i + offset < IST_PY_ELEMENTS; i++)
            r->elements[i + offset] = c->args[i].value;
        r->element_count = c->arg_count + offset <= IST_PY_ELEMENTS ? offset ? 2 : c->arg_count : 0;
        r->element_end = r->at;
    } else if (any_of(c, " abs sum pow round ")) {
        *v = args;
        if (is(c, "sum") && args.kind == IST_PY_TENSOR) v->flags |= IST_PY_SURE;
    } else if (any_of(c, " min max ")) {
        *v = args;
    } else {
        return false;
    }
    v->hit = v->hit && v->kind == IST_PY_HOST ? v->hit : 0;
    return true;
}

/* ---- functions of this file, models ---- */

bool ist_py_is_model_name(const char *name, size_t length) {
    static const char models[] =
        " model models net network module backbone encoder decoder detector segmenter generator "
        "discriminator classifier unet vae transformer postprocessor criterion embedder ";
    static const char verbs[] =
        " load build create make get set init save export test train eval print to from register new "
        "setup is has count convert wrap freeze copy ";
    size_t last = length;
    while (last && name[last - 1] != '_') last--;
    if (!length || (*name >= 'A' && *name <= 'Z')) return false;
    return is_in(name + last, length - last, models) && !ist_src_has_word(name, length, verbs);
}

static ist_src_value local_call(ist_py_reader *r, const ist_py_call *c, uint32_t number) {
    ist_src_function *f = ist_src_function_at(r->u, number);
    uint32_t skip = c->method && f->owner && f->param_count; /* self */
    ist_src_add_call(r->u, r->function, r->loop, number);
    for (uint32_t i = 0; i < c->arg_count && i + skip < f->param_count; i++) {
        if (c->args[i].keyword) continue;
        ist_src_value given = c->args[i].value, *kept = &f->given[i + skip];
        given.hit = 0;
        given.flags &= (uint8_t)~IST_PY_CONST;
        *kept = kept->kind || kept->origin ? ist_py_either(*kept, given) : given;
    }
    ist_src_value v = f->result;
    v.hit = 0;
    return v;
}

/* The function of this file that is called; 0: none. */
static uint32_t local_function(const ist_py_reader *r, const ist_py_call *c) {
    uint32_t number = r->u->names[c->name_id].function;
    const ist_src_function *f = ist_src_function_at(r->u, number);
    if (!f || c->imported) return 0;
    if (!c->method) return f->owner ? 0 : number;
    bool on_self = starts(c->path, "self.") && !strchr(c->path + 5, '.');
    return on_self && f->owner == r->owner ? number : 0;
}

static ist_src_value other_call(ist_py_reader *r, ist_py_call *c) {
    ist_src_value args = all_args(c);
    bool on_self = starts(c->path, "self.");
    if (c->on.kind == IST_PY_MODULE && !c->method) {
        launch(r, c, true);
        return ist_py_of(IST_PY_TENSOR, 0);
    }
    if (c->method && c->on.kind != IST_PY_UNKNOWN) return other_method(r, c);
    if (ist_py_is_model_name(c->name, c->name_length) && !is_capital(c)) {
        launch(r, c, true);
        return ist_py_of(IST_PY_TENSOR, 0);
    }
    if (on_self && r->module_class && args.kind == IST_PY_TENSOR && !strchr(c->path + 5, '.')) {
        launch(r, c, true); /* a part of a module */
        return ist_py_of(IST_PY_TENSOR, 0);
    }
    if (c->method) return other_method(r, c);
    if (is_capital(c)) return ist_py_of(r->u->names[c->name_id].wide ? IST_PY_MODULE : IST_PY_UNKNOWN, 0);
    return (ist_src_value){0};
}

/* Calls that change what a name holds: list.append(tensor), data.to_numpy(), "{}".format(tensor), loss.backward(). */
static void note_effects(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value args = all_args(c);
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (!c->method) return;
    if (any_of(c, " append extend ") && c->base && c->on.kind <= IST_PY_TENSOR && args.kind) {
        ist_src_value v = c->on.kind && !(c->on.flags & IST_PY_CONST) ? ist_py_either(c->on, args) : args;
        v.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
        v.hit = 0;
        ist_py_bind(r, c->base, v);
    }
    if (c->alone && c->base && any_of(c, " to_numpy to_cpu numpy_ cpu_ "))
        ist_py_bind(r, c->base, ist_py_of(IST_PY_HOST, 0));
    if (is(c, "format") && (c->on.flags & IST_PY_STRING_))
        for (uint32_t i = 0; i < c->arg_count; i++)
            ist_py_format(r, c->args[i].value, c->line, "formatting of a tensor");
    bool optimizer = is(c, "step") && ist_src_has_word(c->path, strlen(c->path), " optimizer optim opt scaler ");
    if (f && (optimizer || (is(c, "backward") && !c->imported))) f->training = true;
}

ist_src_value ist_py_apply(ist_py_reader *r, ist_py_call *c) {
    ist_src_value v = {0};
    uint32_t number = local_function(r, c);
    if (number) return local_call(r, c, number);
    note_effects(r, c);
    if (c->imported) {
        if (any_of(c, " nms batched_nms ") && starts(c->path, "torchvision")) return dynamic(r, c, v, c->name);
        if (starts(c->path, "torch.")) return torch_function(r, c);
        if (starts(c->path, "torchvision.")) return is_capital(c) ? v : computed(r, c, all_args(c));
        if (starts(c->path, "numpy.")) return numpy_function(r, c);
        if (starts(c->path, "cupy.")) return cupy_function(r, c);
        if (starts(c->path, "pyopencl.")) return opencl_function(r, c);
        if (starts(c->path, "math.")) {
            ist_src_value first = value_of(positional(c, 0));
            return ist_py_is_sure(first) ? download(r, c, c->path, IST_SRC_SCALAR, IST_PY_HOST)
                                         : ist_py_of(IST_PY_HOST, 0);
        }
    }
    if (r->opencl && opencl_method(r, c, &v)) return v;
    if (c->method && is(c, "synchronize") && (r->torch || r->cupy) &&
        ist_src_has_word(c->path, strlen(c->path), " stream streams event events device null cuda ")) {
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, ".synchronize()");
        return ist_py_of(IST_PY_HOST, 0);
    }
    if (c->method && (transfer_method(r, c, &v) || tensor_method(r, c, &v))) return v;
    if (!c->method && !c->imported && c->path[0] && builtin(r, c, &v)) return v;
    return other_call(r, c);
}

ist_src_value ist_py_attribute(ist_py_reader *r, ist_src_value on, const char *path, const char *name, size_t length) {
    static const char facts[] = " shape ndim is_cuda requires_grad names itemsize nbytes is_sparse layout ";
    if (starts(path, "self.") && !strchr(path + 5, '.')) {
        ist_src_value v = r->u->names[ist_py_attribute_name(r, name, length)].value;
        if (v.kind) return v;
        if (ist_py_is_model_name(name, length)) return ist_py_of(IST_PY_MODULE, 0);
    }
    if (is_in(name, length, " device ") || is_in(name, length, " _device "))
        return ist_py_of(on.kind == IST_PY_HOST_TENSOR ? IST_PY_HOST_DEVICE : IST_PY_DEVICE, 0);
    if (ist_src_has_word(name, length, " dtype ")) return ist_py_of(IST_PY_DTYPE, 0);
    if (starts(path, "torch.") &&
        ist_src_has_word(name, length, " float half double int short long bool bfloat uint complex "))
        return ist_py_of(IST_PY_DTYPE, 0);
    if (is_in(name, length, facts)) return ist_py_of(IST_PY_HOST, 0);
    on.hit = 0;
    if (on.kind == IST_PY_TENSOR && !is_in(name, length, " data grad T mT H real imag "))
        on.flags &= (uint8_t)~IST_PY_SURE;
    if (on.kind == IST_PY_MODULE && is_in(name, length, " weight bias ")) return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    if (on.kind >= IST_PY_QUEUE) return (ist_src_value){0};
    return on;
}
