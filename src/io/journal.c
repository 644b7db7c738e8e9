/* The growing frames.ndjson: see journal.h. */
#include "io/journal.h"

#include "io/atomic_file.h"
#include "io/name_map.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct journal_line {
    off_t offset;
    size_t length; /* with newline; 0: the image has no line yet */
} journal_line;

struct ist_journal {
    const ist_sources *sources;
    journal_line *lines; /* one per source, */
    size_t count, room;  /* of which there are so many, and so many would fit */
    char *folder, *path, *partial;
    FILE *stream; /* the partial file, at its end */
    off_t end;
    size_t last; /* index of the line written last, plus 1 */
    bool sorted, unchanged, lazy;
};

/* The path of a line's image, malloc'd, and what it says; NULL when the line is not one of ours. */
static char *line_file(const char *line, size_t length, ist_journal_frame *frame) {
    json_t *root = json_loadb(line, length, 0, NULL);
    const char *file = json_string_value(json_object_get(root, "file"));
    const char *bytes = json_string_value(json_object_get(root, "file_bytes"));
    bool ours = json_integer_value(json_object_get(root, "schema")) == 1 && file;
    char *path = !ours ? NULL : bytes ? ist_text_from_hex(bytes) : ist_strdup(file);
    *frame = (ist_journal_frame){.width = (int)json_integer_value(json_object_get(root, "width")),
                                 .height = (int)json_integer_value(json_object_get(root, "height")),
                                 .objects = json_array_size(json_object_get(root, "objects"))};
    json_decref(root);
    return path;
}

static ist_status read_line(FILE *stream, ist_text *line, bool *complete) {
    char buffer[4096];
    ist_text_clear(line);
    *complete = false;
    while (!*complete && fgets(buffer, sizeof buffer, stream)) {
        ist_text_put(line, buffer);
        *complete = line->length && line->data[line->length - 1] == '\n';
    }
    return ist_text_status(line, NULL);
}

/* Images with one path, as a list: the n-th line that a file has of the path belongs to the n-th of them. */
typedef struct twins {
    size_t next; /* image with the same path; NONE: there is no other */
    size_t last; /* of the first one: the end of the list, */
    size_t turn; /* and whose line comes next; NONE behind the end */
} twins;

#define NONE SIZE_MAX

/* Collects lines of an earlier run: kept[i] becomes the line of image i. */
typedef struct collector {
    const ist_sources *sources;
    ist_name_map files; /* path -> first image with it */
    twins *twins;       /* one per image */
    char **kept;
    size_t line; /* of the file that is read */
    bool moved;  /* not every line so far was kept as the one of the image in its place */
    ist_journal_check check;
    void *context;
} collector;

static bool index_files(collector *c) {
    const ist_source *items = c->sources->items;
    bool fits = true, inserted;
    for (size_t i = 0; i < c->sources->count && fits; i++) {
        fits = ist_name_map_insert(&c->files, items[i].path, i, &inserted);
        c->twins[i] = (twins){.next = NONE, .last = i};
        if (!fits || inserted) continue;
        twins *t = &c->twins[*ist_name_map_find(&c->files, items[i].path)];
        c->twins[t->last].next = i;
        t->last = i;
    }
    return fits;
}

static bool keep_line(collector *c, const ist_text *line) {
    size_t place = c->line++;
    bool moved = c->moved;
    c->moved = true;
    ist_journal_frame frame;
    char *file = line_file(line->data, line->length, &frame);
    const size_t *first = file ? ist_name_map_find(&c->files, file) : NULL;
    free(file);
    if (!first) return true;
    twins *t = &c->twins[*first];
    size_t index = t->turn == NONE ? t->last : t->turn;
    t->turn = c->twins[index].next;
    if (!c->check(c->context, &c->sources->items[index], &frame)) return true;
    char *copy = ist_strdup(line->data);
    if (!copy) return false;
    free(c->kept[index]); /* the later file, and in it the later line, is the newer */
    c->kept[index] = copy;
    c->moved = moved || index != place;
    return true;
}

static ist_status collect(collector *c, const char *path, ist_error *err) {
    FILE *stream;
    IST_TRY(ist_open_file(path, &stream, err));
    if (!stream) return IST_OK;
    ist_text line = {0};
    bool complete = true, fits = true;
    for (size_t i = 0; i < c->sources->count; i++) c->twins[i].turn = i;
    while (fits && complete) {
        fits = !read_line(stream, &line, &complete);
        if (fits && complete) fits = keep_line(c, &line);
        if (!complete && line.length) c->moved = true; /* a line that was cut off */
    }
    ist_text_free(&line);
    fclose(stream);
    return fits ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
}

