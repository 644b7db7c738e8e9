/* Functions of PyTorch and methods of tensors. */
#include "audit/source_py_call.h"

#include <stdio.h>
#include <string.h>

/* ---- PyTorch ---- */

#define IST_PY_GIVE_INDICES " argmax argmin argsort long int "

/* Where a tensor goes that is made with device=...; its line. */
static ist_src_value made_on(ist_py_reader *r, const ist_py_call *c, ist_src_value from, bool from_host) {
    const ist_py_arg *device = ist_py_keyword(r, c, "device");
    uint8_t to = ist_py_target_of(r, device);
    char label[IST_SRC_LABEL];
    if (to != IST_PY_DEVICE) {
        bool unknown = device && to == IST_PY_UNKNOWN && from_host; /* device=x: may be one */
        unsigned kept = from.flags & (IST_PY_DERIVED | IST_PY_CONST);
        return (ist_src_value){.kind = unknown ? IST_PY_TENSOR : IST_PY_HOST_TENSOR,
                               .flags = (uint8_t)(IST_PY_SURE | (from_host ? kept : IST_PY_MADE)),
                               .origin = from.origin};
    }
    if (from_host && !ist_py_is_nothing(from)) {
        snprintf(label, sizeof label, "torch.%.*s(device=)", (int)c->name_length, c->name);
        unsigned flags = IST_SRC_BLOCKING | IST_SRC_HOST_POINTER | (from.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0) |
                         (from.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0);
        uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
        ist_py_uploaded(r, hit, from);
    }
    unsigned placed = device && (device->value.flags & IST_PY_OR_HOST) ? 0 : IST_PY_PLACED;
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | placed);
}

/* Any other function of tensors: the result is where they are. */
ist_src_value ist_py_computed(ist_py_reader *r, const ist_py_call *c, ist_src_value args) {
    static const char truths[] =
        " isnan isinf isfinite logical_and logical_or logical_not logical_xor eq ne gt lt ge le "
        "any all isin zeros_like_bool ";
    static const char shapes[] = " cat stack concat concatenate squeeze unsqueeze flatten reshape permute transpose "
                                 "hstack vstack repeat_interleave roll flip tile broadcast_to clone ";
    if (args.kind == IST_PY_TENSOR) ist_py_launch(r, c, false);
    bool mask = ist_py_one_of(c, truths) ||
                (ist_py_one_of(c, shapes) && (ist_py_value_of(ist_py_positional(c, 0)).flags & IST_PY_MASK));
    if (args.kind == IST_PY_HOST_TENSOR || (args.kind == IST_PY_HOST && c->arg_count)) {
        args.kind = IST_PY_HOST_TENSOR;
        args.flags = (uint8_t)((args.flags & IST_PY_DERIVED) | IST_PY_SURE | (args.origin ? IST_PY_DERIVED : 0));
        return args;
    }
    if (args.kind != IST_PY_TENSOR && r->u->host_data) return ist_py_of(IST_PY_HOST_TENSOR, IST_PY_SURE);
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | (mask ? IST_PY_MASK : 0) |
                                        (ist_py_one_of(c, IST_PY_GIVE_INDICES) ? IST_PY_INDICES : 0) |
                                        (args.flags & (IST_PY_ARRAY | IST_PY_PLACED)));
}

/* torch.f, torch.nn.functional.f and so on; what torch says about itself (torch.jit.is_scripting) is none. */
static bool is_operation(const ist_py_call *c) {
    static const char *const modules[] = {"torch.", "torch.nn.functional.", "torch.linalg.", "torch.fft.",
                                          "torch.special."};
    size_t n = strlen(c->path) - c->name_length;
    if (*c->name == '_' || ist_src_has_word(c->name, c->name_length, " is are get set has use typename ")) return false;
    for (size_t k = 0; k < sizeof modules / sizeof *modules; k++)
        if (strlen(modules[k]) == n && !memcmp(c->path, modules[k], n)) return true;
    return false;
}

