/* torch.save files since PyTorch 1.6: a zip with NAME/data.pkl and one NAME/data/KEY per storage. */
#include "weights/torch_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

typedef struct reader {
    zip_t *zip;
    size_t prefix;  /* length of the top folder with its slash */
    char name[512]; /* top folder, then the entry being read */
    ist_torch_state state;
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

static ist_status read_storage(void *user, const ist_pickle_value *storage, const char *key, size_t size,
                               const uint8_t **out) {
    reader *r = user;
    char path[80];
    size_t bytes;
    zip_uint64_t index;
    snprintf(path, sizeof path, "data/%s", key);
    IST_TRY(find_entry(r, path, &index, &bytes));
    if (size != bytes)
        return ist_fail(r->err, IST_E_WEIGHTS, "storage %s: %lld elements of %s promised, the zip has %zu bytes", path,
                        (long long)storage->as.storage.count, ist_weight_type_name(storage->as.storage.type), bytes);
    IST_TRY(ist_torch_spend(&r->state, bytes, path));
    uint8_t *block = ist_store_block(r->state.out, bytes);
    if (!block) return ist_fail(r->err, IST_E_MEMORY, "storage %s: out of host memory (%zu bytes)", path, bytes);
    *out = block;
    return read_entry(r, index, path, block, bytes);
}

/* ---- the file ---- */

static ist_status read_all(reader *r) {
    zip_uint64_t index;
    size_t size;
    IST_TRY(find_pickle(r, &index, &size));
    if (size > IST_TORCH_PICKLE_MAX)
        return ist_fail(r->err, IST_E_WEIGHTS, "data.pkl has %zu bytes, the limit is %zu", size, IST_TORCH_PICKLE_MAX);
    IST_TRY(check_byte_order(r));
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes) return ist_fail(r->err, IST_E_MEMORY, "out of host memory for data.pkl (%zu bytes)", size);
    ist_status status = read_entry(r, index, "data.pkl", bytes, size);
    if (!status) status = ist_pickle_read(bytes, size, &r->state.pickle, r->err);
    if (!status) status = ist_torch_add(&r->state);
    ist_torch_free(&r->state);
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
    reader r = {.err = err};
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
    r.state = (ist_torch_state){
        .out = weights, .storage = read_storage, .user = &r, .budget = ist_torch_budget(size), .err = err};
    weights->format = "torch zip";
    ist_status status = read_all(&r);
    zip_discard(r.zip);
    zip_error_fini(&why);
    return status;
}
