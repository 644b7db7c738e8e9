/* Reader of COCO annotations and results: every form that is understood, and a sentence for every form that is not. */
#include "io/coco.h"

#include <criterion/criterion.h>
#include <string.h>

#define IMAGES             "\"images\":[{\"id\":9,\"file_name\":\"b.png\",\"width\":4,\"height\":3},{\"id\":2}]"
#define CATEGORIES         "\"categories\":[{\"id\":7,\"name\":\"needle\"},{\"id\":5,\"name\":\"bone\"}]"
#define TRUTH(annotations) "{" IMAGES "," CATEGORIES ",\"annotations\":[" annotations "]}"
#define ON_9               "\"image_id\":9,\"category_id\":5,\"bbox\":[1,0,2,2]"

static ist_coco parse(const char *text) {
    ist_coco c;
    ist_error err = {0};
    cr_assert_eq(ist_coco_parse(text, strlen(text), "t.json", &c, &err), IST_OK, "%s", err.text);
    return c;
}

static ist_coco_list parse_results(const ist_coco *coco, const char *text) {
    ist_coco_list l;
    ist_error err = {0};
    cr_assert_eq(ist_coco_results_parse(text, strlen(text), "r.json", coco, &l, &err), IST_OK, "%s", err.text);
    return l;
}

