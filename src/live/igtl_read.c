/* OpenIGTLink in: see igtl.h. */
#include "live/igtl.h"

#ifdef ISTHMUS_OPENIGTLINK

#include <igtl_header.h>
#include <igtl_image.h>
#include <igtl_types.h>
#include <igtl_util.h>

#include <stdlib.h>
#include <string.h>

enum { SCRATCH = 1 << 16, EXTENDED = 12 /* bytes of the extended header of versions 2 and 3 */ };
_Static_assert(sizeof(igtl_header) == sizeof(((ist_igtl_reader *)0)->header), "a header is packed");

/* ---- messages ---- */

/* Room for another 64 KiB at least; twice as much each time, and no more than the message has. */
static bool grow(ist_igtl_reader *r) {
    size_t want = r->capacity ? 2 * r->capacity : SCRATCH;
    if (r->in_body && r->wanted && want > r->body_size && r->body_size > SCRATCH) want = (size_t)r->body_size;
    unsigned char *body = realloc(r->body, want);
    if (!body) return false;
    r->body = body;
    r->capacity = want;
    return true;
}

void *ist_igtl_room(ist_igtl_reader *r, size_t *count) {
    if (!r->in_body) {
        *count = sizeof r->header - r->have;
        return r->header + r->have;
    }
    uint64_t left = r->body_size - r->have;
    size_t at = r->wanted ? r->have : 0;
    if (at == r->capacity && !grow(r)) return NULL;
    *count = r->capacity - at < SCRATCH ? r->capacity - at : SCRATCH; /* in pieces: the checksum keeps up */
    if (*count > left) *count = (size_t)left;
    return r->body + at;
}

/* Text of a fixed field; false when it has characters that no name has. */
static bool copy_name(char *to, const char *from, size_t size) {
    memcpy(to, from, size);
    to[size] = '\0';
    bool fine = true;
    for (char *p = to; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F) *p = '?', fine = false;
    return fine;
}

static ist_igtl_event take_header(ist_igtl_reader *r, ist_error *err) {
    igtl_header h;
    memcpy(&h, r->header, sizeof h);
    igtl_header_convert_byte_order(&h);
    r->version = h.version;
    r->timestamp = h.timestamp;
    r->body_size = h.body_size;
    r->crc_said = h.crc;
    copy_name(r->device, h.device_name, sizeof h.device_name);
    if (h.version < 1 || h.version > 3 || !copy_name(r->type, h.name, sizeof h.name) || !*r->type) {
        ist_fail(err, IST_E_INPUT, "this is not OpenIGTLink: a header of version %u and type '%s'", (unsigned)h.version,
                 h.version < 1 || h.version > 3 ? "" : r->type);
        return IST_IGTL_BROKEN;
    }
    if (h.body_size > IST_IGTL_MAX_BODY) {
        ist_fail(err, IST_E_LIMIT, "a message of type %s claims %llu bytes, the limit is %llu", r->type,
                 (unsigned long long)h.body_size, (unsigned long long)IST_IGTL_MAX_BODY);
        return IST_IGTL_BROKEN;
    }
    r->wanted = !strcmp(r->type, "IMAGE");
    r->in_body = true;
    r->have = 0;
    r->crc = 0;
    return IST_IGTL_MORE;
}

ist_igtl_event ist_igtl_filled(ist_igtl_reader *r, size_t count, ist_error *err) {
    if (!r->in_body) {
        r->have += count;
        if (r->have < sizeof r->header) return IST_IGTL_MORE;
        ist_igtl_event event = take_header(r, err);
        if (event == IST_IGTL_BROKEN || r->body_size) return event;
    } else {
        r->crc = crc64(r->body + (r->wanted ? r->have : 0), count, r->crc);
        r->have += count;
        if (r->have < r->body_size) return IST_IGTL_MORE;
    }
    r->in_body = false;
    r->have = 0;
    if (r->crc != r->crc_said) return IST_IGTL_BAD_CRC;
    return r->wanted ? IST_IGTL_IMAGE : IST_IGTL_OTHER;
}

void ist_igtl_reader_free(ist_igtl_reader *r) {
    free(r->body);
    *r = (ist_igtl_reader){0};
}

/* ---- images ---- */

/* What an IMAGE's header says, checked. */
typedef struct picture {
    igtl_image_header h;
    const unsigned char *samples;
    int x, y;            /* the axes of size and sub-volume that are the picture's width and height */
    int width, height;   /* of the whole */
    int x0, y0, w, rows; /* of the part that came */
    int channels, bytes; /* of a pixel, of a sample */
    bool is_signed, swap;
} picture;

