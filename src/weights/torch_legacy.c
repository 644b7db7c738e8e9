/* torch.save files before PyTorch 1.6, or with _use_new_zipfile_serialization=False: five pickles (a magic number, the
 * format's version, the writer's byte order, the object, the keys of its storages), then each storage in the order of
 * the keys: its number of elements in 64 bit, its bytes.
 *
 * How large an element is says the pickle, where it first refers to the storage. Only storages that the chosen state
 * dict refers to are read. */
#include "weights/pickle_globals.h"
#include "weights/torch_state.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The pickles around the object have some hundred bytes, the keys some twenty each. */
#define HEAD_MAX (IST_TORCH_PICKLE_MAX + ((size_t)2 << 20))

/* Where the bytes of a storage lie in the file. */
typedef struct stored {
    const char *key;
    size_t length; /* of the key */
    size_t element, at, bytes;
    size_t order; /* of the reference */
    bool present;
} stored;

typedef struct reader {
    FILE *file; /* or */
    const uint8_t *bytes;
    size_t size;
    uint8_t *head; /* the pickles, which strings point into */
    size_t head_size, at;
    stored *stored; /* by key */
    size_t count;
    ist_torch_state state;
    ist_error *err;
} reader;

static ist_status read_at(reader *r, size_t at, void *out, size_t bytes) {
    if (bytes > r->size || at > r->size - bytes)
        return ist_fail(r->err, IST_E_WEIGHTS,
                        "the file is cut off: it ends at byte %zu, before %zu that are needed at %zu", r->size, bytes,
                        at);
    if (!r->file) {
        memcpy(out, r->bytes + at, bytes);
        return IST_OK;
    }
    if (fseeko(r->file, (off_t)at, SEEK_SET)) return ist_fail(r->err, IST_E_IO, "byte %zu: %s", at, strerror(errno));
    size_t got = fread(out, 1, bytes, r->file);
    if (got == bytes) return IST_OK;
    return ist_fail(r->err, IST_E_IO, "read %zu of %zu bytes at byte %zu: %s", got, bytes, at,
                    ferror(r->file) ? strerror(errno) : "the file has become shorter");
}

/* The next pickle, of at most `most` bytes; sentences count from its beginning. */
static ist_status next_pickle(reader *r, const char *what, size_t most, ist_pickle *out) {
    size_t left = r->head_size - r->at, given = left < most ? left : most;
    ist_status status = ist_pickle_read(r->head + r->at, given, out, r->err);
    if (status) {
        ist_pickle_free(out);
        return ist_fail_context(r->err, "%s at byte %zu", what, r->at);
    }
    r->at += out->end;
    return IST_OK;
}

/* The magic number, an integer of ten bytes, in front of its STOP. */
static ist_status check_magic(reader *r) {
    static const uint8_t magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    ist_pickle p;
    IST_TRY(next_pickle(r, "the magic number", 64, &p));
    ist_pickle_free(&p);
    if (r->at >= sizeof magic && !memcmp(r->head + r->at - sizeof magic, magic, sizeof magic)) return IST_OK;
    return ist_fail(r->err, IST_E_WEIGHTS,
                    "is a pickle, but none that torch.save wrote: its magic number is another one");
}

static ist_status check_version(reader *r) {
    ist_pickle p;
    IST_TRY(next_pickle(r, "the version", 64, &p));
    const ist_pickle_value *root = &p.values[p.root];
    bool good = root->kind == IST_PICKLE_INT && root->as.integer == 1001;
    ist_pickle_free(&p);
    return good ? IST_OK : ist_fail(r->err, IST_E_WEIGHTS, "the old PyTorch format is of a version other than 1001");
}

static ist_status check_byte_order(reader *r) {
    ist_pickle p;
    IST_TRY(next_pickle(r, "the byte order", 4096, &p));
    const ist_pickle_value *little = ist_pickle_get(&p, &p.values[p.root], "little_endian");
    bool big = little && little->kind == IST_PICKLE_BOOL && !little->as.integer;
    ist_pickle_free(&p);
    if (big) return ist_fail(r->err, IST_E_WEIGHTS, "storages are big endian, only little endian is supported");
    return IST_OK;
}

/* ---- where storages lie ---- */