static void expect_failure(const char *text, ist_status status, const char *part) {
    ist_coco c;
    ist_error err = {0};
    cr_expect_eq(ist_coco_parse(text, strlen(text), "t.json", &c, &err), status, "%s", text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect(!c.images && !c.categories && !c.objects.items);
    cr_expect_eq(ist_coco_parse(text, strlen(text), "t.json", &c, NULL), status, "%s", text);
}

static void expect_runs(const ist_coco_object *o, size_t count, const uint32_t *runs) {
    cr_assert_eq(o->width, 4);
    cr_assert_eq(o->height, 3);
    cr_assert_eq(o->mask.count, count, "%zu runs", o->mask.count);
    cr_expect_arr_eq(o->mask.counts, runs, count * sizeof *runs);
}

Test(io_coco, annotations) {
    ist_coco c = parse(TRUTH("{\"id\":4,\"iscrowd\":0,\"area\":3.5," ON_9 "},"
                             "{\"id\":0,\"iscrowd\":1,\"image_id\":2,\"category_id\":7,\"bbox\":[0.5,1e1,2,3]}"));
    cr_assert_eq(c.image_count, 2);
    cr_expect_eq(c.images[0].id, 2);
    cr_expect_null(c.images[0].file);
    cr_expect_eq(c.images[0].width, 0);
    cr_expect_str_eq(c.images[1].file, "b.png");
    cr_expect_eq(c.images[1].height, 3);
    cr_expect(c.images[0].used && c.images[1].used);
    cr_assert_eq(c.category_count, 2);
    cr_expect_eq(c.categories[0].id, 5);
    cr_expect_str_eq(c.categories[1].name, "needle");
    const ist_coco_object *o = c.objects.items;
    cr_assert_eq(c.objects.count, 2);
    cr_expect(!c.objects.masks);
    cr_expect(o[0].image == 1 && o[0].category == 0 && o[0].area == 3.5 && !o[0].crowd && !o[0].no_id);
    cr_expect(o[1].image == 0 && o[1].category == 1 && o[1].area == 6 && o[1].crowd && o[1].no_id);
    cr_expect(o[1].box[0] == 0.5 && o[1].box[1] == 10 && o[1].box[2] == 2 && o[1].box[3] == 3);
    ist_coco_free(&c);
    cr_expect_eq(c.image_count, 0);
}

Test(io_coco, every_form_of_a_mask) {
    ist_coco c = parse(TRUTH("{" ON_9 ",\"segmentation\":[[1,0,1,2,3,2,3,0]]},"
                             "{" ON_9 ",\"segmentation\":[[1,0,2,2]]},"
                             "{" ON_9 ",\"segmentation\":{\"size\":[3,4],\"counts\":[3,2,1,2,4]}},"
                             "{" ON_9 ",\"segmentation\":{\"size\":[3,4],\"counts\":\"32103\"}},"
                             "{" ON_9 ",\"segmentation\":[[0,0,0,3,1,3,1,0],[2,1,2,3,4,3,4,1]]}"));
    const uint32_t square[5] = {3, 2, 1, 2, 4}, parts[6] = {0, 3, 4, 2, 1, 2};
    cr_expect(c.objects.masks);
    for (int i = 0; i < 4; i++) {
        expect_runs(&c.objects.items[i], 5, square);
        cr_expect_eq(c.objects.items[i].area, 4);
    }
    expect_runs(&c.objects.items[4], 6, parts);
    ist_coco_free(&c);
}

Test(io_coco, no_segmentation_means_no_masks) {
    static const char *const none[] = {TRUTH("{" ON_9 "}"), TRUTH("{" ON_9 ",\"segmentation\":[]}"),
                                       TRUTH("{" ON_9 ",\"segmentation\":null}")};
    for (int i = 0; i < 3; i++) {
        ist_coco c = parse(none[i]);
        cr_expect(!c.objects.masks);
        cr_expect_eq(c.objects.items[0].area, 4);
        ist_coco_free(&c);
    }
}

Test(io_coco, categories_can_be_left_out) {
    ist_coco c = parse("{" IMAGES ",\"annotations\":[{\"image_id\":2,\"category_id\":8,\"bbox\":[0,0,1,1]},"
                       "{\"image_id\":2,\"category_id\":1,\"bbox\":[0,0,1,1]},"
                       "{\"image_id\":2,\"category_id\":8,\"bbox\":[0,0,1,1]}]}");
    cr_assert_eq(c.category_count, 2);
    cr_expect_eq(c.categories[0].id, 1);
    cr_expect_eq(c.categories[1].id, 8);
    cr_expect_str_eq(c.categories[1].name, "");
    cr_expect_eq(c.objects.items[2].category, 1);
    ist_coco_free(&c);
}

Test(io_coco, bad_annotations) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "t.json: line 1"},
        {"{\"images\":[],", "t.json: line 1"},
        {"[]", "expected COCO annotations"},
        {"{\"images\":{},\"annotations\":[]}", "expected COCO annotations"},
        {"{\"images\":[],\"annotations\":[],\"categories\":3}", "categories must be an array"},
        {"{\"images\":[3],\"annotations\":[]}", "image 0: it is no JSON object"},
        {"{\"images\":[{\"id\":\"a\"}],\"annotations\":[]}", "image 0: id is missing or no whole number"},
        {"{\"images\":[{\"id\":1},{\"id\":1}],\"annotations\":[]}", "image id 1 appears twice"},
        {"{\"images\":[{\"id\":1,\"file_name\":7}],\"annotations\":[]}", "file_name is no text"},
        {"{\"images\":[{\"id\":1,\"width\":7}],\"annotations\":[]}", "width and height must be whole numbers"},
        {"{\"images\":[{\"id\":1,\"width\":0,\"height\":2}],\"annotations\":[]}", "a size of 0 x 2"},
        {"{\"images\":[{\"id\":1,\"width\":1000000,\"height\":1000000}],\"annotations\":[]}", "a size of 1000000 x"},
        {"{\"images\":[{\"id\":1,\"width\":9223372036854775807,\"height\":3}],\"annotations\":[]}", "a size of 9223"},
        {"{\"images\":[],\"annotations\":[],\"categories\":[{\"id\":1},{\"id\":1}]}", "category id 1 appears twice"},
        {"{\"images\":[],\"annotations\":[],\"categories\":[{\"name\":\"a\"}]}", "category 0: id is missing"},
        {TRUTH("{\"category_id\":5,\"bbox\":[0,0,1,1]}"), "annotation 0: image_id is missing"},
        {TRUTH("{\"image_id\":3,\"category_id\":5,\"bbox\":[0,0,1,1]}"), "no image with the image_id 3"},
        {TRUTH("{\"image_id\":9,\"category_id\":6,\"bbox\":[0,0,1,1]}"), "no category with the id 6"},
        {TRUTH("{\"image_id\":9,\"category_id\":5}"), "bbox is missing"},
        {TRUTH("{\"image_id\":9,\"category_id\":5,\"bbox\":[1,2,3]}"), "bbox is missing or not an array of four"},
        {TRUTH("{\"image_id\":9,\"category_id\":5,\"bbox\":[1,2,3,\"a\"]}"), "a number of bbox"},
        {TRUTH("{\"image_id\":9,\"category_id\":5,\"bbox\":[1,2,3,1e300]}"), "a number of bbox is 1e+300"},
        {TRUTH("{\"image_id\":9,\"category_id\":5,\"bbox\":[1,2,-3,4]}"), "a box of -3 x 4"},
        {TRUTH("{\"id\":3," ON_9 "},{\"id\":3," ON_9 "}"), "annotation id 3 appears twice"},
        {TRUTH("{\"id\":1.5," ON_9 "}"), "id is missing or no whole number"},
        {TRUTH("{\"iscrowd\":\"yes\"," ON_9 "}"), "iscrowd is neither 0 nor 1"},
        {TRUTH("{\"area\":[]," ON_9 "}"), "area is missing or no number"},
        {TRUTH("{\"segmentation\":3," ON_9 "}"), "neither a list of polygons nor runs"},
        {TRUTH("{\"segmentation\":[3]," ON_9 "}"), "a polygon of 0 numbers"},
        {TRUTH("{\"segmentation\":[[1,2,3,4,5,6,7]]," ON_9 "}"), "a polygon of 7 numbers"},
        {TRUTH("{\"segmentation\":[[1,2]]," ON_9 "}"), "a polygon of 2 numbers"},
        {TRUTH("{\"segmentation\":[[1,2,3,4],[1,2,3,4,5,6]]," ON_9 "}"), "boxes and polygons are mixed"},
        {TRUTH("{\"segmentation\":[[1,2,3,null,5,6]]," ON_9 "}"), "coordinate is no number"},
        {TRUTH("{\"segmentation\":[[1,2,3,1e9,5,6]]," ON_9 "}"), "annotation 0: a polygon's coordinate is 1e+09"},
        {TRUTH("{\"image_id\":2,\"category_id\":5,\"bbox\":[0,0,1,1],\"segmentation\":[[1,2,3,4,5,6]]}"),
         "needs the width and height of image 2"},
        {TRUTH("{\"segmentation\":{\"size\":[3],\"counts\":\"\"}," ON_9 "}"), "a size [height, width]"},
        {TRUTH("{\"segmentation\":{\"size\":[3,0],\"counts\":\"\"}," ON_9 "}"), "a size of 0 x 3"},
        {TRUTH("{\"segmentation\":{\"size\":[3,4]}," ON_9 "}"), "counts of its segmentation"},
        {TRUTH("{\"segmentation\":{\"size\":[3,4],\"counts\":[12,-1]}," ON_9 "}"), "run 1 of its mask"},
        {TRUTH("{\"segmentation\":{\"size\":[3,4],\"counts\":[1,12]}," ON_9 "}"), "run 1 of its mask"},
        {TRUTH("{\"segmentation\":{\"size\":[3,4],\"counts\":[1,10]}," ON_9 "}"), "runs are 11 pixels, not 4 x 3"},
        {TRUTH("{\"segmentation\":{\"size\":[3,4],\"counts\":\"32\"}," ON_9 "}"), "annotation 0: run-length encoding"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_failure(cases[i].text, IST_E_INPUT, cases[i].part);
}

