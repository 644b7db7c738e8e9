/* Lines, tables, labels and instance maps: parsed back and compared with the values that went in. */
#include "io/record.h"

#include "scratch.h"

#include <jansson.h>
#include <math.h>

/* Columns 2..4, rows 1..40 of the image; and the same one column to the right. */
static const uint32_t mask_bits[6] = {0xFFFFFFFEu, 0x1FF, 0xFFFFFFFEu, 0x1FF, 0xFFFFFFFEu, 0x1FF};

static ist_object object(int label, float score, int x0) {
    return (ist_object){.label = label,
                        .score = score,
                        .box = {1.5f, -2, 20, 44.25f},
                        .match = 4,
                        .match_iou = 0.5f,
                        .mask_score = 0.875f,
                        .area = 120,
                        .mask = {.x0 = x0, .y0 = 0, .columns = 3, .words = 2, .bits = mask_bits}};
}

static ist_labels coco_labels(void) {
    ist_labels l;
    cr_assert_eq(ist_labels_make(80, NULL, &l, NULL), IST_OK);
    return l;
}

static json_t *line_of(const ist_record *r) {
    ist_text line = {0};
    ist_error err = {0};
    cr_assert_eq(ist_record_line(r, &line, &err), IST_OK, "%s", err.text);
    cr_assert_null(strchr(line.data, '\n'));
    json_t *root = json_loads(line.data, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root, "%s", line.data);
    ist_text_free(&line);
    return root;
}

static double real_at(const json_t *o, const char *key) {
    cr_assert(json_is_number(json_object_get(o, key)), "%s", key);
    return json_number_value(json_object_get(o, key));
}

static ist_record record_of(const ist_frame *f, const ist_labels *l) {
    return (ist_record){.file = "in/\"a\".png",
                        .frame = f,
                        .labels = l,
                        .masks = true,
                        .ms = {1, 2, 3, 4, 5.5},
                        .transfers = {1, 1, 1, 123456789012, 42}};
}

/* A live frame's line has what the stream adds, states of tracks, and nothing that differs from run to run. */
Test(io_record, lines_of_streams_and_of_judged_tracks) {
    const ist_object objects[2] = {object(0, 0.9f, 2), object(16, 0.625f, 3)};
    const ist_trust trust[3] = {
        {.track = 9, .object = -1, .state = IST_LOST},
        {.track = 4, .object = 1, .state = IST_RELOCALIZING, .contrast = 0.25f, .s = 0.5f, .c = 0.125f},
        {.track = 8, .object = -1, .state = IST_VISIBLE}};
    ist_frame f = {.width = 30, .height = 45, .object_count = 2, .objects = objects, .trust = trust, .trust_count = 3};
    ist_labels l = coco_labels();
    ist_record r = record_of(&f, &l);
    r.stream = ",\"number\":7";
    r.no_rle = true;
    json_t *root = line_of(&r);
    cr_expect_eq(real_at(root, "number"), 7);
    cr_expect_null(json_object_get(root, "ms"));
    cr_expect_null(json_object_get(root, "transfers"));
    const json_t *first = json_array_get(json_object_get(root, "objects"), 0);
    const json_t *second = json_array_get(json_object_get(root, "objects"), 1);
    const json_t *unseen = json_object_get(root, "unseen");
    cr_expect_null(json_object_get(first, "state"));
    cr_expect_null(json_object_get(second, "rle"));
    cr_expect_eq(real_at(second, "area"), 120);
    cr_expect_str_eq(json_string_value(json_object_get(second, "state")), "RELOCALIZING");
    cr_expect_eq(real_at(second, "S"), 0.5);
    cr_expect_eq(real_at(second, "C"), 0.125);
    cr_expect_eq(real_at(json_object_get(second, "scores"), "S2"), 0.25);
    cr_expect_eq(json_object_size(json_object_get(second, "scores")), 7);
    cr_assert_eq(json_array_size(unseen), 2);
    cr_expect_eq(real_at(json_array_get(unseen, 0), "track"), 9);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(unseen, 1), "state")), "VISIBLE");
    json_decref(root);
    ist_labels_free(&l);
}

