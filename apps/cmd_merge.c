/* isthmus merge: the folders of `predict --shard I/N` become what one run would have written.
 *
 * Nothing is computed again. Lines and files are taken over in the order of the whole list, which each folder's
 * shard.json knows a part of; the tables are derived from the lines as predict does it. Before anything is written, all
 * shards must be there, complete, and made with the same options from the same list. */
#include "predict.h"

#include "base/mem.h"
#include "io/claim.h"
#include "io/shard.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const cli_option cmd_merge_options[] = {
    {"output", 'o', "DIR", "folder to write to; made when missing"},
    {"quiet", 256, NULL, "no summary; failures are still named"},
    {NULL, 0, NULL, NULL},
};

/* A shard's folder while it is read. */
typedef struct shard {
    const char *folder;
    ist_shard_part part;
    ist_sources sources;
    size_t next;                   /* of its images */
    FILE *lines, *failures;        /* frames.ndjson; failed.ndjson or NULL */
    ist_text line, failure;        /* the next of each, without newline; empty at the end */
    char *line_file, *failed_file; /* the images that they are of; NULL at the end */
} shard;

typedef struct merge {
    const char *output;
    bool quiet;
    shard *shards; /* in the order of their numbers once they are checked */
    int count;
    unsigned save;       /* PREDICT_SAVE_ bits */
    ist_sources sources; /* the whole list; owns its strings */
    char *run;           /* run.json, the same of all */
    size_t run_bytes;
    ist_text failed; /* failed.ndjson of the whole */
    size_t done, failures;
} merge;

/* ---- what there is ---- */

static ist_status read_shards(merge *m, ist_error *err) {
    for (int i = 0; i < m->count; i++)
        IST_TRY(ist_shard_read(m->shards[i].folder, &m->shards[i].part, &m->shards[i].sources, err));
    return IST_OK;
}

static int by_number(const void *a, const void *b) {
    const shard *x = a, *y = b;
    return (x->part.shard.index > y->part.shard.index) - (x->part.shard.index < y->part.shard.index);
}

/* The same list and options; each number once. */
static ist_status check_shards(merge *m, ist_error *err) {
    const shard *first = &m->shards[0];
    int of = first->part.shard.count;
    for (int i = 1; i < m->count; i++) {
        const shard *s = &m->shards[i];
        if (s->part.shard.count != of)
            return ist_fail(err, IST_E_ARGUMENT, "%s is a shard of %d, %s one of %d", first->folder, of, s->folder,
                            s->part.shard.count);
        if (s->part.list != first->part.list || s->part.total != first->part.total)
            return ist_fail(err, IST_E_ARGUMENT, "%s and %s are shards of different lists of images", first->folder,
                            s->folder);
        if (s->part.is_coco != first->part.is_coco || strcmp(s->part.save, first->part.save))
            return ist_fail(err, IST_E_ARGUMENT, "%s has --save %s, %s has --save %s", first->folder, first->part.save,
                            s->folder, s->part.save);
    }
    qsort(m->shards, (size_t)m->count, sizeof *m->shards, by_number);
    for (int i = 0; i < m->count; i++) {
        int number = m->shards[i].part.shard.index;
        if (i && number == m->shards[i - 1].part.shard.index)
            return ist_fail(err, IST_E_ARGUMENT, "%s and %s are both shard %d of %d", m->shards[i - 1].folder,
                            m->shards[i].folder, number, of);
        if (number != i + 1) return ist_fail(err, IST_E_ARGUMENT, "shard %d of %d is missing", i + 1, of);
    }
    if (m->count == of) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "shard %d of %d is missing", m->count + 1, of);
}

static ist_status read_run(merge *m, ist_error *err) {
    enum { MAX_BYTES = 1 << 16 };
    for (int i = 0; i < m->count; i++) {
        char *path = ist_path_join(m->shards[i].folder, IST_RUN_OPTIONS_NAME), *bytes = NULL;
        size_t count = 0;
        ist_status status = path ? ist_read_file(path, MAX_BYTES, &bytes, &count, err)
                                 : ist_fail(err, IST_E_MEMORY, "%s: out of memory", m->shards[i].folder);
        bool same = !i || (count == m->run_bytes && bytes && !memcmp(bytes, m->run, count));
        free(path);
        if (i)
            free(bytes);
        else
            m->run = bytes, m->run_bytes = count;
        IST_TRY(status);
        if (!same)
            return ist_fail(err, IST_E_ARGUMENT, "%s and %s were made with different options: see their %s",
                            m->shards[0].folder, m->shards[i].folder, IST_RUN_OPTIONS_NAME);
    }
    return IST_OK;
}

