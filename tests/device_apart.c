/* Probes in another process: what a driver does to it is noticed, costs that probe alone, and is kept. */
#define _GNU_SOURCE
#include "device/device.h"
#include "support/folder.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static char dir[256], log_path[300], hung_path[300];

static void begin(void) {
    unsetenv("ISTHMUS_CAPS");
    folder_make(dir, sizeof dir);
    snprintf(log_path, sizeof log_path, "%s/log", dir);
    snprintf(hung_path, sizeof hung_path, "%s/hung", dir);
    setenv("ISTHMUS_PROBE", IST_BUILD_DIR "/tests/isthmus-probe-deadly", 1);
    setenv("DEADLY_LOG", log_path, 1);
    setenv("DEADLY_HUNG", hung_path, 1);
}

static void end(void) {
    folder_remove(dir);
}

TestSuite(device_apart, .init = begin, .fini = end);

/* The patience for a process that hangs, and for no other, ends at once. */
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout) {
    for (int waited = 0; waited < timeout; waited += 10) {
        int n = __real_poll(fds, count, 10);
        if (n) return n;
        if (!unlink(hung_path)) return 0;
    }
    return 0;
}

typedef struct opened {
    unsigned caps, deadly;
    int built; /* programs, by this process */
    bool cpu;
} opened;

/* Opens the default device while its driver ends processes so. */
static opened open_with(const char *deadly) {
    ist_device_options o = {.cache_dir = dir};
    ist_device *d = NULL;
    ist_error err = {0};
    setenv("DEADLY", deadly, 1);
    cr_assert_eq(ist_device_open(&o, &d, &err), IST_OK, "%s", err.text);
    opened got = {ist_device_probed(d), ist_device_deadly(d), ist_device_builds(d).built, ist_device_is_cpu(d)};
    ist_device_close(&d);
    return got;
}

/* Removes what is kept of probes. */
static void forget(void) {
    folder_remove(dir);
    mkdir(dir, 0777);
}

/* The log of starts, "" for none; the caller's to free. */
static char *starts(void) {
    char *text = calloc(1, 4096);
    FILE *f = fopen(log_path, "r");
    if (f) {
        cr_assert_lt(fread(text, 1, 4095, f), 4095u);
        fclose(f);
    }
    return text;
}

static void expect_starts(const char *want) {
    char *got = starts();
    cr_expect_str_eq(got, want);
    free(got);
    unlink(log_path);
}

Test(device_apart, one_process_and_none_when_it_is_known) {
    opened first = open_with(""), again = open_with("");
    cr_expect_eq(first.built, 0, "what is probed is built elsewhere");
    cr_expect(first.caps & IST_CAP_INT64);
    cr_expect_eq(first.deadly, 0u);
    cr_expect_eq(again.caps, first.caps);
    cr_expect_eq(again.built, 0);
    expect_starts("joined -\n");
}

#ifdef SYS_arch_prctl
/* A process has to ask before it may use AMX's tiles: that another was given leave is not enough, nor is it asked for
 * where a record of the probes is read, when nothing is kept. */
Test(device_apart, leave_to_use_tiles_is_asked_for_without_a_cache) {
    enum { ARCH_GET_XCOMP_PERM = 0x1022, XFEATURE_XTILEDATA = 18 }; /* asm/prctl.h */
    ist_device_options o = {.cache_dir = "off"};
    ist_device *d = NULL;
    ist_error err = {0};
    unsigned long leave = 0;
    setenv("DEADLY", "", 1);
    cr_assert_eq(ist_device_open(&o, &d, &err), IST_OK, "%s", err.text);
    bool tiles = ist_device_probed(d) & IST_CAP_X86_AMX;
    cr_expect_eq(ist_device_builds(d).built, 0, "what is probed is built elsewhere");
    ist_device_close(&d);
    if (!tiles) cr_skip_test("no AMX here");
    cr_assert_eq(syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &leave), 0);
    cr_expect(leave >> XFEATURE_XTILEDATA & 1);
}
#endif

