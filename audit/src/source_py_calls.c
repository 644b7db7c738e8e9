/* Which call it is: a function of this file, of a known module, of Python itself; a model. */
#include "audit/source_py_call.h"

#include <stdio.h>
#include <string.h>

/* ---- Python's own ---- */

/* "if isinstance(x, Tensor)", or a type that is none: x is one, as long as the branch lasts; the reader takes it back.
 */
static void narrow(ist_py_reader *r, const ist_py_call *c, uint8_t kind) {
    uint32_t first = c->args[0].first;
    bool single = c->arg_count == 2 && c->args[0].end == first + 1 && r->tokens[first].kind == IST_PY_NAME;
    bool negated = first >= 3 && ist_py_is(&r->tokens[first - 3], "not");
    if (!single || negated || r->narrowed.name) return;
    static const char *const plain[] = {"ndarray", "int", "float", "str", "bytes", "bool"};
    bool tensor = ist_py_is(&r->tokens[c->args[1].end - 1], "Tensor"), array = false, list = false;
    for (uint32_t i = c->args[1].first; i < c->args[1].end && !tensor; i++) {
        const ist_py_token *t = &r->tokens[i];
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) array = array || ist_py_is(t, plain[k]);
        list = list || ist_py_is(t, "list") || ist_py_is(t, "tuple") || ist_py_is(t, "dict");
        if (ist_py_is(t, "Tensor")) return;
    }
    if (tensor ? kind == IST_PY_HOST : !array && !list) return;
    uint32_t name = ist_src_intern(r->u, r->tokens[first].at, r->tokens[first].length);
    ist_src_value before = ist_py_lookup(r, name), now = {.origin = before.origin};
    if (tensor) now.kind = kind == IST_PY_HOST_TENSOR ? IST_PY_HOST_TENSOR : IST_PY_TENSOR, now.flags = IST_PY_SURE;
    if (!tensor && !list) now.kind = IST_PY_HOST; /* a list may hold tensors */
    r->narrowed = (ist_py_narrowing){.name = name, .tensor = tensor, .now = now, .before = before};
    ist_py_bind(r, name, now);
}

static bool builtin(ist_py_reader *r, ist_py_call *c, ist_src_value *v) {
    ist_src_value first = ist_py_value_of(ist_py_positional(c, 0)), args = ist_py_all_args(c);
    if (ist_py_one_of(c, " float int bool ") && c->arg_count == 1) {
        char label[16];
        snprintf(label, sizeof label, "%.*s()", (int)c->name_length, c->name);
        *v = (ist_src_value){
            .kind = IST_PY_HOST, .origin = first.origin, .flags = first.flags & (IST_PY_CONST | IST_PY_DERIVED)};
        if (ist_py_is_sure(first)) *v = ist_py_download(r, c, label, IST_SRC_SCALAR, IST_PY_HOST);
    } else if (ist_py_named(c, "print")) {
        for (uint32_t i = 0; i < c->arg_count; i++) ist_py_format(r, c->args[i].value, c->line, "print() of a tensor");
    } else if (ist_py_one_of(c, " str repr format ")) {
        ist_py_format(r, first, c->line, "str() of a tensor");
        *v = ist_py_of(IST_PY_HOST, IST_PY_STRING_);
    } else if (ist_py_one_of(c, " len range isinstance hasattr id type issubclass callable hash ord open input ")) {
        *v = ist_py_of(IST_PY_HOST, 0);
        if (ist_py_named(c, "isinstance")) narrow(r, c, first.kind);
    } else if (ist_py_one_of(c, " list tuple set sorted reversed iter next deepcopy ")) {
        *v = first;
        v->flags &= (uint8_t)~IST_PY_SURE;
    } else if (ist_py_one_of(c, " zip enumerate ")) {
        uint32_t offset = ist_py_named(c, "enumerate");
        *v = args;
        r->elements[0] = ist_py_of(IST_PY_HOST, 0);
        for (uint32_t i = 0; i < c->arg_count && i + offset < IST_PY_ELEMENTS; i++)
            r->elements[i + offset] = c->args[i].value;
        r->element_count = c->arg_count + offset <= IST_PY_ELEMENTS ? offset ? 2 : c->arg_count : 0;
        r->element_end = r->at;
    } else if (ist_py_one_of(c, " abs sum pow round ")) {
        *v = args;
        if (ist_py_named(c, "sum") && args.kind == IST_PY_TENSOR) v->flags |= IST_PY_SURE;
    } else if (ist_py_one_of(c, " min max ")) {
        *v = args;
    } else {
        return false;
    }
    v->hit = v->hit && v->kind == IST_PY_HOST ? v->hit : 0;
    return true;
}