Test(io_coco, results_with_boxes_take_their_areas) {
    ist_coco c = parse(TRUTH(""));
    ist_coco_list l = parse_results(&c, "[{\"image_id\":9,\"category_id\":7,\"bbox\":[0,0,2,1.5],\"score\":0.5,"
                                        "\"segmentation\":{\"size\":[3,4],\"counts\":[3,2,1,2,4]}},"
                                        "{\"image_id\":9,\"category_id\":6,\"bbox\":[0,0,1,1],\"score\":0.5},"
                                        "{\"image_id\":9,\"category_id\":5,\"bbox\":[1,0,2,2],\"score\":1}]");
    const uint32_t square[5] = {3, 2, 1, 2, 4};
    cr_assert_eq(l.count, 2);
    cr_expect_eq(l.skipped, 1);
    cr_expect(l.masks);
    cr_expect(l.items[0].area == 3 && l.items[0].score == 0.5 && l.items[0].category == 1);
    expect_runs(&l.items[1], 5, square); /* its box stands in for a mask */
    ist_coco_list_free(&l);
    ist_coco_free(&c);
}

Test(io_coco, results_without_boxes_take_those_of_their_masks) {
    ist_coco c = parse(TRUTH(""));
    ist_coco_list l = parse_results(&c, "[{\"image_id\":9,\"category_id\":7,\"score\":0.5,"
                                        "\"segmentation\":{\"size\":[3,4],\"counts\":[3,2,1,1,5]}},"
                                        "{\"image_id\":9,\"category_id\":7,\"score\":0.5,"
                                        "\"segmentation\":{\"size\":[3,4],\"counts\":[12]}}]");
    const double want[4] = {1, 0, 2, 2}, zeros[4] = {0};
    cr_expect_eq(l.items[0].area, 3);
    cr_expect_arr_eq(l.items[0].box, want, sizeof want);
    cr_expect_eq(l.items[1].area, 0);
    cr_expect_arr_eq(l.items[1].box, zeros, sizeof zeros);
    ist_coco_list_free(&l);
    ist_coco_free(&c);
}