static unsigned big16(const unsigned char *p) {
    return (unsigned)p[0] << 8 | p[1];
}

/* The content of the body: between the extended header and the metadata. */
static ist_status content_of(const ist_igtl_reader *r, const unsigned char **at, uint64_t *size, ist_error *err) {
    *at = r->body;
    *size = r->body_size;
    if (r->version < 2) return IST_OK;
    if (r->body_size < EXTENDED)
        return ist_fail(err, IST_E_INPUT, "IMAGE: %llu bytes have no extended header",
                        (unsigned long long)r->body_size);
    uint64_t head = big16(r->body), index = big16(r->body + 2);
    uint64_t meta = (uint64_t)big16(r->body + 4) << 16 | big16(r->body + 6);
    if (head < EXTENDED || head > r->body_size || index + meta > r->body_size - head)
        return ist_fail(err, IST_E_INPUT,
                        "IMAGE: an extended header of %llu bytes and metadata of %llu in a message of %llu",
                        (unsigned long long)head, (unsigned long long)(index + meta), (unsigned long long)r->body_size);
    *at += head;
    *size -= head + index + meta;
    return IST_OK;
}

/* An image of one slice: its two other axes, in their order. */
static ist_status find_axes(picture *p, ist_error *err) {
    const igtl_uint16 *s = p->h.size;
    if (!s[0] || !s[1] || !s[2] || (s[0] > 1 && s[1] > 1 && s[2] > 1))
        return ist_fail(err, IST_E_UNSUPPORTED, "IMAGE: %d x %d x %d pixels, want one slice", s[0], s[1], s[2]);
    p->x = s[2] == 1 || s[0] > 1 ? 0 : 1;
    p->y = s[2] == 1 ? 1 : 2;
    p->width = s[p->x], p->height = s[p->y];
    for (int i = 0; i < 3; i++) {
        unsigned at = p->h.subvol_offset[i], size = p->h.subvol_size[i];
        if (!size || at + size > s[i])
            return ist_fail(err, IST_E_INPUT, "IMAGE: a part of %u pixels at %u of %u along axis %d", size, at,
                            (unsigned)s[i], i);
    }
    p->x0 = p->h.subvol_offset[p->x], p->w = p->h.subvol_size[p->x];
    p->y0 = p->h.subvol_offset[p->y], p->rows = p->h.subvol_size[p->y];
    return IST_OK;
}

static ist_status find_samples(picture *p, ist_error *err) {
    int type = p->h.scalar_type, n = p->h.num_components;
    bool narrow = type == IGTL_IMAGE_STYPE_TYPE_INT8 || type == IGTL_IMAGE_STYPE_TYPE_UINT8;
    if (!narrow && type != IGTL_IMAGE_STYPE_TYPE_INT16 && type != IGTL_IMAGE_STYPE_TYPE_UINT16)
        return ist_fail(err, IST_E_UNSUPPORTED, "IMAGE: scalar type %d, want 8 or 16 bit integers (2 to 5)", type);
    if (n != 1 && n != 3 && n != 4) return ist_fail(err, IST_E_UNSUPPORTED, "IMAGE: %d components, want 1, 3 or 4", n);
    if (p->h.endian != IGTL_IMAGE_ENDIAN_BIG && p->h.endian != IGTL_IMAGE_ENDIAN_LITTLE)
        return ist_fail(err, IST_E_INPUT, "IMAGE: byte order %d, want 1 (big) or 2 (little)", p->h.endian);
    p->channels = n;
    p->bytes = narrow ? 1 : 2;
    p->is_signed = type == IGTL_IMAGE_STYPE_TYPE_INT8 || type == IGTL_IMAGE_STYPE_TYPE_INT16;
    p->swap = (p->h.endian == IGTL_IMAGE_ENDIAN_LITTLE) != (igtl_is_little_endian() != 0);
    return IST_OK;
}

