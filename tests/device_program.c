/* Programs are built once and shared, failures quote the compiler, and the binary cache can be damaged in any way
 * without being more than slow. PoCL keeps a cache of its own, so the tests turn ours on by ist_cache_use. */
#include "support/folder.h"
#include "support/one_device.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(device_program, .init = open_one, .fini = close_one);

/* A program that no other test builds: the define does not matter to the kernel but is part of the key. */
static ist_status create(const char *defines, cl_kernel *kernel) {
    return ist_kernel_create(d, "probe/int64", NULL, defines, "probe", kernel, &err);
}

Test(device_program, built_once_and_shared) {
    ist_build_stats before = ist_device_builds(d), after;
    cl_kernel a, b, c;
    cr_assert_eq(create("-DTEST_SHARED=1", &a), IST_OK, "%s", err.text);
    cr_assert_eq(create("-DTEST_SHARED=1", &b), IST_OK, "%s", err.text);
    after = ist_device_builds(d);
    cr_expect_eq(after.built - before.built, 1);
    cr_expect_neq(a, b, "each call gives a kernel of its own");
    cr_assert_eq(create("-DTEST_SHARED=2", &c), IST_OK, "%s", err.text);
    after = ist_device_builds(d);
    cr_expect_eq(after.built - before.built, 2);
    cr_expect_eq(after.from_cache, 0);
    ist_kernel_release(&a);
    ist_kernel_release(&b);
    ist_kernel_release(&c);
    cr_expect_null(a);
    ist_kernel_release(&a);
    ist_kernel_release(NULL);
}

Test(device_program, a_failed_build_quotes_the_compiler) {
    cl_kernel k = (cl_kernel)1;
    cr_assert_eq(create("-Dprobe=+", &k), IST_E_BUILD);
    cr_expect_null(k);
    cr_expect(strstr(err.text, "probe/int64 does not build on "), "%s", err.text);
    cr_expect(strstr(err.text, "error"), "%s", err.text);
    cr_expect(strstr(err.text, "expected identifier"), "%s", err.text);
    cr_assert_eq(create("", &k), IST_OK, "a failure leaves the device usable: %s", err.text);
    ist_kernel_release(&k);
}

/* What asks for a change to PTX gets that or a sentence, not a kernel with other arguments than are set. */
Test(device_program, one_buffer_for_many_is_refused_without_ptx) {
    cl_kernel k = (cl_kernel)1;
    if (ist_device_caps(d) & IST_CAP_PTX_BLOCK) cr_skip_test("this device's programs are PTX");
    cr_assert_eq(create("-DBUFFERS=1", &k), IST_E_BUILD);
    cr_expect_null(k);
    cr_expect(strstr(err.text, "does not build its PTX with one buffer for many; ISTHMUS_CAPS=-PTX_BLOCK"), "%s",
              err.text);
}

Test(device_program, unknown_names) {
    cl_kernel k;
    cr_expect_eq(ist_kernel_create(d, "op/no_such_op", NULL, "", "x", &k, &err), IST_E_BUILD);
    cr_expect(strstr(err.text, "no kernel source named op/no_such_op"), "%s", err.text);
    cr_expect_eq(ist_kernel_create(d, "probe/int64", "isa/none", "", "x", &k, &err), IST_E_BUILD);
    cr_expect(strstr(err.text, "isa/none"), "%s", err.text);
    cr_expect_eq(ist_kernel_create(d, "probe/int64", NULL, "", "no_such_kernel", &k, &err), IST_E_DEVICE);
    cr_expect(
        strstr(err.text, "clCreateKernel failed: CL_INVALID_KERNEL_NAME (-46): kernel no_such_kernel of probe/int64"),
        "%s", err.text);
}

Test(device_program, a_failed_launch_names_kernel_label_and_shape) {
    cl_kernel k;
    cr_assert_eq(ist_kernel_create(d, "probe/local", NULL, "", "probe", &k, &err), IST_OK, "%s", err.text);
    size_t global[2] = {96, 3}, local[2] = {32, 1}; /* the kernel requires groups of 64 */
    cr_assert_neq(ist_enqueue(d, k, 2, global, local, "layer seven", &err), IST_OK);
    cr_expect(strstr(err.text, "clEnqueueNDRangeKernel failed: CL_INVALID_"), "%s", err.text);
    cr_expect(strstr(err.text, "kernel probe, layer seven, global 96x3, local 32x1"), "%s", err.text);
    ist_kernel_release(&k);
}

/* ---- the binary cache ---- */

/* Forgets the device's programs, turns the cache on in `dir`, makes one kernel, checks that it computes, and gives the
 * cache's counters. */
