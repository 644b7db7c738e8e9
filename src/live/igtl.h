/* OpenIGTLink messages (protocol versions 1 to 3) from bytes and to bytes. Headers, byte order and checksums are the
 * library's (libopenigtlink, its C core); what it has none of is here: the extended header of versions 2 and 3, STATUS,
 * and the checks of every size before it is believed.
 *
 * Built without the library, ist_igtl_available is false and nothing else of this may be called. */
#ifndef IST_LIVE_IGTL_H
#define IST_LIVE_IGTL_H

#include "live/frame.h"

#include "io/text.h"

bool ist_igtl_available(void);
/* "1.11"; "" without it. */
const char *ist_igtl_version(void);

/* ---- in ---- */

/* Bytes of a message's body at most: the largest image that the engine takes, 16-bit RGBA, and its headers. */
#define IST_IGTL_MAX_BODY (8ull * IST_MAX_PIXELS + 4096)

/* Messages out of a stream of bytes. Memory grows with what has arrived, never with what a header claims. */
typedef struct ist_igtl_reader {
    unsigned char header[58];
    size_t have;          /* of the header, then of the body */
    bool in_body, wanted; /* the body is kept */
    char type[13], device[IST_LIVE_DEVICE];
    int version;
    uint64_t timestamp, body_size, crc_said, crc;
    unsigned char *body;
    size_t capacity;
} ist_igtl_reader;

typedef enum ist_igtl_event {
    IST_IGTL_MORE,    /* nothing is complete yet */
    IST_IGTL_IMAGE,   /* an IMAGE, whose checksum is right, in reader->body */
    IST_IGTL_OTHER,   /* a message of another type went by */
    IST_IGTL_BAD_CRC, /* a message went by whose checksum is wrong */
    IST_IGTL_BROKEN   /* this is not OpenIGTLink, or it is beyond the limits: the connection is of no more use */
} ist_igtl_event;

/* Where the next bytes go, at least one and at most *count. NULL without memory. */
void *ist_igtl_room(ist_igtl_reader *reader, size_t *count);

/* `count` bytes have been put there. BROKEN has a sentence. */
ist_igtl_event ist_igtl_filled(ist_igtl_reader *reader, size_t count, ist_error *err);

void ist_igtl_reader_free(ist_igtl_reader *reader);

/* What sub-volumes are put together in, one for each connection. */
typedef struct ist_igtl_canvas {
    ist_bitmap image;
    char device[IST_LIVE_DEVICE];
    uint16_t size[3];
} ist_igtl_canvas;

/* The frame that the IMAGE in the reader shows: scalars and vectors of three or four, of 8 or 16 bits, either byte
 * order, images of one slice. Signed samples are moved up by half of their range. *frame is the caller's.
 * IST_E_UNSUPPORTED for other images, IST_E_INPUT for sizes that contradict each other. */
ist_status ist_igtl_image(const ist_igtl_reader *reader, ist_igtl_canvas *canvas, ist_live_frame **frame,
                          ist_error *err);

/* ---- out: each appends one message to `out`, whose device is the frame's with `suffix` behind it, and whose timestamp
 * is the frame's; IST_E_MEMORY when there is none ---- */

/* An image with the geometry of `frame`: GRAY8, GRAY16 or RGB8, of the frame's size. */
ist_status ist_igtl_put_image(ist_text *out, const ist_live_frame *frame, const char *suffix, const ist_bitmap *image,
                              ist_error *err);

/* IST_E_LIMIT for more than 65535 bytes. */
ist_status ist_igtl_put_string(ist_text *out, const ist_live_frame *frame, const char *suffix, const char *text,
                               size_t length, ist_error *err);

typedef struct ist_igtl_point {
    float x, y; /* pixels of the frame's image */
    char name[64];
    uint8_t color[3];
} ist_igtl_point;

/* Points in millimetres, RAS, as the protocol has them. */
ist_status ist_igtl_put_points(ist_text *out, const ist_live_frame *frame, const char *suffix,
                               const ist_igtl_point *points, size_t count, ist_error *err);

/* Closed lines through corners in pixels: loop i has counts[i] of them, one loop after the other. */
ist_status ist_igtl_put_loops(ist_text *out, const ist_live_frame *frame, const char *suffix, const float (*corners)[2],
                              const uint32_t *counts, size_t loops, ist_error *err);

/* STATUS with a code of the protocol (1: fine, 7: connection lost) and a sentence. */
ist_status ist_igtl_put_status(ist_text *out, const char *device, int code, const char *sentence, ist_error *err);

#endif
