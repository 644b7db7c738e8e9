/* safetensors writer. Tensors go out by falling element size, so that each is aligned to its own. */
#include "base/half.h"
#include "weights/store.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_floating(ist_weight_type type) {
    return type == IST_WEIGHT_F64 || type == IST_WEIGHT_F32 || type == IST_WEIGHT_F16 || type == IST_WEIGHT_BF16;
}

static ist_weight_type stored_type(const ist_weight *t, bool half) {
    return half && is_floating(t->type) ? IST_WEIGHT_F16 : t->type;
}

/* Visits the tensors in file order: by element size, then by name. */
#define FOR_FILE_ORDER(w, half, t)                                                                                     \
    for (size_t size_ = 8; size_ >= 1; size_ /= 2)                                                                     \
        for (const ist_weight *t = (w)->items; t < (w)->items + (w)->count; t++)                                       \
            if (ist_weight_type_bytes(stored_type(t, half)) == size_)

/* NULL when out of memory. */
static json_t *tensor_json(const ist_weight *t, bool half, uint64_t *at) {
    ist_weight_type type = stored_type(t, half);
    uint64_t begin = *at;
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (int i = 0; i < t->rank; i++) ok = ok && !json_array_append_new(shape, json_integer(t->dims[i]));
    *at += (uint64_t)t->count * ist_weight_type_bytes(type);
    json_t *json = NULL;
    if (ok)
        json = json_pack("{s:s, s:O, s:[I, I]}", "dtype", ist_weight_type_name(type), "shape", shape, "data_offsets",
                         (json_int_t)begin, (json_int_t)*at);
    json_decref(shape);
    return json;
}

/* malloc'd header text, NULL when out of memory or a name is not UTF-8. */
static char *header_text(const ist_weights *w, bool half) {
    json_t *root = json_object(), *meta = json_object();
    uint64_t at = 0;
    bool ok = root && meta;
    for (size_t i = 0; ok && i < w->metadata_count; i++)
        ok = !json_object_set_new(meta, w->metadata[i].key, json_string(w->metadata[i].value));
    if (ok && !json_object_get(meta, "format")) ok = !json_object_set_new(meta, "format", json_string("pt"));
    ok = ok && !json_object_set(root, "__metadata__", meta);
    FOR_FILE_ORDER(w, half, t) ok = ok && !json_object_set_new(root, t->name, tensor_json(t, half, &at));
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text) { /* jansson 2.14 may leave the text short when it runs out of memory */
        json_t *back = json_loads(text, 0, NULL);
        if (!json_equal(root, back)) {
            free(text);
            text = NULL;
        }
        json_decref(back);
    }
    json_decref(meta);
    json_decref(root);
    return text;
}

/* Infinity and NaN pass (stored constants hold them); a finite value must stay finite. */
static ist_status write_half(const ist_weight *t, FILE *file, ist_error *err) {
    uint16_t out[1024];
    const unsigned char *src = t->data;
    size_t bytes = ist_weight_type_bytes(t->type);
    for (size_t i = 0; i < t->count;) {
        size_t n = 0;
        for (; n < sizeof out / sizeof *out && i < t->count; n++, i++) {
            double d;
            float f;
            uint16_t h;
            if (bytes == 8)
                memcpy(&d, src + i * 8, 8);
            else if (bytes == 4)
                memcpy(&f, src + i * 4, 4), d = f;
            else
                memcpy(&h, src + i * 2, 2), d = t->type == IST_WEIGHT_F16 ? ist_half_to_float(h) : ist_bf16_to_float(h);
            out[n] = ist_float_to_half((float)d);
            if (isfinite(d) && (out[n] & 0x7c00) == 0x7c00)
                return ist_fail(err, IST_E_WEIGHTS, "%s: element %zu is %g, half precision ends at 65504", t->name, i,
                                d);
        }
        if (fwrite(out, sizeof *out, n, file) != n)
            return ist_fail(err, IST_E_IO, "writing %s failed: %s", t->name, strerror(errno));
    }
    return IST_OK;
}

static ist_status write_tensors(const ist_weights *w, bool half, FILE *file, ist_error *err) {
    FOR_FILE_ORDER(w, half, t) {
        if (half && is_floating(t->type) && t->type != IST_WEIGHT_F16)
            IST_TRY(write_half(t, file, err));
        else if (t->bytes && fwrite(t->data, 1, t->bytes, file) != t->bytes)
            return ist_fail(err, IST_E_IO, "writing %s failed: %s", t->name, strerror(errno));
    }
    return IST_OK;
}

static ist_status write_file(const ist_weights *w, bool half, FILE *file, ist_error *err) {
    char *text = header_text(w, half);
    if (!text)
        return ist_fail(err, IST_E_MEMORY, "no header for %zu tensors: out of memory or a name is not UTF-8", w->count);
    size_t length = strlen(text), padded = ist_align_up(length, 8);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    bool ok = fwrite(prefix, 1, 8, file) == 8 && fwrite(text, 1, length, file) == length &&
              fwrite("        ", 1, padded - length, file) == padded - length;
    free(text);
    if (!ok) return ist_fail(err, IST_E_IO, "writing the header failed: %s", strerror(errno));
    IST_TRY(write_tensors(w, half, file, err));
    if (fflush(file) || (fsync(fileno(file)) && errno != EINVAL)) /* the bytes before the name, also on the disk */
        return ist_fail(err, IST_E_IO, "writing failed: %s", strerror(errno));
    return IST_OK;
}

ist_status ist_weights_save_safetensors(const ist_weights *w, const char *path, bool half, ist_error *err) {
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) /* the rename below would replace a device or a pipe */
        return ist_fail(err, IST_E_IO, "%s: is not a regular file and will not be replaced by one", path);
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    size_t size = (size_t)folder + 48;
    char *temporary = malloc(size); /* hidden and short: the name may already be as long as names can be */
    if (!temporary) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory", path);
    snprintf(temporary, size, "%.*s.isthmus-%ld-0.tmp", folder, path, (long)getpid());
    unlink(temporary); /* a link of that name must not be written through */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    ist_status status = IST_OK;
    if (!file) {
        status = ist_fail(err, IST_E_IO, "cannot be written: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(temporary);
        }
    } else {
        status = write_file(w, half, file, err);
        if (fclose(file) && !status) status = ist_fail(err, IST_E_IO, "writing failed: %s", strerror(errno));
        if (!status && rename(temporary, path))
            status = ist_fail(err, IST_E_IO, "cannot be put in place: %s", strerror(errno));
        if (status) remove(temporary);
    }
    free(temporary);
    if (status) ist_fail_context(err, "%s", path);
    return status;
}
