/* Files of many frames: multi-page TIFF, DICOM, video. One is open, its frames are read one at a time. */
#ifndef IST_IO_FRAMES_H
#define IST_IO_FRAMES_H

#include "io/image.h"
#include "io/image_size.h"

#include <stdbool.h>

/* In a file: some ten hours of video. A hostile file's cost next to nothing to write, and each takes a name here. */
enum { IST_MAX_FRAMES = 1 << 21 };

typedef struct ist_frames ist_frames;

/* Opens a file. *frames stays NULL, without an error, where the file is not of such a format or cannot be opened: then
 * it is one image, and reading that says what is wrong. */
ist_status ist_frames_open(const char *path, size_t max_pixels, ist_frames **frames, ist_error *err);

/* The same of a file in memory, which must stay there; `name` is for sentences. */
ist_status ist_frames_open_bytes(const void *bytes, size_t size, const char *name, size_t max_pixels,
                                 ist_frames **frames, ist_error *err);

size_t ist_frames_count(const ist_frames *frames);

/* What the largest frame takes; `passing` counts a file in memory. */
ist_image_size ist_frames_size(const ist_frames *frames);

/* Frames of floating point samples are read for a window of these values, as ist_bitmap_narrow takes them; before the
 * first call, and with both equal, for one that is not known. */
void ist_frames_show(ist_frames *frames, const double values[2]);

/* Decodes frame 0 .. count - 1 into a bitmap of the caller's; one call at a time. In order is fastest. */
ist_status ist_frames_read(ist_frames *frames, size_t frame, ist_bitmap *out, ist_error *err);

/* Whether 16-bit frames tell the window that they are to be seen through. */
bool ist_frames_have_windows(const ist_frames *frames);

void ist_frames_close(ist_frames **frames);

#endif