/* torch.FloatTensor(data), torch.cuda.FloatTensor(data or sizes) */
static ist_src_value typed_tensor(ist_py_reader *r, const ist_py_call *c, ist_src_value data) {
    const ist_py_arg *a = ist_py_positional(c, 0);
    if (!ist_py_starts(c->path, "torch.cuda.")) return ist_py_of(IST_PY_HOST_TENSOR, IST_PY_SURE);
    if (a && !ist_py_is_number(r, a) && data.kind != IST_PY_TENSOR) {
        unsigned flags = IST_SRC_BLOCKING | IST_SRC_HOST_POINTER | (data.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0) |
                         (data.flags & IST_PY_DERIVED ? IST_SRC_DERIVED : 0);
        ist_py_uploaded(r, ist_py_hit(r, IST_SRC_UP, flags, c->line, c->path), data);
    }
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_PLACED);
}

ist_src_value ist_py_torch_function(ist_py_reader *r, const ist_py_call *c) {
    static const char from_host[] = " tensor as_tensor from_numpy asarray sparse_coo_tensor scalar_tensor ";
    static const char made[] = " zeros ones full empty arange linspace logspace rand randn randint randperm eye "
                               "empty_strided normal tril_indices triu_indices ";
    static const char nothing[] =
        " is_available device_count manual_seed manual_seed_all set_grad_enabled no_grad "
        "inference_mode enable_grad autocast is_tensor is_grad_enabled get_default_dtype "
        "set_default_dtype numel is_floating_point is_complex get_num_threads promote_types can_cast result_type "
        "empty_cache get_device_name current_device memory_allocated "
        "max_memory_allocated set_device get_rank get_world_size is_initialized save "
        "init_process_group barrier set_num_threads use_deterministic_algorithms ";
    ist_src_value first = ist_py_value_of(ist_py_positional(c, 0)), args = ist_py_all_args(c);
    if (ist_py_named(c, "synchronize")) ist_py_hit(r, IST_SRC_WAIT, 0, c->line, c->path);
    if (ist_py_named(c, "synchronize") || ist_py_one_of(c, nothing)) return ist_py_of(IST_PY_HOST, 0);
    if (ist_py_named(c, "device"))
        return ist_py_of(
            ist_py_target_of(r, ist_py_positional(c, 0)) == IST_PY_HOST_DEVICE ? IST_PY_HOST_DEVICE : IST_PY_DEVICE, 0);
    if (ist_py_one_of(c, from_host)) {
        if (first.kind == IST_PY_TENSOR && (ist_py_named(c, "as_tensor") || ist_py_is_sure(first))) return first;
        return made_on(r, c, first, true);
    }
    if (ist_py_one_of(c, made)) {
        const ist_py_arg *type = ist_py_keyword(r, c, "dtype");
        ist_src_value v = made_on(r, c, first, false);
        if (type && ist_py_is(&r->tokens[type->end - 1], "bool")) v.flags |= IST_PY_MASK;
        return v;
    }
    if (ist_py_in(c->name, c->name_length, " finfo iinfo Size Generator ")) return ist_py_of(IST_PY_HOST, 0);
    if (ist_py_starts(c->path, "torch.nn.utils.rnn.") || ist_py_starts(c->path, "torch.nn.init.")) return first;
    if (ist_py_named(c, "Parameter")) return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    if (ist_py_is_capital(c) && c->name_length >= 6 && !memcmp(c->name + c->name_length - 6, "Tensor", 6))
        return typed_tensor(r, c, first);
    if (ist_py_is_capital(c)) return ist_py_of(ist_py_starts(c->path, "torch.nn.") ? IST_PY_MODULE : IST_PY_UNKNOWN, 0);
    if (ist_py_one_of(c, " compile script trace ") || (ist_py_named(c, "load") && strstr(c->path, ".hub.")) ||
        (ist_py_named(c, "load") && strstr(c->path, ".jit.")))
        return ist_py_of(IST_PY_MODULE, 0);
    if (ist_py_named(c, "load")) return (ist_src_value){0};
    if (ist_py_one_of(c, " nonzero unique unique_consecutive masked_select argwhere ") ||
        (ist_py_named(c, "where") && c->arg_count == 1)) {
        return ist_py_dynamic(r, c, args, c->path);
    }
    if (ist_py_one_of(c, " equal allclose is_nonzero ") && args.kind == IST_PY_TENSOR) {
        ist_py_hit(r, IST_SRC_IMPLICIT, 0, c->line, c->path);
        return ist_py_of(IST_PY_HOST, 0);
    }
    return is_operation(c) ? ist_py_computed(r, c, args) : (ist_src_value){0};
}

