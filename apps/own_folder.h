/* Folders for files that nobody keeps: in $TMPDIR, else in /tmp. */
#ifndef OWN_FOLDER_H
#define OWN_FOLDER_H

#include <stddef.h>

/* Makes one that is called isthmus-COMMAND- and something new. 0, or the exit code after a message, with `folder` "".
 */
int own_folder_make(const char *command, char *folder, size_t size);

/* Removes it, the files in it, and those in folders down to `depth` below it. "": nothing. */
void own_folder_remove(const char *folder, int depth);

#endif