/* ---- functions of this file, models ---- */

bool ist_py_is_model_name(const char *name, size_t length) {
    static const char models[] = " model models net network backbone encoder decoder detector segmenter generator "
                                 "discriminator classifier unet vae transformer postprocessor criterion embedder ";
    static const char verbs[] =
        " load build create make get set init save export test train eval print to from register new "
        "setup is has count convert wrap freeze copy ";
    size_t last = length;
    while (last && name[last - 1] != '_') last--;
    if (!length || (*name >= 'A' && *name <= 'Z')) return false;
    return ist_py_in(name + last, length - last, models) && !ist_src_has_word(name, length, verbs);
}

/* What is called: a function of the project, `skip` of whose parameters the call does not give, or a class. */
typedef struct target {
    uint32_t function, class_, skip;
} target;

static target target_of(const ist_py_reader *r, const ist_py_call *c) {
    ist_src_value v = c->on;
    uint32_t name = 0;
    target t = {0};
    if (c->method && c->imported) v = ist_py_global_path(r, c->path);
    if ((!c->method || c->imported) && v.kind == IST_PY_FUNCTION) {
        t.function = v.of;
    } else if ((!c->method || c->imported) && v.kind == IST_PY_CLASS) {
        t.class_ = v.of;
    } else if (c->method && !c->imported && v.of && v.kind != IST_PY_FUNCTION) {
        name = ist_py_method(r->p, v.of, c->name, c->name_length);
    } else if (!c->method && ist_py_is_instance(v)) {
        name = v.kind == IST_PY_MODULE ? 0 : ist_py_method(r->p, v.of, "__call__", 8);
    }
    if (name) t.function = r->u->names[name].function;
    const ist_src_function *f = name ? ist_src_function_at(r->u, t.function) : NULL;
    bool given = f && v.kind == IST_PY_CLASS && f->param_count && !strcmp(ist_src_text(r->u, f->params[0]), "self");
    if (f && !given) t.skip = f->bound;
    return t;
}

/* Where models are: but for files that prepare data. */
static uint8_t placed(const ist_py_reader *r) {
    return r->u->host_data ? 0 : IST_PY_PLACED;
}

/* An instance of nn.Module is called. */
static ist_src_value call_model(ist_py_reader *r, const ist_py_call *c) {
    uint32_t name = c->on.of ? ist_py_method(r->p, c->on.of, "forward", 7) : 0;
    uint32_t number = name ? r->u->names[name].function : 0;
    ist_src_value v = {0};
    if (number) v = ist_py_call_function(r, c, number, ist_src_function_at(r->u, number)->bound);
    ist_py_launch(r, c, true);
    if (v.kind == IST_PY_HOST || v.kind == IST_PY_HOST_TENSOR) return v;
    return (ist_src_value){
        .kind = IST_PY_TENSOR, .flags = placed(r), .of = ist_py_is_instance(v) ? v.of : 0, .origin = v.origin};
}

/* A method of a module whose result is not known works on tensors like the module does. */
static ist_src_value call_known(ist_py_reader *r, const ist_py_call *c, target t) {
    if (t.class_) return ist_py_construct(r, c, t.class_);
    ist_src_value v = ist_py_call_function(r, c, t.function, t.skip);
    bool part = c->method && c->on.kind == IST_PY_MODULE && !v.kind && !v.of;
    if (part && ist_py_all_args(c).kind == IST_PY_TENSOR) v.kind = IST_PY_TENSOR;
    return v;
}

/* Whether the name is that of something that only takes data out, or of a method that arrays and containers have. */
static bool is_plain_use(const ist_py_call *c) {
    static const char out[] =
        " save saves saving write writes dump dumps log logs logger logging info debug warning warn error critical "
        "print "
        "append extend add insert put push send publish emit show imshow draw plot plots vis visualize display "
        "annotate "
        "record report format join text image scalar histogram writer plt ax axes fig wandb tqdm csv progress pbar "
        "get index count split strip startswith endswith dot reshape clip min max sum mean std astype take repeat fill "
        "sort setdefault items keys values pop remove isin logical range dict map filter getattr setattr hasattr vars "
        "super any all bytes slice exception callback notify download upload ";
    return ist_src_has_word(c->name, c->name_length, out) || ist_src_has_word(c->path, strlen(c->path), out);
}

