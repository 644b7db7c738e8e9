/* Sizes from headers: see image_size.h. */
#include "io/image_size.h"

#include "io/frames.h"
#include "io/image_format.h"

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

/* A transparent colour, which comes later in the file, makes a channel more. */
static void measure_png(const unsigned char *head, size_t max_pixels, ist_image_size *s) {
    static const unsigned char channels[7] = {2, 0, 4, 4, 2, 0, 4};
    unsigned depth = head[24], type = head[25];
    if (type > 6 || !channels[type]) return;
    ist_image_size_set(s, big_endian(head + 16, 4), big_endian(head + 20, 4), channels[type] * (depth == 16 ? 2u : 1u),
                       max_pixels);
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
        size_t channels = b[5] == 1 ? 1 : b[5] == 4 ? 4 : 3; /* 4: CMYK, which becomes RGB in its place */
        ist_image_size_set(s, big_endian(b + 3, 2), big_endian(b + 1, 2), channels, max_pixels);
        if (marker != MARKER_SOF && marker != MARKER_SOF + 1) s->passing += 2 * s->decoded;
        return true;
    }
}

/* Closes the file. `other` is set where only its container can tell. */
static ist_image_size measure(FILE *file, size_t bytes, size_t max_pixels, bool *other) {
    unsigned char head[IST_IMAGE_HEAD] = {0};
    ist_image_size s = {0};
    size_t n = fread(head, 1, sizeof head, file);
    const ist_image_format *format = ist_image_format_of(head, n);
    bool unclear = false;
    *other = ist_container_of(format, head, n) != NULL;
    if (!*other && format && format->measure) {
        format->measure(head, n, max_pixels, &s, &unclear);
    } else if (format && format->decode == ist_png_decode) {
        if (n >= IHDR_END) measure_png(head, max_pixels, &s);
    } else if (format && format->decode == ist_jpeg_decode) {
        unclear = n > 3 && !measure_jpeg(file, max_pixels, &s);
    }
    if (unclear) ist_image_size_set(&s, max_pixels, 1, 3, max_pixels);
    if (s.pixels) s.passing += bytes;
    fclose(file);
    return s;
}

/* Takes the frames, which may be none. */
static ist_image_size measure_frames(ist_frames *frames, size_t bytes) {
    ist_image_size s = {0};
    if (frames) s = ist_frames_size(frames);
    if (s.pixels) s.passing += bytes;
    ist_frames_close(&frames);
    return s;
}

ist_image_size ist_image_measure_bytes(const void *bytes, size_t count, size_t max_pixels) {
    bool other = false;
    ist_frames *frames = NULL;
    FILE *file = count ? fmemopen((void *)(uintptr_t)bytes, count, "rb") : NULL;
    ist_image_size s = file ? measure(file, count, max_pixels, &other) : (ist_image_size){0};
    if (!other) return s;
    ist_error err; /* said when it is decoded */
    ist_frames_open_bytes(bytes, count, "", max_pixels, &frames, &err);
    return measure_frames(frames, 0);
}

ist_image_size ist_image_measure(const char *path, size_t max_pixels) {
    struct stat st;
    bool other;
    ist_frames *frames = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "rb") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return (ist_image_size){0};
    }
    ist_image_size s = measure(file, (size_t)st.st_size, max_pixels, &other);
    if (!other) return s;
    ist_error err;
    ist_frames_open(path, max_pixels, &frames, &err);
    return measure_frames(frames, (size_t)st.st_size); /* ist_bitmap_read has all of the file in memory */
}
