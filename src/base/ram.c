/* Memory of host or container: see ram.h. */
#include "base/ram.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* The number in a file of the kernel; SIZE_MAX for "max", or where there is none. */
static size_t limit_in(const char *path) {
    unsigned long long bytes;
    FILE *file = fopen(path, "r");
    size_t limit = file && fscanf(file, "%llu", &bytes) == 1 && bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
    if (file) fclose(file);
    return limit;
}

size_t ist_ram(void) {
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t bytes = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        size_t limit = limit_in(limits[i]);
        bytes = limit < bytes ? limit : bytes;
    }
    return bytes == SIZE_MAX ? 0 : bytes;
}
