/* The pickle machine: one step function per group of opcodes. No host recursion follows the data, every read is inside
 * the bytes, and a value reference always names an existing value. */
#include "weights/pickle.h"
#include "weights/pickle_globals.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the machine ---- */

#define NO_VALUE UINT32_MAX

typedef struct machine {
    const uint8_t *bytes;
    size_t size, at;
    size_t op_at; /* byte of the opcode being executed, for sentences */
    ist_pickle *out;
    ist_pickle_ref *stack;
    size_t depth, stack_capacity;
    size_t *marks; /* stack depths at MARK */
    size_t mark_count, mark_capacity;
    ist_pickle_ref *memo;
    size_t memo_capacity;
    size_t memo_next; /* index that MEMOIZE takes */
    size_t copied;    /* items that calls have copied out of their arguments */
    ist_error *err;
} machine;

static ist_status fail(machine *m, const char *what) {
    return ist_fail(m->err, IST_E_WEIGHTS, "pickle: %s at byte %zu", what, m->op_at);
}

static ist_status no_memory(machine *m) {
    return ist_fail(m->err, IST_E_MEMORY, "pickle: out of host memory at byte %zu", m->op_at);
}

/* The next n bytes, NULL beyond the end. */
static const uint8_t *take(machine *m, size_t n) {
    if (n > m->size - m->at) return NULL;
    const uint8_t *p = m->bytes + m->at;
    m->at += n;
    return p;
}

/* Little-endian unsigned of n bytes. */
static ist_status take_number(machine *m, size_t n, uint64_t *out) {
    const uint8_t *p = take(m, n);
    if (!p) return fail(m, "the file ends inside an argument");
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)p[i] << (8 * i);
    return IST_OK;
}

static ist_pickle_value *value(machine *m, ist_pickle_ref ref) {
    return &m->out->values[ref];
}

static ist_status push(machine *m, ist_pickle_ref ref) {
    if (!ist_grow((void **)&m->stack, &m->stack_capacity, m->depth + 1, sizeof *m->stack)) return no_memory(m);
    m->stack[m->depth++] = ref;
    return IST_OK;
}

static size_t floor_of(const machine *m) {
    return m->mark_count ? m->marks[m->mark_count - 1] : 0;
}

/* Pops may not reach below the topmost mark. */
static ist_status pop(machine *m, ist_pickle_ref *out) {
    if (m->depth <= floor_of(m)) return fail(m, "the stack is empty");
    *out = m->stack[--m->depth];
    return IST_OK;
}

static ist_status top(machine *m, ist_pickle_ref *out) {
    if (m->depth <= floor_of(m)) return fail(m, "the stack is empty");
    *out = m->stack[m->depth - 1];
    return IST_OK;
}

/* Removes the topmost mark; *first is where its items begin on the stack. */
static ist_status pop_mark(machine *m, size_t *first) {
    if (!m->mark_count) return fail(m, "no mark on the stack");
    *first = m->marks[--m->mark_count];
    return IST_OK;
}

/* A new value on the stack; *out (may be NULL) is valid until the next one is made. */
static ist_status push_new(machine *m, ist_pickle_kind kind, ist_pickle_value **out) {
    ist_pickle *p = m->out;
    if (p->count >= NO_VALUE || !ist_grow((void **)&p->values, &p->capacity, p->count + 1, sizeof *p->values))
        return no_memory(m);
    ist_pickle_value *v = &p->values[p->count++];
    *v = (ist_pickle_value){.kind = kind};
    if (out) *out = v;
    return push(m, (ist_pickle_ref)(p->count - 1));
}

static ist_status push_integer(machine *m, ist_pickle_kind kind, int64_t integer) {
    ist_pickle_value *v;
    IST_TRY(push_new(m, kind, &v));
    v->as.integer = integer;
    return IST_OK;
}

/* A string of n bytes that follow in the pickle. */
static ist_status push_string(machine *m, uint64_t n) {
    const uint8_t *p = n <= m->size ? take(m, (size_t)n) : NULL;
    if (!p) return fail(m, "a string reaches beyond the end");
    ist_pickle_value *v;
    IST_TRY(push_new(m, IST_PICKLE_STRING, &v));
    v->as.string.text = (const char *)p;
    v->as.string.length = (size_t)n;
    return IST_OK;
}