/* The whole list: positions 0, 1, 2 ... each in one shard. The strings move there. */
static ist_status join_sources(merge *m, ist_error *err) {
    size_t total = m->shards[0].part.total, found = 0;
    for (int i = 0; i < m->count; i++) found += m->shards[i].sources.count;
    if (found != total)
        return ist_fail(err, IST_E_INPUT, "the shards have %zu images together, the list has %zu", found, total);
    m->sources.items = calloc(total + 1, sizeof *m->sources.items);
    if (!m->sources.items) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu images", total);
    m->sources.count = m->sources.capacity = total;
    for (int i = 0; i < m->count; i++) {
        shard *s = &m->shards[i];
        for (size_t k = 0; k < s->sources.count; k++) {
            ist_source *to = &m->sources.items[s->part.positions[k]];
            if (to->path)
                return ist_fail(err, IST_E_INPUT, "%s: image %zu is in another shard, too", s->folder,
                                s->part.positions[k] + 1);
            *to = s->sources.items[k];
            s->sources.items[k] = (ist_source){0};
        }
    }
    return IST_OK;
}

/* ---- lines ---- */

/* The image of a line, malloc'd; NULL when it is none. */
static char *file_of(const ist_text *line) {
    json_t *root = json_loadb(line->data, line->length, 0, NULL);
    const char *file = json_string_value(json_object_get(root, "file"));
    const char *bytes = json_string_value(json_object_get(root, "file_bytes"));
    char *copy = bytes ? ist_text_from_hex(bytes) : file ? ist_strdup(file) : NULL;
    json_decref(root);
    return copy;
}

static ist_status next_line(const shard *s, FILE *stream, ist_text *line, char **file, ist_error *err) {
    char buffer[4096];
    bool complete = false;
    free(*file);
    *file = NULL;
    ist_text_clear(line);
    while (stream && !complete && fgets(buffer, sizeof buffer, stream)) {
        ist_text_put(line, buffer);
        complete = line->length && line->data[line->length - 1] == '\n';
    }
    if (stream && ferror(stream)) return ist_fail(err, IST_E_IO, "cannot read %s: %s", s->folder, strerror(errno));
    IST_TRY(ist_text_status(line, err));
    if (!line->length) return IST_OK;
    if (complete) line->data[--line->length] = '\0';
    *file = complete ? file_of(line) : NULL;
    return *file ? IST_OK : ist_fail(err, IST_E_INPUT, "%s: a line is damaged: %.60s", s->folder, line->data);
}

static ist_status open_lines(shard *s, ist_error *err) {
    char *path = ist_path_join(s->folder, IST_JOURNAL_NAME), *failed = ist_path_join(s->folder, "failed.ndjson");
    ist_status status = path && failed ? ist_open_file(path, &s->lines, err)
                                       : ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->folder);
    if (!status) status = ist_open_file(failed, &s->failures, err);
    free(path);
    free(failed);
    if (status) return status;
    if (!s->lines)
        return ist_fail(err, IST_E_STATE, "%s: shard %d of %d is not complete; predict --resume continues it",
                        s->folder, s->part.shard.index, s->part.shard.count);
    IST_TRY(next_line(s, s->lines, &s->line, &s->line_file, err));
    return next_line(s, s->failures, &s->failure, &s->failed_file, err);
}

/* ---- writing ---- */

static ist_status copy_file(const merge *m, const shard *s, const char *name, ist_atomic_file *file, ist_error *err) {
    char *path = ist_path_join(s->folder, name), buffer[1 << 16];
    FILE *from = NULL;
    ist_status status =
        path ? ist_open_file(path, &from, err) : ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->folder);
    if (!status && !from)
        status = ist_fail(err, IST_E_IO, "%s: %s; predict --resume makes what is missing", path, strerror(ENOENT));
    if (status) {
        free(path);
        return status;
    }
    status = ist_atomic_begin_in(file, m->output, name, err);
    for (size_t n; !status && (n = fread(buffer, 1, sizeof buffer, from));) fwrite(buffer, 1, n, file->stream);
    if (!status && ferror(from)) status = ist_fail(err, IST_E_IO, "cannot read %s", path);
    fclose(from);
    free(path);
    if (!status) return ist_atomic_end(file, err);
    ist_atomic_abort(file);
    return status;
}

