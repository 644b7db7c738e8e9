/* See mot.h. */
#include "io/mot.h"

#include "base/mem.h"
#include "io/atomic_file.h"
#include "io/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Names that files have already, each at the number of its sequence. */
typedef struct names {
    char **items;
    size_t count, capacity;
} names;

/* The name of the file of the sequence that begins with `source`. */
static ist_status name_file(names *n, const ist_source *source, ist_text *name, ist_error *err) {
    const char *slash = strrchr(source->stem, '/');
    size_t taken = 1;
    ist_text plain = {0};
    if (ist_source_mark(source)) /* a file of its own */
        ist_text_add(&plain, source->stem, (size_t)(strrchr(source->stem, '.') - source->stem));
    else if (slash)
        ist_text_add(&plain, source->stem, (size_t)(slash - source->stem));
    else
        ist_text_put(&plain, "frames");
    IST_TRY(ist_text_status(&plain, err));
    for (size_t i = 0; i < n->count; i++) taken += !strcmp(n->items[i], plain.data);
    ist_text_clear(name);
    ist_text_printf(name, IST_MOT_FOLDER "/%s", plain.data);
    if (taken > 1) ist_text_printf(name, "-%zu", taken);
    ist_text_put(name, ".txt");
    bool fine = ist_grow((void **)&n->items, &n->capacity, n->count + 1, sizeof *n->items) && !name->failed;
    if (fine) n->items[n->count++] = plain.data; /* its owner now */
    if (!fine) ist_text_free(&plain);
    return fine ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", source->path);
}

static void put_objects(const json_t *frame, long number, ist_text *out) {
    size_t i;
    json_t *object;
    json_array_foreach(json_object_get(frame, "objects"), i, object) {
        const json_t *array = json_object_get(object, "box");
        json_int_t track = json_integer_value(json_object_get(object, "track"));
        float box[4];
        if (track <= 0) continue;
        for (size_t k = 0; k < 4; k++) box[k] = (float)json_number_value(json_array_get(array, k));
        const float values[5] = {box[0] + 1, box[1] + 1, box[2] - box[0], box[3] - box[1],
                                 (float)json_number_value(json_object_get(object, "score"))};
        ist_text_printf(out, "%ld,%lld", number, (long long)track);
        for (int k = 0; k < 5; k++) {
            ist_text_put(out, ",");
            ist_text_json_float(out, values[k]);
        }
        ist_text_put(out, ",-1,-1,-1\n");
    }
}

/* The objects of image i, when it has a line. */
static ist_status put_frame(const ist_journal *journal, const ist_source *source, size_t i, long number, ist_text *line,
                            ist_text *out, ist_error *err) {
    if (!ist_journal_length(journal, i)) return IST_OK;
    IST_TRY(ist_journal_line(journal, i, line, err));
    json_t *frame = json_loadb(line->data, line->length, 0, NULL);
    if (!frame) return ist_fail(err, IST_E_INPUT, "the line of %s in %s is damaged", source->path, IST_JOURNAL_PARTIAL);
    put_objects(frame, number, out);
    json_decref(frame);
    return ist_text_status(out, err);
}

/* The sequence that begins with image `first`; *end is where the next one does. */
static ist_status write_sequence(const char *folder, bool lazy, const char *name, const ist_journal *journal,
                                 const ist_sources *sources, size_t first, size_t *end, ist_error *err) {
    ist_atomic_file file;
    ist_text line = {0}, out = {0};
    size_t i = first;
    IST_TRY(ist_atomic_begin_in(&file, folder, name, err));
    file.lazy = lazy;
    ist_status status = IST_OK;
    for (; i < sources->count && (i == first || ist_source_follows(&sources->items[i], &sources->items[i - 1])) &&
           !status;
         i++) {
        ist_text_clear(&out);
        status = put_frame(journal, &sources->items[i], i, (long)(i - first) + 1, &line, &out, err);
        if (!status && out.length) fwrite(out.data, 1, out.length, file.stream); /* an error shows at the end */
    }
    ist_text_free(&line);
    ist_text_free(&out);
    *end = i;
    if (!status) return ist_atomic_commit(&file, err);
    ist_atomic_abort(&file);
    return status;
}

ist_status ist_mot_write(const char *folder, bool lazy, const ist_journal *journal, const ist_sources *sources,
                         ist_error *err) {
    names n = {0};
    ist_text name = {0};
    ist_status status = IST_OK;
    for (size_t i = 0; i < sources->count && !status;) {
        status = name_file(&n, &sources->items[i], &name, err);
        if (!status) status = write_sequence(folder, lazy, name.data, journal, sources, i, &i, err);
    }
    for (size_t i = 0; i < n.count; i++) free(n.items[i]);
    free(n.items);
    ist_text_free(&name);
    return status;
}