/* A call of something that nothing here defines. */
static void note_unknown(ist_py_reader *r, const ist_py_call *c) {
    static const char *const host[] = {"PIL.",     "scipy.",  "skimage.", "os.",        "json.",        "random.",
                                       "time.",    "re.",     "copy.",    "itertools.", "collections.", "matplotlib.",
                                       "pandas.",  "sklearn", "pickle.",  "struct.",    "base64.",      "io.",
                                       "shapely.", "imageio", "lap.",     "logging.",   "pycocotools.", "functools.",
                                       "tifffile", "nibabel", "h5py.",    "SimpleITK.", "cv2.",         "csv."};
    bool unknown = !c->method || c->on.kind == IST_PY_UNKNOWN || c->on.kind == IST_PY_MODULE;
    if (!unknown || is_plain_use(c)) return;
    for (size_t k = 0; c->imported && k < sizeof host / sizeof *host; k++)
        if (ist_py_starts(c->path, host[k])) return;
    ist_py_handed(r, c);
}

static ist_src_value other_call(ist_py_reader *r, ist_py_call *c) {
    ist_src_value args = ist_py_all_args(c);
    bool on_self = ist_py_starts(c->path, "self.");
    if (c->on.kind == IST_PY_MODULE && !c->method) return call_model(r, c);
    note_unknown(r, c);
    if (c->method && c->on.kind != IST_PY_UNKNOWN) return ist_py_other_method(r, c);
    if (ist_py_is_model_name(c->name, c->name_length) && !ist_py_is_capital(c)) {
        ist_py_launch(r, c, true);
        return ist_py_of(IST_PY_TENSOR, placed(r));
    }
    bool prepares =
        ist_src_has_word(c->name, c->name_length, " preprocess preprocessor processor transform transforms tokenizer ");
    if (on_self && r->module_class && args.kind == IST_PY_TENSOR && !strchr(c->path + 5, '.') && !prepares) {
        ist_py_launch(r, c, true); /* a part of a module */
        return ist_py_of(IST_PY_TENSOR, placed(r));
    }
    if (c->method) return ist_py_other_method(r, c);
    return (ist_src_value){0};
}

/* self.name.method() */
static bool is_of_self(const ist_py_call *c) {
    const char *dot = ist_py_starts(c->path, "self.") ? strchr(c->path + 5, '.') : NULL;
    return dot && !strchr(dot + 1, '.');
}

/* Calls that change what a name holds: list.append(tensor), "{}".format(tensor), loss.backward(). */
static void note_effects(ist_py_reader *r, const ist_py_call *c) {
    ist_src_value args = ist_py_all_args(c);
    ist_src_function *f = ist_src_function_at(r->u, r->function);
    if (!c->method) return;
    bool adds = ist_py_one_of(c, " append extend "); /* to a list of which nothing was known */
    if (adds && c->base && c->arg_count && !args.kind && ist_py_is_nothing(c->on)) ist_py_bind(r, c->base, args);
    bool of_object = c->base && ist_py_is_instance(ist_py_lookup(r, c->base)); /* a list in its attribute */
    if (ist_py_one_of(c, " append extend ") && c->base && !of_object && c->on.kind <= IST_PY_TENSOR && args.kind) {
        ist_src_value v = c->on.kind && !(c->on.flags & IST_PY_CONST) ? ist_py_either(c->on, args) : args;
        v.flags &= (uint8_t) ~(IST_PY_SURE | IST_PY_CONST);
        v.hit = 0;
        ist_py_bind(r, c->base, v);
    } else if (ist_py_one_of(c, " append extend ") && r->class_ && args.kind && is_of_self(c)) {
        args.flags &= (uint8_t)~IST_PY_SURE;
        const char *name = c->path + 5;
        ist_py_keep(r, r->class_, name, strcspn(name, "."), c->line, args);
    }
    if (ist_py_named(c, "format") && ist_py_is_text(c->on))
        for (uint32_t i = 0; i < c->arg_count; i++)
            ist_py_format(r, c->args[i].value, c->line, "formatting of a tensor");
    bool optimizer =
        ist_py_named(c, "step") && ist_src_has_word(c->path, strlen(c->path), " optimizer optim opt scaler ");
    if (f && (optimizer || (ist_py_named(c, "backward") && !c->imported))) f->training = true;
}

