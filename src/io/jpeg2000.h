/* JPEG 2000 codestreams, as DICOM files hold them, through OpenJPEG: where it was there when isthmus was built
 * (ISTHMUS_JPEG2000 is its version then). */
#ifndef IST_IO_JPEG2000_H
#define IST_IO_JPEG2000_H

#include "io/jpeg2000_survey.h"

#include <stdint.h>

/* Decodes a frame into `to`: width * height * samples values, pixel by pixel, each a byte where frame->bits is 8 and
 * else a word (host order). A sample of fewer bits is filled up by its sign where `with_sign` is set, whatever the
 * codestream says of that, as pydicom does: encoders err there. What looks too large or damaged fails before anything
 * is decoded. */
ist_status ist_jpeg2000_decode(const unsigned char *bytes, size_t count, const char *name,
                               const ist_jpeg2000_frame *frame, bool with_sign, void *to, ist_error *err);

#endif