static int by_key(const void *a, const void *b) {
    const stored *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

static int by_key_and_order(const void *a, const void *b) {
    const stored *x = a, *y = b;
    int order = by_key(a, b);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

/* Bytes of an element, also of classes whose tensors are passed over; 0 when nothing is known of the class. */
static size_t element_of(const ist_pickle *p, const ist_pickle_value *class) {
    static const struct {
        const char *name;
        size_t bytes;
    } foreign[] = {{"ComplexFloatStorage", 8}, {"ComplexDoubleStorage", 16}, {"QInt8Storage", 1},
                   {"QUInt8Storage", 1},       {"QInt32Storage", 4},         {"QUInt4x2Storage", 1},
                   {"QUInt2x4Storage", 1}};
    if (class->kind == IST_PICKLE_GLOBAL)
        return ist_weight_type_bytes((ist_weight_type)ist_pickle_global_at(class->as.integer)->type);
    const ist_pickle_unknown *u = &p->unknown[class->as.integer];
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (u->name_length == strlen(foreign[i].name) && !memcmp(u->name, foreign[i].name, u->name_length))
            return foreign[i].bytes;
    return 0;
}

/* What the object refers to, sorted, each key once: as it was first referred to. */
static ist_status list_storages(reader *r) {
    const ist_pickle *p = &r->state.pickle;
    size_t count = 0;
    r->stored = calloc(p->stored_count + 1, sizeof *r->stored);
    if (!r->stored) return ist_fail(r->err, IST_E_MEMORY, "out of host memory for %zu storages", p->stored_count);
    for (size_t i = 0; i < p->stored_count; i++) {
        const ist_pickle_value *key = &p->values[p->stored[i].key];
        r->stored[i] = (stored){.key = key->as.string.text,
                                .length = key->as.string.length,
                                .element = element_of(p, &p->values[p->stored[i].class]),
                                .order = i};
    }
    qsort(r->stored, p->stored_count, sizeof *r->stored, by_key_and_order);
    for (size_t i = 0; i < p->stored_count; i++)
        if (!i || by_key(&r->stored[count - 1], &r->stored[i])) r->stored[count++] = r->stored[i];
    r->count = count;
    return IST_OK;
}

static stored *find_storage(const reader *r, const char *key, size_t length) {
    stored wanted = {.key = key, .length = length};
    return bsearch(&wanted, r->stored, r->count, sizeof *r->stored, by_key);
}

/* The next storage behind the pickles: its place, for later. */
static ist_status place_storage(reader *r, const ist_pickle_value *key, size_t number) {
    uint8_t little[8];
    uint64_t elements = 0;
    stored *s = key->kind == IST_PICKLE_STRING ? find_storage(r, key->as.string.text, key->as.string.length) : NULL;
    if (!s)
        return ist_fail(r->err, IST_E_WEIGHTS, "storage %zu of the file has a key that the pickle does not know",
                        number);
    if (!s->element)
        return ist_fail(r->err, IST_E_WEIGHTS,
                        "storage %zu of the file is of a class whose elements have no known size", number);
    IST_TRY(read_at(r, r->at, little, sizeof little));
    for (int i = 7; i >= 0; i--) elements = elements << 8 | little[i];
    r->at += sizeof little;
    if (elements > (r->size - r->at) / s->element)
        return ist_fail(
            r->err, IST_E_WEIGHTS,
            "the file is cut off: storage %zu at byte %zu has %llu elements of %zu bytes, %zu bytes are left", number,
            r->at, (unsigned long long)elements, s->element, r->size - r->at);
    s->at = r->at;
    s->bytes = (size_t)elements * s->element;
    s->present = true;
    r->at += s->bytes;
    return IST_OK;
}

static ist_status place_storages(reader *r) {
    ist_pickle keys;
    IST_TRY(next_pickle(r, "the storage keys", HEAD_MAX, &keys));
    const ist_pickle_value *root = &keys.values[keys.root];
    ist_status status = IST_OK;
    if (root->kind != IST_PICKLE_LIST)
        status = ist_fail(r->err, IST_E_WEIGHTS, "behind the object there is no list of storage keys");
    for (size_t i = 0; !status && i < root->as.list.count; i++)
        status = place_storage(r, &keys.values[root->as.list.items[i]], i);
    ist_pickle_free(&keys);
    return status;
}

static ist_status read_storage(void *user, const ist_pickle_value *storage, const char *key, size_t size,
                               const uint8_t **out) {
    reader *r = user;
    const stored *s = find_storage(r, key, strlen(key));
    if (!s || !s->present) return ist_fail(r->err, IST_E_WEIGHTS, "the file has no storage %s", key);
    if (size != s->bytes)
        return ist_fail(r->err, IST_E_WEIGHTS, "storage %s: %lld elements of %s promised, the file has %zu bytes", key,
                        (long long)storage->as.storage.count, ist_weight_type_name(storage->as.storage.type), s->bytes);
    IST_TRY(ist_torch_spend(&r->state, size, key));
    uint8_t *block = ist_store_block(r->state.out, size);
    if (!block) return ist_fail(r->err, IST_E_MEMORY, "storage %s: out of host memory (%zu bytes)", key, size);
    *out = block;
    return read_at(r, s->at, block, size);
}

/* ---- the file ---- */

static ist_status read_all(reader *r) {
    IST_TRY(check_magic(r));
    IST_TRY(check_version(r));
    IST_TRY(check_byte_order(r));
    IST_TRY(next_pickle(r, "the object", IST_TORCH_PICKLE_MAX, &r->state.pickle));
    IST_TRY(list_storages(r));
    IST_TRY(place_storages(r));
    return ist_torch_add(&r->state);
}

ist_status ist_torch_legacy_read(ist_weights *weights, FILE *file, const void *bytes, size_t size, ist_error *err) {
    reader r = {.file = file, .bytes = bytes, .size = size, .err = err};
    r.state = (ist_torch_state){
        .out = weights, .storage = read_storage, .user = &r, .budget = ist_torch_budget(size), .err = err};
    r.head_size = size < HEAD_MAX ? size : HEAD_MAX;
    r.head = malloc(r.head_size ? r.head_size : 1);
    weights->format = "torch legacy";
    ist_status status = r.head ? read_at(&r, 0, r.head, r.head_size)
                               : ist_fail(err, IST_E_MEMORY, "out of host memory (%zu bytes)", r.head_size);
    if (!status) status = read_all(&r);
    ist_torch_free(&r.state);
    free(r.stored);
    free(r.head);
    return status;
}