static ist_status copy_files(const merge *m, const shard *s, const ist_source *source, predict_files *files,
                             ist_error *err) {
    ist_text name = {0};
    ist_status status = IST_OK;
    files->count = 0;
    for (int kind = 0; kind < PREDICT_IMAGE_FILES && !status; kind++) {
        if (!predict_image_file(kind, m->save, source, &name)) continue;
        status = ist_text_status(&name, err);
        if (!status) status = copy_file(m, s, name.data, &files->list[files->count], err);
        if (!status) files->count++;
    }
    ist_text_free(&name);
    if (status) predict_drop_files(files);
    return status;
}

/* Images whose files wait for the disk together. */
typedef struct gathered {
    ist_journal *journal;
    ist_atomic_file files[128 * PREDICT_IMAGE_FILES];
    ist_text lines[128];
    size_t index[128];
    size_t file_count, count;
} gathered;

static ist_status save_gathered(gathered *g, ist_error *err) {
    size_t done;
    ist_status status = ist_atomic_commit_all(g->files, g->file_count, false, &done, err);
    for (size_t i = 0; i < g->count && !status; i++)
        status = ist_journal_append(g->journal, g->index[i], &g->lines[i], err);
    g->file_count = g->count = 0;
    return status;
}

static ist_status take_image(merge *m, shard *s, size_t index, gathered *g, ist_error *err) {
    const ist_source *source = &m->sources.items[index];
    predict_files files = {0};
    if (s->failed_file && !strcmp(s->failed_file, source->path) &&
        (!s->line_file || strcmp(s->line_file, source->path))) {
        ist_text_add(&m->failed, s->failure.data, s->failure.length);
        ist_text_put(&m->failed, "\n");
        m->failures++;
        return next_line(s, s->failures, &s->failure, &s->failed_file, err);
    }
    if (!s->line_file || strcmp(s->line_file, source->path))
        return ist_fail(err, IST_E_INPUT, "%s has neither result nor failure of %s", s->folder, source->path);
    IST_TRY(copy_files(m, s, source, &files, err));
    for (size_t k = 0; k < files.count; k++) g->files[g->file_count++] = files.list[k];
    ist_text_clear(&g->lines[g->count]);
    ist_text_add(&g->lines[g->count], s->line.data, s->line.length);
    g->index[g->count++] = index;
    m->done++;
    IST_TRY(next_line(s, s->lines, &s->line, &s->line_file, err));
    return g->count == sizeof g->index / sizeof *g->index ? save_gathered(g, err) : IST_OK;
}

static ist_status take_images(merge *m, gathered *g, ist_error *err) {
    size_t *owner = calloc(m->sources.count + 1, sizeof *owner);
    if (!owner) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu images", m->sources.count);
    for (int i = 0; i < m->count; i++)
        for (size_t k = 0; k < m->shards[i].sources.count; k++) owner[m->shards[i].part.positions[k]] = (size_t)i;
    ist_status status = IST_OK;
    for (size_t i = 0; i < m->sources.count && !status; i++) status = take_image(m, &m->shards[owner[i]], i, g, err);
    if (!status) status = save_gathered(g, err);
    for (size_t k = 0; k < g->file_count; k++) ist_atomic_abort(&g->files[k]);
    for (size_t i = 0; i < sizeof g->lines / sizeof *g->lines; i++) ist_text_free(&g->lines[i]);
    free(owner);
    return status;
}

static ist_status write_all(merge *m, predict_job *job, ist_error *err) {
    const ist_journal_setup setup = {.resume = false};
    predict_remove_tables(job->options);
    IST_TRY(ist_journal_open(m->output, &job->sources, &setup, &job->journal, err));
    IST_TRY(ist_atomic_write_in(m->output, IST_RUN_OPTIONS_NAME, m->run, m->run_bytes, err));
    gathered *g = calloc(1, sizeof *g);
    if (!g) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", m->output);
    g->journal = job->journal;
    ist_status status = take_images(m, g, err);
    free(g);
    return status ? status : predict_write_tables(job, &m->failed, err);
}