static ist_status push_sized_string(machine *m, size_t length_bytes) {
    uint64_t n;
    IST_TRY(take_number(m, length_bytes, &n));
    return push_string(m, n);
}

/* Two's complement of n bytes; what does not fit 64 bit is of no interest. */
static ist_status push_long(machine *m, size_t length_bytes) {
    uint64_t n, bits = 0;
    IST_TRY(take_number(m, length_bytes, &n));
    const uint8_t *p = n <= m->size ? take(m, (size_t)n) : NULL;
    if (!p) return fail(m, "an integer reaches beyond the end");
    if (n > 8) return push_new(m, IST_PICKLE_OTHER, NULL);
    for (size_t i = 0; i < n; i++) bits |= (uint64_t)p[i] << (8 * i);
    if (n && n < 8 && p[n - 1] & 0x80) bits |= UINT64_MAX << (8 * n);
    return push_integer(m, IST_PICKLE_INT, (int64_t)bits);
}

static ist_status push_float(machine *m) {
    const uint8_t *p = take(m, 8);
    if (!p) return fail(m, "the file ends inside an argument");
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    ist_pickle_value *v;
    IST_TRY(push_new(m, IST_PICKLE_FLOAT, &v));
    memcpy(&v->as.number, &bits, sizeof bits);
    return IST_OK;
}

/* ---- containers ---- */

/* Appends the stack items from `first` on to a container and pops them. */
static ist_status extend(machine *m, ist_pickle_ref container, size_t first) {
    ist_pickle_value *v = value(m, container);
    size_t n = m->depth - first;
    if (!ist_grow((void **)&v->as.list.items, &v->as.list.capacity, v->as.list.count + n, sizeof(ist_pickle_ref)))
        return no_memory(m);
    if (n) memcpy(v->as.list.items + v->as.list.count, m->stack + first, n * sizeof(ist_pickle_ref));
    v->as.list.count += n;
    m->depth = first;
    return IST_OK;
}

/* A new container of the stack items from `first` on. */
static ist_status gather(machine *m, ist_pickle_kind kind, size_t first) {
    if (first > m->depth || first < floor_of(m)) return fail(m, "the stack is empty");
    if (kind == IST_PICKLE_DICT && (m->depth - first) % 2) return fail(m, "a dictionary with a key but no value");
    IST_TRY(push_new(m, kind, NULL));
    ist_pickle_ref made = m->stack[--m->depth];
    IST_TRY(extend(m, made, first));
    return push(m, made);
}

static ist_status gather_marked(machine *m, ist_pickle_kind kind) {
    size_t first = 0;
    IST_TRY(pop_mark(m, &first));
    return gather(m, kind, first);
}

static bool is_opaque(const ist_pickle_value *v) {
    return v->kind == IST_PICKLE_OPAQUE;
}

/* APPEND(S), ADDITEMS, SETITEM(S): the container lies under the items. What is built of OTHER is of no interest. */
static ist_status add_items(machine *m, ist_pickle_kind kind, size_t first) {
    if (first > m->depth || first <= floor_of(m)) return fail(m, "the stack is empty");
    ist_pickle_ref container = m->stack[first - 1];
    if (value(m, container)->kind == IST_PICKLE_OTHER || is_opaque(value(m, container))) {
        m->depth = first;
        return IST_OK;
    }
    if (value(m, container)->kind != kind) return fail(m, "items for a value that cannot hold them");
    if (kind == IST_PICKLE_DICT && (m->depth - first) % 2) return fail(m, "a dictionary with a key but no value");
    return extend(m, container, first);
}

static ist_status add_marked(machine *m, ist_pickle_kind kind) {
    size_t first = 0;
    IST_TRY(pop_mark(m, &first));
    return add_items(m, kind, first);
}

/* ---- memo ---- */

