/* A folder of its own for a test, and its removal with all that is in it. */
#ifndef IST_SUPPORT_FOLDER_H
#define IST_SUPPORT_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void folder_make(char *path, size_t size) {
    const char *tmp = getenv("TMPDIR");
    snprintf(path, size, "%s/isthmus-XXXXXX", tmp && strlen(tmp) + 16 < size ? tmp : "/tmp");
    if (!mkdtemp(path)) {
        perror(path);
        abort();
    }
}

static inline void folder_remove(const char *path) {
    struct stat st;
    if (lstat(path, &st)) return;
    if (S_ISDIR(st.st_mode)) {
        DIR *folder = opendir(path);
        for (struct dirent *e; folder && (e = readdir(folder));) {
            char child[1024];
            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
            if (snprintf(child, sizeof child, "%s/%s", path, e->d_name) < (int)sizeof child) folder_remove(child);
        }
        if (folder) closedir(folder);
        rmdir(path);
    } else {
        unlink(path);
    }
}

#endif