/* ---- methods of tensors and of what may be one ---- */

static bool may_be_tensor(const ist_py_reader *r, ist_src_value v, bool only_tensors_have_it) {
    if (v.kind == IST_PY_TENSOR) return true;
    if (v.kind != IST_PY_UNKNOWN) return false;
    if (r->u->host_data) return only_tensors_have_it;
    return only_tensors_have_it || ((r->torch || r->cupy) && !r->numpy);
}

/* What is not there already comes to the host; a module with its weights. */
static ist_src_value to_host(ist_py_reader *r, const ist_py_call *c, ist_src_value on, const char *arguments) {
    bool module = on.kind == IST_PY_MODULE && (on.flags & IST_PY_PLACED);
    ist_src_value v = on;
    if (module || may_be_tensor(r, on, true))
        v = ist_py_download(r, c, ist_py_chained(c, arguments), 0, IST_PY_HOST_TENSOR);
    if (module) v = on, v.flags &= (uint8_t)~IST_PY_PLACED;
    return v;
}

/* The receiver goes to a device; modules carry their weights. */
static ist_src_value upload(ist_py_reader *r, const ist_py_call *c, const char *arguments) {
    const ist_py_arg *async = ist_py_keyword(r, c, "non_blocking");
    ist_src_value v = c->on;
    char label[IST_SRC_LABEL];
    snprintf(label, sizeof label, ".%.*s(%s)", (int)c->name_length, c->name, arguments);
    unsigned flags = async && ist_py_is(&r->tokens[async->first], "True") ? 0 : IST_SRC_BLOCKING;
    if (v.flags & IST_PY_CONST) flags |= IST_SRC_CONSTANT;
    if (v.kind == IST_PY_HOST_TENSOR && (v.flags & IST_PY_MADE)) flags |= IST_SRC_HOST_POINTER;
    if (v.flags & IST_PY_DERIVED) flags |= IST_SRC_DERIVED;
    uint32_t hit = ist_py_hit(r, IST_SRC_UP, flags, c->line, label);
    ist_py_uploaded(r, hit, v);
    if (v.kind == IST_PY_MODULE) v.flags |= IST_PY_PLACED, v.hit = 0;
    if (v.kind == IST_PY_MODULE) return v;
    return ist_py_of(IST_PY_TENSOR, IST_PY_PLACED | (v.kind == IST_PY_UNKNOWN ? IST_PY_SURE : v.flags & IST_PY_SURE) |
                                        (v.flags & IST_PY_MASK));
}

/* .type(t): of a tensor's type, which says where it lies; .type_as(x) */
static ist_src_value type_method(ist_py_reader *r, const ist_py_call *c) {
    const ist_py_arg *a = ist_py_positional(c, 0);
    ist_src_value v = c->on, like = ist_py_value_of(a);
    v.hit = 0;
    if (!a && v.kind == IST_PY_TENSOR) return ist_py_of(IST_PY_DEVICE, 0);
    if (!a) return ist_py_of(v.kind ? IST_PY_DTYPE : IST_PY_UNKNOWN, 0);
    bool as = ist_py_named(c, "type_as");
    bool to_device = as ? like.kind == IST_PY_TENSOR : ist_py_target_of(r, a) == IST_PY_DEVICE;
    if (v.kind == IST_PY_TENSOR || !to_device) {
        v.flags &= (uint8_t)~IST_PY_MASK;
        return v;
    }
    if (v.kind == IST_PY_HOST_TENSOR || !as) return upload(r, c, as ? "tensor" : "type");
    return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
}

