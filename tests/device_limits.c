/* What a process may not have is named: each test takes something from its own process. */
#include "device/state.h"
#include "support/folder.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/resource.h>

static char why[320];

static void limit(int what, rlim_t most) {
    struct rlimit r;
    cr_assert_eq(getrlimit(what, &r), 0);
    r.rlim_cur = most;
    cr_assert_eq(setrlimit(what, &r), 0);
}

static void expect(bool named, const char *words) {
    cr_expect(named, "nothing is named");
    cr_expect_not_null(strstr(why, words), "%s", why);
}

Test(device_limits, nothing_is_short) {
    char folder[200], deep[300];
    folder_make(folder, sizeof folder);
    snprintf(deep, sizeof deep, "%s/to/be/made", folder);
    cr_expect(!ist_limits_explain(NULL, why, sizeof why), "%s", why);
    cr_expect(!ist_limits_no_file(deep, why, sizeof why), "%s", why);
    cr_expect(access(deep, F_OK), "it is looked at, not made");
    folder_remove(folder);
}

Test(device_limits, files) {
    limit(RLIMIT_FSIZE, 1 << 19);
    expect(ist_limits_no_file(NULL, why, sizeof why), "files of 0.5 MB (ulimit -f)");
    expect(ist_limits_explain(NULL, why, sizeof why), "files of 0.5 MB (ulimit -f)");
    expect(ist_limits_no_file("/tmp", why, sizeof why), "files of 0.5 MB (ulimit -f)");
}

Test(device_limits, descriptors) {
    int last = open("/dev/null", O_RDONLY), next;
    limit(RLIMIT_NOFILE, 64);
    while ((next = open("/dev/null", O_RDONLY)) >= 0) last = next;
    close(last);
    expect(ist_limits_explain(NULL, why, sizeof why), "can open 1 more file (ulimit -n is 64)");
    next = open("/dev/null", O_RDONLY);
    cr_expect_eq(next, last, "it holds none itself");
}

Test(device_limits, folders) {
    char folder[200], file[300];
    folder_make(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/file", folder);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    strcat(file, "/cache");
    expect(ist_limits_no_file(file, why, sizeof why), "cannot be written: Not a directory");
    folder_remove(folder);
}

Test(device_limits, drivers_that_do_not_load) {
    char folder[200], path[300];
    folder_make(folder, sizeof folder);
    setenv("OCL_ICD_VENDORS", folder, 1);
    cr_expect(!ist_driver_problem(why, sizeof why), "there is none: %s", why);
    snprintf(path, sizeof path, "%s/a.icd", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs("libnobody-has-this.so\n", f) >= 0 && !fclose(f));
    expect(ist_driver_problem(why, sizeof why), "libnobody-has-this.so: cannot open shared object file");
    setenv("OCL_ICD_VENDORS", path, 1);
    expect(ist_driver_problem(why, sizeof why), "libnobody-has-this.so");
    folder_remove(folder);
}

#if !defined(__SANITIZE_ADDRESS__)
Test(device_limits, memory) {
    cr_expect(!ist_limits_memory(why, sizeof why));
    limit(RLIMIT_AS, (rlim_t)1 << 40);
    expect(ist_limits_memory(why, sizeof why), "may use 1048576 MB of memory (ulimit -v)");
    cr_expect(!ist_limits_explain(NULL, why, sizeof why), "%s", why);
    limit(RLIMIT_AS, 1 << 20);
    expect(ist_limits_explain(NULL, why, sizeof why), "of the 1 MB that this process may use (ulimit -v)");
}
#endif
