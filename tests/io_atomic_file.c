/* Files that appear complete or not at all. */
#include "io/atomic_file.h"

#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static int entries(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

Test(io_atomic_file, paths_are_joined_by_one_slash) {
    static const char *const cases[][3] = {
        {"a/b", "c", "a/b/c"}, {"a/", "c", "a/c"}, {"/", "c", "/c"}, {"", "c", "c"}, {"a", "", "a/"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = ist_path_join(cases[i][0], cases[i][1]);
        cr_expect_str_eq(path, cases[i][2]);
        free(path);
    }
}

Test(io_atomic_file, nothing_is_seen_before_commit) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "out.txt");
    ist_atomic_file f;
    ist_error err;
    scratch_put(path, "old");
    cr_assert_eq(ist_atomic_begin(&f, path, &err), IST_OK, "%s", err.text);
    fputs("new", f.stream);
    fflush(f.stream);
    char *seen = scratch_read(path, NULL);
    cr_expect_str_eq(seen, "old");
    free(seen);
    cr_assert_eq(ist_atomic_commit(&f, &err), IST_OK, "%s", err.text);
    seen = scratch_read(path, NULL);
    cr_expect_str_eq(seen, "new");
    free(seen);
    cr_expect_eq(entries(s.path), 1);
    scratch_remove(&s);
}

/* What is no file, such as /dev/null, must not become one. */
Test(io_atomic_file, pipes_and_devices_stay_what_they_are) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "pipe");
    struct stat st;
    char text[8] = "";
    ist_error err;
    cr_assert_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR | O_NONBLOCK);
    cr_assert_geq(reader, 0);
    cr_assert_eq(ist_atomic_write(path, "new", 3, &err), IST_OK, "%s", err.text);
    cr_expect_eq(read(reader, text, sizeof text - 1), 3);
    cr_expect_str_eq(text, "new");
    cr_expect(!stat(path, &st) && S_ISFIFO(st.st_mode), "the pipe was replaced");
    cr_expect_eq(entries(s.path), 1);
    close(reader);
    scratch_remove(&s);
}

Test(io_atomic_file, abort_leaves_nothing) {
    scratch s = scratch_make();
    ist_atomic_file f;
    cr_assert_eq(ist_atomic_begin(&f, scratch_path(&s, "out.txt"), NULL), IST_OK);
    fputs("half", f.stream);
    ist_atomic_abort(&f);
    cr_expect_eq(entries(s.path), 0);
    ist_atomic_abort(&f);
    scratch_remove(&s);
}

Test(io_atomic_file, folders_on_the_way_are_made) {
    scratch s = scratch_make();
    ist_error err;
    cr_assert_eq(ist_atomic_write(scratch_path(&s, "a/b/c.txt"), "xyz", 3, &err), IST_OK, "%s", err.text);
    char *text = scratch_read(scratch_path(&s, "a/b/c.txt"), NULL);
    cr_expect_str_eq(text, "xyz");
    free(text);
    scratch_put(scratch_path(&s, "file"), "");
    size_t there;
    cr_expect_eq(ist_make_folders(scratch_path(&s, "file/below"), &there, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "file"), "%s", err.text);
    cr_expect_eq(ist_atomic_write(scratch_path(&s, "file/x"), "x", 1, &err), IST_E_IO);
    scratch_remove(&s);
}

/* What cannot be written is known before; nothing is made by asking, and nothing that is there is touched. */
Test(io_atomic_file, trying_leaves_no_trace) {
    scratch s = scratch_make();
    ist_error err;
    char name[300] = {0}, long_below[310];
    memset(name, 'n', 260);
    snprintf(long_below, sizeof long_below, "a/%s", name);
    scratch_put(scratch_path(&s, "old"), "old");
    cr_assert_eq(mkdir(scratch_path(&s, "folder"), 0777), 0);
    static const char *const fine[] = {"old", "new", "folder/new", "a/b/new"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        cr_expect_eq(ist_atomic_try(scratch_path(&s, "%s", fine[i]), &err), IST_OK, "%s: %s", fine[i], err.text);
    cr_expect_eq(ist_atomic_try("/dev/null", &err), IST_OK, "%s", err.text);
    const char *const wrong[] = {"old/new", "old/a/new", "folder", "folder/", "a/new/", name, long_below};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = scratch_path(&s, "%s", wrong[i]);
        cr_expect_eq(ist_atomic_try(path, &err), IST_E_IO, "%s", path);
        cr_expect(!strncmp(err.text, "cannot ", 7) && strstr(err.text, s.path), "%s", err.text);
        cr_expect_eq(ist_atomic_write(path, "x", 1, NULL), IST_E_IO, "%s can be written", path);
        rmdir(scratch_path(&s, "a/new"));
        rmdir(scratch_path(&s, "a"));
    }
    char *text = scratch_read(scratch_path(&s, "old"), NULL);
    cr_expect_str_eq(text, "old");
    free(text);
    cr_expect_eq(entries(s.path), 2);
    cr_expect_eq(entries(scratch_path(&s, "folder")), 0);
    scratch_remove(&s);
}

