/* Tables over all images, derived from the journal's lines: see record.h. */
#include "io/record.h"

#include "base/cores.h"
#include "io/atomic_file.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Lines of a block are parsed side by side, then written in order; the next block follows. */
enum { BLOCK_LINES = 512, MAX_THREADS = 64 };
#define BLOCK_BYTES ((size_t)64 << 20)

/* Appends what one image contributes to a table. */
typedef void (*table_row)(const ist_labels *labels, const ist_source *source, const json_t *frame, ist_text *out);

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

/* Of a mask of everything what SamAutomaticMaskGenerator's record has beside box and mask, under its names. */
static void put_everything(ist_text *out, const json_t *object) {
    const json_t *point = json_object_get(object, "point"), *crop = json_object_get(object, "crop_box");
    long long box[4];
    if (!point || !crop) return;
    for (size_t i = 0; i < 4; i++) box[i] = (long long)json_integer_value(json_array_get(crop, i));
    ist_text_put(out, ",\"predicted_iou\":");
    put_number(out, json_object_get(object, "mask_score"));
    ist_text_put(out, ",\"stability_score\":");
    put_number(out, json_object_get(object, "stability"));
    ist_text_printf(out, ",\"area\":%lld,\"point_coords\":[[%.17g,%.17g]],\"crop_box\":[%lld,%lld,%lld,%lld]",
                    (long long)json_integer_value(json_object_get(object, "area")),
                    json_number_value(json_array_get(point, 0)), json_number_value(json_array_get(point, 1)), box[0],
                    box[1], box[2] - box[0], box[3] - box[1]);
}