Test(device_apart, as_in_this_process) {
    opened apart = open_with("");
    forget();
    setenv("ISTHMUS_PROBE", "off", 1);
    opened here = open_with("");
    cr_expect_eq(apart.caps, here.caps);
    cr_expect_gt(here.built, 0);
    expect_starts("");
}

Test(device_apart, a_probe_that_ends_it_is_left_out) {
    static const char *const ends[] = {"int64=abort", "int64=fault", "int64=exit", "int64=hang"};
    unsigned all = open_with("").caps;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        forget();
        opened got = open_with(ends[i]);
        cr_expect_eq(got.caps, all & ~(unsigned)IST_CAP_INT64, "%s: %x of %x", ends[i], got.caps, all);
        cr_expect_eq(got.deadly, (unsigned)IST_CAP_INT64, "%s", ends[i]);
        expect_starts("joined -\nfp64 -\n"); /* the next of the list */
        opened again = open_with("");
        cr_expect_eq(again.caps, got.caps, "%s: that is kept", ends[i]);
        cr_expect_eq(again.deadly, got.deadly);
        expect_starts("");
    }
}

Test(device_apart, several_and_the_joined_program) {
    opened all = open_with("");
    forget();
    if (!all.cpu) cr_skip_test("no programs are joined here");
    opened got = open_with("joined=abort vec16=fault int64=hang fp64=abort");
    cr_expect_eq(got.caps, all.caps & ~(unsigned)(IST_CAP_VEC16 | IST_CAP_INT64 | IST_CAP_FP64));
    cr_expect_eq(got.deadly, (unsigned)(IST_CAP_VEC16 | IST_CAP_INT64 | IST_CAP_FP64));
    char *log = starts();
    cr_expect(!strncmp(log, "joined -\nvec16 -\nlocal -\nfp64 -\n", 32), "%s", log);
    free(log);
}

/* As when memory runs out: this start does without, the next asks again. */
Test(device_apart, a_signal_from_outside_says_nothing_about_the_driver) {
    unsigned all = open_with("").caps;
    forget();
    cr_expect_eq(open_with("int64=term").caps, all & ~(unsigned)IST_CAP_INT64);
    cr_expect_eq(open_with("").caps, all);
}

Test(device_apart, a_driver_that_survives_nothing_is_a_sentence) {
    ist_device_options o = {.cache_dir = dir};
    ist_device *d = NULL;
    ist_error err = {0};
    setenv("DEADLY", "all=abort", 1);
    cr_expect_eq(ist_device_open(&o, &d, &err), IST_E_NO_DEVICE);
    cr_expect_null(d);
    cr_expect(strstr(err.text, "ends every process that runs small kernels"), "%s", err.text);
}

Test(device_apart, without_the_program_it_is_done_here) {
    static const char *const programs[] = {"/nonexistent/isthmus-probe", "/bin/true", "/bin/cat", "off"};
    unsigned all = open_with("").caps;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        forget();
        setenv("ISTHMUS_PROBE", programs[i], 1);
        opened got = open_with("int64=abort");
        cr_expect_eq(got.caps, all, "%s", programs[i]);
        cr_expect_gt(got.built, 0, "%s", programs[i]);
    }
}

/* An audit counts what its program does, and the probes of a library are no part of that. */
Test(device_apart, no_layer_of_an_audit) {
    int count;
    ist_device_info *list;
    ist_error err = {0};
    cr_assert_eq(ist_device_list(&list, &count, &err), IST_OK, "%s", err.text); /* the loader has looked by then */
    free(list);
    setenv("OPENCL_LAYERS", "/nonexistent/layer.so", 1);
    open_with("");
    expect_starts("joined -\n");
}

/* Nobody else's children are touched, and a caller that ignores the end of its children loses nothing. */
Test(device_apart, beside_a_caller_that_ignores_children) {
    unsigned all = open_with("").caps;
    forget();
    signal(SIGCHLD, SIG_IGN);
    opened got = open_with("int64=abort");
    cr_expect_eq(got.caps, all & ~(unsigned)IST_CAP_INT64);
    cr_expect_eq(got.deadly, (unsigned)IST_CAP_INT64);
}
