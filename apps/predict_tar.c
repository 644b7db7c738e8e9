/* Images of a tar stream, as WebDataset has them, through libarchive: see predict_stream.h. */
#include "predict_stream.h"

#include "base/mem.h"
#include "io/image_format.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MEMBER ((size_t)1 << 30) /* as of files */

typedef struct tar_input {
    predict_stream *stream;
    ist_error err; /* of reading */
    bool stopped;
    char buffer[1 << 16];
} tar_input;

static la_ssize_t more(struct archive *a, void *context, const void **bytes) {
    tar_input *in = context;
    (void)a;
    ssize_t n = predict_stream_read(in->stream, in->buffer, sizeof in->buffer, &in->err);
    in->stopped = n < 0;
    *bytes = in->buffer;
    return n < 0 ? ARCHIVE_FATAL : n;
}

/* An image by its name, not hidden. */
static bool is_image(const char *name) {
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    return *last != '.' && ist_is_image_name(name);
}

/* Reads a member to its end. A size in a header is no reason to ask for memory: it grows with what comes. */
static ist_status read_member(struct archive *a, predict_item *item, ist_error *err) {
    size_t capacity = 0;
    for (;;) {
        char block[1 << 16];
        la_ssize_t n = archive_read_data(a, block, sizeof block);
        if (n < 0) return ist_fail(err, IST_E_INPUT, "%s", archive_error_string(a));
        if (n == 0) break;
        if (item->size + (size_t)n <= MAX_MEMBER) {
            if (!ist_grow(&item->bytes, &capacity, item->size + (size_t)n, 1))
                return ist_fail(err, IST_E_MEMORY, "%s: out of memory", item->path);
            memcpy((char *)item->bytes + item->size, block, (size_t)n);
        } else {
            free(item->bytes); /* too large; the rest is passed over */
            item->bytes = NULL;
            capacity = 0;
        }
        item->size += (size_t)n;
    }
    if (!item->bytes && !item->size && !(item->bytes = calloc(1, 1)))
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", item->path);
    return IST_OK;
}

static ist_status read_members(predict_stream *s, struct archive *a, ist_error *err) {
    struct archive_entry *entry;
    int code;
    while ((code = archive_read_next_header(a, &entry)) == ARCHIVE_OK || code == ARCHIVE_WARN) {
        const char *name = archive_entry_pathname(entry);
        if (!name || archive_entry_filetype(entry) != AE_IFREG || !is_image(name)) continue;
        predict_item item = {.path = ist_strdup(name)};
        ist_status status = item.path ? read_member(a, &item, err) : ist_fail(err, IST_E_MEMORY, "out of memory");
        if (status) {
            free(item.path);
            free(item.bytes);
            return status;
        }
        if (!predict_stream_put(s, &item)) return IST_OK;
    }
    return code == ARCHIVE_EOF ? IST_OK : ist_fail(err, IST_E_INPUT, "%s", archive_error_string(a));
}

ist_status predict_tar_read(predict_stream *s, ist_error *err) {
    struct archive *a = archive_read_new();
    tar_input *in = calloc(1, sizeof *in);
    ist_status status = a && in ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->name);
    if (!status) {
        in->stream = s;
        archive_read_support_format_tar(a);
        archive_read_support_filter_gzip(a);
        archive_read_support_filter_zstd(a);
        if (archive_read_open(a, in, NULL, more, NULL) != ARCHIVE_OK)
            status = ist_fail(err, IST_E_INPUT, "%s", archive_error_string(a));
        if (!status) status = read_members(s, a, err);
        if (status && in->stopped)
            *err = in->err; /* nothing, when the run ends first */
        else if (status == IST_E_INPUT)
            ist_fail_context(err, "%s is no whole tar stream", s->name);
    }
    if (a) archive_read_free(a);
    free(in);
    return err->code;
}
