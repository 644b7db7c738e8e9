/* frames.ndjson while it grows: complete or absent, and yet resumable after a crash.
 *
 * Lines go to frames.ndjson.partial, one write each, in input order; commit renames it to frames.ndjson. A run that
 * resumes first collects the whole lines of both files (a last line without its newline was cut off and is dropped),
 * keeps those of its own images whose outputs are there, and starts the partial file with them: whatever happens next,
 * nothing done is lost. A line is written after its image's files are on the disk, so that this holds for power
 * failures, too; what the disk has of files without a line is made again. If that leaves lines out of input order,
 * commit sorts them. No image ever has two lines. */
#ifndef IST_IO_JOURNAL_H
#define IST_IO_JOURNAL_H

#include "io/run_options.h"
#include "io/sources.h"
#include "io/text.h"

#define IST_JOURNAL_NAME    "frames.ndjson"
#define IST_JOURNAL_PARTIAL "frames.ndjson.partial"

typedef struct ist_journal ist_journal;

/* What a line says about an image's other files. */
typedef struct ist_journal_frame {
    int width, height;
    size_t objects;
} ist_journal_frame;

/* Says whether the other outputs of an image are all there and whole. */
typedef bool (*ist_journal_check)(void *context, const ist_source *source, const ist_journal_frame *frame);

typedef struct ist_journal_setup {
    bool resume; /* keep lines that earlier runs left for images that pass `check`; else they are removed */
    bool lazy;   /* as in ist_atomic_file */
    ist_journal_check check;
    void *context;
    const ist_run_option *options; /* [option_count] with which the lines are made */
    size_t option_count;
} ist_journal_setup;

/* Opens the journal of `sources`, which must outlive it, in `folder`. IST_E_ARGUMENT when lines are to be kept that
 * were made with other options. */
ist_status ist_journal_open(const char *folder, const ist_sources *sources, const ist_journal_setup *setup,
                            ist_journal **journal, ist_error *err);

/* Makes room for what the sources have gained since it was opened. */
ist_status ist_journal_extend(ist_journal *journal, ist_error *err);

/* 1 when image `index` has its line. */
bool ist_journal_has(const ist_journal *journal, size_t index);

/* Whether the run before had exactly these images, in this order: the tables made from its lines still hold. */
bool ist_journal_is_unchanged(const ist_journal *journal);

/* Bytes of that line with its newline; 0 when there is none. */
size_t ist_journal_length(const ist_journal *journal, size_t index);

/* Appends the line (without newline) of an image that has none yet, and whose other files are on the disk. */
ist_status ist_journal_append(ist_journal *journal, size_t index, const ist_text *line, ist_error *err);

/* Waits until the lines so far are on the disk. */
ist_status ist_journal_sync(ist_journal *journal, ist_error *err);

/* Replaces the contents of `line` by the line of an image, without newline. Threads may read side by side while nobody
 * appends. */
ist_status ist_journal_line(const ist_journal *journal, size_t index, ist_text *line, ist_error *err);

/* Turns the partial file into frames.ndjson, lines in input order. */
ist_status ist_journal_commit(ist_journal *journal, ist_error *err);

/* Removes the partial file and the options: the run is complete and nobody wants frames.ndjson. */
void ist_journal_discard(ist_journal *journal);

/* Closes; without commit the partial file stays for a later run to resume. */
void ist_journal_close(ist_journal **journal);

#endif
