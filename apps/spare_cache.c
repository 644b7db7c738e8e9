/* A kernel cache for one run: see spare_cache.h. */
#include "spare_cache.h"

#include "cli.h"
#include "device/device.h"
#include "own_folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 6 }; /* of PoCL's folders */

void spare_cache_begin(spare_cache *spare) {
    char usual[1024], why[320];
    const char *parent = getenv("TMPDIR");
    *spare = (spare_cache){.folder = ""};
    if (!ist_driver_cache_folder(usual, sizeof usual) || !ist_limits_no_file(usual, spare->why, sizeof spare->why) ||
        ist_limits_no_file(parent && *parent ? parent : "/tmp", why, sizeof why)) /* none that would help */
        return;
    if (own_folder_make("kernels", spare->folder, sizeof spare->folder)) return;
    if (!ist_limits_no_file(spare->folder, why, sizeof why) && !setenv("POCL_CACHE_DIR", spare->folder, 1)) return;
    own_folder_remove(spare->folder, DEPTH);
    spare->folder[0] = '\0';
}

/* PoCL's own temporary files come even where it compiles nothing. */
static bool has_kernels(const char *folder) {
    DIR *dir = opendir(folder);
    bool has = false;
    for (struct dirent *e; dir && !has && (e = readdir(dir));)
        has = e->d_name[0] != '.' && strncmp(e->d_name, "tempfile", 8);
    if (dir) closedir(dir);
    return has;
}

void spare_cache_end(spare_cache *spare) {
    if (!spare->folder[0]) return;
    if (has_kernels(spare->folder)) cli_note("%s: kernels were compiled for this run only", spare->why);
    own_folder_remove(spare->folder, DEPTH);
}
