/* Lists of images: order, recursion, stems that collide, ids, sequences. */
#include "io/sources.h"

#include "scratch.h"

#include "io/atomic_file.h"

static void touch(const scratch *s, const char *name) {
    cr_assert_eq(ist_atomic_write(scratch_path(s, "%s", name), "", 0, NULL), IST_OK);
}

static ist_sources list(const scratch *s, const char *argument, bool recursive, const char *skip) {
    ist_sources sources = {0};
    ist_error err;
    cr_assert_eq(ist_sources_add(&sources, scratch_path(s, "%s", argument), recursive, skip, &err), IST_OK, "%s",
                 err.text);
    cr_assert_eq(ist_sources_finish(&sources, &err), IST_OK, "%s", err.text);
    return sources;
}

static void expect_names(const ist_sources *sources, size_t count, const char *const *names, const char *const *stems) {
    cr_assert_eq(sources->count, count, "%zu images", sources->count);
    for (size_t i = 0; i < count; i++) {
        cr_expect_str_eq(sources->items[i].name, names[i]);
        cr_expect_str_eq(sources->items[i].stem, stems[i]);
    }
}

Test(io_sources, folder_gives_sorted_images_only) {
    scratch s = scratch_make();
    const char *files[] = {"in/b.png",       "in/a.JPG",     "in/c.jpeg", "in/notes.txt",
                           "in/.hidden.png", "in/sub/d.png", "in/png"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) touch(&s, files[i]);
    ist_sources l = list(&s, "in", false, NULL);
    expect_names(&l, 3, (const char *[]){"a.JPG", "b.png", "c.jpeg"}, (const char *[]){"a", "b", "c"});
    cr_expect_str_eq(l.items[1].path, scratch_path(&s, "in/b.png"));
    cr_expect_eq(l.items[0].id, 1);
    cr_expect_eq(l.items[2].id, 3);
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, recursion_keeps_folders_together) {
    scratch s = scratch_make();
    const char *files[] = {"in/a/x.png", "in/a/z.png", "in/a/m/y.png", "in/b.png", "in/out/overlays/b.png"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) touch(&s, files[i]);
    ist_sources l = list(&s, "in/", true, scratch_path(&s, "in/out"));
    expect_names(&l, 4, (const char *[]){"b.png", "a/x.png", "a/z.png", "a/m/y.png"},
                 (const char *[]){"b", "a/x", "a/z", "a/m/y"});
    cr_expect_eq(l.items[0].sequence, 0);
    cr_expect_eq(l.items[1].sequence, 1);
    cr_expect_eq(l.items[2].sequence, 1);
    cr_expect_eq(l.items[3].sequence, 2);
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, results_of_an_earlier_run_are_no_input) {
    scratch s = scratch_make();
    const char *files[] = {"in/a.png", "in/masks/a.png", "in/overlays/a.png", "in/sub/masks/b.png"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) touch(&s, files[i]);
    ist_sources l = list(&s, "in", true, scratch_path(&s, "in"));
    expect_names(&l, 2, (const char *[]){"a.png", "sub/masks/b.png"}, (const char *[]){"a", "sub/masks/b"});
    ist_sources_free(&l);
    touch(&s, "in/sub/frames.ndjson"); /* a run into another folder has left them */
    l = list(&s, "in", true, NULL);
    expect_names(&l, 3, (const char *[]){"a.png", "masks/a.png", "overlays/a.png"},
                 (const char *[]){"a", "masks/a", "overlays/a"});
    ist_sources_free(&l);
    l = list(&s, "in/sub/masks", true, NULL); /* unless they are asked for */
    expect_names(&l, 1, (const char *[]){"b.png"}, (const char *[]){"b"});
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, stems_never_collide) {
    scratch s = scratch_make();
    ist_sources l = {0};
    ist_error err;
    const char *files[] = {"one/a.jpg", "one/a.png", "two/a.jpg", "two/a.png"};
    for (size_t i = 0; i < 4; i++) touch(&s, files[i]);
    cr_assert_eq(ist_sources_add(&l, scratch_path(&s, "one"), false, NULL, &err), IST_OK);
    cr_assert_eq(ist_sources_add(&l, scratch_path(&s, "two"), false, NULL, &err), IST_OK);
    cr_assert_eq(ist_sources_add(&l, scratch_path(&s, "two/a.png"), false, NULL, &err), IST_OK);
    cr_assert_eq(ist_sources_finish(&l, &err), IST_OK);
    cr_assert_eq(l.count, 5);
    const char *stems[] = {"a", "a.png", "a.jpg", "a.png-2", "a.png-3"};
    for (size_t i = 0; i < 5; i++) cr_expect_str_eq(l.items[i].stem, stems[i]);
    cr_expect_str_eq(l.items[1].name, "a.png");
    cr_expect_str_eq(l.items[3].name, l.items[3].path); /* "a.png" is taken */
    ist_sources_free(&l);
    scratch_remove(&s);
}

