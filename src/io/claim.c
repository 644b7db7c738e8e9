/* One run at a time in a folder: see claim.h. */
#include "io/claim.h"

#include "io/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

ist_status ist_claim_folder(const char *folder, int *claim, ist_error *err) {
    *claim = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*claim < 0 || !flock(*claim, LOCK_EX | LOCK_NB)) return IST_OK;
    bool taken = errno == EWOULDBLOCK;
    ist_claim_end(claim);
    return taken ? ist_fail(err, IST_E_STATE, "%s: another run is writing to this folder", folder) : IST_OK;
}

void ist_claim_end(int *claim) {
    if (*claim >= 0) close(*claim);
    *claim = -1;
}

/* This process has written nothing yet, so a file with its number is that of an earlier one: in a container all runs
 * may have the same. */
static bool is_left_over(const char *name) {
    long id = ist_temporary_owner(name);
    return id > 0 && (id == (long)getpid() || (kill((pid_t)id, 0) && errno == ESRCH));
}

void ist_remove_leftovers(const char *folder, int depth) {
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (struct dirent *e; (e = readdir(entries));) {
        struct stat st;
        char *path = e->d_name[0] == '.' && !is_left_over(e->d_name) ? NULL : ist_path_join(folder, e->d_name);
        if (path && e->d_name[0] == '.')
            unlink(path);
        else if (path && depth > 0 && !lstat(path, &st) && S_ISDIR(st.st_mode))
            ist_remove_leftovers(path, depth - 1);
        free(path);
    }
    closedir(entries);
}