/* A name like storage_device of which no more is known: perhaps not where tensors are. */
static bool is_another_device(const ist_py_reader *r, const ist_py_arg *a) {
    const ist_py_token *last = &r->tokens[a->end - 1];
    return a->value.kind == IST_PY_UNKNOWN && last->kind == IST_PY_NAME && last->length > sizeof "_device" - 1;
}

/* What is known to be in host memory goes to where another tensor is: .to(x). A name of which no more is known is one,
 * unless it says that it is a type. */
static bool is_of_tensor(const ist_py_reader *r, const ist_py_call *c, const ist_py_arg *a) {
    if (c->on.kind != IST_PY_HOST_TENSOR || !a || a->keyword || a->star) return false;
    const ist_py_token *t = &r->tokens[a->first];
    bool name = a->end == a->first + 1 && t->kind == IST_PY_NAME && !a->value.kind && !a->value.of;
    bool type = ist_src_has_word(t->at, t->length, " dtype type types precision format float half int long bool ");
    return a->value.kind == IST_PY_TENSOR || (name && !type);
}

/* zeros_like(x).to(x.device) */
static bool is_like_its_device(const ist_py_reader *r, const ist_py_arg *a) {
    const ist_py_token *t = r->tokens + a->first;
    if (a->first < 7 || a->end != a->first + 3 || !ist_py_is(t + 2, "device") || !ist_py_is(t - 4, ")")) return false;
    bool same = t[-5].kind == IST_PY_NAME && t[-5].length == t->length && !memcmp(t[-5].at, t->at, t->length);
    return same && ist_py_is(t - 6, "(") && t[-7].length > 5 && !memcmp(t[-7].at + t[-7].length - 5, "_like", 5);
}

/* .to(...): a device, a type, or something that is not known. */
static ist_src_value to_method(ist_py_reader *r, const ist_py_call *c) {
    const ist_py_arg *device = ist_py_keyword(r, c, "device");
    const ist_py_arg *a = device ? device : ist_py_positional(c, 0);
    uint8_t to = ist_py_target_of(r, a);
    bool there = ist_py_is_sure(c->on) && (c->on.flags & IST_PY_PLACED);
    if (a && ((a->value.flags & IST_PY_OR_HOST) || is_another_device(r, a))) there = false;
    if (a && is_like_its_device(r, a)) there = true;
    if (to == IST_PY_UNKNOWN && is_of_tensor(r, c, a)) return upload(r, c, "tensor");
    if (to == IST_PY_DEVICE && !there) return upload(r, c, "device");
    if (to == IST_PY_HOST_DEVICE) return to_host(r, c, c->on, "\"cpu\"");
    ist_src_value v = c->on;
    v.hit = 0;
    return v;
}

