/* DICOM files without DCMTK: explicit VR, little endian, element by element. */
#ifndef DICOM_FILE_H
#define DICOM_FILE_H

#include "scratch.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dicom_file {
    uint8_t bytes[1 << 16];
    size_t count;
} dicom_file;

static inline void dicom_raw(dicom_file *f, const void *bytes, size_t count) {
    cr_assert(f->count + count <= sizeof f->bytes);
    memcpy(f->bytes + f->count, bytes, count);
    f->count += count;
}

static inline void dicom_number(dicom_file *f, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) dicom_raw(f, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

/* Length UINT32_MAX: none is known, and what follows is the caller's. */
static inline void dicom_element(dicom_file *f, uint32_t tag, const char *vr, const void *value, uint32_t length) {
    bool known = length != UINT32_MAX, wide = strstr("OB OW SQ UN", vr) != NULL;
    dicom_number(f, tag >> 16, 2);
    dicom_number(f, tag & 0xFFFF, 2);
    dicom_raw(f, vr, 2);
    if (wide) dicom_number(f, 0, 2);
    dicom_number(f, known ? length + length % 2 : length, wide ? 4 : 2);
    if (known) dicom_raw(f, value, length);
    if (known && length % 2) dicom_raw(f, strcmp(vr, "UI") && strcmp(vr, "OB") ? " " : "", 1);
}

static inline void dicom_text(dicom_file *f, uint32_t tag, const char *vr, const char *text) {
    dicom_element(f, tag, vr, text, (uint32_t)strlen(text));
}

static inline void dicom_short(dicom_file *f, uint32_t tag, unsigned value) {
    const uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    dicom_element(f, tag, "US", bytes, 2);
}

/* Preamble and meta header; transfer syntax 1.2.840.10008.1.2.SYNTAX. */
static inline void dicom_begin(dicom_file *f, const char *syntax) {
    char uid[64];
    snprintf(uid, sizeof uid, "1.2.840.10008.1.2.%s", syntax);
    uint32_t length = 8 + (uint32_t)(strlen(uid) + strlen(uid) % 2);
    f->count = 0;
    dicom_raw(f, (const uint8_t[128]){0}, 128);
    dicom_raw(f, "DICM", 4);
    const uint8_t bytes[4] = {(uint8_t)length};
    dicom_element(f, 0x00020000, "UL", bytes, 4);
    dicom_text(f, 0x00020010, "UI", uid);
}

/* What describes the pixels, in the order of tags; frames 1: not said. */
static inline void dicom_describe(dicom_file *f, int samples, const char *photometric, int frames, int width,
                                  int height, int allocated, int stored, int with_sign, int planar) {
    char text[16];
    dicom_short(f, 0x00280002, (unsigned)samples);
    dicom_text(f, 0x00280004, "CS", photometric);
    if (samples == 3) dicom_short(f, 0x00280006, (unsigned)planar);
    snprintf(text, sizeof text, "%d", frames);
    if (frames != 1) dicom_text(f, 0x00280008, "IS", text);
    dicom_short(f, 0x00280010, (unsigned)height);
    dicom_short(f, 0x00280011, (unsigned)width);
    dicom_short(f, 0x00280100, (unsigned)allocated);
    dicom_short(f, 0x00280101, (unsigned)stored);
    dicom_short(f, 0x00280102, (unsigned)stored - 1);
    dicom_short(f, 0x00280103, (unsigned)with_sign);
}

static inline void dicom_pixels(dicom_file *f, const void *pixels, uint32_t bytes, int allocated) {
    dicom_element(f, 0x7FE00010, allocated > 8 ? "OW" : "OB", pixels, bytes);
}

#endif
