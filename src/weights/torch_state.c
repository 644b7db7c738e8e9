/* See torch_state.h. */
#include "weights/torch_state.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* torch.save stores without compression; archives packed again gain a few percent, constant tensors more. */
#define EXPANSION_MAX 64
#define EXPANSION_MIN ((size_t)16 << 20)

/* A tensor of the state dict on its way into the store. */
struct ist_torch_item {
    const ist_pickle_value *key, *tensor, *storage, *storage_key;
};
typedef struct ist_torch_item item;
typedef struct ist_torch_state reader;

size_t ist_torch_budget(size_t size) {
    size_t most = size > IST_WEIGHTS_BYTES_MAX / EXPANSION_MAX ? IST_WEIGHTS_BYTES_MAX : size * EXPANSION_MAX;
    return most < EXPANSION_MIN ? EXPANSION_MIN : most;
}

ist_status ist_torch_spend(reader *r, size_t bytes, const char *name) {
    if (bytes > r->budget)
        return ist_fail(r->err, IST_E_WEIGHTS, "%s: %zu bytes more than a file of this size may hold", name,
                        bytes - r->budget);
    r->budget -= bytes;
    return IST_OK;
}

/* ---- the state dict ---- */

static bool holds_tensors(const ist_pickle *p, const ist_pickle_value *v) {
    if (!v || v->kind != IST_PICKLE_DICT) return false;
    for (size_t i = 1; i < v->as.list.count; i += 2)
        if (p->values[v->as.list.items[i]].kind == IST_PICKLE_TENSOR) return true;
    return false;
}

/* ema.module, model, state_dict or model_state_dict, the first that holds tensors, else the dictionary itself. */
static const ist_pickle_value *state_dict(const ist_pickle *p) {
    static const char *const keys[] = {"model", "state_dict", "model_state_dict"};
    const ist_pickle_value *root = &p->values[p->root];
    const ist_pickle_value *ema = ist_pickle_get(p, root, "ema"), *found = NULL;
    if (ema) found = ist_pickle_get(p, ema, "module");
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !holds_tensors(p, found); i++)
        found = ist_pickle_get(p, root, keys[i]);
    return holds_tensors(p, found) ? found : root;
}

/* No tensors: an object that is not known is the likely reason. */
static ist_status without(reader *r, const char *what) {
    char text[256];
    if (!r->pickle.unknown_count) return ist_fail(r->err, IST_E_WEIGHTS, "the pickle%s", what);
    return ist_fail(r->err, IST_E_WEIGHTS, "the pickle%s; it refuses global %s", what,
                    ist_pickle_unknown_text(&r->pickle.unknown[0], text, sizeof text));
}

static ist_status collect(reader *r) {
    const ist_pickle *p = &r->pickle;
    const ist_pickle_value *dict = state_dict(p);
    if (dict->kind != IST_PICKLE_DICT) return without(r, " holds no state dict");
    for (size_t i = 0; i + 1 < dict->as.list.count; i += 2) {
        const ist_pickle_value *key = &p->values[dict->as.list.items[i]];
        const ist_pickle_value *t = &p->values[dict->as.list.items[i + 1]];
        if (key->kind != IST_PICKLE_STRING || t->kind != IST_PICKLE_TENSOR) continue;
        if (r->count >= IST_WEIGHTS_TENSORS_MAX)
            return ist_fail(r->err, IST_E_WEIGHTS, "more than %d tensors in one file", IST_WEIGHTS_TENSORS_MAX);
        if (!ist_grow((void **)&r->items, &r->capacity, r->count + 1, sizeof *r->items))
            return ist_fail(r->err, IST_E_MEMORY, "out of host memory for %zu tensors", r->count + 1);
        const ist_pickle_value *storage = &p->values[t->as.tensor->storage];
        r->items[r->count++] = (item){key, t, storage, &p->values[storage->as.storage.key]};
    }
    if (!r->count) return without(r, "'s state dict holds no tensors");
    return IST_OK;
}