Test(io_record, line_has_everything) {
    const ist_object objects[2] = {object(0, 0.9f, 2), object(16, 0.625f, 3)};
    ist_frame f = {.width = 30, .height = 45, .object_count = 2, .objects = objects};
    ist_labels l = coco_labels();
    ist_record r = record_of(&f, &l);
    r.match = IST_MATCH_TRACKS;
    json_t *root = line_of(&r);
    cr_expect_eq(real_at(root, "schema"), 1);
    cr_expect_str_eq(json_string_value(json_object_get(root, "file")), "in/\"a\".png");
    cr_expect_eq(real_at(root, "width"), 30);
    cr_expect_eq(real_at(root, "height"), 45);
    cr_expect_eq(real_at(json_object_get(root, "ms"), "encode"), 5.5);
    cr_expect_eq(real_at(json_object_get(root, "transfers"), "h2d_bytes"), 123456789012.0);
    cr_assert_eq(json_array_size(json_object_get(root, "objects")), 2);
    const json_t *o = json_array_get(json_object_get(root, "objects"), 1);
    cr_expect_eq(real_at(o, "label"), 16);
    cr_expect_str_eq(json_string_value(json_object_get(o, "name")), "dog");
    cr_expect_eq(real_at(o, "score"), 0.625);
    cr_expect_eq(json_number_value(json_array_get(json_object_get(o, "box"), 3)), 44.25);
    cr_expect_eq(real_at(o, "mask_score"), 0.875);
    cr_expect_eq(real_at(o, "area"), 120);
    cr_expect_eq(real_at(o, "track"), 4);
    cr_expect_null(json_object_get(o, "target"));
    const json_t *rle = json_object_get(o, "rle");
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(rle, "size"), 0)), 45);
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(rle, "size"), 1)), 30);
    /* as pycocotools encodes rows 1..40 of columns 3..5 */
    cr_expect_str_eq(json_string_value(json_object_get(rle, "counts")), "X4X15000gQ1");
    json_decref(root);
    ist_labels_free(&l);
}

Test(io_record, optional_fields_follow_the_mode) {
    const ist_object objects[1] = {object(0, 0.9f, 2)};
    ist_frame f = {.width = 30, .height = 45, .object_count = 1, .objects = objects, .dropped = 3};
    ist_labels l = coco_labels();
    ist_record r = record_of(&f, &l);
    r.masks = false;
    json_t *root = line_of(&r);
    const json_t *o = json_array_get(json_object_get(root, "objects"), 0);
    static const char *const absent[] = {"mask_score", "area", "rle", "track", "target", "match_iou"};
    for (size_t i = 0; i < 6; i++) cr_expect_null(json_object_get(o, absent[i]), "%s", absent[i]);
    cr_expect_eq(real_at(root, "dropped"), 3);
    json_decref(root);
    r.match = IST_MATCH_TARGETS;
    root = line_of(&r);
    o = json_array_get(json_object_get(root, "objects"), 0);
    cr_expect_eq(real_at(o, "target"), 4);
    cr_expect_eq(real_at(o, "match_iou"), 0.5);
    json_decref(root);
    ist_labels_free(&l);
}

Test(io_record, what_is_not_finite_is_no_result) {
    ist_labels l = coco_labels();
    for (int what = 0; what < 3; what++) {
        ist_object o = object(0, 0.9f, 2);
        if (what == 0) o.score = NAN;
        if (what == 1) o.box[2] = INFINITY;
        if (what == 2) o.mask_score = -INFINITY;
        ist_frame f = {.width = 30, .height = 45, .object_count = 1, .objects = &o};
        ist_record r = record_of(&f, &l);
        ist_text line = {0};
        ist_error err;
        cr_expect_eq(ist_record_line(&r, &line, &err), IST_E_DEVICE);
        cr_expect_not_null(strstr(err.text, "not finite"));
        ist_text_free(&line);
    }
    ist_labels_free(&l);
}

