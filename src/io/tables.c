/* Tables over all images, derived from the journal's lines: see record.h. */
#include "io/record.h"

#include "io/atomic_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* One derived file: `row` appends what one image contributes to `out`. */
typedef struct table {
    const ist_sources *sources;
    const ist_labels *labels;
    ist_journal *journal;
    size_t rows; /* written so far */
} table;

typedef void (*table_row)(table *t, const ist_source *source, const json_t *frame, ist_text *out);

static void put_number(ist_text *out, const json_t *value) {
    if (json_is_integer(value))
        ist_text_printf(out, "%lld", (long long)json_integer_value(value));
    else
        ist_text_json_float(out, (float)json_number_value(value));
}

static void read_box(const json_t *object, float box[4]) {
    const json_t *array = json_object_get(object, "box");
    for (size_t i = 0; i < 4; i++) box[i] = (float)json_number_value(json_array_get(array, i));
}

static void results_row(table *t, const ist_source *source, const json_t *frame, ist_text *out) {
    size_t i;
    json_t *object;
    json_array_foreach(json_object_get(frame, "objects"), i, object) {
        float box[4];
        const json_t *rle = json_object_get(object, "rle"), *size = json_object_get(rle, "size");
        int label = (int)json_integer_value(json_object_get(object, "label"));
        int64_t category = ist_label_category(t->labels, label);
        if (category < 0) continue;
        read_box(object, box);
        ist_text_printf(out, "%s{\"image_id\":%lld,\"category_id\":%lld,\"bbox\":[", t->rows++ ? ",\n" : "\n",
                        (long long)source->id, (long long)category);
        const float xywh[4] = {box[0], box[1], box[2] - box[0], box[3] - box[1]};
        for (int k = 0; k < 4; k++) {
            if (k) ist_text_put(out, ",");
            ist_text_json_float(out, xywh[k]);
        }
        ist_text_put(out, "],\"score\":");
        put_number(out, json_object_get(object, "score"));
        const char *counts = json_string_value(json_object_get(rle, "counts"));
        if (counts) {
            ist_text_printf(out, ",\"segmentation\":{\"size\":[%lld,%lld],\"counts\":",
                            (long long)json_integer_value(json_array_get(size, 0)),
                            (long long)json_integer_value(json_array_get(size, 1)));
            ist_text_json_string(out, counts);
            ist_text_put(out, "}");
        }
        ist_text_put(out, "}");
    }
}

static void images_row(table *t, const ist_source *source, const json_t *frame, ist_text *out) {
    ist_text_printf(out, "%s{\"image_id\":%lld,\"file_name\":", t->rows++ ? ",\n" : "\n", (long long)source->id);
    ist_text_json_string(out, source->name);
    ist_text_put(out, ",\"width\":");
    put_number(out, json_object_get(frame, "width"));
    ist_text_put(out, ",\"height\":");
    put_number(out, json_object_get(frame, "height"));
    ist_text_put(out, "}");
}

/* RFC 4180: quoted when needed, quotes doubled. */
static void put_field(ist_text *out, const char *text) {
    bool quote = strpbrk(text, ",\"\r\n") != NULL;
    if (!quote) {
        ist_text_put(out, text);
        return;
    }
    ist_text_put(out, "\"");
    for (; *text; text++) {
        if (*text == '"') ist_text_put(out, "\"");
        ist_text_add(out, text, 1);
    }
    ist_text_put(out, "\"");
}

static void csv_row(table *t, const ist_source *source, const json_t *frame, ist_text *out) {
    static const char *const optional[] = {"mask_score", "area", "track", "target"};
    size_t i;
    json_t *object;
    (void)source;
    json_array_foreach(json_object_get(frame, "objects"), i, object) {
        float box[4];
        const char *name = json_string_value(json_object_get(object, "name"));
        read_box(object, box);
        put_field(out, json_string_value(json_object_get(frame, "file")));
        ist_text_put(out, ",");
        put_number(out, json_object_get(object, "label"));
        ist_text_put(out, ",");
        put_field(out, name ? name : "");
        ist_text_put(out, ",");
        put_number(out, json_object_get(object, "score"));
        for (int k = 0; k < 4; k++) {
            ist_text_put(out, ",");
            ist_text_json_float(out, box[k]);
        }
        for (size_t k = 0; k < sizeof optional / sizeof *optional; k++) {
            const json_t *value = json_object_get(object, optional[k]);
            ist_text_put(out, ",");
            if (value) put_number(out, value);
        }
        ist_text_put(out, "\n");
        t->rows++;
    }
}

static ist_status write_rows(table *t, table_row row, FILE *out, ist_error *err) {
    ist_text line = {0}, text = {0};
    ist_status status = IST_OK;
    for (size_t i = 0; i < t->sources->count && !status; i++) {
        if (!ist_journal_has(t->journal, i)) continue;
        status = ist_journal_line(t->journal, i, &line, err);
        if (status) break;
        json_t *frame = json_loadb(line.data, line.length, 0, NULL);
        if (!frame) {
            status = ist_fail(err, IST_E_INPUT, "the line of %s in %s is damaged", t->sources->items[i].path,
                              IST_JOURNAL_PARTIAL);
            break;
        }
        ist_text_clear(&text);
        row(t, &t->sources->items[i], frame, &text);
        json_decref(frame);
        status = ist_text_status(&text, err);
        if (!status && text.length) fwrite(text.data, 1, text.length, out);
    }
    ist_text_free(&line);
    ist_text_free(&text);
    return status;
}

static ist_status write_table(table *t, const char *folder, const char *name, const char *head, table_row row,
                              const char *tail, ist_error *err) {
    char *path = ist_path_join(folder, name);
    if (!path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    ist_atomic_file file;
    ist_status status = ist_atomic_begin(&file, path, err);
    free(path);
    IST_TRY(status);
    t->rows = 0;
    fputs(head, file.stream);
    status = write_rows(t, row, file.stream, err);
    fputs(tail, file.stream);
    if (status) {
        ist_atomic_abort(&file);
        return status;
    }
    return ist_atomic_commit(&file, err);
}

ist_status ist_record_coco(const char *folder, ist_journal *journal, const ist_sources *sources,
                           const ist_labels *labels, ist_error *err) {
    table t = {.sources = sources, .labels = labels, .journal = journal};
    IST_TRY(write_table(&t, folder, "results.json", "[", results_row, "\n]\n", err));
    return write_table(&t, folder, "images.json", "[", images_row, "\n]\n", err);
}

ist_status ist_record_csv(const char *folder, ist_journal *journal, const ist_sources *sources, ist_error *err) {
    table t = {.sources = sources, .journal = journal};
    return write_table(&t, folder, "results.csv", "file,label,name,score,x0,y0,x1,y1,mask_score,area,track,target\n",
                       csv_row, "", err);
}
