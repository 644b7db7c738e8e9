/* What decoding a JPEG would take, from its markers alone: for libraries that believe what a stream says of itself. */
#ifndef IST_IO_JPEG_SURVEY_H
#define IST_IO_JPEG_SURVEY_H

#include <stdbool.h>
#include <stddef.h>

enum { IST_JPEG_MOST_SCANS = 500 }; /* each goes over the whole picture; as TurboJPEG's limit */

typedef struct ist_jpeg_survey {
    size_t width, height, samples; /* of the first frame header; 0: there is none */
    size_t scans;
    bool ended; /* by its marker */
} ist_jpeg_survey;

/* Of `count` bytes, from the marker that begins an image to the one that ends it. Not of JPEG-LS and JPEG 2000. */
ist_jpeg_survey ist_jpeg_survey_of(const unsigned char *bytes, size_t count);

#endif