Test(io_record, yolo_is_clipped_and_normalised) {
    const ist_object objects[1] = {object(7, 0.9f, 2)};
    ist_frame f = {.width = 40, .height = 44, .object_count = 1, .objects = objects};
    ist_text out = {0};
    cr_assert_eq(ist_record_yolo(&f, &out, NULL), IST_OK);
    /* x 1.5..20 of 40, y -2..44.25 of 44, clipped to 0..44 */
    cr_expect_str_eq(out.data, "7 0.268750 0.500000 0.462500 1.000000\n");
    ist_text_free(&out);
}

Test(io_record, instance_map_keeps_the_better_object) {
    const ist_object objects[2] = {object(0, 0.9f, 2), object(1, 0.8f, 3)};
    ist_frame f = {.width = 30, .height = 45, .object_count = 2, .objects = objects};
    ist_bitmap map;
    cr_assert_eq(ist_record_instance_map(&f, &map, NULL), IST_OK);
    cr_assert_eq(map.format, IST_GRAY8);
    const uint8_t *p = map.pixels;
    for (int y = 0; y < 45; y++)
        for (int x = 0; x < 30; x++) {
            int inside = y >= 1 && y <= 40, want = inside && x >= 2 && x <= 4 ? 1 : inside && x == 5 ? 2 : 0;
            cr_assert_eq(p[y * 30 + x], want, "(%d, %d)", x, y);
        }
    ist_bitmap_free(&map);
}

Test(io_record, instance_map_has_16_bits_beyond_255_objects) {
    enum { N = 256 };
    static ist_object objects[N];
    static uint32_t one[1] = {1};
    for (int i = 0; i < N; i++) objects[i].mask = (ist_mask){.x0 = i, .columns = 1, .words = 1, .bits = one};
    ist_frame f = {.width = N, .height = 2, .object_count = N, .objects = objects};
    ist_bitmap map;
    cr_assert_eq(ist_record_instance_map(&f, &map, NULL), IST_OK);
    cr_assert_eq(map.format, IST_GRAY16);
    cr_expect_eq(((const uint16_t *)map.pixels)[0], 1);
    cr_expect_eq(((const uint16_t *)map.pixels)[255], 256);
    cr_expect_eq(((const uint16_t *)map.pixels)[256], 0);
    ist_bitmap_free(&map);
}

static bool keep_all(void *context, const ist_source *source, const ist_journal_frame *frame) {
    (void)frame;
    (void)context;
    (void)source;
    return true;
}
static const ist_journal_setup setup = {.check = keep_all};

/* Two images, the second without objects, written as tables. */
static scratch write_tables(void) {
    scratch s = scratch_make();
    ist_labels l = coco_labels();
    ist_sources sources = {0};
    ist_journal *journal;
    ist_error err;
    const ist_object objects[2] = {object(11, 0.9f, 2), object(16, 0.625f, 3)};
    ist_frame frames[2] = {{.width = 30, .height = 45, .object_count = 2, .objects = objects},
                           {.width = 8, .height = 9}};
    ist_sources_add(&sources, scratch_path(&s, "x,1.png"), false, NULL, &err);
    ist_sources_add(&sources, scratch_path(&s, "failed.png"), false, NULL, &err);
    ist_sources_add(&sources, scratch_path(&s, "y.png"), false, NULL, &err);
    cr_assert_eq(ist_sources_finish(&sources, &err), IST_OK);
    cr_assert_eq(ist_journal_open(s.path, &sources, &setup, &journal, &err), IST_OK, "%s", err.text);
    for (size_t i = 0; i < 2; i++) {
        ist_record r = record_of(&frames[i], &l);
        ist_text line = {0};
        r.file = sources.items[2 * i].path;
        cr_assert_eq(ist_record_line(&r, &line, &err), IST_OK);
        cr_assert_eq(ist_journal_append(journal, 2 * i, &line, &err), IST_OK, "%s", err.text);
        ist_text_free(&line);
    }
    unsigned tables = IST_TABLES_COCO | IST_TABLES_CSV;
    cr_assert_eq(ist_record_tables(s.path, tables, journal, &sources, &l, &err), IST_OK, "%s", err.text);
    ist_journal_close(&journal);
    ist_sources_free(&sources);
    ist_labels_free(&l);
    return s;
}

