/* What the probes found is kept, and only believed about the same device, driver and sources: otherwise they run again.
 * Here they run in this process, where what is built is counted; device_apart is about the other one. */
#include "device/state.h"
#include "support/folder.h"

#include <criterion/criterion.h>

static char dir[256];

static void begin(void) {
    unsetenv("ISTHMUS_CAPS");
    unsetenv("ISTHMUS_CPU_BUILD_OPTIONS");
    setenv("ISTHMUS_PROBE", "off", 1);
    folder_make(dir, sizeof dir);
}

static void end(void) {
    folder_remove(dir);
}

TestSuite(device_probed, .init = begin, .fini = end);

/* Opens the default device over the folder: how many programs that built, and what was found. */
static int programs_built(const char *cache_dir, unsigned *caps, bool *kept) {
    ist_device_options o = {.cache_dir = cache_dir};
    ist_device *d = NULL;
    ist_error err = {0};
    cr_assert_eq(ist_device_open(&o, &d, &err), IST_OK, "%s", err.text);
    int built = ist_device_builds(d).built;
    *caps = ist_device_probed(d);
    *kept = ist_device_sharing(ist_device_facts(d)) == IST_SHARES_LAUNCHES;
    ist_device_close(&d);
    return built;
}

/* The folder's only record; false when there is none. */
static bool record(char *path, size_t size) {
    int count = 0;
    DIR *folder = opendir(dir);
    cr_assert_not_null(folder);
    for (struct dirent *e; (e = readdir(folder));)
        if (strstr(e->d_name, ".probed")) {
            cr_assert_lt(snprintf(path, size, "%s/%s", dir, e->d_name), (int)size);
            count++;
        }
    closedir(folder);
    cr_assert_leq(count, 1);
    return count == 1;
}

/* Changes the byte at `at` of the record, or cuts it off there. */
static void damage(const char *path, long at, bool cut) {
    if (cut) {
        cr_assert_eq(truncate(path, at), 0);
        return;
    }
    FILE *f = fopen(path, "r+b");
    cr_assert_not_null(f);
    fseek(f, at, SEEK_SET);
    int byte = fgetc(f);
    fseek(f, at, SEEK_SET);
    cr_assert_neq(fputc(byte ^ 1, f), EOF);
    cr_assert_eq(fclose(f), 0);
}

Test(device_probed, run_once_and_found_again) {
    unsigned first, second;
    bool kept;
    char path[512];
    cr_expect_gt(programs_built(dir, &first, &kept), 0);
    if (!kept) cr_skip_test("the folder has binaries too, so that nothing is built");
    cr_assert(record(path, sizeof path));
    cr_expect_eq(programs_built(dir, &second, &kept), 0);
    cr_expect_eq(second, first);
    cr_expect_gt(programs_built("off", &second, &kept), 0);
    cr_expect_eq(second, first);
}

Test(device_probed, what_is_damaged_is_not_believed) {
    static const struct {
        long at;
        bool cut;
    } damages[] = {{0, false}, {16, false}, {32, false}, {40, false}, {48, false}, {0, true}, {47, true}, {50, true}};
    unsigned first, again;
    bool kept;
    char path[512];
    programs_built(dir, &first, &kept);
    if (!kept) cr_skip_test("the folder has binaries too, so that nothing is built");
    cr_assert(record(path, sizeof path));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        damage(path, damages[i].at, damages[i].cut);
        cr_expect_gt(programs_built(dir, &again, &kept), 0, "damage %zu", i);
        cr_expect_eq(again, first);
        cr_expect_eq(programs_built(dir, &again, &kept), 0, "and it is replaced");
    }
}

Test(device_probed, belongs_to_its_build_options) {
    unsigned caps;
    bool kept;
    programs_built(dir, &caps, &kept);
    if (!kept) cr_skip_test("the folder has binaries too, so that nothing is built");
    setenv("ISTHMUS_CPU_BUILD_OPTIONS", "-DOTHER", 1);
    cr_expect_gt(programs_built(dir, &caps, &kept), 0);
}

Test(device_probed, overruling_changes_nothing_that_is_kept) {
    unsigned first, again;
    bool kept;
    setenv("ISTHMUS_CAPS", "-INT64", 1);
    programs_built(dir, &first, &kept);
    if (!kept) cr_skip_test("the folder has binaries too, so that nothing is built");
    unsetenv("ISTHMUS_CAPS");
    cr_expect_eq(programs_built(dir, &again, &kept), 0);
    cr_expect_eq(again, first);
    cr_expect(again & IST_CAP_INT64);
}
