/* Which images a run reads, in which order, and what their outputs are called.
 *
 * A folder gives its files with extensions of images (image_format.h), sorted by byte value, folder by folder; a file
 * named by the user is taken whatever its extension. A file of several frames (frames.h) gives as many images, which
 * are a sequence of their own. Hidden files and the output folder itself are left out. The same arguments always give
 * the same list, stems and ids, whether or not a run is resumed. */
#ifndef IST_IO_SOURCES_H
#define IST_IO_SOURCES_H

#include "base/status.h"
#include "io/frames.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of folders; for sentences. */
#define IST_IMAGE_EXTENSIONS                                                                                           \
    ".png, .jpg, .jpeg, .dcm, .tif, .tiff, .webp, .bmp, .pbm, .pgm, .ppm, .pnm, .pam, .avi, .mp4, .m4v, .mov, .mkv, "  \
    ".webm"

/* A file of a container format (frames.h), shared by the images that it gives. */
typedef struct ist_source_file {
    char *path;             /* what to open; */
    void *bytes;            /* of a stream, what would be in it, */
    size_t size;            /* of so many bytes */
    size_t frames;          /* as of when the list was made */
    ist_image_size largest; /* what the largest of them takes */
    bool has_windows;       /* ist_frames_have_windows */
    size_t references;
    ist_frames *open; /* whoever reads frame after frame keeps it open here, */
    bool busy;        /* and is at it */
} ist_source_file;

typedef struct ist_source {
    char *path;   /* what to open: the argument, or argument/relative name. Of several frames "scan.tif#3", from 1 */
    char *name;   /* images.json's file_name: relative to the folder given, or the last part of a file given;
                   * the path when that was taken */
    char *stem;   /* outputs are masks/STEM.png ...: the name without extension; when an earlier image has that stem,
                   * with extension, and when that is taken too, with "-2", "-3" ... Of several frames each has
                   * ".0003" (or more digits, as many as the last one needs) behind that */
    int64_t id;   /* COCO image_id: the number that the name is, when all names are different numbers (as in COCO);
                   * else the position from 1 */
    int sequence; /* images of one folder belong to one sequence; counts up */
    bool turned;  /* as in ist_sources, */
    double values[2];      /* these too */
    bool streamed;         /* it is no file: */
    void *bytes;           /* what would be in it, owned; NULL: not any more, or more than is taken, */
    size_t size;           /* of so many bytes */
    ist_source_file *file; /* NULL: it is no container; else bytes are this one's; */
    size_t frame, frames;  /* the image is this of its frames, from 0, of so many */
} ist_source;

typedef struct ist_sources {
    ist_source *items;
    size_t count, capacity;
    bool turned;      /* what is added from now on is turned as its EXIF orientation says, when it is read; */
    double values[2]; /* of it floating point samples are read for a window of these values (ist_frames_show) */
    struct ist_sources_growth *growth; /* while the list grows: what ist_sources_extend knows */
} ist_sources;

/* Appends a file or the images of a folder. A missing file is appended too, as is a folder
 * inside that cannot be opened: reading it fails later, alone.
 * `output` (may be NULL): the folder results go to. It is not entered; where it is the argument itself, its masks/ and
 * overlays/ are not. Nor are those of earlier runs into other folders: the ones beside a frames.ndjson. */
ist_status ist_sources_add(ist_sources *sources, const char *argument, bool recursive, const char *output,
                           ist_error *err);

/* Appends an image of a stream, whose file is in memory: takes `bytes` over, also when it fails. */
ist_status ist_sources_add_bytes(ist_sources *sources, const char *name, void *bytes, size_t size, ist_error *err);

/* Gives back the bytes of the images from `first` on. */
void ist_sources_drop_bytes(ist_sources *sources, size_t first);

/* Derives stems and sequences of what was added since the call before, in a list that grows; ist_sources_finish ends
 * it. */
ist_status ist_sources_extend(ist_sources *sources, ist_error *err);

/* Derives stems, ids and sequences once everything is added. */
ist_status ist_sources_finish(ist_sources *sources, ist_error *err);

/* What decoding it takes, from its header. */
ist_image_size ist_source_measure(const ist_source *source, size_t max_pixels);

/* Decodes an image, whatever it is of. The second keeps a container open until `next`, which is read after this (NULL:
 * none is), is of another; it must not be called for two images of one file at a time. */
ist_status ist_source_read(const ist_source *source, size_t max_pixels, ist_bitmap *out, ist_error *err);
ist_status ist_source_read_next(const ist_source *source, const ist_source *next, size_t max_pixels, ist_bitmap *out,
                                ist_error *err);

/* Characters of "#3" at the end of its name and path; 0 where its file gives one image. */
size_t ist_source_mark(const ist_source *source);

/* Whether two neighbours of a list are of one sequence: of one folder, or of one file of several frames. */
bool ist_source_follows(const ist_source *source, const ist_source *before);

/* Keeps the first `count` images; after ist_sources_finish, so that a limit changes no stem and no id. */
void ist_sources_truncate(ist_sources *sources, size_t count);

/* Keeps the images that `keep` says yes to; it may give them other ids. */
void ist_sources_filter(ist_sources *sources, bool (*keep)(void *context, ist_source *source), void *context);

void ist_sources_free(ist_sources *sources);

#endif
