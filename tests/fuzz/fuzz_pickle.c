/* The input as data.pkl: first by the interpreter alone, then inside an archive with storages of 64 bytes, so that
 * tensors are cut out of them too. */
#include "read_weights.h"

#include "weights/pickle.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void add(zip_t *zip, const char *name, const void *bytes, size_t size) {
    zip_source_t *s = zip_source_buffer(zip, bytes, size, 0);
    zip_int64_t index = s ? zip_file_add(zip, name, s, 0) : -1;
    if (index < 0) abort();
    zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
}

/* The archive in memory; the caller frees it. */
static void *archive(const uint8_t *pickle, size_t size, size_t *length) {
    static const uint8_t storage[64] = {1, 2, 3};
    zip_source_t *out = zip_source_buffer_create(NULL, 0, 0, NULL);
    zip_t *zip = out ? zip_open_from_source(out, ZIP_CREATE | ZIP_TRUNCATE, NULL) : NULL;
    if (!zip) abort();
    zip_source_keep(out);
    add(zip, "a/data.pkl", pickle, size);
    add(zip, "a/data/0", storage, sizeof storage);
    add(zip, "a/data/1", storage, 8);
    if (zip_close(zip)) abort();
    zip_stat_t st;
    if (zip_source_stat(out, &st) || zip_source_open(out)) abort();
    void *all = malloc(st.size);
    if (!all || zip_source_read(out, all, st.size) != (zip_int64_t)st.size) abort();
    *length = st.size;
    zip_source_close(out);
    zip_source_free(out);
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    ist_pickle p;
    ist_error err = {0};
    ist_status status = ist_pickle_read(bytes, size, &p, &err);
    if (status && !err.text[0]) abort();
    ist_pickle_free(&p);
    if (status) return 0;
    size_t length;
    void *all = archive(bytes, size, &length);
    read_weights(all, length);
    free(all);
    return 0;
}
