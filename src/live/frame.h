/* One frame of a stream on its way from a source to what is made of it. Several may hold it: the engine, the recorder,
 * the overlay; the last one frees it. */
#ifndef IST_LIVE_FRAME_H
#define IST_LIVE_FRAME_H

#include "io/image.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { IST_LIVE_DEVICE = 21 }; /* bytes of a device name with its zero: OpenIGTLink has room for 20 */

/* Where an image lies in the world, as OpenIGTLink's IMAGE says it. The pixels of a frame are the two axes of `size`
 * that are longer than 1, in their order. */
typedef struct ist_live_geometry {
    float matrix[12]; /* axes i, j, k, each times its pixel size in mm, then the centre of the image */
    uint16_t size[3]; /* pixels along i, j, k; one of them is 1 */
    uint8_t coord;    /* 1 RAS, 2 LPS */
} ist_live_geometry;

typedef struct ist_live_frame {
    atomic_int references;
    uint64_t number;    /* of the frames received, from 1 */
    double arrived_ms;  /* ist_clock_ms when its last byte was there */
    uint64_t timestamp; /* of the source: seconds since 1970 times 2^32 */
    ist_bitmap image;
    char device[IST_LIVE_DEVICE];
    char *file; /* of a folder; else NULL */
    ist_live_geometry geometry;
} ist_live_frame;

/* With one reference, no image, and a geometry of 1 mm pixels around the origin; NULL without memory. */
ist_live_frame *ist_live_frame_new(const char *device);

/* Sides of the geometry from those of the image, for sources that have none. */
void ist_live_frame_place(ist_live_frame *frame);

ist_live_frame *ist_live_frame_hold(ist_live_frame *frame);
void ist_live_frame_drop(void *frame); /* NULL is allowed; void *, so that queues can call it */

/* Now, as a timestamp. */
uint64_t ist_live_now(void);

#endif
