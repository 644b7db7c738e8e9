/* Files that appear complete or not at all: written under a temporary name in the same folder, then renamed.
 *
 * Every file the program writes goes through here. The temporary name is hidden and short (a stem may already fill
 * NAME_MAX), and is removed when anything fails. Missing folders on the way are made. The temporary file is always a
 * new one: a link or a file of that name is never written through. */
#ifndef IST_IO_ATOMIC_FILE_H
#define IST_IO_ATOMIC_FILE_H

#include "io/folders.h"

#include <stdio.h>

typedef struct ist_atomic_file {
    FILE *stream;    /* write here; NULL when not open */
    char *path;      /* the final name */
    size_t root;     /* so many of its characters name an output folder, below which no link is followed; 0: none */
    char *temporary; /* name in the same folder; NULL: the path is a device or a pipe, written to as it is */
    int folder;      /* that folder, open */
    bool ended;      /* by ist_atomic_end */
    bool lazy;       /* for the caller to set: nobody needs the file after a power failure, so that nothing waits for
                      * the disk */
} ist_atomic_file;

/* Opens a temporary file beside `path`. */
ist_status ist_atomic_begin(ist_atomic_file *file, const char *path, ist_error *err);

/* The same for the file `name` (with folders, "masks/a.png") of an output or cache folder: IST_E_IO when it, or a
 * folder in between, is a link. */
ist_status ist_atomic_begin_in(ist_atomic_file *file, const char *folder, const char *name, ist_error *err);

/* Closes and renames. Reports any write error that the stream met; then nothing is left behind. The bytes are on the
 * disk before the name is, and the name when this returns: after a power failure, too, the file is complete or absent.
 */
ist_status ist_atomic_commit(ist_atomic_file *file, ist_error *err);

/* Many files at a time wait for the disk about as long as one. ist_atomic_end closes a file of ist_atomic_begin_in that
 * is complete and leaves it under its temporary name; ist_atomic_commit_all then syncs all of them, renames them, and
 * syncs their folders. When one fails, *done says how many before it are complete and durable; the others are gone. */
ist_status ist_atomic_end(ist_atomic_file *file, ist_error *err);
ist_status ist_atomic_commit_all(ist_atomic_file *files, size_t count, bool lazy, size_t *done, ist_error *err);

/* Closes and removes what was written so far. Accepts a file that is not open. */
void ist_atomic_abort(ist_atomic_file *file);

/* Whether `path` could be written now, to be asked before the work whose result goes there: IST_OK, or what
 * ist_atomic_begin and ist_atomic_commit would say. Leaves nothing behind, no folder either. */
ist_status ist_atomic_try(const char *path, ist_error *err);

/* Whether a failed write found the disk full or the user's share of it used up: then no other file can be written. */
bool ist_disk_is_full(const ist_error *err);

/* All three for bytes in memory. */
ist_status ist_atomic_write(const char *path, const void *bytes, size_t count, ist_error *err);
ist_status ist_atomic_write_in(const char *folder, const char *name, const void *bytes, size_t count, ist_error *err);

/* The process that writes under a temporary name of ours; 0 for any other name. */
long ist_temporary_owner(const char *name);

/* Reads a whole regular file; IST_E_LIMIT beyond `limit` bytes. *bytes is the caller's to free and ends with a zero
 * byte that *count does not include. */
ist_status ist_read_file(const char *path, size_t limit, char **bytes, size_t *count, ist_error *err);

/* Opens a regular file of a folder of results, to be read: a link at its end is not followed, a pipe not waited for.
 * *file is the caller's to close; NULL, without an error, where there is no such file. */
ist_status ist_open_file(const char *path, FILE **file, ist_error *err);

#endif
