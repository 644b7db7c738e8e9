/* OpenIGTLink out: see igtl.h. */
#include "live/igtl.h"

#ifdef ISTHMUS_OPENIGTLINK

#include <igtl_header.h>
#include <igtl_image.h>
#include <igtl_point.h>
#include <igtl_polydata.h>
#include <igtl_string.h>
#include <igtl_types.h>
#include <igtl_util.h>

#include <stdlib.h>
#include <string.h>

enum { UTF8 = 106 /* IANA's number of the character set */, MAX_STRING = 65535, OPAQUE = 255 };

/* Begins a message; `finish` fills in the rest of its header. Where it begins. */
static size_t begin(ist_text *out, const char *type, const char *device, const char *suffix, uint64_t timestamp) {
    igtl_header h;
    size_t at = out->length, tail = strlen(suffix), room = sizeof h.device_name - tail;
    size_t head = strlen(device) < room ? strlen(device) : room;
    memset(&h, 0, sizeof h);
    h.version = IGTL_HEADER_VERSION;
    memcpy(h.name, type, strlen(type));
    memcpy(h.device_name, device, head);
    memcpy(h.device_name + head, suffix, tail);
    h.timestamp = timestamp;
    ist_text_add(out, (const char *)&h, sizeof h);
    return at;
}

static ist_status finish(ist_text *out, size_t at, ist_error *err) {
    igtl_header h;
    IST_TRY(ist_text_status(out, err));
    unsigned char *body = (unsigned char *)out->data + at + sizeof h;
    memcpy(&h, out->data + at, sizeof h);
    h.body_size = out->length - at - sizeof h;
    h.crc = crc64(body, h.body_size, 0);
    igtl_header_convert_byte_order(&h);
    memcpy(out->data + at, &h, sizeof h);
    return IST_OK;
}

ist_status ist_igtl_put_image(ist_text *out, const ist_live_frame *frame, const char *suffix, const ist_bitmap *image,
                              ist_error *err) {
    igtl_image_header h;
    memset(&h, 0, sizeof h);
    h.version = IGTL_IMAGE_HEADER_VERSION;
    h.num_components = (igtl_uint8)ist_format_channels(image->format);
    h.scalar_type = ist_format_bytes(image->format) == 2 ? IGTL_IMAGE_STYPE_TYPE_UINT16 : IGTL_IMAGE_STYPE_TYPE_UINT8;
    h.endian = igtl_is_little_endian() ? IGTL_IMAGE_ENDIAN_LITTLE : IGTL_IMAGE_ENDIAN_BIG;
    h.coord = frame->geometry.coord;
    memcpy(h.size, frame->geometry.size, sizeof h.size);
    memcpy(h.subvol_size, frame->geometry.size, sizeof h.subvol_size);
    memcpy(h.matrix, frame->geometry.matrix, sizeof h.matrix);
    igtl_image_convert_byte_order(&h);
    size_t at = begin(out, "IMAGE", frame->device, suffix, frame->timestamp);
    ist_text_add(out, (const char *)&h, sizeof h);
    ist_text_add(out, image->pixels, image->stride * (size_t)image->height);
    return finish(out, at, err);
}

ist_status ist_igtl_put_string(ist_text *out, const ist_live_frame *frame, const char *suffix, const char *text,
                               size_t length, ist_error *err) {
    if (length > MAX_STRING)
        return ist_fail(err, IST_E_LIMIT, "STRING: %zu bytes, a message has room for %d", length, MAX_STRING);
    igtl_string_header h = {.encoding = UTF8, .length = (igtl_uint16)length};
    igtl_string_convert_byte_order(&h);
    size_t at = begin(out, "STRING", frame->device, suffix, frame->timestamp);
    ist_text_add(out, (const char *)&h, sizeof h);
    ist_text_add(out, text, length);
    return finish(out, at, err);
}