/* record.get("key"); super() */
static bool of_record(ist_py_reader *r, const ist_py_call *c, ist_src_value *v) {
    const ist_py_class *own = ist_py_class_at(r->p, r->class_);
    const ist_py_arg *a = ist_py_positional(c, 0);
    if (!c->method && own && own->base_count && ist_py_named(c, "super")) {
        *v = (ist_src_value){.of = own->bases[0]};
        return true;
    }
    const ist_py_class *record = c->method && ist_py_is_instance(c->on) ? ist_py_class_at(r->p, c->on.of) : NULL;
    if (!record || !record->is_record || !a || r->tokens[a->first].kind != IST_PY_STRING) return false;
    if (!ist_py_one_of(c, " get pop setdefault ")) return false;
    return ist_py_kept(r, c->on.of, r->tokens[a->first].at, r->tokens[a->first].length, v) && ist_py_is_known(*v);
}

/* data.to_numpy() in a line of its own: it is on the host from here on, whoever defines it. */
static void note_in_place(ist_py_reader *r, const ist_py_call *c) {
    if (c->method && c->alone && c->base && ist_py_one_of(c, " to_numpy to_cpu numpy_ cpu_ "))
        ist_py_bind(r, c->base, ist_py_of(IST_PY_HOST, 0));
}

static bool any_on_host(const ist_py_call *c) {
    for (uint32_t i = 0; i < c->arg_count; i++)
        if (c->args[i].value.kind == IST_PY_HOST_TENSOR) return true;
    return false;
}

/* Libraries that work on arrays in host memory. */
static bool is_of_images(const ist_py_call *c) {
    static const char *const names[] = {"cv2.", "PIL.", "scipy.", "skimage."};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (ist_py_starts(c->path, names[k])) return true;
    return false;
}

/* self.head(x): what an attribute holds is called, not a method. */
static void find_held(ist_py_reader *r, ist_py_call *c) {
    ist_src_value held;
    if (!c->method || c->imported || !ist_py_is_instance(c->on)) return;
    if (ist_py_method(r->p, c->on.of, c->name, c->name_length)) return;
    if (!ist_py_kept(r, c->on.of, c->name, c->name_length, &held)) return;
    if (held.kind != IST_PY_MODULE && held.kind < IST_PY_FUNCTION && !(held.kind == IST_PY_UNKNOWN && held.of)) return;
    c->on = held;
    c->method = false;
}

ist_src_value ist_py_apply(ist_py_reader *r, ist_py_call *c) {
    ist_src_value v = {0};
    find_held(r, c);
    target t = target_of(r, c);
    note_in_place(r, c);
    if (t.function || t.class_) return call_known(r, c, t);
    if (of_record(r, c, &v)) return v;
    note_effects(r, c);
    if (c->imported) {
        if (ist_py_one_of(c, " nms batched_nms ") && ist_py_starts(c->path, "torchvision")) {
            char label[IST_SRC_LABEL];
            snprintf(label, sizeof label, "%.*s()", (int)c->name_length, c->name);
            return ist_py_dynamic(r, c, any_on_host(c) ? ist_py_of(IST_PY_HOST_TENSOR, IST_PY_SURE) : v, label);
        }
        if (ist_py_starts(c->path, "torch.")) return ist_py_torch_function(r, c);
        if (ist_py_starts(c->path, "torchvision."))
            return ist_py_is_capital(c) ? v : ist_py_computed(r, c, ist_py_all_args(c));
        if (ist_py_starts(c->path, "numpy.")) return ist_py_numpy_function(r, c);
        if (ist_py_starts(c->path, "cupy.")) return ist_py_cupy_function(r, c);
        if (ist_py_starts(c->path, "pycuda.")) return ist_py_pycuda_function(r, c);
        if (ist_py_starts(c->path, "pyopencl.")) return ist_py_opencl_function(r, c);
        if (ist_py_starts(c->path, "copy.")) return ist_py_value_of(ist_py_positional(c, 0));
        if (is_of_images(c)) return ist_py_image_function(c);
        if (ist_py_starts(c->path, "math.")) {
            ist_src_value first = ist_py_value_of(ist_py_positional(c, 0));
            return ist_py_is_sure(first) ? ist_py_download(r, c, c->path, IST_SRC_SCALAR, IST_PY_HOST)
                                         : ist_py_of(IST_PY_HOST, 0);
        }
    }
    if (r->opencl && ist_py_opencl_method(r, c, &v)) return v;
    if (c->method && ist_py_named(c, "synchronize") && (r->torch || r->cupy) &&
        ist_src_has_word(c->path, strlen(c->path), " stream streams event events device null cuda ")) {
        ist_py_hit(r, IST_SRC_WAIT, 0, c->line, ".synchronize()");
        return ist_py_of(IST_PY_HOST, 0);
    }
    if (c->method && (ist_py_transfer_method(r, c, &v) || ist_py_tensor_method(r, c, &v))) return v;
    if (!c->method && !c->imported && c->path[0] && builtin(r, c, &v)) return v;
    return other_call(r, c);
}

