/* What came in, kept in a folder: pictures as PNG (without alpha), in order, and stream.ndjson with when each came,
 * where it lies, and what its samples stand for. A source that reads the folder gives the same frames again. Files are
 * written by a thread of their own, which frames do not wait for, unless nothing may be lost. */
#ifndef IST_LIVE_RECORDING_H
#define IST_LIVE_RECORDING_H

#include "live/counts.h"
#include "live/frame.h"

#define IST_LIVE_STREAM "stream.ndjson"

typedef struct ist_live_recording ist_live_recording;

/* IST_E_STATE for a folder that has a recording already. */
ist_status ist_live_recording_open(const char *folder, bool waits, ist_live_counts *counts,
                                   ist_live_recording **recording, ist_error *err);

void ist_live_recording_put(ist_live_recording *recording, ist_live_frame *frame);

/* Writes what is left, and the index. What has gone wrong on the way is said here. Accepts a pointer to NULL. */
ist_status ist_live_recording_close(ist_live_recording **recording, ist_error *err);

/* ---- and back ---- */

/* Frames of a folder: of a recording with all that it knows, of another its images, by name. */
typedef struct ist_live_folder ist_live_folder;

ist_status ist_live_folder_open(const char *folder, ist_live_folder **opened, ist_error *err);
size_t ist_live_folder_count(const ist_live_folder *folder);
/* When frame i came, in ms since the first; -1 for a folder that is no recording. */
double ist_live_folder_time(const ist_live_folder *folder, size_t i);
/* Whether some of its frames may tell the window that they are to be seen through. */
bool ist_live_folder_has_windows(const ist_live_folder *folder);
const char *ist_live_folder_file(const ist_live_folder *folder, size_t i);
ist_status ist_live_folder_read(const ist_live_folder *folder, size_t i, ist_live_frame **frame, ist_error *err);
void ist_live_folder_close(ist_live_folder **folder);

#endif
