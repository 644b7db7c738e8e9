/* Folders for files that nobody keeps: see own_folder.h. */
#include "own_folder.h"

#include "cli.h"
#include "io/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int own_folder_make(const char *command, char *folder, size_t size) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    int n = snprintf(folder, size, "%s/isthmus-%s-XXXXXX", parent, command);
    int code = n < 0 || (size_t)n >= size ? ENAMETOOLONG : mkdtemp(folder) ? 0 : errno;
    if (!code) return CLI_SUCCESS;
    *folder = '\0';
    return cli_fail(CLI_FAILED, "cannot make a folder in %s: %s", parent, strerror(code));
}

void own_folder_remove(const char *folder, int depth) {
    DIR *dir = *folder ? opendir(folder) : NULL;
    const struct dirent *entry;
    if (!dir) return;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!unlinkat(dirfd(dir), entry->d_name, 0) || !depth) continue;
        char *path = ist_path_join(folder, entry->d_name);
        if (path) own_folder_remove(path, depth - 1);
        free(path);
    }
    closedir(dir);
    rmdir(folder);
}
