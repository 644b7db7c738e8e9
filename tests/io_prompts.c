/* Prompts of files, in both forms, and NumPy files of logits. */
#include "io/npy.h"
#include "io/prompts.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_prompt_file parse(const char *text, const char *source) {
    ist_prompt_file p;
    ist_error err = {0};
    cr_assert_eq(ist_prompt_file_parse(text, strlen(text), source, &p, &err), IST_OK, "%s", err.text);
    return p;
}

static void expect_failure(const char *text, const char *part) {
    ist_prompt_file p;
    ist_error err = {0};
    cr_expect_eq(ist_prompt_file_parse(text, strlen(text), "p.json", &p, &err), IST_E_INPUT, "%s", text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect(!p.count && !p.lists);
    cr_expect_eq(ist_prompt_file_parse(text, strlen(text), "p.json", &p, NULL), IST_E_INPUT);
}

Test(io_prompts, plain_form) {
    ist_prompt_file p =
        parse("{\"a.png\": [{\"points\": [[1, 2.5, 1], [-3, 4e2, 0]], \"box\": [1, 2, 30, 40.5]},"
              "{\"box\": [0, 0, 1, 1], \"label\": 3}, {\"points\": [[7, 8, 1.0]], \"mask\": \"m/a.npy\"}],"
              "\"b.png\": []}",
              "some/where/p.json");
    const ist_prompt_list *a = ist_prompt_file_find(&p, "in/a.png", "a.png");
    cr_assert_not_null(a);
    cr_assert_eq(a->count, 3);
    const ist_prompt_entry *first = &a->items[0];
    cr_assert_eq(first->point_count, 2);
    cr_expect(first->points[0].x == 1 && first->points[0].y == 2.5f && first->points[0].label == 1);
    cr_expect(first->points[1].x == -3 && first->points[1].y == 400 && first->points[1].label == 0);
    cr_expect(first->boxed && first->box[0] == 1 && first->box[1] == 2 && first->box[2] == 30 &&
              first->box[3] == 40.5f);
    cr_expect(!first->mask && !a->items[1].point_count && a->items[1].boxed && !a->items[2].boxed);
    cr_expect_str_eq(a->items[2].mask, "some/where/m/a.npy");
    cr_assert_not_null(ist_prompt_file_find(&p, "b.png", "b.png"));
    cr_expect_eq(ist_prompt_file_find(&p, "b.png", "b.png")->count, 0);
    cr_expect_null(ist_prompt_file_find(&p, "c.png", "c.png"));
    ist_prompt_file_free(&p);
}

Test(io_prompts, masks_are_looked_for_beside_the_file) {
    static const char text[] = "{\"a.png\": [{\"mask\": \"m.npy\"}, {\"mask\": \"/m.npy\"}]}";
    static const struct {
        const char *source, *first;
    } cases[] = {{"p.json", "m.npy"}, {"/p.json", "/m.npy"}, {"a/b/p.json", "a/b/m.npy"}};
    for (int i = 0; i < 3; i++) {
        ist_prompt_file p = parse(text, cases[i].source);
        char *name = p.lists[0].items[0].mask;
        cr_expect_str_eq(*name == '/' && name[1] == '/' ? name + 1 : name, cases[i].first);
        cr_expect_str_eq(p.lists[0].items[1].mask, "/m.npy");
        ist_prompt_file_free(&p);
    }
}

Test(io_prompts, coco_form) {
    ist_prompt_file p =
        parse("{\"images\": [{\"id\": 7, \"file_name\": \"a.png\"}, {\"id\": 9, \"file_name\": \"b.png\"}],"
              "\"annotations\": [{\"image_id\": 9, \"bbox\": [10, 20, 5, 6], \"category_id\": 18},"
              "{\"image_id\": 9, \"bbox\": [0, 0, 0, 0]}], \"categories\": []}",
              "c.json");
    const ist_prompt_list *b = ist_prompt_file_find(&p, "x/b.png", "b.png");
    cr_assert(b && b->count == 2);
    cr_expect(b->items[0].boxed && b->items[0].box[0] == 10 && b->items[0].box[1] == 20 && b->items[0].box[2] == 15 &&
              b->items[0].box[3] == 26);
    cr_expect_eq(ist_prompt_file_find(&p, "a.png", "a.png")->count, 0);
    ist_prompt_file_free(&p);
}

Test(io_prompts, mistakes_are_named) {
    expect_failure("{", "p.json: line 1");
    expect_failure("[]", "p.json: expected a JSON object of file names");
    expect_failure("{\"a\": {}}", "p.json: a: expected an array of prompts");
    expect_failure("{\"a\": [], \"a\": []}", "duplicate");
    expect_failure("{\"a\": [3]}", "p.json: a, prompt 0: it must be an object");
    expect_failure("{\"a\": [{\"box\": [0,0,1,1]}, {}]}", "p.json: a, prompt 1: neither points nor a box nor a mask");
    expect_failure("{\"a\": [{\"points\": []}]}", "neither points");
    expect_failure("{\"a\": [{\"points\": 3}]}", "points must be an array");
    expect_failure("{\"a\": [{\"points\": [[1, 2]]}]}", "a point must be an array of 3 numbers");
    expect_failure("{\"a\": [{\"points\": [[1, 2, \"in\"]]}]}", "element 2 of a point is not a number");
    expect_failure("{\"a\": [{\"points\": [[1, 1e300, 1]]}]}", "element 1 of a point is not a number");
    expect_failure("{\"a\": [{\"points\": [[1, 2, 2]]}]}", "label 2 of a point, want 1 (in) or 0 (out)");
    expect_failure("{\"a\": [{\"points\": [[1, 2, -1]]}]}", "label -1 of a point");
    expect_failure("{\"a\": [{\"box\": [0, 0, 1]}]}", "a box must be an array of 4 numbers");
    expect_failure("{\"a\": [{\"box\": [0, 0, -1, 1]}]}", "box [0, 0, -1, 1] is inside out");
    expect_failure("{\"a\": [{\"mask\": 3}]}", "mask must be the name of a .npy file");
    expect_failure("{\"images\": [], \"annotations\": 3}", "must be arrays");
    expect_failure("{\"images\": [], \"annotations\": [{\"image_id\": 3}]}", "unknown image_id");
    char *text = malloc(20000);
    cr_assert_not_null(text);
    char *at = text + sprintf(text, "{\"a\": [{\"points\": [");
    for (int i = 0; i <= IST_PROMPT_POINTS; i++) at += sprintf(at, "%s[1,2,1]", i ? "," : "");
    strcat(at, "]}]}");
    expect_failure(text, "257 points, at most 256");
    free(text);
}

Test(io_prompts, one_prompt_alone) {
    static const struct {
        const char *text, *part;
    } bad[] = {{"{", "r: line 1"},
               {"{}", "r: neither points"},
               {"[]", "r: it must be an object"},
               {"{\"points\": [[1, 2, 1]], \"mask\": \"a.npy\"}", "r: a mask cannot be given here"},
               {"{\"box\": [1, 2, 3]}", "r: a box must be an array of 4"}};
    ist_prompt_entry p;
    ist_error err;
    const char *good = "{\"points\": [[1, 2.5, 0]], \"box\": [1, 2, 30, 40]}";
    cr_assert_eq(ist_prompt_parse(good, strlen(good), "r", &p, &err), IST_OK, "%s", err.text);
    cr_expect(p.point_count == 1 && p.points[0].x == 1 && p.points[0].y == 2.5f && !p.points[0].label);
    cr_expect(p.boxed && p.box[2] == 30 && !p.mask);
    ist_prompt_entry_free(&p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(ist_prompt_parse(bad[i].text, strlen(bad[i].text), "r", &p, &err), IST_E_INPUT, "%s", bad[i].text);
        cr_expect_eq(strncmp(err.text, bad[i].part, strlen(bad[i].part)), 0, "%s", err.text);
        cr_expect(!p.points && !p.mask);
    }
}

Test(io_prompts, a_file_that_is_not_there) {
    ist_prompt_file p;
    ist_error err = {0};
    cr_expect_eq(ist_prompt_file_read("no/such/prompts.json", &p, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "no/such/prompts.json"));
    cr_expect(!p.count && !p.lists);
}

/* ---- NumPy files ---- */

/* A file with this header and so many bytes of values 0, 1, 2, .. */
static size_t npy(char *out, int version, const char *header, size_t bytes) {
    size_t n = strlen(header), at = 8;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)version;
    out[7] = 0;
    out[at++] = (char)(n & 255);
    out[at++] = (char)(n >> 8);
    if (version > 1) out[at++] = 0, out[at++] = 0;
    memcpy(out + at, header, n);
    at += n;
    for (size_t i = 0; i < bytes; i += 4) {
        float v = (float)i / 4;
        memcpy(out + at + i, &v, bytes - i < 4 ? bytes - i : 4);
    }
    return at + bytes;
}