/* Indices above the pickle's size cannot come from a writer that numbers its memo from 0. */
static ist_status memo_put(machine *m, uint64_t index) {
    ist_pickle_ref ref = 0;
    IST_TRY(top(m, &ref));
    if (index >= m->size) return fail(m, "a memo index that is too large");
    size_t old = m->memo_capacity;
    if (!ist_grow((void **)&m->memo, &m->memo_capacity, (size_t)index + 1, sizeof *m->memo)) return no_memory(m);
    for (size_t i = old; i < m->memo_capacity; i++) m->memo[i] = NO_VALUE;
    m->memo[index] = ref;
    return IST_OK;
}

static ist_status memo_get(machine *m, uint64_t index) {
    if (index >= m->memo_capacity || m->memo[index] == NO_VALUE) return fail(m, "a memo entry that was never stored");
    return push(m, m->memo[index]);
}

/* ---- globals ---- */

static bool same(const char *text, size_t length, const char *name) {
    return strlen(name) == length && !memcmp(text, name, length);
}

static bool is_text(const ist_pickle_value *v, const char *text) {
    return v->kind == IST_PICKLE_STRING && same(v->as.string.text, v->as.string.length, text);
}

/* A printable copy for a sentence. */
static const char *printable(const char *text, size_t length, char *out, size_t size) {
    size_t n = length < size - 1 ? length : size - 1;
    for (size_t i = 0; i < n; i++) out[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '?';
    out[n] = '\0';
    return out;
}

char *ist_pickle_unknown_text(const ist_pickle_unknown *u, char *text, size_t size) {
    char a[96], b[96];
    snprintf(text, size, "%s.%s at byte %zu", printable(u->module, u->module_length, a, sizeof a),
             printable(u->name, u->name_length, b, sizeof b), u->at);
    return text;
}

static ist_status push_global(machine *m, const char *module, size_t module_length, const char *name,
                              size_t name_length) {
    int row = ist_pickle_global_find(module, module_length, name, name_length);
    if (row >= 0) return push_integer(m, IST_PICKLE_GLOBAL, row);
    ist_pickle *p = m->out;
    if (!ist_grow((void **)&p->unknown, &p->unknown_capacity, p->unknown_count + 1, sizeof *p->unknown))
        return no_memory(m);
    p->unknown[p->unknown_count++] = (ist_pickle_unknown){module, name, module_length, name_length, m->op_at};
    return push_integer(m, IST_PICKLE_OPAQUE, (int64_t)(p->unknown_count - 1));
}

/* The next line, without its newline. */
static ist_status take_line(machine *m, const char **text, size_t *length) {
    const uint8_t *end = m->at < m->size ? memchr(m->bytes + m->at, '\n', m->size - m->at) : NULL;
    if (!end) return fail(m, "a name reaches beyond the end");
    *text = (const char *)m->bytes + m->at;
    *length = (size_t)(end - (m->bytes + m->at));
    m->at += *length + 1;
    return IST_OK;
}

static ist_status op_global(machine *m) {
    const char *module, *name;
    size_t module_length, name_length;
    IST_TRY(take_line(m, &module, &module_length));
    IST_TRY(take_line(m, &name, &name_length));
    return push_global(m, module, module_length, name, name_length);
}

static ist_status op_stack_global(machine *m) {
    ist_pickle_ref name, module;
    IST_TRY(pop(m, &name));
    IST_TRY(pop(m, &module));
    const ist_pickle_value *n = value(m, name), *mod = value(m, module);
    if (n->kind != IST_PICKLE_STRING || mod->kind != IST_PICKLE_STRING) return fail(m, "a global without a name");
    return push_global(m, mod->as.string.text, mod->as.string.length, n->as.string.text, n->as.string.length);
}

/* ---- calls ---- */

static bool integers(const machine *m, const ist_pickle_value *v, int64_t *out) {
    if ((v->kind != IST_PICKLE_TUPLE && v->kind != IST_PICKLE_LIST) || v->as.list.count > IST_WEIGHT_RANK_MAX)
        return false;
    for (size_t i = 0; i < v->as.list.count; i++) {
        const ist_pickle_value *x = &m->out->values[v->as.list.items[i]];
        if (x->kind != IST_PICKLE_INT || x->as.integer < 0) return false;
        out[i] = x->as.integer;
    }
    return true;
}

static ist_status build_tensor(machine *m, const ist_pickle_value *args, bool typed) {
    if (args->as.list.count < (typed ? 7u : 4u)) return fail(m, "a tensor with too few arguments");
    const ist_pickle_ref *a = args->as.list.items;
    const ist_pickle_value *storage = value(m, a[0]), *offset = value(m, a[1]), *size = value(m, a[2]);
    const ist_pickle_value *stride = value(m, a[3]), *dtype = typed ? value(m, a[6]) : NULL;
    if (is_opaque(storage)) return push(m, a[0]);
    if (typed && is_opaque(dtype)) return push(m, a[6]);
    if (storage->kind != IST_PICKLE_STORAGE || offset->kind != IST_PICKLE_INT || offset->as.integer < 0)
        return fail(m, "a tensor without a storage and a natural offset");
    ist_pickle_tensor t = {.storage = a[0], .offset = offset->as.integer, .type = storage->as.storage.type};
    if (!integers(m, size, t.dims) || !integers(m, stride, t.strides) || size->as.list.count != stride->as.list.count)
        return fail(m, "a tensor whose size and stride are not up to 8 natural numbers each");
    t.rank = (int)size->as.list.count;
    if (typed) {
        if (dtype->kind != IST_PICKLE_GLOBAL || ist_pickle_global_at(dtype->as.integer)->builds != IS_DTYPE)
            return fail(m, "a tensor without a dtype");
        t.type = ist_pickle_global_at(dtype->as.integer)->type;
    } else if (storage->as.storage.untyped) {
        return fail(m, "a tensor without a dtype");
    }
    ist_pickle_tensor *copy = malloc(sizeof *copy);
    ist_pickle_value *v;
    if (!copy) return no_memory(m);
    *copy = t;
    ist_status status = push_new(m, IST_PICKLE_OTHER, &v);
    if (status) {
        free(copy);
        return status;
    }
    v->kind = IST_PICKLE_TENSOR;
    v->as.tensor = copy;
    return IST_OK;
}

/* Opcodes make at most one item each; only calls copy. Without a bound, calls on one long list would multiply it. */
static ist_status count_copies(machine *m, size_t n) {
    if (n > m->size - m->copied) return fail(m, "calls that copy more items than the file has bytes");
    m->copied += n;
    return IST_OK;
}

/* dict(), dict(other), OrderedDict([[k, v], ..]), defaultdict(factory): the first dictionary or list of pairs counts.
 */
static ist_status build_dict(machine *m, const ist_pickle_value *args) {
    for (size_t i = 0; i < args->as.list.count; i++) {
        ist_pickle_ref ref = args->as.list.items[i];
        const ist_pickle_value *v = value(m, ref);
        if (v->kind == IST_PICKLE_DICT) return push(m, ref);
        if (v->kind != IST_PICKLE_LIST) continue;
        size_t n = v->as.list.count, first = m->depth;
        IST_TRY(count_copies(m, n));
        for (size_t k = 0; k < n; k++) {
            const ist_pickle_value *pair = value(m, value(m, ref)->as.list.items[k]);
            if ((pair->kind != IST_PICKLE_LIST && pair->kind != IST_PICKLE_TUPLE) || pair->as.list.count != 2)
                return fail(m, "a dictionary from something else than pairs");
            ist_pickle_ref key = pair->as.list.items[0], item = pair->as.list.items[1];
            IST_TRY(push(m, key));
            IST_TRY(push(m, item));
        }
        return gather(m, IST_PICKLE_DICT, first);
    }
    return push_new(m, IST_PICKLE_DICT, NULL);
}

/* set([..]), torch.Size([..]): the elements of the one argument, as a list of its own. */
static ist_status build_list(machine *m, const ist_pickle_value *args) {
    size_t first = m->depth;
    if (args->as.list.count) {
        const ist_pickle_value *v = value(m, args->as.list.items[0]);
        if (v->kind != IST_PICKLE_LIST && v->kind != IST_PICKLE_TUPLE) return push_new(m, IST_PICKLE_OTHER, NULL);
        size_t n = v->as.list.count;
        IST_TRY(count_copies(m, n));
        for (size_t i = 0; i < n; i++) IST_TRY(push(m, value(m, args->as.list.items[0])->as.list.items[i]));
    }
    return gather(m, IST_PICKLE_LIST, first);
}

/* Pushes what global(*args) would have been. */
static ist_status call(machine *m, ist_pickle_ref global, ist_pickle_ref arguments, bool nested) {
    const ist_pickle_value *g = value(m, global), *args = value(m, arguments);
    if (is_opaque(g)) return push_integer(m, IST_PICKLE_OPAQUE, g->as.integer);
    if (is_opaque(args)) return push_integer(m, IST_PICKLE_OPAQUE, args->as.integer);
    if (g->kind != IST_PICKLE_GLOBAL) return fail(m, "a call of something that is not a global");
    if (args->kind != IST_PICKLE_TUPLE) return fail(m, "a call without an argument tuple");
    switch (ist_pickle_global_at(g->as.integer)->builds) {
    case BUILDS_DICT:
        return build_dict(m, args);
    case BUILDS_LIST:
        return build_list(m, args);
    case BUILDS_OTHER:
        return push_new(m, IST_PICKLE_OTHER, NULL);
    case BUILDS_TENSOR:
        return build_tensor(m, args, false);
    case BUILDS_TENSOR_OF_TYPE:
        return build_tensor(m, args, true);
    case BUILDS_FIRST_ARGUMENT:
        if (!args->as.list.count) return fail(m, "a parameter without its tensor");
        return push(m, args->as.list.items[0]);
    case BUILDS_CALL:
        if (args->as.list.count < 3 || nested) return fail(m, "a tensor subclass with too few arguments");
        return call(m, args->as.list.items[0], args->as.list.items[2], true);
    case IS_STORAGE:
    case IS_UNTYPED:
    case IS_DTYPE:
        break;
    }
    return fail(m, "a call of something that builds nothing");
}

static ist_status op_reduce(machine *m) {
    ist_pickle_ref args, global;
    IST_TRY(pop(m, &args));
    IST_TRY(pop(m, &global));
    return call(m, global, args, false);
}

/* NEWOBJ_EX: only opaque objects are made with arguments by keyword. */
static ist_status op_new_with_keywords(machine *m) {
    ist_pickle_ref keywords, args, class;
    IST_TRY(pop(m, &keywords));
    IST_TRY(pop(m, &args));
    IST_TRY(pop(m, &class));
    if (is_opaque(value(m, class))) return call(m, class, args, false);
    return fail(m, "a call by keyword of something that is known");
}

/* (key of the view, first element, elements): before PyTorch 1.7 a storage could be a part of another one. */
static bool read_view(const machine *m, ist_pickle_ref ref, ist_pickle_value *storage) {
    const ist_pickle_value *v = &m->out->values[ref], *first, *length;
    if (v->kind == IST_PICKLE_NONE) return true;
    if (v->kind != IST_PICKLE_TUPLE || v->as.list.count != 3) return false;
    first = &m->out->values[v->as.list.items[1]], length = &m->out->values[v->as.list.items[2]];
    if (first->kind != IST_PICKLE_INT || length->kind != IST_PICKLE_INT || first->as.integer < 0 ||
        length->as.integer < 0)
        return false;
    storage->as.storage.view = true;
    storage->as.storage.first = first->as.integer;
    storage->as.storage.length = length->as.integer;
    return true;
}

static ist_status note_storage(machine *m, ist_pickle_stored stored) {
    ist_pickle *p = m->out;
    if (!ist_grow((void **)&p->stored, &p->stored_capacity, p->stored_count + 1, sizeof *p->stored))
        return no_memory(m);
    p->stored[p->stored_count++] = stored;
    return IST_OK;
}

/* ('storage', class, key, location, count) or, in files that are no zip, (.., view or None) -> STORAGE; there also
 * ('module', class, file, source) -> class */
static ist_status op_persistent(machine *m) {
    ist_pickle_ref id;
    IST_TRY(pop(m, &id));
    const ist_pickle_value *v = value(m, id);
    const ist_pickle_ref *a = v->as.list.items;
    if (v->kind == IST_PICKLE_TUPLE && v->as.list.count == 4 && is_text(value(m, a[0]), "module")) return push(m, a[1]);
    if (v->kind != IST_PICKLE_TUPLE || v->as.list.count < 5) return fail(m, "a storage without its five facts");
    const ist_pickle_value *tag = value(m, a[0]), *class = value(m, a[1]), *key = value(m, a[2]);
    const ist_pickle_value *count = value(m, a[4]);
    if (!is_text(tag, "storage") || (class->kind != IST_PICKLE_GLOBAL && !is_opaque(class)) ||
        key->kind != IST_PICKLE_STRING || count->kind != IST_PICKLE_INT || count->as.integer < 0)
        return fail(m, "a storage that is not (\"storage\", class, key, location, count)");
    IST_TRY(note_storage(m, (ist_pickle_stored){a[2], a[1], count->as.integer}));
    if (is_opaque(class)) return push(m, a[1]); /* of an element type that is not known */
    const ist_pickle_global *row = ist_pickle_global_at(class->as.integer);
    if (row->builds != IS_STORAGE && row->builds != IS_UNTYPED) return fail(m, "a storage of no storage class");
    ist_pickle_ref key_ref = a[2], view_ref = a[v->as.list.count > 5 ? 5 : 0];
    bool may_view = v->as.list.count > 5;
    int64_t n = count->as.integer;
    IST_TRY(push_new(m, IST_PICKLE_STORAGE, NULL));
    ist_pickle_value *made = value(m, m->stack[m->depth - 1]);
    made->as.storage.key = key_ref;
    made->as.storage.count = n;
    made->as.storage.type = row->type;
    made->as.storage.untyped = row->builds == IS_UNTYPED;
    if (may_view && !read_view(m, view_ref, made))
        return fail(m, "a view of a storage that is not (key, first, count)");
    return IST_OK;
}

/* Attributes of an object are not read, but they must not be set on a plain value. */
static ist_status op_build(machine *m) {
    ist_pickle_ref state, object;
    IST_TRY(pop(m, &state));
    IST_TRY(top(m, &object));
    ist_pickle_kind kind = value(m, object)->kind;
    if (kind == IST_PICKLE_DICT || kind == IST_PICKLE_LIST || kind == IST_PICKLE_TENSOR || kind == IST_PICKLE_OTHER ||
        kind == IST_PICKLE_OPAQUE)
        return IST_OK;
    return fail(m, "attributes for a plain value");
}

/* ---- opcodes ---- */

static ist_status op_with_number(machine *m, int op) {
    static const struct {
        uint8_t op, bytes;
    } widths[] = {{'K', 1}, {'M', 2}, {'J', 4}, {'h', 1}, {'j', 4}, {'q', 1}, {'r', 4}, {0x80, 1}, {0x95, 8}};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].op == op) IST_TRY(take_number(m, widths[i].bytes, &n));
    switch (op) {
    case 'K':
    case 'M':
        return push_integer(m, IST_PICKLE_INT, (int64_t)n);
    case 'J':
        return push_integer(m, IST_PICKLE_INT, (int32_t)(uint32_t)n);
    case 'h':
    case 'j':
        return memo_get(m, n);
    case 'q':
    case 'r':
        m->memo_next++;
        return memo_put(m, n);
    case 0x80:
        return n <= 5 ? IST_OK : fail(m, "an unknown protocol");
    default:
        return n <= m->size - m->at ? IST_OK : fail(m, "a frame that reaches beyond the end");
    }
}

