/* torch.save files since PyTorch 1.6: a zip with NAME/data.pkl and one NAME/data/KEY per storage.
 *
 * Only storages that the chosen state dict refers to are read. What they and the tensors made contiguous may take is
 * bounded by the size of the file, so that a small archive cannot fill the memory. */
#include "weights/pickle.h"
#include "weights/store.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* Real files have data.pkl of 0.1 to 2 MB. A value takes about 50 times its shortest opcode. */
#define PICKLE_MAX ((size_t)8 << 20)
/* torch.save stores without compression; archives packed again gain a few percent, constant tensors more. */
#define EXPANSION_MAX 64
#define EXPANSION_MIN ((size_t)16 << 20)

/* A tensor of the state dict on its way into the store. */
typedef struct item {
    const ist_pickle_value *key, *tensor;
    const ist_pickle_value *storage_key;
} item;

typedef struct reader {
    zip_t *zip;
    size_t prefix;  /* length of the top folder with its slash */
    char name[512]; /* top folder, then the entry being read */
    size_t budget;  /* bytes that may still be allocated */
    ist_pickle pickle;
    ist_weights *out;
    item *items;
    size_t count, capacity;
    ist_error *err;
} reader;

/* Reads a whole entry into `bytes`. Reading to the end makes libzip check the CRC. */
static ist_status read_entry(reader *r, zip_uint64_t index, const char *name, uint8_t *bytes, size_t size) {
    zip_file_t *file = zip_fopen_index(r->zip, index, 0);
    if (!file) return ist_fail(r->err, IST_E_WEIGHTS, "zip entry %s: %s", name, zip_strerror(r->zip));
    size_t got = 0;
    zip_int64_t n = 1;
    while (n > 0 && got < size) {
        n = zip_fread(file, bytes + got, size - got);
        if (n > 0) got += (size_t)n;
    }
    uint8_t extra;
    if (n >= 0 && got == size) n = zip_fread(file, &extra, 1);
    ist_status status = IST_OK;
    if (n < 0)
        status = ist_fail(r->err, IST_E_WEIGHTS, "zip entry %s: damaged after %zu of %zu bytes: %s", name, got, size,
                          zip_file_strerror(file));
    else if (got < size || n > 0)
        status = ist_fail(r->err, IST_E_WEIGHTS, "zip entry %s: does not have the %zu bytes it claims", name, size);
    zip_fclose(file);
    return status;
}

/* Index and size of an entry under the top folder. */
static ist_status find_entry(reader *r, const char *path, zip_uint64_t *index, size_t *size) {
    zip_stat_t st;
    snprintf(r->name + r->prefix, sizeof r->name - r->prefix, "%s", path);
    if (zip_stat(r->zip, r->name, 0, &st))
        return ist_fail(r->err, IST_E_WEIGHTS, "the zip has no entry %.200s", r->name);
    if (!(st.valid & ZIP_STAT_SIZE) || !(st.valid & ZIP_STAT_INDEX) || st.size > SIZE_MAX)
        return ist_fail(r->err, IST_E_WEIGHTS, "zip entry %.200s: size unknown", r->name);
    *index = st.index;
    *size = (size_t)st.size;
    return IST_OK;
}

static ist_status spend(reader *r, size_t bytes, const char *name) {
    if (bytes > r->budget)
        return ist_fail(r->err, IST_E_WEIGHTS, "%s: %zu bytes more than a file of this size may hold", name,
                        bytes - r->budget);
    r->budget -= bytes;
    return IST_OK;
}

/* Finds TOP/data.pkl and leaves TOP/ in r->name. */
static ist_status find_pickle(reader *r, zip_uint64_t *index, size_t *size) {
    static const char wanted[] = "data.pkl";
    zip_int64_t entries = zip_get_num_entries(r->zip, 0);
    int found = 0;
    for (zip_int64_t i = 0; i < entries; i++) {
        const char *name = zip_get_name(r->zip, (zip_uint64_t)i, 0);
        if (!name) continue;
        const char *slash = strchr(name, '/');
        if (strcmp(slash ? slash + 1 : name, wanted)) continue;
        size_t prefix = slash ? (size_t)(slash + 1 - name) : 0;
        if (prefix > 256)
            return ist_fail(r->err, IST_E_WEIGHTS, "the zip's top folder has a name of %zu bytes", prefix);
        memcpy(r->name, name, prefix);
        r->prefix = prefix;
        found++;
    }
    if (found != 1) return ist_fail(r->err, IST_E_WEIGHTS, "the zip has %d data.pkl, a PyTorch file has one", found);
    return find_entry(r, wanted, index, size);
}

static ist_status check_byte_order(reader *r) {
    char text[16] = {0};
    zip_uint64_t index;
    size_t size;
    ist_error ignored;
    ist_error *err = r->err;
    r->err = &ignored;
    bool absent = find_entry(r, "byteorder", &index, &size) != IST_OK; /* older files are little endian */
    r->err = err;
    if (absent) return IST_OK;
    if (size >= sizeof text)
        return ist_fail(err, IST_E_WEIGHTS, "byteorder has %zu %s", size, ist_plural(size, "byte", "bytes"));
    IST_TRY(read_entry(r, index, "byteorder", (uint8_t *)text, size));
    if (strcmp(text, "little"))
        return ist_fail(err, IST_E_WEIGHTS, "storages are %s endian, only little endian is supported",
                        strcmp(text, "big") ? "of unknown" : "big");
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
        r->items[r->count++] = (item){key, t, &p->values[storage->as.storage.key]};
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
    IST_TRY(spend(r, bytes, name));
    uint8_t *copy = ist_store_block(r->out, bytes);
    if (!copy) return ist_fail(r->err, IST_E_MEMORY, "%s: out of host memory (%zu bytes)", name, bytes);
    gather(t, storage, element, count, copy);
    return ist_store_tensor(r->out, name, t->type, t->rank, t->dims, copy, bytes, r->err);
}