/* Methods that move or wait; false: none of them. */
bool ist_py_transfer_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    ist_src_value on = c->on;
    if (ist_py_named(c, "to")) {
        *v = to_method(r, c);
    } else if (ist_py_one_of(c, " type type_as ") && on.kind <= IST_PY_TENSOR && on.kind != IST_PY_HOST) {
        *v = type_method(r, c);
    } else if (ist_py_named(c, "cuda")) {
        *v = upload(r, c, "");
    } else if (ist_py_named(c, "cpu") && !c->arg_count && !c->imported) {
        if (on.kind == IST_PY_HOST) on.kind = IST_PY_UNKNOWN; /* what has .cpu() is no array of the host's */
        *v = to_host(r, c, on, "");
    } else if (ist_py_one_of(c, " numpy tolist ") && on.kind == IST_PY_HOST_TENSOR) {
        bool same = ist_py_extends_hit(r, c);
        *v = (ist_src_value){
            .kind = IST_PY_HOST, .origin = on.origin, .flags = on.flags & IST_PY_DERIVED, .hit = same ? on.hit : 0};
    } else if (ist_py_named(c, "numpy") && !c->imported && (on.kind == IST_PY_UNKNOWN || on.kind == IST_PY_TENSOR) &&
               !(on.flags & IST_PY_ARRAY)) {
        *v = (ist_src_value){.kind = IST_PY_HOST, .origin = on.origin, .flags = on.flags & IST_PY_DERIVED};
    } else if (ist_py_named(c, "tolist") && on.kind == IST_PY_HOST) {
        if (ist_py_extends_hit(r, c)) on.hit = c->on.hit;
        *v = on;
    } else if (ist_py_one_of(c, " numpy tolist ") && may_be_tensor(r, on, false) &&
               (ist_py_named(c, "tolist") || (on.flags & IST_PY_ARRAY))) {
        *v = ist_py_download(r, c, ist_py_chained(c, ""), 0, IST_PY_HOST);
    } else if (ist_py_named(c, "item") && !c->arg_count) {
        bool loaded = on.kind == IST_PY_UNKNOWN && (on.flags & IST_PY_LOADED);
        if (!loaded && may_be_tensor(r, on, (r->torch || r->cupy) && !r->u->host_data))
            *v = ist_py_download(r, c, ist_py_chained(c, ""), IST_SRC_SCALAR, IST_PY_HOST);
        else if (ist_py_extends_hit(r, c))
            *v = ist_py_of(IST_PY_HOST, 0);
        else
            *v = (ist_src_value){.kind = IST_PY_HOST, .origin = on.origin, .flags = on.flags & IST_PY_DERIVED};
    } else if (ist_py_named(c, "get") && on.kind == IST_PY_TENSOR && (on.flags & IST_PY_ARRAY)) {
        *v = ist_py_download(r, c, ist_py_chained(c, ""), 0, IST_PY_HOST);
    } else {
        return false;
    }
    return true;
}

/* Methods of tensors whose results are no tensors, or of other sizes, or truth values. */
bool ist_py_tensor_method(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    static const char plain[] =
        " size dim numel nelement stride element_size is_contiguous data_ptr get_device ndimension "
        "is_floating_point storage_offset __len__ ";
    static const char shows_tensor[] =
        " detach backward requires_grad_ cuda unsqueeze permute sigmoid softmax masked_fill ";
    ist_src_value on = c->on;
    bool tensor = on.kind == IST_PY_TENSOR, truth = ist_py_one_of(c, " any all ");
    bool asks = c->name_length > 3 && (!memcmp(c->name, "is_", 3) || *c->name == '_'); /* is_contiguous(), _nnz() */
    if (tensor && (asks || ist_py_one_of(c, plain))) {
        *v = ist_py_of(IST_PY_HOST, 0);
    } else if (truth && may_be_tensor(r, on, false) && r->torch) {
        *v = ist_py_of(IST_PY_TENSOR, IST_PY_SURE | IST_PY_MASK);
    } else if (ist_py_one_of(c, " nonzero unique masked_select argwhere unique_consecutive ") &&
               may_be_tensor(r, on, false)) {
        *v = ist_py_dynamic(r, c, on, ist_py_chained(c, ""));
    } else if (ist_py_one_of(c, " new_tensor ") && may_be_tensor(r, on, true)) {
        ist_src_value from = ist_py_value_of(ist_py_positional(c, 0));
        uint32_t hit = ist_py_hit(
            r, IST_SRC_UP, IST_SRC_BLOCKING | IST_SRC_HOST_POINTER | (from.flags & IST_PY_CONST ? IST_SRC_CONSTANT : 0),
            c->line, ".new_tensor()");
        ist_py_uploaded(r, hit, from);
        *v = ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    } else if (ist_py_named(c, "equal") && tensor) {
        ist_py_hit(r, IST_SRC_IMPLICIT, 0, c->line, ".equal()");
        *v = ist_py_of(IST_PY_HOST, 0);
    } else if (ist_py_one_of(c, shows_tensor) && on.kind == IST_PY_UNKNOWN) {
        if (c->base && ist_py_one_of(c, " detach backward requires_grad_ ")) ist_py_hint(r, c->base);
        if (ist_py_named(c, "detach")) ist_py_chained(c, "");
        *v = ist_py_named(c, "detach") || !r->u->host_data ? ist_py_of(IST_PY_TENSOR, IST_PY_SURE) : on;
    } else {
        return false;
    }
    return true;
}