/* An attribute that a class of the project has; false: it is not known to. `origin`: where its value comes from. */
static bool known_attribute(ist_py_reader *r, ist_src_value on, const ist_py_token *name, ist_src_value *v) {
    if (!on.of || on.kind == IST_PY_FUNCTION) return false;
    bool placed = ist_py_is_instance(on) && (on.flags & IST_PY_PLACED);
    if (ist_py_kept(r, on.of, name->at, name->length, v) && (v->kind || v->of)) {
        if (placed && v->kind == IST_PY_HOST_TENSOR) v->kind = IST_PY_TENSOR;
        return true;
    }
    uint32_t method = ist_py_method(r->p, on.of, name->at, name->length);
    const ist_src_function *f = method ? ist_src_function_at(r->u, r->u->names[method].function) : NULL;
    if (!f || !f->property) return false;
    uint32_t origin = ist_py_here(r, f->result.origin);
    *v = f->result;
    v->hit = 0;
    v->origin = origin;
    return v->kind || v->of;
}

ist_src_value ist_py_attribute(ist_py_reader *r, ist_src_value on, bool imported, const char *path,
                               const ist_py_token *token) {
    static const char facts[] = " shape ndim is_cuda requires_grad names itemsize nbytes is_sparse layout ";
    const char *name = token->at;
    size_t length = token->length;
    ist_src_value v = {0};
    if (imported) v = ist_py_global_path(r, path);
    if (ist_py_is_known(v) || known_attribute(r, on, token, &v)) return v;
    if (ist_py_starts(path, "self.") && !strchr(path + 5, '.') && ist_py_is_model_name(name, length))
        return ist_py_of(IST_PY_MODULE, IST_PY_PLACED);
    if (ist_py_in(name, length, " device ") || ist_py_in(name, length, " _device "))
        return ist_py_of(on.kind == IST_PY_HOST_TENSOR ? IST_PY_HOST_DEVICE : IST_PY_DEVICE, 0);
    if (ist_src_has_word(name, length, " dtype ")) return ist_py_of(IST_PY_DTYPE, 0);
    if (ist_py_starts(path, "torch.cuda.") && ist_src_has_word(name, length, " tensor "))
        return ist_py_of(IST_PY_DEVICE, 0); /* a type and a place */
    if (ist_py_starts(path, "torch.") &&
        ist_src_has_word(name, length, " float half double int short long bool bfloat uint complex "))
        return ist_py_of(IST_PY_DTYPE, 0);
    if (ist_py_in(name, length, facts)) return ist_py_of(IST_PY_HOST, 0);
    on.hit = 0;
    on.origin = v.origin ? v.origin : on.origin;
    if (on.kind == IST_PY_TENSOR && ist_py_in(name, length, " indices ")) on.flags |= IST_PY_INDICES;
    if (on.kind == IST_PY_TENSOR && !ist_py_in(name, length, " data grad T mT H real imag "))
        on.flags &= (uint8_t)~IST_PY_SURE;
    if (on.kind == IST_PY_MODULE && ist_py_in(name, length, " weight bias "))
        return ist_py_of(IST_PY_TENSOR, IST_PY_SURE);
    if (on.kind >= IST_PY_QUEUE) return (ist_src_value){0};
    on.of = 0;
    return on;
}
