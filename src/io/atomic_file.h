/* Files that appear complete or not at all: written under a temporary name in the same folder, then renamed.
 *
 * Every file the program writes goes through here. The temporary name is hidden and short (a stem may already fill
 * NAME_MAX), and is removed when anything fails. Missing folders on the way are made. */
#ifndef IST_IO_ATOMIC_FILE_H
#define IST_IO_ATOMIC_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct ist_atomic_file {
    FILE *stream; /* write here; NULL when not open */
    char *path;   /* the final name */
    char *temporary; /* NULL: the path is a device or a pipe, written to as it is */
} ist_atomic_file;

/* Opens a temporary file beside `path`. */
ist_status ist_atomic_begin(ist_atomic_file *file, const char *path, ist_error *err);

/* Closes and renames. Reports any write error that the stream met; then nothing is left behind. */
ist_status ist_atomic_commit(ist_atomic_file *file, ist_error *err);

/* Closes and removes what was written so far. Accepts a file that is not open. */
void ist_atomic_abort(ist_atomic_file *file);

/* Whether `path` could be written now, to be asked before the work whose result goes there: IST_OK, or what
 * ist_atomic_begin and ist_atomic_commit would say. Leaves nothing behind, no folder either. */
ist_status ist_atomic_try(const char *path, ist_error *err);

/* Whether a failed write found the disk full or the user's share of it used up: then no other file can be written. */
bool ist_disk_is_full(const ist_error *err);

/* All three for bytes in memory. */
ist_status ist_atomic_write(const char *path, const void *bytes, size_t count, ist_error *err);

/* The process that writes under a temporary name of ours; 0 for any other name. */
long ist_temporary_owner(const char *name);

/* Makes the folder `path` and its parents, as mkdir -p; of a path that cannot be made, nothing stays. *there is how
 * many leading characters of `path` name a folder that was there before. */
ist_status ist_make_folders(const char *path, size_t *there, ist_error *err);

/* Takes back what ist_make_folders made; folders in which something is by now stay. */
void ist_remove_empty_folders(const char *path, size_t there);

/* Reads a whole regular file; IST_E_LIMIT beyond `limit` bytes. *bytes is the caller's to free and ends with a zero
 * byte that *count does not include. */
ist_status ist_read_file(const char *path, size_t limit, char **bytes, size_t *count, ist_error *err);

/* "a/b", malloc'd; NULL when out of memory. */
char *ist_path_join(const char *folder, const char *name);

#endif