static int compare_text(const ist_pickle_value *a, const ist_pickle_value *b) {
    size_t n = a->as.string.length, m = b->as.string.length;
    int order = memcmp(a->as.string.text, b->as.string.text, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

/* Tensors of one storage become neighbours. */
static int by_storage(const void *a, const void *b) {
    const item *x = a, *y = b;
    int order = compare_text(x->storage_key, y->storage_key);
    return order ? order : compare_text(x->key, y->key);
}

static bool copy_text(const ist_pickle_value *v, char *out, size_t size) {
    size_t n = v->as.string.length;
    if (n >= size || memchr(v->as.string.text, '\0', n)) return false;
    memcpy(out, v->as.string.text, n);
    out[n] = '\0';
    return true;
}

/* ---- tensors ---- */

/* Elements of the storage the tensor reaches, first to last; false when that does not fit 64 bit. */
static bool reach(const ist_pickle_tensor *t, uint64_t *end) {
    uint64_t last = (uint64_t)t->offset;
    for (int i = 0; i < t->rank; i++) {
        if (!t->dims[i]) {
            *end = 0;
            return true;
        }
        size_t step;
        if (!ist_mul_size((size_t)(t->dims[i] - 1), (size_t)t->strides[i], &step) || step >= UINT64_MAX - last)
            return false;
        last += step;
    }
    *end = last + 1;
    return true;
}

static bool contiguous(const ist_pickle_tensor *t) {
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != step) return false;
        step *= t->dims[i];
    }
    return true;
}

/* Copies the strided elements to C order; the index counts like an odometer. */
static void gather(const ist_pickle_tensor *t, const uint8_t *src, size_t element, size_t count, uint8_t *dst) {
    int64_t index[IST_WEIGHT_RANK_MAX] = {0};
    uint64_t at = (uint64_t)t->offset; /* wraps where a dim of 1 has an absurd stride, and wraps back */
    for (size_t n = 0; n < count; n++) {
        memcpy(dst + n * element, src + (size_t)at * element, element);
        for (int i = t->rank - 1; i >= 0; i--) {
            at += (uint64_t)t->strides[i];
            if (++index[i] < t->dims[i]) break;
            at -= (uint64_t)t->strides[i] * (uint64_t)t->dims[i];
            index[i] = 0;
        }
    }
}

static ist_status add_tensor(reader *r, const item *it, const uint8_t *storage, size_t storage_bytes) {
    const ist_pickle_tensor *t = it->tensor->as.tensor;
    char name[IST_WEIGHTS_NAME_MAX + 1];
    size_t count, bytes, element = ist_weight_type_bytes(t->type);
    uint64_t end;
    if (!copy_text(it->key, name, sizeof name))
        return ist_fail(r->err, IST_E_WEIGHTS, "a tensor name has %zu bytes, the limit is %d (and no zero byte)",
                        it->key->as.string.length, IST_WEIGHTS_NAME_MAX);
    if (!ist_shape_size(t->type, t->rank, t->dims, &count, &bytes) || !reach(t, &end) ||
        end > storage_bytes / element) {
        char shape[96];
        return ist_fail(r->err, IST_E_WEIGHTS, "%s: %s at offset %lld does not lie in its storage of %zu elements",
                        name, ist_weight_shape_text(t->rank, t->dims, shape, sizeof shape), (long long)t->offset,
                        storage_bytes / element);
    }
    if (!count || contiguous(t))
        return ist_store_tensor(r->out, name, t->type, t->rank, t->dims,
                                count ? storage + (size_t)t->offset * element : storage, bytes, r->err);
    IST_TRY(ist_torch_spend(r, bytes, name));
    uint8_t *copy = ist_store_block(r->out, bytes);
    if (!copy) return ist_fail(r->err, IST_E_MEMORY, "%s: out of host memory (%zu bytes)", name, bytes);
    gather(t, storage, element, count, copy);
    return ist_store_tensor(r->out, name, t->type, t->rank, t->dims, copy, bytes, r->err);
}