/* From pixels of the frame's image to millimetres, RAS. */
static void to_world(const ist_live_geometry *g, float x, float y, float out[3]) {
    const uint16_t *s = g->size;
    const float *m = g->matrix;
    float ijk[3] = {0, 0, 0};
    ijk[s[2] == 1 || s[0] > 1 ? 0 : 1] = x;
    ijk[s[2] == 1 ? 1 : 2] = y;
    for (int c = 0; c < 3; c++) {
        out[c] = m[9 + c];
        for (int axis = 0; axis < 3; axis++) out[c] += m[3 * axis + c] * (ijk[axis] - 0.5f * (float)(s[axis] - 1));
    }
    if (g->coord == IGTL_IMAGE_COORD_LPS) out[0] = -out[0], out[1] = -out[1];
}

ist_status ist_igtl_put_points(ist_text *out, const ist_live_frame *frame, const char *suffix,
                               const ist_igtl_point *points, size_t count, ist_error *err) {
    size_t at = begin(out, "POINT", frame->device, suffix, frame->timestamp);
    for (size_t i = 0; i < count; i++) {
        igtl_point_element e;
        float position[3];
        memset(&e, 0, sizeof e);
        to_world(&frame->geometry, points[i].x, points[i].y, position);
        memcpy(e.position, position, sizeof e.position);
        memcpy(e.name, points[i].name, strnlen(points[i].name, sizeof e.name - 1));
        memcpy(e.group_name, "box", sizeof "box");
        memcpy(e.rgba, points[i].color, sizeof points[i].color);
        e.rgba[3] = OPAQUE;
        memcpy(e.owner, frame->device, strlen(frame->device));
        igtl_point_convert_byte_order(&e, 1);
        ist_text_add(out, (const char *)&e, sizeof e);
    }
    return finish(out, at, err);
}

ist_status ist_igtl_put_loops(ist_text *out, const ist_live_frame *frame, const char *suffix, const float (*corners)[2],
                              const uint32_t *counts, size_t loops, ist_error *err) {
    igtl_polydata_info info;
    size_t points = 0, at;
    for (size_t i = 0; i < loops; i++) points += counts[i];
    igtl_polydata_init_info(&info);
    if (points > INT32_MAX / sizeof(float[3])) return ist_fail(err, IST_E_LIMIT, "POLYDATA: %zu points", points);
    info.header.npoints = (igtl_uint32)points;
    info.header.nlines = (igtl_uint32)loops;
    info.header.size_lines =
        (igtl_uint32)((points + 2 * loops) * sizeof(igtl_uint32)); /* counts and ends beside them */
    if (!igtl_polydata_alloc_info(&info)) return ist_fail(err, IST_E_MEMORY, "POLYDATA: out of memory");
    for (size_t i = 0; i < points; i++) to_world(&frame->geometry, corners[i][0], corners[i][1], info.points + 3 * i);
    igtl_uint32 *line = info.lines, first = 0;
    for (size_t i = 0; i < loops; first += counts[i++]) {
        *line++ = counts[i] + 1;
        for (igtl_uint32 k = 0; k < counts[i]; k++) *line++ = first + k;
        *line++ = first;
    }
    at = begin(out, "POLYDATA", frame->device, suffix, frame->timestamp);
    size_t size = (size_t)igtl_polydata_get_size(&info, IGTL_TYPE_PREFIX_NONE);
    unsigned char *bytes = malloc(size);
    bool packed = bytes && igtl_polydata_pack(&info, bytes, IGTL_TYPE_PREFIX_NONE);
    if (packed) ist_text_add(out, (const char *)bytes, size);
    free(bytes);
    igtl_polydata_free_info(&info);
    return packed ? finish(out, at, err) : ist_fail(err, IST_E_MEMORY, "POLYDATA: out of memory for %zu bytes", size);
}

ist_status ist_igtl_put_status(ist_text *out, const char *device, int code, const char *sentence, ist_error *err) {
    const unsigned char body[30] = {(unsigned char)(code >> 8), (unsigned char)code}; /* subcode 0, no error name */
    size_t at = begin(out, "STATUS", device, "", ist_live_now());
    ist_text_add(out, (const char *)body, sizeof body);
    ist_text_add(out, sentence, strlen(sentence) + 1);
    return finish(out, at, err);
}

#endif