/* Everything else that is called on a value. */
ist_src_value ist_py_other_method(ist_py_reader *r, ist_py_call *c) {
    static const char copies[] = " astype copy reshape view ravel flatten squeeze transpose tobytes contiguous ";
    static const char reductions[] =
        " sum mean max min argmax argmin softmax sigmoid topk exp log sqrt clamp norm std var "
        "prod float half long int squeeze unsqueeze permute ";
    static const char numbers[] =
        " sum mean max min argmax argmin argsort sort topk norm prod cumsum float half long int "
        "double byte count_nonzero nonzero ";
    ist_src_value v = c->on;
    v.hit = 0;
    if (ist_py_one_of(c, numbers)) v.flags &= (uint8_t)~IST_PY_MASK;
    if (v.kind == IST_PY_TENSOR && ist_py_one_of(c, IST_PY_GIVE_INDICES)) v.flags |= IST_PY_INDICES;
    if (v.kind == IST_PY_TENSOR && ist_py_one_of(c, " bool float half double ")) v.flags &= (uint8_t)~IST_PY_INDICES;
    if (ist_py_one_of(c, " eq ne gt lt ge le isnan isinf logical_not bool ")) v.flags |= IST_PY_MASK;
    if (ist_py_named(c, "items") || ist_py_named(c, "enumerate")) {
        r->elements[0] = ist_py_of(IST_PY_HOST, 0);
        r->elements[1] = v;
        r->element_count = 2;
        r->element_end = r->at;
    }
    if (ist_py_named(c, "keys")) return ist_py_of(IST_PY_HOST, 0);
    switch (v.kind) {
    case IST_PY_TENSOR:
        if (ist_py_one_of(c, reductions)) v.flags |= IST_PY_SURE;
        if (ist_py_named(c, "detach"))
            ist_py_chained(c, "");
        else
            c->chain[0] = '\0';
        if (!ist_py_one_of(
                c,
                " view reshape detach permute transpose unsqueeze squeeze expand contiguous values items flatten ") &&
            (v.flags & IST_PY_SURE))
            ist_py_launch(r, c, false);
        return v;
    case IST_PY_HOST:
    case IST_PY_HOST_TENSOR:
        if (v.origin && !ist_py_one_of(c, copies)) v.flags |= IST_PY_DERIVED;
        v.flags &= (uint8_t)~IST_PY_CONST;
        return v;
    case IST_PY_MODULE:
        if (ist_py_one_of(c, " eval train half float double requires_grad_ bfloat16 apply share_memory ")) return v;
        if (ist_py_one_of(c, " parameters state_dict named_parameters modules children load_state_dict named_modules "))
            return (ist_src_value){0};
        ist_py_launch(r, c, true);
        return ist_py_all_args(c).kind == IST_PY_TENSOR ? ist_py_of(IST_PY_TENSOR, 0) : (ist_src_value){0};
    default:
        return (ist_src_value){0};
    }
}
