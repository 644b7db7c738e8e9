/* Folders: making them, taking them back, and opening those below an output folder without following links.
 *
 * The path that a user names may have links in it, as anywhere. What lies below an output folder may not: a link there
 * would let whoever put it choose which file of the user's is overwritten. */
#ifndef IST_IO_FOLDERS_H
#define IST_IO_FOLDERS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes the folder `path` and its parents, as mkdir -p; of a path that cannot be made, nothing stays. *there is how
 * many leading characters of `path` name a folder that was there before. */
ist_status ist_make_folders(const char *path, size_t *there, ist_error *err);

/* Takes back what ist_make_folders made; folders in which something is by now stay. */
void ist_remove_empty_folders(const char *path, size_t there);

/* Opens the folder that `path` lies in, made when missing. The first `root` characters of the path name the output
 * folder, below which links are refused; 0: the path is the user's own. *folder is the caller's to close. */
ist_status ist_open_folder_of(const char *path, size_t root, int *folder, ist_error *err);

/* The last part of a path. */
const char *ist_last_part(const char *path);

/* The failure of a file or folder that is a link where none is followed. */
ist_status ist_fail_link(const char *path, ist_error *err);

/* IST_E_IO when something in `folder` has this name and is a link; what is not there is no link. */
ist_status ist_refuse_link(const char *folder, const char *name, ist_error *err);

/* fsync: 0 or an errno. What cannot be synced because it is no file on a disk is as safe as it will be. */
int ist_sync(int fd);

/* The same for a folder by name; what was made, renamed or removed in it is then on the disk. */
ist_status ist_sync_folder(const char *path, ist_error *err);

/* "a/b", malloc'd; NULL when out of memory. */
char *ist_path_join(const char *folder, const char *name);

#endif