/* Writes the kept lines, in input order, as the new partial file. */
static ist_status start_with(ist_journal *j, char **kept, ist_error *err) {
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin_in(&file, j->folder, IST_JOURNAL_PARTIAL, err));
    file.lazy = j->lazy;
    for (size_t i = 0; i < j->sources->count; i++) {
        size_t length = kept[i] ? strlen(kept[i]) : 0;
        if (!length) continue;
        fwrite(kept[i], 1, length, file.stream);
        j->lines[i] = (journal_line){j->end, length};
        j->end += (off_t)length;
        j->last = i + 1;
    }
    return ist_atomic_commit(&file, err);
}

static ist_status resume_from(ist_journal *j, const ist_journal_setup *setup, ist_error *err) {
    size_t count = j->sources->count;
    collector c = {.sources = j->sources, .check = setup->check, .context = setup->context};
    c.kept = calloc(count ? count : 1, sizeof *c.kept);
    c.twins = calloc(count ? count : 1, sizeof *c.twins);
    bool fits = c.kept && c.twins && index_files(&c);
    ist_status status = fits ? IST_OK : ist_fail(err, IST_E_MEMORY, "%s: out of memory", j->path);
    if (!status) status = collect(&c, j->path, err);
    size_t lines = c.line;
    c.line = 0;
    if (!status) status = collect(&c, j->partial, err);
    j->unchanged = !c.moved && lines == count && !c.line;
    if (!status) status = start_with(j, c.kept, err);
    for (size_t i = 0; c.kept && i < count; i++) free(c.kept[i]);
    free(c.kept);
    free(c.twins);
    ist_name_map_free(&c.files);
    return status;
}

ist_status ist_journal_sync(ist_journal *j, ist_error *err) {
    int code = j->lazy ? 0 : ist_sync(fileno(j->stream));
    return code ? ist_fail(err, IST_E_IO, "cannot write %s: %s", j->partial, strerror(code)) : IST_OK;
}

static ist_status sync_folder(const ist_journal *j, ist_error *err) {
    return j->lazy ? IST_OK : ist_sync_folder(j->folder, err);
}

/* The partial file to append to: a new one that nobody else has made, or what start_with has just put there. */
static ist_status open_partial(ist_journal *j, bool resume, ist_error *err) {
    int fd = open(j->partial, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (resume ? 0 : O_CREAT | O_EXCL), 0666);
    if (fd >= 0 && (j->stream = fdopen(fd, resume ? "r+b" : "w+b"))) return IST_OK;
    ist_status status = ist_fail(err, IST_E_IO, "cannot write %s: %s", j->partial, strerror(errno));
    if (fd >= 0) close(fd);
    return status;
}

/* What an earlier run left is gone from the disk before the new options are on it, and those before any result is. */
static ist_status begin_again(ist_journal *j, const ist_journal_setup *setup, ist_error *err) {
    const char *const old[] = {j->path, j->partial};
    for (int i = 0; i < 2; i++)
        if (unlink(old[i]) && errno != ENOENT)
            return ist_fail(err, IST_E_IO, "cannot remove %s: %s", old[i], strerror(errno));
    IST_TRY(sync_folder(j, err));
    IST_TRY(ist_run_options_write(j->folder, setup->options, setup->option_count, false, j->lazy, err));
    IST_TRY(open_partial(j, false, err));
    return sync_folder(j, err);
}

static ist_status go_on(ist_journal *j, const ist_journal_setup *setup, ist_error *err) {
    bool lines = !access(j->path, F_OK) || !access(j->partial, F_OK);
    if (lines) IST_TRY(ist_run_options_check(j->folder, setup->options, setup->option_count, err));
    IST_TRY(ist_run_options_write(j->folder, setup->options, setup->option_count, lines, j->lazy, err));
    IST_TRY(resume_from(j, setup, err));
    return open_partial(j, true, err);
}

static ist_status open_in(ist_journal *j, const char *folder, const ist_journal_setup *setup, ist_error *err) {
    size_t count = j->sources->count;
    j->folder = ist_strdup(folder);
    j->path = ist_path_join(folder, IST_JOURNAL_NAME);
    j->partial = ist_path_join(folder, IST_JOURNAL_PARTIAL);
    j->lines = calloc(count ? count : 1, sizeof *j->lines);
    j->count = j->room = count;
    if (!j->folder || !j->path || !j->partial || !j->lines)
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    IST_TRY(ist_refuse_link(folder, IST_JOURNAL_NAME, err));
    IST_TRY(ist_refuse_link(folder, IST_JOURNAL_PARTIAL, err));
    return setup->resume ? go_on(j, setup, err) : begin_again(j, setup, err);
}