static void refuse(const char *header, size_t bytes, const char *part) {
    char file[4096];
    ist_npy map;
    ist_error err = {0};
    size_t n = npy(file, 1, header, bytes);
    cr_expect_eq(ist_npy_parse(file, n, "m.npy", &map, &err), IST_E_INPUT, "%s", header);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(map.values);
}

Test(io_prompts, numpy_files) {
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3)}\n",
        "{'shape':(2,3,),'fortran_order':False,'descr':'<f4'}",
    };
    char file[4096];
    ist_npy map;
    ist_error err = {0};
    for (int version = 1; version <= 3; version++)
        for (int i = 0; i < 3; i++) {
            size_t n = npy(file, version, headers[i], 24);
            cr_assert_eq(ist_npy_parse(file, n, "m.npy", &map, &err), IST_OK, "%s", err.text);
            cr_expect(map.height == 2 && map.width == 3 && map.values[0] == 0 && map.values[5] == 5);
            ist_npy_free(&map);
            cr_expect_null(map.values);
            for (size_t cut = 0; cut < n; cut++) {
                cr_expect_eq(ist_npy_parse(file, cut, "m.npy", &map, &err), IST_E_INPUT);
                cr_expect_null(map.values);
            }
        }
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 48, "not float32");
    refuse("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24, "Fortran order");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 3), }", 72, "(h, w) or (1, h, w)");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "its shape is not");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4, "its shape is not");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0, "its shape is not");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3), }", 24, "its shape is not");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }", 24, "its shape is not");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20, "20 bytes of values, 2 x 3 need 24");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 28, "28 bytes");
    refuse("{'descr': '<f4', 'fortran_order': False, }", 24, "lacks");
    refuse("", 24, "lacks");
    cr_expect_eq(ist_npy_parse("PK", 2, "m.npy", &map, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "m.npy: is no NumPy file"));
}

Test(io_prompts, numpy_files_of_the_disk) {
    scratch s = scratch_make();
    char file[4096];
    ist_npy map;
    ist_error err = {0};
    size_t n = npy(file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
    FILE *f = fopen(scratch_path(&s, "m.npy"), "wb");
    cr_assert(f && fwrite(file, 1, n, f) == n && !fclose(f));
    cr_assert_eq(ist_npy_read(scratch_path(&s, "m.npy"), &map, &err), IST_OK, "%s", err.text);
    cr_expect_eq(map.values[4], 4);
    ist_npy_free(&map);
    cr_expect_eq(ist_npy_read(scratch_path(&s, "other.npy"), &map, &err), IST_E_IO);
    cr_expect_null(map.values);
    scratch_remove(&s);
}
