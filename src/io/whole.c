/* Files that are there and whole: see whole.h. Links are none. */
#include "io/whole.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *open_regular(const char *path, off_t *size) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return NULL;
    FILE *file = !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "rb") : NULL;
    if (!file) close(fd);
    *size = st.st_size;
    return file;
}

static bool ends_with(FILE *file, off_t size, const void *tail, size_t count) {
    unsigned char end[16];
    return count <= sizeof end && size >= (off_t)count && !fseeko(file, size - (off_t)count, SEEK_SET) &&
           fread(end, 1, count, file) == count && !memcmp(end, tail, count);
}

static uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool ist_png_is_whole(const char *path, int width, int height) {
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    static const unsigned char iend[12] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};
    unsigned char head[24];
    off_t size;
    FILE *file = open_regular(path, &size);
    if (!file) return false;
    bool whole = fread(head, 1, sizeof head, file) == sizeof head && !memcmp(head, signature, sizeof signature) &&
                 big_endian(head + 16) == (uint32_t)width && big_endian(head + 20) == (uint32_t)height &&
                 ends_with(file, size, iend, sizeof iend);
    fclose(file);
    return whole;
}

bool ist_lines_are_whole(const char *path, size_t lines) {
    off_t size;
    FILE *file = open_regular(path, &size);
    if (!file) return false;
    int c, last = '\n';
    size_t count = 0;
    for (; (c = getc(file)) != EOF; last = c) count += c == '\n';
    bool whole = !ferror(file) && last == '\n' && count == lines;
    fclose(file);
    return whole;
}

bool ist_file_ends_with(const char *path, const char *tail) {
    off_t size;
    FILE *file = open_regular(path, &size);
    bool whole = file && ends_with(file, size, tail, strlen(tail));
    if (file) fclose(file);
    return whole;
}
