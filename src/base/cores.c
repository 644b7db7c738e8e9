/* The count of cores: see cores.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

int ist_cores(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t mine;
    if (!sched_getaffinity(0, sizeof mine, &mine) && CPU_COUNT(&mine) > 0 && CPU_COUNT(&mine) < online)
        online = CPU_COUNT(&mine);
    return online < 1 ? 1 : (int)online;
}
