/* frames.ndjson while it grows: complete or absent, and yet resumable after a crash.
 *
 * Lines go to frames.ndjson.partial, one write each, in input order; commit renames it to frames.ndjson. A run that
 * resumes first collects the whole lines of both files (a last line without its newline was cut off and is dropped),
 * keeps those of its own images whose outputs are there, and starts the partial file with them: whatever happens next,
 * nothing done is lost. If that leaves lines out of input order, commit sorts them. No image ever has two lines. */
#ifndef IST_IO_JOURNAL_H
#define IST_IO_JOURNAL_H

#include "io/sources.h"
#include "io/text.h"

#define IST_JOURNAL_NAME    "frames.ndjson"
#define IST_JOURNAL_PARTIAL "frames.ndjson.partial"

typedef struct ist_journal ist_journal;

/* Says whether the other outputs of an image are all there. */
typedef bool (*ist_journal_check)(void *context, const ist_source *source);

/* Opens the journal of `sources` in `folder`. With `resume`, lines that earlier runs left for images that pass `check`
 * are kept; without, they are removed. `sources` must outlive the journal. */
ist_status ist_journal_open(const char *folder, const ist_sources *sources, bool resume, ist_journal_check check,
                            void *context, ist_journal **journal, ist_error *err);

/* 1 when image `index` has its line. */
bool ist_journal_has(const ist_journal *journal, size_t index);

/* Whether the run before had exactly these images, in this order: the tables made from its lines still hold. */
bool ist_journal_is_unchanged(const ist_journal *journal);

/* Bytes of that line with its newline; 0 when there is none. */
size_t ist_journal_length(const ist_journal *journal, size_t index);

/* Appends the line (without newline) of an image that has none yet. */
ist_status ist_journal_append(ist_journal *journal, size_t index, const ist_text *line, ist_error *err);

/* Replaces the contents of `line` by the line of an image, without newline. Threads may read side by side while nobody
 * appends. */
ist_status ist_journal_line(const ist_journal *journal, size_t index, ist_text *line, ist_error *err);

/* Turns the partial file into frames.ndjson, lines in input order. */
ist_status ist_journal_commit(ist_journal *journal, ist_error *err);

/* Removes the partial file: the run is complete and nobody wants frames.ndjson. */
void ist_journal_discard(ist_journal *journal);

/* Closes; without commit the partial file stays for a later run to resume. */
void ist_journal_close(ist_journal **journal);

#endif