static ist_build_stats build_over(const char *dir, const char *defines) {
    ist_programs_release(d);
    cr_assert_eq(ist_cache_use(d, dir, &err), IST_OK, "%s", err.text);
    ist_build_stats before = ist_device_builds(d), after;
    cl_kernel k;
    cr_assert_eq(ist_kernel_create(d, "probe/local", NULL, defines, "probe", &k, &err), IST_OK, "%s", err.text);
    after = ist_device_builds(d);

    uint32_t in[128], out[128], sum = 0;
    for (uint32_t i = 0; i < 128; i++) in[i] = i * i;
    for (uint32_t i = 0; i < 64; i++) sum += in[i];
    cl_mem a, b;
    size_t global = 128, local = 64;
    cr_assert_eq(ist_buffer_create(d, sizeof in, "in", &a, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, sizeof out, "out", &b, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, a, 0, sizeof in, in, true, "in", &err), IST_OK, "%s", err.text);
    cr_assert_eq(clSetKernelArg(k, 0, sizeof b, &b), CL_SUCCESS);
    cr_assert_eq(clSetKernelArg(k, 1, sizeof a, &a), CL_SUCCESS);
    cr_assert_eq(ist_enqueue(d, k, 1, &global, &local, "cached", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, (ist_frame_scope){0}, b, 0, sizeof out, out, NULL, "out", &err), IST_OK, "%s", err.text);
    cr_expect_eq(out[0], in[63] + sum);
    cr_expect_eq(out[63], in[0] + sum);
    ist_buffer_release(d, &a);
    ist_buffer_release(d, &b);
    ist_kernel_release(&k);
    return (ist_build_stats){after.built - before.built, after.from_cache - before.from_cache,
                             after.rejected - before.rejected};
}

static void expect_stats(ist_build_stats s, int built, int from_cache, int rejected) {
    cr_expect_eq(s.built, built, "built %d, want %d", s.built, built);
    cr_expect_eq(s.from_cache, from_cache, "from cache %d, want %d", s.from_cache, from_cache);
    cr_expect_eq(s.rejected, rejected, "rejected %d, want %d", s.rejected, rejected);
}

/* Path of the only entry below dir. */
static void only_entry(const char *dir, char *path, size_t size) {
    int found = 0;
    DIR *folder = opendir(dir);
    cr_assert_not_null(folder);
    for (struct dirent *e; (e = readdir(folder));)
        if (e->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", dir, e->d_name);
            found++;
        }
    closedir(folder);
    cr_assert_eq(found, 1, "%d entries in the cache, want 1 and no temporary file", found);
}

