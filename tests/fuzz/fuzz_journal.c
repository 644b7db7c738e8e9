/* libFuzzer: any bytes as what an interrupted run left: frames.ndjson, frames.ndjson.partial and run.json, separated by
 * bytes 0xFE. A resumed run then gives the images without a line theirs, and must end with one line for each, in order.
 *
 * Files lie in memory (/dev/shm) where there is such a folder. */
#include "io/journal.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IMAGES = 4 };

static char folder[64];

static void remove_folder(void) {
    rmdir(folder);
}

static void use_folder(void) {
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/isthmus-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
}

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *const names[] = {IST_JOURNAL_NAME, IST_JOURNAL_PARTIAL, IST_RUN_OPTIONS_NAME};

/* Each file that the input has a part for. */
static void write_files(const uint8_t *data, size_t size) {
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = i < 2 && size ? memchr(data, 0xFE, size) : NULL;
        size_t n = end ? (size_t)(end - data) : size;
        if (n) {
            int fd = open(path_of(names[i]), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd)) abort();
        }
        if (!end) return;
        data = end + 1;
        size -= n + 1;
    }
}

static bool check_frame(void *context, const ist_source *source, const ist_journal_frame *frame) {
    (void)context, (void)source;
    return frame->width >= 0 && frame->objects % 2 == 0;
}

/* The file that the line names. */
static void check_line(const char *line, const char *path) {
    json_t *root = json_loads(line, 0, NULL);
    if (!root) abort();
    const char *file = json_string_value(json_object_get(root, "file"));
    if (!file || (strcmp(file, path) && !json_object_get(root, "file_bytes"))) abort();
    json_decref(root);
}

static void finish(ist_journal *j, const ist_sources *sources) {
    ist_text line = {0};
    for (size_t i = 0; i < IMAGES; i++) {
        ist_text_clear(&line);
        if (ist_journal_has(j, i)) {
            size_t length = ist_journal_length(j, i);
            if (ist_journal_line(j, i, &line, NULL) || line.length + 1 != length) abort();
            check_line(line.data, sources->items[i].path);
        } else {
            ist_text_printf(&line, "{\"schema\":1,\"file\":\"%s\"}", sources->items[i].path);
            if (ist_journal_append(j, i, &line, NULL)) abort();
        }
    }
    ist_text_free(&line);
    if (ist_journal_commit(j, NULL)) abort();
}

static void check_result(const ist_sources *sources) {
    char *line = NULL;
    size_t room = 0, i = 0;
    FILE *f = fopen(path_of(IST_JOURNAL_NAME), "rb");
    if (!f) abort();
    for (; getline(&line, &room, f) > 0; i++) {
        if (i == IMAGES) abort();
        check_line(line, sources->items[i].path);
    }
    if (i != IMAGES || !access(path_of(IST_JOURNAL_PARTIAL), F_OK)) abort();
    free(line);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_source items[IMAGES] = {{.path = "a.png"}, {.path = "b.png"}, {.path = "a.png"}, {.path = "in/c.png"}};
    const ist_sources sources = {.items = items, .count = IMAGES};
    const ist_run_option options[] = {{.name = "conf", .value = "0.4"},
                                      {.name = "save", .value = "json", .part = true}};
    const ist_journal_setup setup = {
        .resume = true, .lazy = true, .check = check_frame, .options = options, .option_count = 2};
    ist_journal *j = NULL;
    ist_error err = {0};
    use_folder();
    write_files(data, size);
    if (ist_journal_open(folder, &sources, &setup, &j, &err)) {
        if (j || !err.text[0]) abort();
    } else {
        finish(j, &sources);
        ist_journal_close(&j);
        check_result(&sources);
    }
    for (int i = 0; i < 3; i++) unlink(path_of(names[i]));
    if (j || rmdir(folder) || mkdir(folder, 0700)) abort(); /* a file that nobody knows would be left */
    return 0;
}