/* Reads a storage and checks that it has the bytes the pickle promises. */
static ist_status read_storage(reader *r, const item *it, const uint8_t **out, size_t *bytes) {
    const ist_pickle_value *s = it->storage;
    char key[64];
    if (!copy_text(it->storage_key, key, sizeof key))
        return ist_fail(r->err, IST_E_WEIGHTS, "a storage key of %zu bytes", it->storage_key->as.string.length);
    if (!ist_mul_size((size_t)s->as.storage.count, ist_weight_type_bytes(s->as.storage.type), bytes))
        return ist_fail(r->err, IST_E_WEIGHTS, "storage %s: %lld elements of %s are too many", key,
                        (long long)s->as.storage.count, ist_weight_type_name(s->as.storage.type));
    return r->storage(r->user, s, key, *bytes, out);
}

/* The part of a storage that a view of it is: nothing where it does not lie inside. */
static size_t window(const ist_pickle_value *s, const uint8_t **storage, size_t bytes) {
    size_t element = ist_weight_type_bytes(s->as.storage.type), first, length;
    if (!ist_mul_size((size_t)s->as.storage.first, element, &first) ||
        !ist_mul_size((size_t)s->as.storage.length, element, &length) || first > bytes || length > bytes - first)
        return 0;
    *storage += first;
    return length;
}

static ist_status add_tensors(reader *r) {
    const uint8_t *storage = NULL;
    size_t bytes = 0;
    qsort(r->items, r->count, sizeof *r->items, by_storage);
    for (size_t i = 0; i < r->count; i++) {
        const item *it = &r->items[i];
        if (!i || compare_text(it[-1].storage_key, it->storage_key)) IST_TRY(read_storage(r, it, &storage, &bytes));
        const uint8_t *part = storage;
        size_t size = it->storage->as.storage.view ? window(it->storage, &part, bytes) : bytes;
        IST_TRY(add_tensor(r, it, part, size));
    }
    return IST_OK;
}

/* ---- class names next to the state dict ---- */

static ist_status add_class(reader *r, const ist_pickle_value *name) {
    char text[256];
    if (name->kind != IST_PICKLE_STRING || !copy_text(name, text, sizeof text))
        return ist_fail(r->err, IST_E_WEIGHTS, "class %d has a name that is no string of up to 255 bytes",
                        ist_weights_class_count(r->out));
    return ist_store_class(r->out, text, r->err);
}

/* A list of strings, or a dictionary from 0, 1, .. to strings in that order. */
static ist_status read_classes(reader *r) {
    static const char *const keys[] = {"names", "class_names"};
    const ist_pickle *p = &r->pickle;
    const ist_pickle_value *v = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !v; i++) v = ist_pickle_get(p, &p->values[p->root], keys[i]);
    if (!v) return IST_OK;
    bool dict = v->kind == IST_PICKLE_DICT;
    if (!dict && v->kind != IST_PICKLE_LIST && v->kind != IST_PICKLE_TUPLE) return IST_OK;
    for (size_t i = 0; i < v->as.list.count; i++) {
        const ist_pickle_value *entry = &p->values[v->as.list.items[i]];
        if (dict && i % 2 == 0) {
            if (entry->kind != IST_PICKLE_INT || entry->as.integer != (int64_t)(i / 2))
                return ist_fail(r->err, IST_E_WEIGHTS, "class names do not count 0, 1, .. at entry %zu", i / 2);
            continue;
        }
        IST_TRY(add_class(r, entry));
    }
    return IST_OK;
}

ist_status ist_torch_add(reader *r) {
    IST_TRY(collect(r));
    IST_TRY(add_tensors(r));
    return read_classes(r);
}

void ist_torch_free(reader *r) {
    ist_pickle_free(&r->pickle);
    free(r->items);
    r->items = NULL;
}