Test(io_record, coco_tables) {
    scratch s = write_tables();
    json_t *results = json_load_file(scratch_path(&s, "results.json"), 0, NULL);
    json_t *images = json_load_file(scratch_path(&s, "images.json"), 0, NULL);
    cr_assert_eq(json_array_size(results), 2);
    cr_assert_eq(json_array_size(images), 2);
    const json_t *r = json_array_get(results, 1), *box = json_object_get(r, "bbox");
    cr_expect_eq(real_at(r, "image_id"), 1);
    cr_expect_eq(real_at(json_array_get(results, 0), "category_id"), 13, "label 11 is category 13");
    cr_expect_eq(real_at(r, "category_id"), 18);
    cr_expect_eq(real_at(r, "score"), 0.625);
    const double want[4] = {1.5, -2, 18.5, 46.25};
    for (size_t i = 0; i < 4; i++) cr_expect_eq(json_number_value(json_array_get(box, i)), want[i]);
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(json_object_get(r, "segmentation"), "size"), 0)),
                 45);
    const json_t *image = json_array_get(images, 1);
    cr_expect_eq(real_at(image, "image_id"), 3, "the failed image keeps its number");
    cr_expect_str_eq(json_string_value(json_object_get(image, "file_name")), "y.png");
    cr_expect_eq(real_at(image, "width"), 8);
    cr_expect_eq(real_at(image, "height"), 9);
    json_decref(results);
    json_decref(images);
    scratch_remove(&s);
}

