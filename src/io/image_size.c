/* Sizes from headers: see image_size.h. */
#include "io/image_size.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IHDR_END = 29, MARKER_SOF = 0xC0, MARKER_DHT = 0xC4, MARKER_JPG = 0xC8, MARKER_DAC = 0xCC, MARKER_SOF2 = 0xC2 };

static size_t big_endian(const unsigned char *p, int bytes) {
    size_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[i];
    return value;
}

static void set(ist_image_size *s, size_t width, size_t height, size_t pixel_bytes, size_t max_pixels) {
    if (!width || !height || width > max_pixels / height) return;
    s->pixels = width * height;
    s->decoded = s->pixels * pixel_bytes;
}

/* A transparent colour, which comes later in the file, makes a channel more. */
static void measure_png(const unsigned char *head, size_t max_pixels, ist_image_size *s) {
    static const unsigned char channels[7] = {2, 0, 4, 4, 2, 0, 4};
    unsigned depth = head[24], type = head[25];
    if (type > 6 || !channels[type]) return;
    set(s, big_endian(head + 16, 4), big_endian(head + 20, 4), channels[type] * (depth == 16 ? 2u : 1u), max_pixels);
}

/* From segment to segment up to the one that begins a frame; false where there is none. */
static bool measure_jpeg(FILE *file, size_t max_pixels, ist_image_size *s) {
    unsigned char b[8];
    if (fseek(file, 2, SEEK_SET)) return false;
    for (;;) {
        int marker = 0, c = 0;
        while (c != EOF && c != 0xFF) c = getc(file);
        while (c == 0xFF) marker = c = getc(file);
        if (c == EOF) return false;
        if (marker == 0 || marker == 1 || (marker >= 0xD0 && marker <= 0xD8)) continue;
        bool frame = marker >= MARKER_SOF && marker <= 0xCF && marker != MARKER_DHT && marker != MARKER_JPG &&
                     marker != MARKER_DAC;
        if (marker == 0xD9 || marker == 0xDA || fread(b, 1, 2, file) != 2 || big_endian(b, 2) < 2) return false;
        if (!frame) {
            if (fseek(file, (long)big_endian(b, 2) - 2, SEEK_CUR)) return false;
            continue;
        }
        if (fread(b, 1, 6, file) != 6) return false;
        size_t channels = b[5] == 1 ? 1 : 3;
        set(s, big_endian(b + 3, 2), big_endian(b + 1, 2), channels, max_pixels);
        if (marker != MARKER_SOF && marker != MARKER_SOF + 1) s->passing += 2 * s->decoded;
        return true;
    }
}

/* Closes the file. */
static ist_image_size measure(FILE *file, size_t bytes, size_t max_pixels) {
    static const unsigned char png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    unsigned char head[IHDR_END] = {0};
    ist_image_size s = {0};
    size_t n = fread(head, 1, sizeof head, file);
    if (n == sizeof head && !memcmp(head, png, sizeof png)) {
        measure_png(head, max_pixels, &s);
    } else if (n > 3 && head[0] == 0xFF && head[1] == 0xD8 && head[2] == 0xFF) {
        if (!measure_jpeg(file, max_pixels, &s)) set(&s, max_pixels, 1, 3, max_pixels);
    }
    if (s.pixels) s.passing += bytes;
    fclose(file);
    return s;
}

ist_image_size ist_image_measure_bytes(const void *bytes, size_t count, size_t max_pixels) {
    FILE *file = count ? fmemopen((void *)(uintptr_t)bytes, count, "rb") : NULL;
    return file ? measure(file, count, max_pixels) : (ist_image_size){0};
}

ist_image_size ist_image_measure(const char *path, size_t max_pixels) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "rb") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return (ist_image_size){0};
    }
    return measure(file, (size_t)st.st_size, max_pixels);
}
