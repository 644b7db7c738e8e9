/* Given boxes, in both forms. */
#include "io/targets.h"

#include <criterion/criterion.h>
#include <string.h>

static ist_targets parse(const char *text) {
    ist_targets t;
    ist_error err = {0};
    cr_assert_eq(ist_targets_parse(text, strlen(text), "t.json", &t, &err), IST_OK, "%s", err.text);
    return t;
}

static void expect_failure(const char *text, const char *part) {
    ist_targets t;
    ist_error err = {0};
    cr_expect_eq(ist_targets_parse(text, strlen(text), "t.json", &t, &err), IST_E_INPUT, "%s", text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_eq(t.count, 0);
}

Test(io_targets, plain_form) {
    ist_targets t =
        parse("{\"a.png\": [{\"box\": [1, 2.5, 30, 40], \"label\": 3}, {\"box\": [0, 0, 1, 1]}], \"b.png\": []}");
    const ist_target_list *a = ist_targets_find(&t, "in/a.png", "a.png");
    cr_assert_not_null(a);
    cr_assert_eq(a->count, 2);
    cr_expect(a->items[0].box[0] == 1 && a->items[0].box[1] == 2.5f && a->items[0].box[2] == 30 &&
              a->items[0].box[3] == 40);
    cr_expect_eq(a->items[0].label, 3);
    cr_expect_eq(a->items[1].label, -1);
    cr_assert_not_null(ist_targets_find(&t, "b.png", "b.png"));
    cr_expect_eq(ist_targets_find(&t, "b.png", "b.png")->count, 0);
    cr_expect_null(ist_targets_find(&t, "c.png", "c.png"));
    ist_targets_free(&t);
}

Test(io_targets, lookup_prefers_path_then_name_then_last_part) {
    ist_targets t = parse("{\"in/a.png\": [], \"s/a.png\": [{\"box\":[0,0,1,1]}],"
                          "\"a.png\": [{\"box\":[0,0,1,1]},{\"box\":[0,0,2,2]}]}");
    cr_expect_eq(ist_targets_find(&t, "in/a.png", "s/a.png")->count, 0);
    cr_expect_eq(ist_targets_find(&t, "x/s/a.png", "s/a.png")->count, 1);
    cr_expect_eq(ist_targets_find(&t, "y/a.png", "z/a.png")->count, 2);
    ist_targets_free(&t);
}

Test(io_targets, coco_form) {
    ist_targets t = parse("{\"images\": [{\"id\": 7, \"file_name\": \"a.png\"}, {\"id\": 9, \"file_name\": \"b.png\"}],"
                          "\"annotations\": [{\"image_id\": 9, \"bbox\": [10, 20, 5, 6], \"category_id\": 18},"
                          "{\"image_id\": 9, \"bbox\": [0, 0, 0, 0], \"category_id\": 1}], \"categories\": []}");
    ist_labels labels;
    ist_error err;
    cr_assert_eq(ist_labels_make(80, NULL, &labels, NULL), IST_OK);
    cr_assert_eq(ist_targets_relabel(&t, &labels, &err), IST_OK, "%s", err.text);
    const ist_target_list *b = ist_targets_find(&t, "b.png", "b.png");
    cr_assert_eq(b->count, 2);
    cr_expect(b->items[0].box[0] == 10 && b->items[0].box[1] == 20 && b->items[0].box[2] == 15 &&
              b->items[0].box[3] == 26);
    cr_expect_eq(b->items[0].label, 16, "category 18 is dog, label 16");
    cr_expect_eq(b->items[1].label, 0);
    cr_expect_eq(ist_targets_find(&t, "a.png", "a.png")->count, 0);
    ist_labels_free(&labels);
    ist_targets_free(&t);
}

/* As eval does: ids of a dataset of the user's say nothing, names do. */
Test(io_targets, coco_categories_go_by_name) {
    static const char text[] =
        "{\"images\": [{\"id\": 1, \"file_name\": \"a.png\"}], \"annotations\": ["
        "{\"image_id\": 1, \"bbox\": [0, 0, 1, 1], \"category_id\": 3},"
        "{\"image_id\": 1, \"bbox\": [0, 0, 1, 1], \"category_id\": 1}, {\"image_id\": 1, \"bbox\": [0, 0, 1, 1]}],"
        "\"categories\": [{\"id\": 3, \"name\": \"bone\"}, {\"id\": 1, \"name\": \"needle\"}, {\"id\": -5, \"name\": "
        "\"x\"}, {}]}";
    const char *names[3] = {"bone", NULL, "needle"}, *others[2] = {"bone", "vessel"}, *none[4] = {"a", "b", "c", "d"};
    ist_labels labels;
    ist_error err;
    ist_targets t = parse(text);
    cr_assert_eq(ist_labels_make(3, names, &labels, NULL), IST_OK);
    cr_assert_eq(ist_targets_relabel(&t, &labels, &err), IST_OK, "%s", err.text);
    const ist_target *items = ist_targets_find(&t, "a.png", "a.png")->items;
    cr_expect(items[0].label == 0 && items[1].label == 2 && items[2].label == -1);
    ist_labels_free(&labels);
    ist_targets_free(&t);
    t = parse(text);
    cr_assert_eq(ist_labels_make(2, others, &labels, NULL), IST_OK);
    cr_expect_eq(ist_targets_relabel(&t, &labels, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "category 1"), "%s", err.text);
    ist_labels_free(&labels);
    ist_targets_free(&t);
    t = parse(text);
    cr_assert_eq(ist_labels_make(4, none, &labels, NULL), IST_OK);
    cr_assert_eq(ist_targets_relabel(&t, &labels, &err), IST_OK, "%s", err.text);
    items = ist_targets_find(&t, "a.png", "a.png")->items;
    cr_expect(items[0].label == 3 && items[1].label == 1, "ids, for no name agrees");
    ist_labels_free(&labels);
    ist_targets_free(&t);
}

Test(io_targets, labels_must_be_the_models) {
    ist_labels labels;
    ist_error err;
    const char *names[1] = {"bone"};
    cr_assert_eq(ist_labels_make(1, names, &labels, NULL), IST_OK);
    ist_targets t = parse("{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 1}]}");
    cr_expect_eq(ist_targets_relabel(&t, &labels, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "class 1"));
    ist_targets_free(&t);
    t = parse("{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 0}, {\"box\": [0,0,1,1]}]}");
    cr_expect_eq(ist_targets_relabel(&t, &labels, &err), IST_OK);
    ist_targets_free(&t);
    ist_labels_free(&labels);
}

static ist_labels own_labels(ist_targets *t, const char *const *names, size_t count) {
    ist_labels labels;
    ist_error err;
    cr_assert_eq(ist_targets_own_labels(t, names, count, &labels, &err), IST_OK, "%s", err.text);
    return labels;
}

/* Without a model: numbers, given names, categories; "object" where there is no label. */
Test(io_targets, labels_of_their_own) {
    static const char plain[] = "{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 79}, {\"box\": [0,0,1,1]}]}";
    static const char coco[] = "{\"images\": [{\"id\": 1, \"file_name\": \"a.png\"}], \"annotations\": ["
                               "{\"image_id\": 1, \"bbox\": [0, 0, 1, 1], \"category_id\": 30},"
                               "{\"image_id\": 1, \"bbox\": [0, 0, 1, 1]}], \"categories\": ["
                               "{\"id\": 30, \"name\": \"bone\"}, {\"id\": 4, \"name\": \"needle\"}]}";
    const char *names[80] = {[79] = "last"};
    ist_error err;
    ist_targets t = parse(plain);
    ist_labels labels = own_labels(&t, NULL, 0);
    cr_expect_eq(labels.count, 81);
    cr_expect(!labels.is_coco);
    cr_expect_str_eq(labels.names[79], "79");
    cr_expect_str_eq(labels.names[80], "object");
    cr_expect(t.lists[0].items[0].label == 79 && t.lists[0].items[1].label == 80);
    ist_labels_free(&labels);
    ist_targets_free(&t);

    t = parse(plain);
    labels = own_labels(&t, names, 80);
    cr_expect_eq(labels.count, 81);
    cr_expect_str_eq(labels.names[79], "last");
    ist_labels_free(&labels);
    ist_targets_free(&t);

    t = parse(plain);
    cr_expect_eq(ist_targets_own_labels(&t, names, 79, &labels, &err), IST_E_INPUT);
    cr_expect_str_eq(err.text, "a target has class 79, which the given 79 classes lack");
    ist_targets_free(&t);

    t = parse(coco);
    labels = own_labels(&t, NULL, 0);
    cr_expect_eq(labels.count, 3);
    cr_expect(t.lists[0].items[0].label == 1 && t.lists[0].items[1].label == 2);
    cr_expect_str_eq(labels.names[1], "bone");
    cr_expect(ist_label_category(&labels, 0) == 4 && ist_label_category(&labels, 1) == 30 &&
              ist_label_category(&labels, 2) == 31);
    ist_labels_free(&labels);
    ist_targets_free(&t);

    t = parse("{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 2000000000}]}");
    cr_expect_eq(ist_targets_own_labels(&t, NULL, 0, &labels, &err), IST_E_INPUT);
    cr_expect_str_eq(err.text, "2000000001 classes; at most 65536 are possible");
    ist_targets_free(&t);

    t = parse("{}");
    labels = own_labels(&t, NULL, 0);
    cr_expect_eq(labels.count, 0);
    ist_labels_free(&labels);
    ist_targets_free(&t);
}

Test(io_targets, mistakes_are_named) {
    expect_failure("", "line");
    expect_failure("[]", "expected a JSON object");
    expect_failure("{\"a.png\": 3}", "a.png: expected an array");
    expect_failure("{\"a.png\": [{\"box\": [0,0,1]}]}", "four numbers");
    expect_failure("{\"a.png\": [{}]}", "four numbers");
    expect_failure("{\"a.png\": [{\"box\": [0,0,1,\"x\"]}]}", "element 3");
    expect_failure("{\"a.png\": [{\"box\": [5,0,1,1]}]}", "inside out");
    expect_failure("{\"a.png\": [{\"box\": [0,0,1e300,1]}]}", "element 2");
    expect_failure("{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 1.5}]}", "whole number");
    expect_failure("{\"a.png\": [{\"box\": [0,0,1,1], \"label\": 99999999999}]}", "whole number");
    expect_failure("{\"images\": [{\"id\": 1}], \"annotations\": []}", "image 0");
    expect_failure("{\"images\": [], \"annotations\": [{\"image_id\": 1, \"bbox\": [0,0,1,1]}]}", "unknown image_id");
    expect_failure("{\"images\": [{\"id\":1,\"file_name\":\"a\"},{\"id\":1,\"file_name\":\"b\"}], \"annotations\": []}",
                   "twice");
    expect_failure("{\"images\": {}, \"annotations\": []}", "must be arrays");
    expect_failure(
        "{\"images\": [{\"id\":1,\"file_name\":\"a\"}], \"annotations\": [{\"image_id\":1,\"bbox\":[0,0,-1,1]}]}",
        "inside out");
}