static ist_status op_container(machine *m, int op) {
    ist_pickle_ref unused;
    switch (op) {
    case ']':
    case 0x8f:
        return push_new(m, IST_PICKLE_LIST, NULL);
    case '}':
        return push_new(m, IST_PICKLE_DICT, NULL);
    case ')':
        return push_new(m, IST_PICKLE_TUPLE, NULL);
    case 't':
        return gather_marked(m, IST_PICKLE_TUPLE);
    case 'l':
    case 0x91:
        return gather_marked(m, IST_PICKLE_LIST);
    case 'd':
        return gather_marked(m, IST_PICKLE_DICT);
    case 0x85:
    case 0x86:
    case 0x87: {
        size_t n = (size_t)op - 0x84;
        return m->depth < n ? fail(m, "the stack is empty") : gather(m, IST_PICKLE_TUPLE, m->depth - n);
    }
    case 'a':
        return m->depth < 1 ? fail(m, "the stack is empty") : add_items(m, IST_PICKLE_LIST, m->depth - 1);
    case 's':
        return m->depth < 2 ? fail(m, "the stack is empty") : add_items(m, IST_PICKLE_DICT, m->depth - 2);
    case 'e':
    case 0x90:
        return add_marked(m, IST_PICKLE_LIST);
    case 'u':
        return add_marked(m, IST_PICKLE_DICT);
    case '0':
        return pop(m, &unused);
    default: { /* '1': POP_MARK */
        size_t first = 0;
        IST_TRY(pop_mark(m, &first));
        m->depth = first;
        return IST_OK;
    }
    }
}

