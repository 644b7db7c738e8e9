/* isthmus-probe over a driver that does not survive some probes. DEADLY is "PROBE=END ..." with an END of: abort,
 * fault, exit, term (a signal from outside), hang; the probe "joined" is all of them as one program, "all" is each.
 * Every start adds a line to the file DEADLY_LOG: the first probe, and OPENCL_LAYERS; before it hangs the process makes
 * DEADLY_HUNG. */
#include "device/device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_ist_probe_find(const char *name);
int __wrap_ist_probe_find(const char *name);
ist_status __real_ist_enqueue(ist_device *d, cl_kernel kernel, int dims, const size_t *global, const size_t *local,
                              const char *label, ist_error *err);
ist_status __wrap_ist_enqueue(ist_device *d, cl_kernel kernel, int dims, const size_t *global, const size_t *local,
                              const char *label, ist_error *err);
ist_status __real_ist_programs_join_at(ist_site site, ist_device *d, const ist_program_part *parts, int count,
                                       ist_error *err);
ist_status __wrap_ist_programs_join_at(ist_site site, ist_device *d, const ist_program_part *parts, int count,
                                       ist_error *err);

static void hang(void) {
    FILE *mark = fopen(getenv("DEADLY_HUNG"), "w");
    if (mark) fclose(mark);
    for (;;) pause();
}

static void end_as(const char *how) {
    if (!strncmp(how, "abort", 5)) abort();
    if (!strncmp(how, "fault", 5)) {
        signal(SIGSEGV, SIG_DFL); /* PoCL has a handler */
        raise(SIGSEGV);
    }
    if (!strncmp(how, "exit", 4)) exit(0);
    if (!strncmp(how, "term", 4)) raise(SIGTERM);
    if (!strncmp(how, "hang", 4)) hang();
}

static void end_at(const char *probe) {
    const char *const names[] = {probe, "all"};
    for (int i = 0; i < 2; i++) {
        char item[64];
        snprintf(item, sizeof item, "%s=", names[i]);
        const char *all = getenv("DEADLY"), *at = all ? strstr(all, item) : NULL;
        if (at && (at == all || at[-1] == ' ')) end_as(at + strlen(item));
    }
}

ist_status __wrap_ist_enqueue(ist_device *d, cl_kernel kernel, int dims, const size_t *global, const size_t *local,
                              const char *label, ist_error *err) {
    end_at(label);
    return __real_ist_enqueue(d, kernel, dims, global, local, label, err);
}

ist_status __wrap_ist_programs_join_at(ist_site site, ist_device *d, const ist_program_part *parts, int count,
                                       ist_error *err) {
    end_at("joined");
    return __real_ist_programs_join_at(site, d, parts, count, err);
}

/* The program asks once, for the first probe. */
int __wrap_ist_probe_find(const char *name) {
    const char *layers = getenv("OPENCL_LAYERS"), *path = getenv("DEADLY_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %s\n", name, layers ? layers : "-");
        fclose(log);
    }
    return __real_ist_probe_find(name);
}