/* More images than one block of lines has, every third without objects, one that failed. */
Test(io_record, tables_of_many_images_are_in_input_order) {
    enum { COUNT = 1300, FAILED = 600 };
    scratch s = scratch_make();
    ist_labels l = coco_labels();
    ist_sources sources = {0};
    ist_journal *journal;
    ist_error err;
    for (int i = 0; i < COUNT; i++) ist_sources_add(&sources, scratch_path(&s, "image-%04d.png", i), false, NULL, &err);
    cr_assert_eq(ist_sources_finish(&sources, &err), IST_OK);
    cr_assert_eq(ist_journal_open(s.path, &sources, &setup, &journal, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < COUNT; i++) {
        if (i == FAILED) continue;
        const ist_object one = object(11, (float)i, 2);
        ist_frame frame = {.width = 30, .height = 45, .object_count = i % 3 != 0, .objects = &one};
        ist_record r = record_of(&frame, &l);
        ist_text line = {0};
        r.file = sources.items[i].path;
        cr_assert_eq(ist_record_line(&r, &line, &err), IST_OK);
        cr_assert_eq(ist_journal_append(journal, (size_t)i, &line, &err), IST_OK, "%s", err.text);
        ist_text_free(&line);
    }
    cr_assert_eq(ist_record_tables(s.path, IST_TABLES_COCO, journal, &sources, &l, &err), IST_OK, "%s", err.text);
    cr_expect(!scratch_exists(scratch_path(&s, "results.csv")), "it was not asked for");
    json_t *results = json_load_file(scratch_path(&s, "results.json"), 0, NULL);
    json_t *images = json_load_file(scratch_path(&s, "images.json"), 0, NULL);
    cr_assert_eq(json_array_size(images), COUNT - 1);
    size_t at = 0, k = 0;
    for (int i = 0; i < COUNT; i++) {
        if (i == FAILED) continue;
        const json_t *image = json_array_get(images, k++);
        cr_assert_eq(real_at(image, "image_id"), i + 1);
        if (i % 3 == 0) continue;
        const json_t *result = json_array_get(results, at++);
        cr_assert_eq(real_at(result, "image_id"), i + 1);
        cr_assert_eq(real_at(result, "score"), i);
    }
    cr_expect_eq(json_array_size(results), at);
    json_decref(results);
    json_decref(images);
    ist_journal_close(&journal);
    ist_sources_free(&sources);
    ist_labels_free(&l);
    scratch_remove(&s);
}

Test(io_record, a_damaged_line_makes_no_table) {
    scratch s = scratch_make();
    ist_labels l = coco_labels();
    ist_sources sources = {0};
    ist_journal *journal;
    ist_error err;
    ist_text line = {0};
    ist_sources_add(&sources, scratch_path(&s, "a.png"), false, NULL, &err);
    cr_assert_eq(ist_sources_finish(&sources, &err), IST_OK);
    cr_assert_eq(ist_journal_open(s.path, &sources, &setup, &journal, &err), IST_OK, "%s", err.text);
    ist_text_put(&line, "{\"schema\":1,\"objects\":[");
    cr_assert_eq(ist_journal_append(journal, 0, &line, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_record_tables(s.path, IST_TABLES_COCO, journal, &sources, &l, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "a.png"), "%s", err.text);
    cr_expect(!scratch_exists(scratch_path(&s, "results.json")));
    cr_expect(!scratch_exists(scratch_path(&s, "images.json")));
    ist_text_free(&line);
    ist_journal_close(&journal);
    ist_sources_free(&sources);
    ist_labels_free(&l);
    scratch_remove(&s);
}

Test(io_record, csv_quotes_what_needs_it) {
    scratch s = write_tables();
    char want[1024], *text = scratch_read(scratch_path(&s, "results.csv"), NULL);
    snprintf(want, sizeof want,
             "file,label,name,score,x0,y0,x1,y1,mask_score,area,track,target\n"
             "\"%s/x,1.png\",11,stop sign,0.9,1.5,-2,20,44.25,0.875,120,,\n"
             "\"%s/x,1.png\",16,dog,0.625,1.5,-2,20,44.25,0.875,120,,\n",
             s.path, s.path);
    cr_expect_str_eq(text, want);
    free(text);
    scratch_remove(&s);
}

/* A name that a spreadsheet would run as a formula. */
Test(io_record, csv_cells_are_no_formulas) {
    static const char *const names[] = {"=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "=\"a\"", "a=b", "bone", ""};
    static const char *const want[] = {
        "\"'=1+1\"", "\"'+1\"", "\"'-2+3\"", "\"'@SUM(A1)\"", "\"'\t=1\"", "\"'=\"\"a\"\"\"", "a=b", "bone", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scratch s = scratch_make();
        ist_sources sources = {0};
        ist_labels l = {0};
        ist_journal *journal;
        ist_error err;
        ist_text line = {0};
        ist_sources_add(&sources, "-a.png", false, NULL, &err);
        cr_assert_eq(ist_sources_finish(&sources, &err), IST_OK);
        cr_assert_eq(ist_journal_open(s.path, &sources, &setup, &journal, &err), IST_OK, "%s", err.text);
        ist_text_put(&line, "{\"schema\":1,\"file\":\"-a.png\",\"objects\":[{\"label\":3,\"name\":");
        ist_text_json_string(&line, names[i]);
        ist_text_put(&line, ",\"score\":0.5,\"box\":[-1,0,1,2],\"target\":-1}]}");
        cr_assert_eq(ist_journal_append(journal, 0, &line, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_record_tables(s.path, IST_TABLES_CSV, journal, &sources, &l, &err), IST_OK, "%s", err.text);
        char *text = scratch_read(scratch_path(&s, "results.csv"), NULL), row[200];
        snprintf(row, sizeof row, "\n\"'-a.png\",3,%s,0.5,-1,0,1,2,,,,-1\n", want[i]); /* numbers stay numbers */
        cr_expect_not_null(strstr(text, row), "%s lacks %s", text, row);
        free(text);
        ist_text_free(&line);
        ist_journal_close(&journal);
        ist_sources_free(&sources);
        scratch_remove(&s);
    }
}

Test(io_record, failures_are_json_lines) {
    ist_text t = {0};
    ist_record_failure(&t, "a\xFF.png", "a\xFF.png: \"bad\"");
    json_t *root = json_loads(t.data, 0, NULL);
    cr_assert_not_null(root);
    cr_expect_str_eq(json_string_value(json_object_get(root, "error")), "a\xEF\xBF\xBD.png: \"bad\"");
    cr_expect_eq(t.data[t.length - 1], '\n');
    json_decref(root);
    ist_text_free(&t);
}