/* Where each looked for its number from 2 on, this took minutes. */
Test(io_sources, one_image_very_often, .timeout = 120) {
    enum { TIMES = 60000 };
    scratch s = scratch_make();
    ist_sources l = {0};
    ist_error err;
    touch(&s, "in/a.png");
    touch(&s, "in/a.png-4");
    for (int i = 0; i < TIMES; i++)
        cr_assert_eq(ist_sources_add(&l, scratch_path(&s, i == 3 ? "in/a.png-4" : "in/a.png"), false, NULL, &err),
                     IST_OK);
    cr_assert_eq(ist_sources_finish(&l, &err), IST_OK);
    const char *stems[] = {"a", "a.png", "a.png-2", "a.png-4", "a.png-3", "a.png-5"};
    for (size_t i = 0; i < 6; i++) cr_expect_str_eq(l.items[i].stem, stems[i]);
    cr_expect_str_eq(l.items[TIMES - 1].stem, "a.png-59999");
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, numbers_as_names_are_ids) {
    scratch s = scratch_make();
    touch(&s, "in/000000000139.jpg");
    touch(&s, "in/000000000285.jpg");
    ist_sources l = list(&s, "in", false, NULL);
    cr_expect_eq(l.items[0].id, 139);
    cr_expect_eq(l.items[1].id, 285);
    ist_sources_free(&l);
    touch(&s, "in/285.png"); /* the same number twice: positions it is */
    l = list(&s, "in", false, NULL);
    for (size_t i = 0; i < 3; i++) cr_expect_eq(l.items[i].id, (int64_t)i + 1);
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, limit_changes_neither_stems_nor_ids) {
    scratch s = scratch_make();
    touch(&s, "in/7.png");
    touch(&s, "in/8.png");
    ist_sources l = list(&s, "in", false, NULL);
    ist_sources_truncate(&l, 1);
    cr_assert_eq(l.count, 1);
    cr_expect_eq(l.items[0].id, 7);
    ist_sources_truncate(&l, 5);
    cr_assert_eq(l.count, 1);
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, missing_files_and_links_in_circles) {
    scratch s = scratch_make();
    touch(&s, "in/a.png");
    cr_assert_eq(symlink("..", scratch_path(&s, "in/up")), 0);
    cr_assert_eq(symlink("a.png", scratch_path(&s, "in/b.png")), 0);
    cr_assert_eq(symlink("nowhere", scratch_path(&s, "in/c.png")), 0);
    cr_assert_eq(symlink("nowhere", scratch_path(&s, "in/c.txt")), 0);
    ist_sources l = list(&s, "in", true, NULL);
    expect_names(&l, 3, (const char *[]){"a.png", "b.png", "c.png"}, (const char *[]){"a", "b", "c"});
    ist_sources_free(&l);
    l = list(&s, "../gone.png", false, NULL);
    expect_names(&l, 1, (const char *[]){"gone.png"}, (const char *[]){"gone"});
    ist_sources_free(&l);
    scratch_remove(&s);
}

Test(io_sources, a_folder_that_cannot_be_read_is_an_error) {
    if (geteuid() == 0) cr_skip_test("root reads everything");
    scratch s = scratch_make();
    ist_sources l = {0};
    ist_error err;
    touch(&s, "in/a.png");
    chmod(scratch_path(&s, "in"), 0);
    cr_expect_eq(ist_sources_add(&l, scratch_path(&s, "in"), false, NULL, &err), IST_E_IO);
    cr_expect_eq(ist_sources_add(&l, s.path, true, NULL, &err), IST_OK);
    cr_expect_eq(l.count, 1, "inside of another it is one failing entry");
    chmod(scratch_path(&s, "in"), 0755);
    ist_sources_free(&l);
    scratch_remove(&s);
}
