/* libFuzzer: any bytes as the folder of a finished run that `isthmus report` reads: frames.ndjson, failed.ndjson and
 * run.json, one behind the other with a byte 0x1E between them. There is a picture 8 x 6 in the current folder, a.png,
 * and an overlay of b.png. What comes out is text between tags of ours. */
#define _GNU_SOURCE
#include "report.h"

#include "io/image.h"
#include "io/journal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEPARATOR = 0x1E, WIDTH = 8, HEIGHT = 6 };

static void write_picture(const char *path) {
    uint8_t pixels[3 * WIDTH * HEIGHT];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(5 * i);
    const ist_bitmap b = {
        .width = WIDTH, .height = HEIGHT, .format = IST_RGB8, .stride = sizeof(uint8_t[3 * WIDTH]), .pixels = pixels};
    if (ist_png_write(path, &b, NULL)) abort();
}

static char folder[] = "/dev/shm/fuzz_report.XXXXXX", other[] = "/tmp/fuzz_report.XXXXXX";

static void leave_folder(void) {
    static const char *const files[] = {"a.png", "overlays/b.png", IST_JOURNAL_NAME, "failed.ndjson", "run.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(files[i]);
    rmdir("overlays");
    rmdir(folder);
    rmdir(other);
}

/* In memory where there is such a file system. */
static void go_to_folder(void) {
    static bool there;
    if (there) return;
    there = true;
    if (chdir(mkdtemp(folder) ? folder : mkdtemp(other) ? other : "") || mkdir("overlays", 0777)) abort();
    atexit(leave_folder);
    write_picture("a.png");
    write_picture("overlays/b.png");
}

static void write_file(const char *name, const uint8_t *bytes, size_t count) {
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(bytes, 1, count, file) != count || fclose(file)) abort();
}

/* The next of the three; moves on behind it. */
static void write_part(const char *name, const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? memchr(*data, SEPARATOR, *size) : NULL;
    const size_t count = end ? (size_t)(end - *data) : *size, used = end ? count + 1 : count;
    if (count)
        write_file(name, *data, count);
    else
        unlink(name);
    *data += used;
    *size -= used;
}

typedef struct page {
    ist_text text;
    const report *r;
} page;

static ist_status put_frame(void *arg, size_t index, const json_t *frame, ist_error *err) {
    page *p = arg;
    return report_shows(p->r, index) ? report_put_picture(&p->text, p->r, frame, err) : IST_OK;
}

/* As many tags are closed as are opened, and no text has either sign, or a character that is none. */
static void check_text(const ist_text *out) {
    bool inside = false;
    for (size_t i = 0; i < out->length; i++) {
        const unsigned char c = (unsigned char)out->data[i];
        if ((c == '<' && inside) || (c == '>' && !inside) || (c < ' ' && c != '\n')) abort();
        if (c == '<' || c == '>') inside = c == '<';
    }
    if (inside) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    report r = {.folder = ".", .pictures = 4};
    page p = {.r = &r};
    ist_error err = {0};
    go_to_folder();
    write_part(IST_JOURNAL_NAME, &data, &size);
    write_part("failed.ndjson", &data, &size);
    write_part("run.json", &data, &size);
    ist_status status = report_read(&r, &err);
    if (!status) {
        report_put_summary(&p.text, &r);
        status = report_each_frame(&r, put_frame, &p, &err);
    }
    if (status && (!err.text[0] || status == IST_E_MEMORY)) abort();
    if (!status) check_text(&p.text);
    ist_text_free(&p.text);
    report_free(&r);
    return 0;
}
