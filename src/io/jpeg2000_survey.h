/* What decoding a JPEG 2000 codestream (ISO/IEC 15444-1) would take, from its marker segments alone, and whether it is
 * what the file around it says: looked at before a decoder sees it, which believes what a codestream says of itself.
 *
 * A hundred bytes can ask for 65535 tiles, for a precinct or a code block per pixel and for 65535 layers of each. */
#ifndef IST_IO_JPEG2000_SURVEY_H
#define IST_IO_JPEG2000_SURVEY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* What a frame must be. */
typedef struct ist_jpeg2000_frame {
    size_t width, height;
    unsigned samples; /* per pixel */
    unsigned bits;    /* of a sample, at most: 8 or 16 */
} ist_jpeg2000_frame;

/* What the codestream is. */
typedef struct ist_jpeg2000_survey {
    unsigned bits; /* of its samples, 1 .. frame.bits */
    bool with_sign;
    size_t begin, end; /* where it lies: some files have it within the boxes of a JP2 file, and bytes behind it */
    size_t structures; /* bytes that OpenJPEG takes for tiles, precincts and code blocks, at most */
} ist_jpeg2000_survey;

/* The most that `structures` may be for a frame, beside the eight bytes for each of its samples. */
static inline size_t ist_jpeg2000_most_structures(ist_jpeg2000_frame frame) {
    return 8 * frame.width * frame.height * frame.samples + ((size_t)4 << 20);
}

/* Bytes that decoding takes beside the samples and the codestream, at most: samples of 32 bits, twice where there are
 * tiles, and those. */
static inline size_t ist_jpeg2000_passing(ist_jpeg2000_frame frame) {
    return 8 * frame.width * frame.height * frame.samples + ist_jpeg2000_most_structures(frame);
}

/* Goes from the marker that begins the codestream to the one that ends it. Whatever is more than a decoder should be
 * given, or another picture than `frame`, fails with a sentence (IST_E_LIMIT, IST_E_INPUT); so does a codestream that
 * is cut, and one of a later part of the standard (High-Throughput, extensions). */
ist_status ist_jpeg2000_survey_of(const unsigned char *bytes, size_t count, const char *name,
                                  const ist_jpeg2000_frame *frame, ist_jpeg2000_survey *out, ist_error *err);

#endif