ist_status ist_journal_open(const char *folder, const ist_sources *sources, const ist_journal_setup *setup,
                            ist_journal **journal, ist_error *err) {
    *journal = NULL;
    ist_journal *j = calloc(1, sizeof *j);
    if (!j) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    j->sources = sources;
    j->sorted = true;
    j->lazy = setup->lazy;
    ist_status status = open_in(j, folder, setup, err);
    if (status) ist_journal_close(&j);
    *journal = j;
    return status;
}

ist_status ist_journal_extend(ist_journal *j, ist_error *err) {
    size_t count = j->sources->count;
    if (count <= j->count) return IST_OK;
    if (!ist_grow((void **)&j->lines, &j->room, count, sizeof *j->lines))
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu images", j->path, count);
    memset(j->lines + j->count, 0, (count - j->count) * sizeof *j->lines);
    j->count = count;
    return IST_OK;
}

bool ist_journal_has(const ist_journal *journal, size_t index) {
    return journal->lines[index].length != 0;
}

ist_status ist_journal_append(ist_journal *j, size_t index, const ist_text *line, ist_error *err) {
    IST_TRY(ist_text_status(line, err));
    if (j->lines[index].length)
        return ist_fail(err, IST_E_STATE, "%s: image %zu has its line already", j->partial, index);
    if (fseeko(j->stream, j->end, SEEK_SET) || fwrite(line->data, 1, line->length, j->stream) != line->length ||
        fputc('\n', j->stream) == EOF || fflush(j->stream))
        return ist_fail(err, IST_E_IO, "cannot write %s: %s", j->partial, strerror(errno));
    j->lines[index] = (journal_line){j->end, line->length + 1};
    j->end += (off_t)(line->length + 1);
    if (index + 1 < j->last) j->sorted = false;
    j->last = index + 1;
    j->unchanged = false;
    return IST_OK;
}

bool ist_journal_is_unchanged(const ist_journal *journal) {
    return journal->unchanged;
}

size_t ist_journal_length(const ist_journal *journal, size_t index) {
    return journal->lines[index].length;
}

/* By pread, so that many threads may read at a time. */
ist_status ist_journal_line(const ist_journal *j, size_t index, ist_text *line, ist_error *err) {
    const journal_line *l = &j->lines[index];
    if (!l->length) return ist_fail(err, IST_E_STATE, "%s: image %zu has no line", j->partial, index);
    char *at = ist_text_room(line, l->length);
    if (!at) return ist_text_status(line, err);
    for (size_t done = 0; done < l->length;) {
        ssize_t n = pread(fileno(j->stream), at + done, l->length - done, l->offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ist_fail(err, IST_E_IO, "cannot read %s: %s", j->partial, strerror(errno));
        if (n == 0) return ist_fail(err, IST_E_IO, "cannot read %s: it became shorter", j->partial);
        done += (size_t)n;
    }
    at[--line->length] = '\0';
    return IST_OK;
}

static ist_status write_sorted(ist_journal *j, FILE *out, ist_error *err) {
    ist_text line = {0};
    ist_status status = IST_OK;
    for (size_t i = 0; i < j->sources->count && !status; i++) {
        if (!j->lines[i].length) continue;
        status = ist_journal_line(j, i, &line, err);
        if (!status) fprintf(out, "%s\n", line.data);
    }
    ist_text_free(&line);
    return status;
}

ist_status ist_journal_commit(ist_journal *j, ist_error *err) {
    if (j->sorted) {
        IST_TRY(ist_journal_sync(j, err));
        if (rename(j->partial, j->path))
            return ist_fail(err, IST_E_IO, "cannot write %s: %s", j->path, strerror(errno));
        return sync_folder(j, err);
    }
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin_in(&file, j->folder, IST_JOURNAL_NAME, err));
    file.lazy = j->lazy;
    ist_status status = write_sorted(j, file.stream, err);
    if (status) {
        ist_atomic_abort(&file);
        return status;
    }
    IST_TRY(ist_atomic_commit(&file, err));
    unlink(j->partial);
    return IST_OK;
}

void ist_journal_discard(ist_journal *journal) {
    char *options = ist_path_join(journal->folder, IST_RUN_OPTIONS_NAME);
    unlink(journal->partial);
    if (options) unlink(options);
    free(options);
}

void ist_journal_close(ist_journal **journal) {
    ist_journal *j = *journal;
    if (!j) return;
    if (j->stream) fclose(j->stream);
    free(j->folder);
    free(j->path);
    free(j->partial);
    free(j->lines);
    free(j);
    *journal = NULL;
}