static unsigned char *slurp(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*bytes);
    cr_assert_eq(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static void spit(const char *path, const unsigned char *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

Test(device_program, cache_hit) {
    char dir[64];
    folder_make(dir, sizeof dir);
    char nested[128];
    snprintf(nested, sizeof nested, "%s/a/b", dir);
    expect_stats(build_over(nested, "-DTEST_ONE"), 1, 0, 0);
    expect_stats(build_over(nested, "-DTEST_ONE"), 0, 1, 0);
    expect_stats(build_over(nested, "-DTEST_OTHER"), 1, 0, 0);
    expect_stats(build_over(nested, "-DTEST_OTHER"), 0, 1, 0);
    folder_remove(dir);
}

Test(device_program, cache_survives_any_damage) {
    char dir[64], path[512];
    folder_make(dir, sizeof dir);
    expect_stats(build_over(dir, "-DTEST_ONE"), 1, 0, 0);
    only_entry(dir, path, sizeof path);
    size_t bytes;
    unsigned char *good = slurp(path, &bytes), *bad = malloc(bytes + 1);
    cr_assert_gt(bytes, 48u);

    const size_t lengths[] = {0, 1, 47, 48, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        spit(path, good, lengths[i]);
        expect_stats(build_over(dir, "-DTEST_ONE"), 1, 0, 1);
        expect_stats(build_over(dir, "-DTEST_ONE"), 0, 1, 0); /* the bad entry was replaced */
    }
    memcpy(bad, good, bytes);
    bad[bytes] = 0; /* one byte too many */
    spit(path, bad, bytes + 1);
    expect_stats(build_over(dir, "-DTEST_ONE"), 1, 0, 1);
    const size_t places[] = {0, 15, 16, 31, 32, 39, 40, 47, 48, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        memcpy(bad, good, bytes);
        bad[places[i]] ^= 0x40;
        spit(path, bad, bytes);
        expect_stats(build_over(dir, "-DTEST_ONE"), 1, 0, 1);
    }
    free(good);
    free(bad);
    folder_remove(dir);
}

/* A whole, valid entry of another program under this program's name. */
Test(device_program, cache_rejects_a_foreign_entry) {
    char a[64], b[64], from[512], to[512];
    folder_make(a, sizeof a);
    folder_make(b, sizeof b);
    build_over(a, "-DTEST_ONE");
    build_over(b, "-DTEST_OTHER");
    only_entry(a, to, sizeof to);
    only_entry(b, from, sizeof from);
    cr_assert_eq(rename(from, to), 0);
    expect_stats(build_over(a, "-DTEST_ONE"), 1, 0, 1);
    folder_remove(a);
    folder_remove(b);
}

/* Header and checksum are right but the driver does not know the bytes. */
Test(device_program, cache_entry_that_the_driver_refuses) {
    if (!strcmp(d->facts.platform_name, "rusticl")) cr_skip("rusticl ends the process; it never gets a cache of ours");
    char dir[64], path[512];
    folder_make(dir, sizeof dir);
    build_over(dir, "-DTEST_ONE");
    only_entry(dir, path, sizeof path);
    size_t bytes;
    unsigned char *data = slurp(path, &bytes);
    memset(data + 48, 0x5a, bytes - 48);
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 48; i < bytes; i++) sum = (sum ^ data[i]) * 0x100000001b3u;
    memcpy(data + 40, &sum, sizeof sum);
    spit(path, data, bytes);
    expect_stats(build_over(dir, "-DTEST_ONE"), 1, 0, 1);
    free(data);
    folder_remove(dir);
}

Test(device_program, cache_that_cannot_be_written) {
    char dir[64], file[128], below[160];
    folder_make(dir, sizeof dir);
    snprintf(file, sizeof file, "%s/file", dir);
    spit(file, (const unsigned char *)"x", 1);
    snprintf(below, sizeof below, "%s/cache", file); /* a folder below a file: fails for root too */
    expect_stats(build_over(below, "-DTEST_ONE"), 1, 0, 0);
    expect_stats(build_over(below, "-DTEST_ONE"), 1, 0, 0);
    folder_remove(dir);
}

Test(device_program, key_depends_on_everything) {
    const char *texts[] = {"ab", "c"}, *moved[] = {"a", "bc"}, *other[] = {"ab", "d"};
    ist_cache_key key = ist_cache_make_key(d, "-DX", texts, 2), k;
    k = ist_cache_make_key(d, "-DX", texts, 2);
    cr_expect_eq(memcmp(&k, &key, sizeof k), 0);
    k = ist_cache_make_key(d, "-DY", texts, 2);
    cr_expect_neq(memcmp(&k, &key, sizeof k), 0);
    k = ist_cache_make_key(d, "-DX", moved, 2);
    cr_expect_neq(memcmp(&k, &key, sizeof k), 0);
    k = ist_cache_make_key(d, "-DX", other, 2);
    cr_expect_neq(memcmp(&k, &key, sizeof k), 0);
    char *const facts[] = {d->facts.name, d->facts.vendor, d->facts.driver, d->facts.version, d->facts.platform_name};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        facts[i][0] ^= 1;
        k = ist_cache_make_key(d, "-DX", texts, 2);
        facts[i][0] ^= 1;
        cr_expect_neq(memcmp(&k, &key, sizeof k), 0, "fact %zu is not part of the key", i);
    }
}

Test(device_program, where_the_cache_goes) {
    char dir[64], want[128];
    folder_make(dir, sizeof dir);
    snprintf(want, sizeof want, "%s/isthmus", dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    unsetenv("ISTHMUS_CACHE_DIR");
    strcpy(d->facts.platform_name, "some platform");
    cr_assert_eq(ist_cache_open(d, NULL, &err), IST_OK);
    cr_expect_str_eq(d->cache_dir, want);
    cr_assert_eq(ist_cache_use(d, NULL, &err), IST_OK);
    setenv("ISTHMUS_CACHE_DIR", "off", 1);
    cr_assert_eq(ist_cache_open(d, NULL, &err), IST_OK);
    cr_expect_null(d->cache_dir);
    cr_assert_eq(ist_cache_open(d, want, &err), IST_OK);
    cr_expect_str_eq(d->cache_dir, want);
    cr_assert_eq(ist_cache_use(d, NULL, &err), IST_OK);
    strcpy(d->facts.platform_name, "Portable Computing Language");
    cr_assert_eq(ist_cache_open(d, want, &err), IST_OK);
    cr_expect_null(d->cache_dir, "PoCL keeps its own");
    folder_remove(dir);
}

/* A link would let whoever put it there choose what is overwritten, or taken for a kernel. */
Test(device_program, cache_files_that_are_links_are_not_followed) {
    char folder[200], victim[256], linked[256];
    struct stat st;
    folder_make(folder, sizeof folder);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(linked, sizeof linked, "%s/link", folder);
    cr_assert_eq(symlink("victim", linked), 0);
    cr_expect(!ist_cache_make_mark(linked));
    cr_expect(lstat(victim, &st) != 0, "a file was made through the link");
    cr_expect(ist_cache_make_mark(victim) && ist_cache_make_mark(victim));
    cr_expect_null(ist_cache_open_file(linked));
    FILE *file = ist_cache_open_file(victim);
    cr_assert_not_null(file);
    fclose(file);
    folder_remove(folder);
}
