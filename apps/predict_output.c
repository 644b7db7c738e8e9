/* The files `isthmus predict` writes: folders per kind of output, tables over all images. */
#include "predict.h"

#include "io/mot.h"
#include "io/atomic_file.h"
#include "io/claim.h"
#include "io/overlay.h"
#include "io/whole.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Outputs with one file per image: bit, folder, extension. */
#define IMAGE_OUTPUTS(X)                                                                                               \
    X(PREDICT_SAVE_MASKS, "masks", "png")                                                                              \
    X(PREDICT_SAVE_OVERLAY, "overlays", "png")                                                                         \
    X(PREDICT_SAVE_YOLO, "labels", "txt")

/* Tables: bit, name, how one ends. frames.ndjson last: it says that the run is complete. */
#define TABLES(X)                                                                                                      \
    X(PREDICT_SAVE_JSON, "results.json", "\n]\n")                                                                      \
    X(PREDICT_SAVE_JSON, "images.json", "\n]\n")                                                                       \
    X(PREDICT_SAVE_CSV, "results.csv", "\n")                                                                           \
    X(PREDICT_SAVE_NDJSON, IST_JOURNAL_NAME, "\n")

typedef struct output_kind {
    unsigned bit;
    const char *name, *extension; /* of tables: how one ends */
} output_kind;

static const output_kind image_outputs[] = {
#define X(bit, folder, extension) {bit, folder, extension},
    IMAGE_OUTPUTS(X)
#undef X
};

static const output_kind tables[] = {
#define X(bit, name, end) {bit, name, end},
    TABLES(X)
#undef X
};

enum {
    IMAGE_OUTPUT_COUNT = sizeof image_outputs / sizeof *image_outputs,
    TABLE_COUNT = sizeof tables / sizeof *tables
};
_Static_assert((int)IMAGE_OUTPUT_COUNT == (int)PREDICT_IMAGE_FILES, "room for every kind");

#define FAILURES "failed.ndjson"

static bool exists(const char *folder, const char *name) {
    char *path = ist_path_join(folder, name);
    bool there = path && !access(path, F_OK);
    free(path);
    return there;
}

/* Makes `name` folder/STEM.extension; NULL when out of memory. */
static const char *image_name(const output_kind *kind, const ist_source *source, ist_text *name) {
    ist_text_clear(name);
    ist_text_printf(name, "%s/%s.%s", kind->name, source->stem, kind->extension);
    return name->failed ? NULL : name->data;
}

/* Whoever put a link in the folder would choose what is overwritten: said before any work. */
static ist_status refuse_links(const char *folder, ist_error *err) {
    IST_TRY(ist_refuse_link(folder, IST_JOURNAL_PARTIAL, err));
    IST_TRY(ist_refuse_link(folder, IST_RUN_OPTIONS_NAME, err));
    IST_TRY(ist_refuse_link(folder, IST_SHARD_NAME, err));
    IST_TRY(ist_refuse_link(folder, FAILURES, err));
    IST_TRY(ist_refuse_link(folder, IST_MOT_FOLDER, err));
    for (int i = 0; i < TABLE_COUNT; i++) IST_TRY(ist_refuse_link(folder, tables[i].name, err));
    for (int i = 0; i < IMAGE_OUTPUT_COUNT; i++) IST_TRY(ist_refuse_link(folder, image_outputs[i].name, err));
    return IST_OK;
}

ist_status predict_prepare_folder(const char *folder, size_t *there, ist_error *err) {
    IST_TRY(ist_make_folders(folder, there, err));
    ist_atomic_file probe;
    ist_status status = refuse_links(folder, err);
    if (!status) status = ist_atomic_begin_in(&probe, folder, IST_JOURNAL_NAME, err);
    if (!status) ist_atomic_abort(&probe);
    if (status) ist_remove_empty_folders(folder, *there);
    return status;
}

ist_status predict_claim_folder(const char *folder, int *claim, ist_error *err) {
    enum { DEEP = 64 }; /* stems have folders: as deep as sources go */
    IST_TRY(ist_claim_folder(folder, claim, err));
    ist_remove_leftovers(folder, 0);
    for (int i = 0; i <= IMAGE_OUTPUT_COUNT; i++) {
        char *path = ist_path_join(folder, i < IMAGE_OUTPUT_COUNT ? image_outputs[i].name : IST_MOT_FOLDER);
        if (path) ist_remove_leftovers(path, DEEP);
        free(path);
    }
    return IST_OK;
}

bool predict_image_file(int kind, unsigned save, const ist_source *source, ist_text *name) {
    if (!(save & image_outputs[kind].bit)) return false;
    image_name(&image_outputs[kind], source, name); /* out of memory: name->failed */
    return true;
}

static bool is_whole(const output_kind *kind, const char *path, const ist_journal_frame *frame) {
    if (kind->bit == PREDICT_SAVE_YOLO) return ist_lines_are_whole(path, frame->objects);
    return ist_png_is_whole(path, frame->width, frame->height);
}