static ist_status step(machine *m, int op) {
    switch (op) {
    case '(':
        if (!ist_grow((void **)&m->marks, &m->mark_capacity, m->mark_count + 1, sizeof *m->marks)) return no_memory(m);
        m->marks[m->mark_count++] = m->depth;
        return IST_OK;
    case 'N':
        return push_new(m, IST_PICKLE_NONE, NULL);
    case 0x88:
    case 0x89:
        return push_integer(m, IST_PICKLE_BOOL, op == 0x88);
    case 0x8a:
        return push_long(m, 1);
    case 0x8b:
        return push_long(m, 4);
    case 'G':
        return push_float(m);
    case 'U':
    case 'C':
    case 0x8c:
        return push_sized_string(m, 1);
    case 'T':
    case 'B':
    case 'X':
        return push_sized_string(m, 4);
    case 0x8d:
    case 0x8e:
    case 0x96:
        return push_sized_string(m, 8);
    case 0x94:
        return memo_put(m, m->memo_next++);
    case 'c':
        return op_global(m);
    case 0x93:
        return op_stack_global(m);
    case 'R':
    case 0x81:
        return op_reduce(m);
    case 0x92:
        return op_new_with_keywords(m);
    case 'Q':
        return op_persistent(m);
    case 'b':
        return op_build(m);
    default:
        break;
    }
    if (op && strchr("KMJhjqr\x80\x95", op)) return op_with_number(m, op);
    if (op && strchr("]})tldaseu01\x85\x86\x87\x8f\x90\x91", op)) return op_container(m, op);
    return ist_fail(m->err, IST_E_WEIGHTS, "pickle: opcode 0x%02x is not allowed at byte %zu", (unsigned)op, m->op_at);
}