static void results_row(const ist_labels *labels, const ist_source *source, const json_t *frame, ist_text *out) {
    size_t i;
    json_t *object;
    json_array_foreach(json_object_get(frame, "objects"), i, object) {
        float box[4];
        const json_t *rle = json_object_get(object, "rle"), *size = json_object_get(rle, "size");
        int label = (int)json_integer_value(json_object_get(object, "label"));
        int64_t category = ist_label_category(labels, label);
        if (category < 0) continue;
        read_box(object, box);
        ist_text_printf(out, ",\n{\"image_id\":%lld,\"category_id\":%lld,\"bbox\":[", (long long)source->id,
                        (long long)category);
        const float xywh[4] = {box[0], box[1], box[2] - box[0], box[3] - box[1]};
        for (int k = 0; k < 4; k++) {
            if (k) ist_text_put(out, ",");
            ist_text_json_float(out, xywh[k]);
        }
        ist_text_put(out, "],\"score\":");
        put_number(out, json_object_get(object, "score"));
        put_everything(out, object);
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

static void images_row(const ist_labels *labels, const ist_source *source, const json_t *frame, ist_text *out) {
    (void)labels;
    ist_text_printf(out, ",\n{\"image_id\":%lld,\"file_name\":", (long long)source->id);
    ist_text_json_string(out, source->name);
    ist_text_put(out, ",\"width\":");
    put_number(out, json_object_get(frame, "width"));
    ist_text_put(out, ",\"height\":");
    put_number(out, json_object_get(frame, "height"));
    ist_text_put(out, "}");
}

/* RFC 4180: quoted when needed, quotes doubled. What a spreadsheet would run as a formula (a name that comes from a
 * checkpoint or a folder may be one) gets an apostrophe in front, which makes it text there. */
static void put_field(ist_text *out, const char *text) {
    bool formula = *text && strchr("=+-@\t\r", *text) != NULL;
    bool quote = formula || strpbrk(text, ",\"\r\n") != NULL;
    if (!quote) {
        ist_text_put(out, text);
        return;
    }
    ist_text_put(out, formula ? "\"'" : "\"");
    for (; *text; text++) {
        if (*text == '"') ist_text_put(out, "\"");
        ist_text_add(out, text, 1);
    }
    ist_text_put(out, "\"");
}

static void csv_row(const ist_labels *labels, const ist_source *source, const json_t *frame, ist_text *out) {
    static const char *const optional[] = {"mask_score", "area", "track", "target"};
    size_t i;
    json_t *object;
    (void)labels;
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
    }
}

/* `comma`: rows begin with one, which the first of the file loses. */
static const struct kind {
    unsigned bit;
    const char *name, *head, *tail;
    bool comma;
    table_row row;
} kinds[] = {
    {IST_TABLES_COCO, "results.json", "[", "\n]\n", true, results_row},
    {IST_TABLES_COCO, "images.json", "[", "\n]\n", true, images_row},
    {IST_TABLES_CSV, "results.csv", "file,label,name,score,x0,y0,x1,y1,mask_score,area,track,target\n", "", false,
     csv_row},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct entry {
    size_t index; /* in the sources */
    ist_text rows[KINDS];
    ist_status status;
    ist_error err;
} entry;

typedef struct writer {
    unsigned tables;
    const ist_journal *journal;
    const ist_sources *sources;
    const ist_labels *labels;
    ist_atomic_file files[KINDS];
    bool any[KINDS]; /* a row has been written */
    entry *block;    /* [BLOCK_LINES] */
    size_t count, next;
    pthread_mutex_t lock; /* of `next` */
} writer;

static void make_rows(const writer *w, entry *e, ist_text *line) {
    const ist_source *source = &w->sources->items[e->index];
    e->status = ist_journal_line(w->journal, e->index, line, &e->err);
    json_t *frame = e->status ? NULL : json_loadb(line->data, line->length, 0, NULL);
    if (!frame && !e->status)
        e->status =
            ist_fail(&e->err, IST_E_INPUT, "the line of %s in %s is damaged", source->path, IST_JOURNAL_PARTIAL);
    for (int k = 0; k < KINDS && !e->status; k++) {
        if (!(w->tables & kinds[k].bit)) continue;
        kinds[k].row(w->labels, source, frame, &e->rows[k]);
        e->status = ist_text_status(&e->rows[k], &e->err);
    }
    json_decref(frame);
}

static void *work(void *context) {
    writer *w = context;
    ist_text line = {0};
    for (;;) {
        pthread_mutex_lock(&w->lock);
        size_t i = w->next++;
        pthread_mutex_unlock(&w->lock);
        if (i >= w->count) break;
        make_rows(w, &w->block[i], &line);
    }
    ist_text_free(&line);
    return NULL;
}

/* The calling thread works, too, so that it goes on when no other can be had. */
static void work_together(writer *w) {
    pthread_t threads[MAX_THREADS];
    int cores = ist_cores(), started = 0;
    w->next = 0;
    while (started + 1 < cores && started < MAX_THREADS && (size_t)started * 4 < w->count &&
           !pthread_create(&threads[started], NULL, work, w))
        started++;
    work(w);
    while (started) pthread_join(threads[--started], NULL);
}

/* Fills the block with lines from *next on. */
static void gather(writer *w, size_t *next) {
    size_t bytes = 0;
    for (w->count = 0; *next < w->sources->count && w->count < BLOCK_LINES && bytes < BLOCK_BYTES; ++*next) {
        size_t length = ist_journal_length(w->journal, *next);
        if (length) w->block[w->count++].index = *next;
        bytes += length;
    }
}

/* Writes rows and gives their memory back: one block's largest are not the next one's. An error of the file shows when
 * it is committed. */
static void write_rows(writer *w, int kind, ist_text *rows) {
    if (rows->length) {
        size_t skip = kinds[kind].comma && !w->any[kind];
        fwrite(rows->data + skip, 1, rows->length - skip, w->files[kind].stream);
        w->any[kind] = true;
    }
    ist_text_free(rows);
}

static ist_status write_blocks(writer *w, ist_error *err) {
    for (size_t next = 0; next < w->sources->count;) {
        gather(w, &next);
        work_together(w);
        for (size_t i = 0; i < w->count; i++) {
            entry *e = &w->block[i];
            if (e->status) {
                if (err) *err = e->err;
                return e->status;
            }
            for (int k = 0; k < KINDS; k++)
                if (w->tables & kinds[k].bit) write_rows(w, k, &e->rows[k]);
        }
    }
    return IST_OK;
}

static ist_status begin_file(writer *w, int kind, const char *folder, ist_error *err) {
    IST_TRY(ist_atomic_begin_in(&w->files[kind], folder, kinds[kind].name, err));
    w->files[kind].lazy = w->tables & IST_TABLES_LAZY;
    fputs(kinds[kind].head, w->files[kind].stream);
    return IST_OK;
}

static void free_block(entry *block) {
    for (size_t i = 0; block && i < BLOCK_LINES; i++)
        for (int k = 0; k < KINDS; k++) ist_text_free(&block[i].rows[k]);
    free(block);
}

ist_status ist_record_tables(const char *folder, unsigned tables, const ist_journal *journal,
                             const ist_sources *sources, const ist_labels *labels, ist_error *err) {
    writer w = {
        .tables = tables, .journal = journal, .sources = sources, .labels = labels, .lock = PTHREAD_MUTEX_INITIALIZER};
    w.block = calloc(BLOCK_LINES, sizeof *w.block);
    ist_status status = w.block ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    for (int k = 0; k < KINDS && !status; k++)
        if (tables & kinds[k].bit) status = begin_file(&w, k, folder, err);
    if (!status) status = write_blocks(&w, err);
    for (int k = 0; k < KINDS; k++) {
        if (!w.files[k].stream) continue;
        fputs(kinds[k].tail, w.files[k].stream);
        if (status)
            ist_atomic_abort(&w.files[k]);
        else
            status = ist_atomic_commit(&w.files[k], err);
    }
    free_block(w.block);
    pthread_mutex_destroy(&w.lock);
    return status;
}