/* Reads data/KEY and checks that it has the bytes the pickle promises. */
static ist_status read_storage(reader *r, const item *it, const uint8_t **out, size_t *out_bytes) {
    const ist_pickle_value *s = &r->pickle.values[it->tensor->as.tensor->storage];
    char key[64], path[80];
    size_t promised, bytes;
    zip_uint64_t index;
    if (!copy_text(it->storage_key, key, sizeof key))
        return ist_fail(r->err, IST_E_WEIGHTS, "a storage key of %zu bytes", it->storage_key->as.string.length);
    snprintf(path, sizeof path, "data/%s", key);
    IST_TRY(find_entry(r, path, &index, &bytes));
    if (!ist_mul_size((size_t)s->as.storage.count, ist_weight_type_bytes(s->as.storage.type), &promised) ||
        promised != bytes)
        return ist_fail(r->err, IST_E_WEIGHTS, "storage %s: %lld elements of %s promised, the zip has %zu bytes", path,
                        (long long)s->as.storage.count, ist_weight_type_name(s->as.storage.type), bytes);
    IST_TRY(spend(r, bytes, path));
    uint8_t *block = ist_store_block(r->out, bytes);
    if (!block) return ist_fail(r->err, IST_E_MEMORY, "storage %s: out of host memory (%zu bytes)", path, bytes);
    *out = block;
    *out_bytes = bytes;
    return read_entry(r, index, path, block, bytes);
}

static ist_status add_tensors(reader *r) {
    const uint8_t *storage = NULL;
    size_t bytes = 0;
    qsort(r->items, r->count, sizeof *r->items, by_storage);
    for (size_t i = 0; i < r->count; i++) {
        const item *it = &r->items[i];
        if (!i || compare_text(it[-1].storage_key, it->storage_key)) IST_TRY(read_storage(r, it, &storage, &bytes));
        IST_TRY(add_tensor(r, it, storage, bytes));
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

/* ---- the file ---- */

static ist_status read_all(reader *r) {
    zip_uint64_t index;
    size_t size;
    IST_TRY(find_pickle(r, &index, &size));
    if (size > PICKLE_MAX)
        return ist_fail(r->err, IST_E_WEIGHTS, "data.pkl has %zu bytes, the limit is %zu", size, PICKLE_MAX);
    IST_TRY(check_byte_order(r));
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes) return ist_fail(r->err, IST_E_MEMORY, "out of host memory for data.pkl (%zu bytes)", size);
    ist_status status = read_entry(r, index, "data.pkl", bytes, size);
    if (!status) {
        status = ist_pickle_read(bytes, size, &r->pickle, r->err);
        if (!status) status = collect(r);
        if (!status) status = add_tensors(r);
        if (!status) status = read_classes(r);
        ist_pickle_free(&r->pickle);
    }
    free(r->items);
    free(bytes);
    return status;
}

/* The zip over a file (which it then owns) or over memory; NULL with *why on failure, the file closed. */
static zip_t *open_zip(FILE *file, const void *bytes, size_t size, zip_error_t *why) {
    zip_source_t *source =
        file ? zip_source_filep_create(file, 0, -1, why) : zip_source_buffer_create(bytes, size, 0, why);
    if (!source) {
        if (file) fclose(file);
        return NULL;
    }
    zip_t *zip = zip_open_from_source(source, ZIP_RDONLY, why);
    if (!zip) zip_source_free(source);
    return zip;
}

/* Whether libzip found no directory in what began as an archive. From 1.11 on it says so by a code of its own. */
static bool is_cut_off(int code) {
#ifdef ZIP_ER_TRUNCATED_ZIP
    if (code == ZIP_ER_TRUNCATED_ZIP) return true;
#endif
    return code == ZIP_ER_NOZIP;
}

ist_status ist_torch_zip_read(ist_weights *weights, FILE *file, const void *bytes, size_t size, ist_error *err) {
    zip_error_t why;
    zip_error_init(&why);
    reader r = {.out = weights, .err = err};
    r.zip = open_zip(file, bytes, size, &why);
    if (!r.zip) {
        if (is_cut_off(zip_error_code_zip(&why)))
            ist_fail(err, IST_E_WEIGHTS, "the zip archive is cut off: its directory is missing at byte %zu, the end",
                     size);
        else
            ist_fail(err, IST_E_WEIGHTS, "the zip archive %s: %s",
                     zip_error_code_zip(&why) == ZIP_ER_INCONS ? "is damaged or cut off" : "cannot be read",
                     zip_error_strerror(&why));
        zip_error_fini(&why);
        return IST_E_WEIGHTS;
    }
    size_t most = size > IST_WEIGHTS_BYTES_MAX / EXPANSION_MAX ? IST_WEIGHTS_BYTES_MAX : size * EXPANSION_MAX;
    r.budget = most < EXPANSION_MIN ? EXPANSION_MIN : most;
    weights->format = "torch zip";
    ist_status status = read_all(&r);
    zip_discard(r.zip);
    zip_error_fini(&why);
    return status;
}