static ist_status run(machine *m) {
    for (;;) {
        m->op_at = m->at;
        const uint8_t *op = take(m, 1);
        if (!op) return fail(m, "the file ends without a STOP");
        m->out->end = m->at;
        if (*op == '.') break;
        IST_TRY(step(m, *op));
    }
    return pop(m, &m->out->root);
}

ist_status ist_pickle_read(const uint8_t *bytes, size_t size, ist_pickle *out, ist_error *err) {
    *out = (ist_pickle){0};
    machine m = {.bytes = bytes, .size = size, .out = out, .err = err};
    ist_status status = run(&m);
    free(m.stack);
    free(m.marks);
    free(m.memo);
    return status;
}

void ist_pickle_free(ist_pickle *pickle) {
    for (size_t i = 0; i < pickle->count; i++) {
        ist_pickle_value *v = &pickle->values[i];
        if (v->kind == IST_PICKLE_TENSOR) free(v->as.tensor);
        if (v->kind == IST_PICKLE_TUPLE || v->kind == IST_PICKLE_LIST || v->kind == IST_PICKLE_DICT)
            free(v->as.list.items);
    }
    free(pickle->values);
    free(pickle->unknown);
    free(pickle->stored);
    *pickle = (ist_pickle){0};
}

const ist_pickle_value *ist_pickle_get(const ist_pickle *pickle, const ist_pickle_value *dict, const char *key) {
    const ist_pickle_value *found = NULL;
    if (dict->kind != IST_PICKLE_DICT) return NULL;
    for (size_t i = 0; i + 1 < dict->as.list.count; i += 2) {
        const ist_pickle_value *k = &pickle->values[dict->as.list.items[i]];
        if (k->kind == IST_PICKLE_STRING && same(k->as.string.text, k->as.string.length, key))
            found = &pickle->values[dict->as.list.items[i + 1]];
    }
    return found;
}