/* In the folder of the output, which is claimed and was there up to `there`. */
static int write_claimed(merge *m, size_t there) {
    ist_error err;
    predict_options o = {.command = "merge", .output = m->output, .save = m->save};
    predict_job job = {.options = &o, .sources = m->sources};
    const ist_shard_part *part = &m->shards[0].part;
    job.labels = (ist_labels){
        .is_coco = part->is_coco, .categories = part->categories, .count = part->category_count}; /* stays the part's */
    ist_status status = write_all(m, &job, &err);
    ist_journal_close(&job.journal);
    if (status) {
        ist_remove_empty_folders(m->output, there);
        return cli_fail(CLI_FAILED, "%s", err.text);
    }
    if (!m->quiet)
        cli_note("%zu %s of %d shards, %zu failed, results in %s", m->done, ist_plural(m->done, "image", "images"),
                 m->count, m->failures, m->output);
    if (!m->failures) return CLI_SUCCESS;
    return m->done ? CLI_PARTIAL : CLI_FAILED;
}

static int write_merged(merge *m) {
    ist_error err;
    size_t there;
    int claim = -1;
    if (predict_prepare_folder(m->output, &there, &err) || predict_claim_folder(m->output, &claim, &err))
        return cli_fail(CLI_FAILED, "%s", err.text);
    int code = write_claimed(m, there);
    ist_claim_end(&claim);
    return code;
}

/* ---- the command ---- */

/* What is read would be written over. */
static bool is_input(const merge *m) {
    struct stat out, in;
    for (int i = 0; i < m->count; i++)
        if (!stat(m->output, &out) && !stat(m->shards[i].folder, &in) && out.st_dev == in.st_dev &&
            out.st_ino == in.st_ino)
            return true;
    return false;
}

/* The options and folders; the exit code in *code when that is all there is to do. */
static bool parse(int argc, char **argv, merge *m, int *code) {
    const char *value;
    int id;
    while ((id = cli_next("merge", cmd_merge_options, argc, argv, &value, code)) != CLI_END) {
        if (id == CLI_STOP) return false;
        if (id == 'o') m->output = value;
        if (id == 256) m->quiet = true;
    }
    m->count = argc - optind;
    if (m->count < 1)
        *code = cli_usage("merge", "name the folders of predict --shard");
    else if (!m->output || !*m->output)
        *code = cli_usage("merge", "-o DIR is missing");
    else if (!(m->shards = calloc((size_t)m->count, sizeof *m->shards)))
        *code = cli_fail(CLI_FAILED, "out of memory for %d folders", m->count);
    for (int i = 0; i < m->count && !*code; i++) m->shards[i].folder = argv[optind + i];
    if (!*code && is_input(m)) *code = cli_usage("merge", "-o: %s is one of the folders to merge", m->output);
    return !*code;
}

static ist_status prepare(merge *m, ist_error *err) {
    IST_TRY(read_shards(m, err));
    IST_TRY(check_shards(m, err));
    IST_TRY(read_run(m, err));
    for (int i = 0; i < m->count; i++) IST_TRY(open_lines(&m->shards[i], err));
    return join_sources(m, err);
}

static void free_merge(merge *m) {
    for (int i = 0; i < m->count && m->shards; i++) {
        shard *s = &m->shards[i];
        if (s->lines) fclose(s->lines);
        if (s->failures) fclose(s->failures);
        ist_text_free(&s->line);
        ist_text_free(&s->failure);
        free(s->line_file);
        free(s->failed_file);
        ist_shard_part_free(&s->part);
        ist_sources_free(&s->sources);
    }
    free(m->shards);
    free(m->run);
    ist_sources_free(&m->sources);
    ist_text_free(&m->failed);
}

int cmd_merge(int argc, char **argv) {
    merge m = {0};
    ist_error err;
    int code = CLI_SUCCESS;
    if (parse(argc, argv, &m, &code)) {
        ist_status status = prepare(&m, &err);
        if (status) code = cli_fail(status == IST_E_ARGUMENT ? CLI_USAGE : CLI_FAILED, "%s", err.text);
        if (!code) code = predict_parse_save("merge", m.shards[0].part.save, &m.save);
        if (!code) code = write_merged(&m);
    }
    free_merge(&m);
    return code;
}