/* As Python writes what a table or an array of floats has held. */
Test(io_coco, whole_numbers_may_be_written_as_floats) {
    ist_coco c = parse("{\"images\":[{\"id\":9.0,\"width\":4.0,\"height\":3.0}],\"categories\":[{\"id\":5.0}],"
                       "\"annotations\":[{\"id\":4.0," ON_9 "},{\"id\":5.0," ON_9 "}]}");
    cr_assert_eq(c.objects.count, 2);
    cr_expect(c.images[0].width == 4 && c.images[0].height == 3 && c.categories[0].id == 5);
    ist_coco_list l = parse_results(&c, "[{\"image_id\":9.0,\"category_id\":5.0,\"bbox\":[0,0,2,1.5],\"score\":0.5}]");
    cr_expect_eq(l.count, 1);
    ist_coco_list_free(&l);
    ist_coco_free(&c);
    c = parse("{\"images\":[{\"id\":9}],\"annotations\":[{\"image_id\":9,\"category_id\":5.0,\"bbox\":[1,0,2,2]}]}");
    cr_expect_eq(c.categories[0].id, 5);
    ist_coco_free(&c);
    expect_failure(TRUTH("{\"id\":4.0," ON_9 "},{\"id\":4," ON_9 "}"), IST_E_INPUT, "annotation id 4 appears twice");
    expect_failure(TRUTH("{\"id\":1e300," ON_9 "}"), IST_E_INPUT, "id is missing or no whole number");
}

Test(io_coco, bad_results) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{}", "expected COCO results"},
        {"[1]", "result 0: it is no JSON object"},
        {"[{\"image_id\":3,\"category_id\":5,\"bbox\":[0,0,1,1],\"score\":1}]", "no image with the image_id 3"},
        {"[{\"image_id\":9,\"bbox\":[0,0,1,1],\"score\":1}]", "category_id is missing"},
        {"[{\"image_id\":9,\"category_id\":5,\"bbox\":[0,0,1,1]}]", "score is missing"},
        {"[{\"image_id\":9,\"category_id\":5,\"score\":1}]", "neither a bbox nor a segmentation"},
        {"[{\"image_id\":9,\"category_id\":5,\"bbox\":[0,0,1,1],\"score\":1},"
         "{\"image_id\":9,\"category_id\":5,\"score\":1,\"segmentation\":[[0,0,1,1]]}]",
         "result 1: bbox is missing"},
        {"[{\"image_id\":2,\"category_id\":5,\"bbox\":[0,0,1,1],\"score\":1},{\"image_id\":9,\"category_id\":5,"
         "\"bbox\":[0,0,1,1],\"score\":1,\"segmentation\":[[0,0,1,1]]}]",
         "needs the width and height of image 2"},
    };
    ist_coco c = parse(TRUTH(""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_coco_list l;
        ist_error err = {0};
        cr_expect_eq(ist_coco_results_parse(cases[i].text, strlen(cases[i].text), "r.json", &c, &l, &err), IST_E_INPUT);
        cr_expect_not_null(strstr(err.text, cases[i].part), "'%s' lacks '%s'", err.text, cases[i].part);
        cr_expect_null(l.items);
    }
    ist_coco_free(&c);
}

static void expect_categories(int count, const char *const *names, size_t missing, const int64_t *ids) {
    ist_coco c = parse(TRUTH(""));
    ist_labels labels;
    size_t got = 99;
    cr_assert_eq(ist_labels_make(count, names, &labels, NULL), IST_OK);
    cr_assert_eq(ist_coco_relabel(&c, &labels, &got, NULL), IST_OK);
    cr_expect_eq(got, missing, "%zu missing", got);
    for (int i = 0; i < 3; i++) cr_expect_eq(ist_label_category(&labels, i), ids[i], "label %d", i);
    ist_labels_free(&labels);
    ist_coco_free(&c);
}

Test(io_coco, labels_meet_categories_by_name_else_by_id) {
    expect_categories(3, (const char *const[]){"bone", "vessel", "needle"}, 0, (const int64_t[]){5, -1, 7});
    expect_categories(3, (const char *const[]){"vessel", "bone", NULL}, 1, (const int64_t[]){-1, 5, -1});
    expect_categories(8, NULL, 0, (const int64_t[]){-1, -1, -1});  /* 5 and 7 are themselves */
    expect_categories(80, NULL, 0, (const int64_t[]){-1, -1, -1}); /* airplane and train */
    expect_categories(3, NULL, 2, (const int64_t[]){-1, -1, -1});
}