Test(io_atomic_file, folders_are_taken_back_while_they_are_empty) {
    scratch s = scratch_make();
    ist_error err;
    size_t there;
    const char *const forms[] = {"old/a/b", "old/a/b/", "old/a//b"};
    cr_assert_eq(ist_make_folders(scratch_path(&s, "old"), &there, &err), IST_OK, "%s", err.text);
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_path(&s, "%s", forms[i]);
        cr_assert_eq(ist_make_folders(path, &there, &err), IST_OK, "%s", err.text);
        cr_expect_eq(there, strlen(scratch_path(&s, "old")), "%s", forms[i]);
        ist_remove_empty_folders(path, there);
        cr_expect(!scratch_exists(scratch_path(&s, "old/a")), "%s", forms[i]);
        cr_expect(scratch_exists(scratch_path(&s, "old")), "%s", forms[i]);
    }
    const char *path = scratch_path(&s, "old/a/b");
    cr_assert_eq(ist_make_folders(path, &there, &err), IST_OK, "%s", err.text);
    scratch_put(scratch_path(&s, "old/a/kept"), "");
    ist_remove_empty_folders(path, there);
    cr_expect(!scratch_exists(path));
    cr_expect(scratch_exists(scratch_path(&s, "old/a/kept")));
    const char *long_name = scratch_path(&s, "old/c/%0300d", 0);
    cr_expect_eq(ist_make_folders(long_name, &there, &err), IST_E_IO);
    cr_expect(!scratch_exists(scratch_path(&s, "old/c")), "a path that cannot be made left a part");
    scratch_remove(&s);
}

Test(io_atomic_file, names_of_full_length_work) {
    scratch s = scratch_make();
    char name[252] = {0};
    memset(name, 'n', 251);
    ist_error err;
    cr_expect_eq(ist_atomic_write(scratch_path(&s, "%s.png", name), "x", 1, &err), IST_OK, "%s", err.text);
    scratch_remove(&s);
}

/* Whether the buffer fails while it is filled or at the end. */
static void expect_full(size_t bytes) {
    ist_error err;
    ist_atomic_file f;
    scratch s = scratch_make();
    cr_assert_eq(ist_atomic_begin(&f, scratch_path(&s, "out"), &err), IST_OK);
    fclose(f.stream);
    f.stream = fopen("/dev/full", "wb"); /* every write fails with ENOSPC */
    cr_assert_not_null(f.stream);
    for (size_t i = 0; i < bytes; i++) putc('x', f.stream);
    errno = 0;
    cr_expect_eq(ist_atomic_commit(&f, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, strerror(ENOSPC)), "%zu bytes: %s", bytes, err.text);
    cr_expect_eq(entries(s.path), 0);
    scratch_remove(&s);
}

Test(io_atomic_file, a_full_disk_is_an_error) {
    if (access("/dev/full", W_OK)) cr_skip_test("no /dev/full");
    expect_full(4);
    expect_full(65536);
    expect_full(65537);
}

Test(io_atomic_file, read_file_checks_its_limit) {
    scratch s = scratch_make();
    char *bytes;
    size_t count;
    ist_error err;
    scratch_write(scratch_path(&s, "f"), "a\0b", 3);
    cr_assert_eq(ist_read_file(scratch_path(&s, "f"), 3, &bytes, &count, &err), IST_OK);
    cr_expect_eq(count, 3);
    cr_expect_arr_eq(bytes, "a\0b", 4);
    free(bytes);
    cr_expect_eq(ist_read_file(scratch_path(&s, "f"), 2, &bytes, &count, &err), IST_E_LIMIT);
    scratch_remove(&s);
}

