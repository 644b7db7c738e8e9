/* Class names and category ids. */
#include "io/labels.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_names(const char *text, size_t count, const char *first, const char *last) {
    char **names;
    size_t n;
    ist_error err = {0};
    cr_assert_eq(ist_names_parse(text, strlen(text), "names", &names, &n, &err), IST_OK, "%s: %s", text, err.text);
    cr_assert_eq(n, count, "%s: %zu names", text, n);
    cr_expect_str_eq(names[0], first);
    cr_expect_str_eq(names[n - 1], last);
    ist_names_free(&names, n);
    cr_expect_null(names);
}

static void expect_failure(const char *text, const char *part) {
    char **names;
    size_t n;
    ist_error err = {0};
    cr_expect_eq(ist_names_parse(text, strlen(text), "names", &names, &n, &err), IST_E_INPUT, "%s", text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(names);
}

Test(io_names, lines) {
    expect_names("bone\nneedle", 2, "bone", "needle");
    expect_names("bone\r\nsoft tissue\r\n\n", 2, "bone", "soft tissue");
    expect_failure("bone\n\nneedle\n", "name 1 is empty");
    expect_failure("", "no names");
    expect_failure(" \n ", "no names");
}

Test(io_names, json_array) {
    expect_names(" [\"bone\", \"a, b\"]", 2, "bone", "a, b");
    expect_failure("[\"bone\", 3]", "element 1");
    expect_failure("[\"bone\"", "line 1");
    expect_failure("[]", "no names");
    expect_failure("[\"\"]", "name 0 is empty");
}

Test(io_names, data_yaml) {
    expect_names("path: x\nnames: [bone, 'a, b', \"c\"]\nnc: 3\n", 3, "bone", "c");
    expect_names("nc: 2\nnames:\n  0: bone\n  # remark\n  1: needle\ntrain: x\n", 2, "bone", "needle");
    expect_names("names:\n- bone\n- 'soft tissue'\nval: x\n", 2, "bone", "soft tissue");
    expect_names("names:\n  - bone", 1, "bone", "bone");
    expect_failure("names:\n  0: bone\n  2: needle\n", "expected '1: name'");
    expect_failure("names: [bone, needle\n", "no end");
    expect_failure("names:\nnc: 3\n", "no names");
}

Test(io_names, data_yaml_with_remarks_and_mappings) {
    expect_names("names:\n  0: bone # the bright line\n  1: 'soft # tissue' # and this\n", 2, "bone", "soft # tissue");
    expect_names("names:\n- a#1\n- b\t# two\n", 2, "a#1", "b");
    expect_names("names: [a,\n  b,\n]\n", 2, "a", "b");
    expect_names("names: {0: bone, 1: 'a, b'}\n", 2, "bone", "a, b");
    expect_names("names:\n  '0': bone\n  \"1\": needle\n", 2, "bone", "needle");
    expect_names("{\"0\": \"bone\", \"1\": \"a: b\"}", 2, "bone", "a: b");
    expect_names("{\"1\": \"needle\", \"0\": \"K\\u006eochen\"}", 2, "Knochen", "needle");
    expect_names("{\"nc\": 2, \"names\": [\"a\", \"b\"]}", 2, "a", "b");
    expect_failure("{\"0\": \"bone\", \"2\": \"needle\"}", "expected '1: name'");
    expect_failure("{\"names\": 7}", "no names");
    expect_failure("names: {1: bone}\n", "expected '0: name'");
    expect_failure("names: {bone: 0}\n", "expected '0: name'");
    expect_failure("names: {0: bone\n", "no end");
    expect_failure("names: [a,, b]\n", "name 1 is empty");
    expect_failure("names:\n  0: # nothing\n", "name 0 is empty");
}

/* Nothing is read behind the text, whatever its last byte is. */
Test(io_names, text_cut_off_anywhere) {
    static const char *const texts[] = {"names:\n  0: bone # x\n  \"1\": 'needle'\n",
                                        "names: {0: bone, '1': \"needle\"}\n", "{\"0\": \"bone\"}",
                                        "names: [bone, 'a, b' ]\n", "names:\n- 'bone'\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t n = 1; n <= strlen(texts[i]); n++) {
            char **names, *text = malloc(n); /* for the sanitizers */
            size_t count;
            cr_assert_not_null(text);
            memcpy(text, texts[i], n);
            if (!ist_names_parse(text, n, "names", &names, &count, NULL)) ist_names_free(&names, count);
            free(text);
        }
}

Test(io_names, a_byte_order_mark_is_no_part_of_a_name) {
    expect_names("\xEF\xBB\xBF"
                 "bone\nneedle\n",
                 2, "bone", "needle");
    expect_names("\xEF\xBB\xBFnames: [bone, needle]\n", 2, "bone", "needle");
    expect_names("\xEF\xBB\xBF[\"bone\"]", 1, "bone", "bone");
}

Test(io_names, binary_is_refused) {
    char **names;
    size_t n;
    ist_error err;
    cr_expect_eq(ist_names_parse("a\0b", 3, "x.bin", &names, &n, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "x.bin"));
}

Test(io_names, eighty_classes_are_cocos) {
    ist_labels l;
    char buffer[16];
    cr_assert_eq(ist_labels_make(80, NULL, &l, NULL), IST_OK);
    cr_assert(l.is_coco);
    /* the published 80 -> 91 table, at its gaps and ends */
    static const int pairs[][2] = {{0, 1},   {10, 11}, {11, 13}, {23, 25}, {24, 27}, {25, 28}, {26, 31}, {39, 44},
                                   {40, 46}, {59, 65}, {60, 67}, {61, 70}, {62, 72}, {72, 82}, {73, 84}, {79, 90}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        cr_expect_eq(ist_label_category(&l, pairs[i][0]), pairs[i][1]);
        cr_expect_eq(ist_category_label(&l, pairs[i][1]), pairs[i][0]);
    }
    cr_expect_eq(ist_category_label(&l, 12), -1);
    cr_expect_str_eq(ist_label_name(&l, 0, buffer), "person");
    cr_expect_str_eq(ist_label_name(&l, 79, buffer), "toothbrush");
    cr_expect_str_eq(ist_label_name(&l, 80, buffer), "80");
    cr_expect_eq(ist_label_find(&l, "dog"), 16);
    cr_expect_eq(ist_label_find(&l, "dragon"), -1);
    ist_labels_free(&l);
}

Test(io_names, other_models_keep_their_labels) {
    const char *names[2] = {"bone", NULL};
    ist_labels l;
    char buffer[16];
    cr_assert_eq(ist_labels_make(2, names, &l, NULL), IST_OK);
    cr_expect(!l.is_coco);
    cr_expect_str_eq(ist_label_name(&l, 0, buffer), "bone");
    cr_expect_str_eq(ist_label_name(&l, 1, buffer), "1");
    cr_expect_eq(ist_label_category(&l, 1), 1);
    cr_expect_eq(ist_category_label(&l, 1), 1);
    ist_labels_free(&l);
    const char *eighty[80] = {"bone"};
    cr_assert_eq(ist_labels_make(80, eighty, &l, NULL), IST_OK);
    cr_expect(!l.is_coco, "80 classes of its own are not COCO's");
    ist_labels_free(&l);
}