bool predict_image_exists(void *context, const ist_source *source, const ist_journal_frame *frame) {
    const predict_options *o = context;
    ist_text text = {0};
    bool all = true;
    for (int i = 0; i < IMAGE_OUTPUT_COUNT && all; i++) {
        if (!(o->save & image_outputs[i].bit)) continue;
        const char *name = image_name(&image_outputs[i], source, &text);
        char *path = name ? ist_path_join(o->output, name) : NULL;
        all = path && is_whole(&image_outputs[i], path, frame);
        free(path);
    }
    ist_text_free(&text);
    return all;
}

static bool table_is_whole(const char *folder, const output_kind *table) {
    char *path = ist_path_join(folder, table->name);
    bool whole = path && ist_file_ends_with(path, table->extension);
    free(path);
    return whole;
}

bool predict_tables_exist(const predict_options *o) {
    for (int i = 0; i < TABLE_COUNT; i++)
        if ((o->save & tables[i].bit) && !table_is_whole(o->output, &tables[i])) return false;
    if (o->save & PREDICT_SAVE_MOT) return false; /* which there should be only their making tells */
    return (o->save & PREDICT_SAVE_NDJSON) && !exists(o->output, FAILURES);
}

static void remove_one(const char *folder, const char *name) {
    char *path = ist_path_join(folder, name);
    if (path) unlink(path);
    free(path);
}

void predict_remove_tables(const predict_options *o) {
    for (int i = 0; i < TABLE_COUNT; i++) remove_one(o->output, tables[i].name);
    remove_one(o->output, FAILURES);
}

static ist_status fill(const predict_job *job, const output_kind *kind, const ist_source *source,
                       const ist_bitmap *image, const ist_frame *frame, ist_atomic_file *file, ist_error *err) {
    ist_bitmap picture = {0};
    ist_status status;
    const bool apart = job->options->segment;
    const ist_overlay_view view = {.labels = &job->labels,
                                   .match = job->match,
                                   .apart = apart,
                                   .prompts = apart ? predict_prompts_listed(job, source) : NULL};
    if (kind->bit == PREDICT_SAVE_YOLO) {
        ist_text text = {0};
        status = ist_record_yolo(frame, &text, err);
        if (!status && text.length)
            fwrite(text.data, 1, text.length, file->stream); /* ist_atomic_end reports a failed write */
        ist_text_free(&text);
        return status;
    }
    if (kind->bit == PREDICT_SAVE_MASKS)
        status = ist_record_instance_map(frame, &picture, err);
    else
        status = ist_overlay_draw(image, frame, &view, &picture, err);
    if (!status) status = ist_png_write_stream(file->stream, file->path, &picture, err);
    ist_bitmap_free(&picture);
    return status;
}

void predict_drop_files(predict_files *files) {
    for (size_t i = 0; i < files->count; i++) ist_atomic_abort(&files->list[i]);
    files->count = 0;
}

ist_status predict_write_image(const predict_job *job, const ist_source *source, const ist_bitmap *image,
                               const ist_frame *frame, predict_files *files, ist_error *err) {
    ist_text text = {0};
    ist_status status = IST_OK;
    for (int i = 0; i < IMAGE_OUTPUT_COUNT && !status; i++) {
        if (!(job->options->save & image_outputs[i].bit)) continue;
        const char *name = image_name(&image_outputs[i], source, &text);
        ist_atomic_file *file = &files->list[files->count];
        status = name ? ist_atomic_begin_in(file, job->options->output, name, err) : ist_text_status(&text, err);
        if (status) break;
        status = fill(job, &image_outputs[i], source, image, frame, file, err);
        if (status)
            ist_atomic_abort(file);
        else
            status = ist_atomic_end(file, err);
        if (!status) files->count++;
    }
    ist_text_free(&text);
    if (status) predict_drop_files(files);
    return status;
}

static ist_status write_failures(const char *folder, const ist_text *failures, ist_error *err) {
    if (!failures->length) {
        remove_one(folder, FAILURES);
        return IST_OK;
    }
    IST_TRY(ist_text_status(failures, err));
    return ist_atomic_write_in(folder, FAILURES, failures->data, failures->length, err);
}

ist_status predict_write_tables(predict_job *job, const ist_text *failures, ist_error *err) {
    const predict_options *o = job->options;
    IST_TRY(write_failures(o->output, failures, err));
    unsigned wanted = job->temporary ? IST_TABLES_LAZY : 0;
    if (o->save & PREDICT_SAVE_JSON) wanted |= IST_TABLES_COCO;
    if (o->save & PREDICT_SAVE_CSV) wanted |= IST_TABLES_CSV;
    if (o->save & (PREDICT_SAVE_JSON | PREDICT_SAVE_CSV))
        IST_TRY(ist_record_tables(o->output, wanted, job->journal, &job->sources, &job->labels, err));
    if (o->save & PREDICT_SAVE_MOT) IST_TRY(ist_mot_write(o->output, job->temporary, job->journal, &job->sources, err));
    if (o->save & PREDICT_SAVE_NDJSON) return ist_journal_commit(job->journal, err);
    ist_journal_discard(job->journal);
    return IST_OK;
}
