/* Result files: one line of frames.ndjson per image, and what is derived from those lines at the end.
 *
 * The line holds everything the other tables say, so that results.json, images.json and results.csv of a resumed run
 * are complete without decoding an image again. Formats: the project's interface page, COCO results, YOLO labels. */
#ifndef IST_IO_RECORD_H
#define IST_IO_RECORD_H

#include "io/image.h"
#include "io/journal.h"
#include "io/labels.h"
#include "io/rle.h"

/* Times of one image in milliseconds. submit, wait and total are those of its batch. */
typedef struct ist_record_times {
    double decode, submit, wait, total, encode;
} ist_record_times;

/* What one line says. `match` tells how to name ist_object.match, but of given prompts. */
typedef struct ist_record {
    const char *file;
    const ist_frame *frame;
    const ist_labels *labels;
    ist_match_mode match;
    bool masks;
    bool prompts, multimask; /* ist_object.match is a prompt, query one of its masks */
    bool everything;         /* objects are masks of everything: IST_PROMPTS_EVERYTHING */
    ist_record_times ms;
    ist_transfers transfers;
    const char *stream; /* of a live frame: JSON members to follow "file", and the line then has neither times nor
                         * transfers, so that a replay gives the same bytes; NULL for a file's */
    bool no_rle;        /* masks are told by score and area only */
} ist_record;

/* The line, without newline. "file" is the path; of one that is no UTF-8, whose "file" has U+FFFD in it, "file_bytes"
 * says the bytes as hexadecimal digits. A box, score or mask score that is not finite is IST_E_DEVICE: it must not look
 * like a result. */
ist_status ist_record_line(const ist_record *record, ist_text *line, ist_error *err);

/* YOLO labels: `class cx cy w h`, clipped to the image and divided by its size, one line per object. */
ist_status ist_record_yolo(const ist_frame *frame, ist_text *out, ist_error *err);

/* Instance map: 0 background, i the i-th object; 16 bit beyond 255 objects. Earlier objects (higher scores) win. */
ist_status ist_record_instance_map(const ist_frame *frame, ist_bitmap *map, ist_error *err);

/* What ist_record_tables can write. */
enum {
    IST_TABLES_COCO = 1, /* results.json and images.json */
    IST_TABLES_CSV = 2,  /* results.csv */
    IST_TABLES_LAZY = 4  /* as in ist_atomic_file */
};

/* Writes tables into `folder` from the journal's lines, which are read and parsed once for all of them, on all
 * cores. Nothing may be appended meanwhile. A table appears complete or not at all; after an error, none is new that
 * was not complete before it. */
ist_status ist_record_tables(const char *folder, unsigned tables, const ist_journal *journal,
                             const ist_sources *sources, const ist_labels *labels, ist_error *err);

/* One line of failed.ndjson: {"file", "error"}, with newline; "file" as in ist_record_line. */
void ist_record_failure(ist_text *out, const char *file, const char *sentence);

#endif