/* ---- links ---- */

static void expect_text(const char *path, const char *want) {
    char *text = scratch_read(path, NULL);
    cr_assert_not_null(text, "%s", path);
    cr_expect_str_eq(text, want, "%s", path);
    free(text);
}

/* A file somewhere else, and a folder for output. */
static scratch make_victim(void) {
    scratch s = scratch_make();
    scratch_put(scratch_path(&s, "victim"), "precious");
    cr_assert_eq(mkdir(scratch_path(&s, "out"), 0777), 0);
    cr_assert_eq(mkdir(scratch_path(&s, "other"), 0777), 0);
    return s;
}

Test(io_atomic_file, links_in_an_output_folder_are_not_followed) {
    static const char *const folders[] = {"out", "out/", "out//"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        scratch s = make_victim();
        ist_error err;
        const char *out = scratch_path(&s, "%s", folders[i]);
        cr_assert_eq(symlink("../victim", scratch_path(&s, "out/file")), 0);
        cr_assert_eq(symlink("/dev/null", scratch_path(&s, "out/null")), 0);
        cr_assert_eq(symlink("../other", scratch_path(&s, "out/masks")), 0);
        static const char *const names[] = {"file", "null", "masks/a.png", "masks/deep/a.png"};
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            cr_expect_eq(ist_atomic_write_in(out, names[k], "new", 3, &err), IST_E_IO, "%s", names[k]);
            cr_expect(strstr(err.text, "symbolic link") && strstr(err.text, "out/"), "%s", err.text);
        }
        expect_text(scratch_path(&s, "victim"), "precious");
        cr_expect_eq(entries(scratch_path(&s, "other")), 0);
        cr_expect_eq(entries(scratch_path(&s, "out")), 3);
        cr_assert_eq(ist_atomic_write_in(out, "labels/a/b.txt", "new", 3, &err), IST_OK, "%s", err.text);
        expect_text(scratch_path(&s, "out/labels/a/b.txt"), "new");
        scratch_remove(&s);
    }
}

/* The folder itself is the user's own word, and so is a file outside of output folders: there the link is replaced. */
Test(io_atomic_file, links_that_the_user_names_are_used) {
    scratch s = make_victim();
    ist_error err;
    cr_assert_eq(symlink("out", scratch_path(&s, "way")), 0);
    cr_assert_eq(ist_atomic_write_in(scratch_path(&s, "way"), "a/b", "new", 3, &err), IST_OK, "%s", err.text);
    expect_text(scratch_path(&s, "out/a/b"), "new");
    cr_assert_eq(symlink("victim", scratch_path(&s, "report.json")), 0);
    cr_assert_eq(ist_atomic_write(scratch_path(&s, "report.json"), "new", 3, &err), IST_OK, "%s", err.text);
    expect_text(scratch_path(&s, "report.json"), "new");
    expect_text(scratch_path(&s, "victim"), "precious");
    scratch_remove(&s);
}

Test(io_atomic_file, a_link_of_the_temporary_name_is_not_followed) {
    scratch s = make_victim();
    ist_error err;
    ist_atomic_file f;
    cr_assert_eq(ist_atomic_begin_in(&f, scratch_path(&s, "out"), "file", &err), IST_OK, "%s", err.text);
    const char *temporary = scratch_path(&s, "out/%s", f.temporary);
    ist_atomic_abort(&f);
    cr_expect_eq(entries(scratch_path(&s, "out")), 0);
    cr_assert_eq(symlink("../victim", temporary), 0);
    cr_assert_eq(ist_atomic_write_in(scratch_path(&s, "out"), "file", "new", 3, &err), IST_OK, "%s", err.text);
    expect_text(scratch_path(&s, "out/file"), "new");
    cr_assert_eq(link(scratch_path(&s, "victim"), temporary), 0); /* nor a second name of a file */
    cr_assert_eq(ist_atomic_write_in(scratch_path(&s, "out"), "file", "newer", 5, &err), IST_OK, "%s", err.text);
    expect_text(scratch_path(&s, "out/file"), "newer");
    expect_text(scratch_path(&s, "victim"), "precious");
    cr_expect_eq(entries(scratch_path(&s, "out")), 1);
    scratch_remove(&s);
}