static ist_status read_picture(const ist_igtl_reader *r, picture *p, ist_error *err) {
    const unsigned char *content;
    uint64_t size;
    *p = (picture){0};
    IST_TRY(content_of(r, &content, &size, err));
    if (size < sizeof p->h)
        return ist_fail(err, IST_E_INPUT, "IMAGE: %llu bytes, its header alone has %zu", (unsigned long long)size,
                        sizeof p->h);
    memcpy(&p->h, content, sizeof p->h);
    igtl_image_convert_byte_order(&p->h);
    IST_TRY(find_axes(p, err));
    IST_TRY(find_samples(p, err));
    p->samples = content + sizeof p->h;
    uint64_t want = (uint64_t)p->w * (uint64_t)p->rows * (uint64_t)(p->channels * p->bytes);
    if (size - sizeof p->h >= want) return IST_OK;
    return ist_fail(err, IST_E_INPUT, "IMAGE: %d x %d pixels need %llu bytes, %llu came", p->w, p->rows,
                    (unsigned long long)want, (unsigned long long)(size - sizeof p->h));
}

/* `n` samples, as the engine takes them. */
static void convert(const picture *p, const unsigned char *from, void *to, size_t n) {
    uint8_t *narrow = to;
    uint16_t *wide = to;
    if (p->bytes == 1) {
        memcpy(narrow, from, n);
        for (size_t i = 0; p->is_signed && i < n; i++) narrow[i] ^= 0x80;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, from + 2 * i, sizeof v);
        if (p->swap) v = (uint16_t)(v << 8 | v >> 8);
        wide[i] = p->is_signed ? v ^ 0x8000 : v;
    }
}

static void put_part(const picture *p, ist_bitmap *into) {
    size_t row = (size_t)p->w * (size_t)p->channels, pixel = into->stride / (size_t)into->width;
    for (int y = 0; y < p->rows; y++) {
        unsigned char *to = (unsigned char *)into->pixels + (size_t)(p->y0 + y) * into->stride + (size_t)p->x0 * pixel;
        convert(p, p->samples + (size_t)y * row * (size_t)p->bytes, to, row);
    }
}

/* The canvas as the picture needs it: what it has stays unless it is another image's. */
static ist_status prepare_canvas(const ist_igtl_reader *r, const picture *p, ist_pixel_format format,
                                 ist_igtl_canvas *c, ist_error *err) {
    if (c->image.pixels && c->image.format == format && !strcmp(c->device, r->device) &&
        !memcmp(c->size, p->h.size, sizeof c->size))
        return IST_OK;
    ist_bitmap_free(&c->image);
    IST_TRY(ist_bitmap_allocate("IMAGE", (size_t)p->width, (size_t)p->height, format, IST_MAX_PIXELS, &c->image, err));
    memset(c->image.pixels, 0, c->image.stride * (size_t)c->image.height);
    memcpy(c->device, r->device, sizeof c->device);
    memcpy(c->size, p->h.size, sizeof c->size);
    return IST_OK;
}

ist_status ist_igtl_image(const ist_igtl_reader *r, ist_igtl_canvas *canvas, ist_live_frame **frame, ist_error *err) {
    picture p;
    *frame = NULL;
    IST_TRY(read_picture(r, &p, err));
    ist_pixel_format format = (ist_pixel_format)(p.bytes << 4 | p.channels);
    bool whole = p.w == p.width && p.rows == p.height;
    if (!whole) IST_TRY(prepare_canvas(r, &p, format, canvas, err));
    ist_live_frame *f = ist_live_frame_new(r->device);
    if (!f) return ist_fail(err, IST_E_MEMORY, "IMAGE: out of memory");
    ist_status status =
        ist_bitmap_allocate("IMAGE", (size_t)p.width, (size_t)p.height, format, IST_MAX_PIXELS, &f->image, err);
    if (status) {
        ist_live_frame_drop(f);
        return status;
    }
    put_part(&p, whole ? &f->image : &canvas->image);
    if (!whole) memcpy(f->image.pixels, canvas->image.pixels, f->image.stride * (size_t)f->image.height);
    if (p.is_signed && p.bytes == 2) f->image.value_zero = INT16_MIN, f->image.value_step = 1;
    f->timestamp = r->timestamp;
    f->geometry.coord = p.h.coord;
    memcpy(f->geometry.size, p.h.size, sizeof f->geometry.size);
    memcpy(f->geometry.matrix, p.h.matrix, sizeof f->geometry.matrix);
    *frame = f;
    return IST_OK;
}

bool ist_igtl_available(void) {
    return true;
}

const char *ist_igtl_version(void) {
    return ISTHMUS_OPENIGTLINK;
}

#else

bool ist_igtl_available(void) {
    return false;
}

const char *ist_igtl_version(void) {
    return "";
}

#endif
