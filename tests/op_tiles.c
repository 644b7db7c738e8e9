/* TILE_KEEP, TILE_MERGE and TILE_OBJECTS against scalar code, by every variant of the table. */
#include "graph/tiled.h"
#include "ref_tiles.h"
#include "support/each_variant.h"
#include "support/external.h"
#include "variants/upload.h"

#include <math.h>

enum { UPLOAD, FOUND, WIDTH = 300, HEIGHT = 200, TILES = 7, OWN = 64, MOST = 12, SIDE = 256 };
/* Words: blocks of all tiles, then an upload of OWN words for each but the first. */
enum { OWN_AT = IST_UP_HEADER + TILES * IST_IM_WORDS, WORDS = OWN_AT + (TILES - 1) * OWN };

static const ref_tile tiles[TILES] = {{0, 0, WIDTH, HEIGHT}, {0, 0, 130, 128},  {104, 0, 130, 128},
                                      {170, 0, 130, 128},    {0, 72, 130, 128}, {104, 72, 130, 128},
                                      {170, 72, 130, 128}};

static uint32_t *upload_of(optest *t) {
    uint32_t *up = optest_alloc(t, WORDS * sizeof *up);
    memset(up, 0, WORDS * sizeof *up);
    up[IST_UP_COUNT] = 1, up[IST_UP_FLAGS] = IST_UP_FIRST_TILE;
    up[IST_UP_TILES] = TILES, up[IST_UP_TILE_AT] = OWN_AT, up[IST_UP_TILE_STEP] = OWN;
    for (int i = 0; i < TILES; i++) {
        const ist_frame_image m = {.width = tiles[i].width,
                                   .height = tiles[i].height,
                                   .channels = 3,
                                   .sample_bytes = 1,
                                   .seg_side = SIDE,
                                   .crop_x = tiles[i].x,
                                   .crop_y = tiles[i].y,
                                   .whole_width = WIDTH,
                                   .whole_height = HEIGHT};
        ist_upload_image(up, i, &m);
        if (!i) continue;
        uint32_t *own = up + OWN_AT + (i - 1) * OWN;
        own[IST_UP_COUNT] = 1, own[IST_UP_TILE] = (uint32_t)i;
        ist_upload_image(own, 0, &m);
    }
    return up;
}

static int whole_number(optest *t, int low, int high) {
    return optest_int(t, low, high);
}

/* Objects that several tiles see, each its part, with some noise. */
static int draw(optest *t, ref_detection *all, int objects) {
    int count = 0;
    for (int i = 0; i < objects; i++) {
        float x = (float)whole_number(t, 0, WIDTH - 20), y = (float)whole_number(t, 0, HEIGHT - 20);
        float w = (float)whole_number(t, 8, 90), h = (float)whole_number(t, 8, 90);
        int label = whole_number(t, 0, 2);
        for (int k = 0; k < TILES; k++) {
            const float x1 = (float)(tiles[k].x + tiles[k].width), y1 = (float)(tiles[k].y + tiles[k].height);
            ref_detection d = {
                label, whole_number(t, 0, 299), k, (float)whole_number(t, 1, 1000) / 1001, {x, y, x + w, y + h}};
            for (int c = 0; c < 4; c++) d.box[c] += (float)whole_number(t, -2, 2) / 4;
            if (d.box[0] < (float)tiles[k].x) d.box[0] = (float)tiles[k].x;
            if (d.box[1] < (float)tiles[k].y) d.box[1] = (float)tiles[k].y;
            if (d.box[2] > x1) d.box[2] = x1;
            if (d.box[3] > y1) d.box[3] = y1;
            if (d.box[2] - d.box[0] > 3 && d.box[3] - d.box[1] > 3) all[count++] = d;
        }
    }
    return count;
}

static void put_row(int32_t *row, const ref_detection *d, float x, float y, int last) {
    const float box[4] = {d->box[0] - x, d->box[1] - y, d->box[2] - x, d->box[3] - y};
    row[IST_DET_LABEL] = d->label, row[IST_DET_QUERY] = d->query;
    memcpy(row + IST_DET_SCORE, &d->score, sizeof d->score);
    memcpy(row + IST_DET_BOX, box, sizeof box);
    row[IST_DET_WORDS - 1] = last;
}

/* ---- TILE_KEEP ---- */

/* Tiles 3 and on, as many as there are images; behind what was there, which the first of an image's tiles forgets. Up
 * to more than there is room for. */
static bool keep(each_way way, const void *shape, unsigned bits) {
    enum { IMAGES = 3, EACH = 40, ROWS = EACH * IST_DET_WORDS, GROUP = IST_UP_HEADER + IMAGES * IST_IM_WORDS };
    const int *before = shape, images = 1 + (int)bits % IMAGES;
    optest t;
    optest_begin(&t, "tile", bits);
    int32_t *found = optest_alloc(&t, IST_TILED_WORDS * sizeof *found), rows[IMAGES * ROWS] = {0}, counts[IMAGES * 4];
    memset(found, 0, IST_TILED_WORDS * sizeof *found);
    found[IST_TL_COUNT] = *before, found[IST_TL_DROPPED] = 5;
    const bool first = bits % 2;
    const uint32_t *all = upload_of(&t);
    uint32_t group[GROUP] = {[IST_UP_COUNT] = (uint32_t)images, [IST_UP_TILE] = 3};
    group[IST_UP_FLAGS] = first ? IST_UP_FIRST_TILE : 0;
    memcpy(group + IST_UP_HEADER, all + IST_UP_HEADER + 3 * IST_IM_WORDS, IMAGES * IST_IM_WORDS * sizeof *group);
    int32_t *want = optest_alloc(&t, IST_TILED_WORDS * sizeof *want);
    memcpy(want, found, IST_TILED_WORDS * sizeof *want);
    int taken = first ? 0 : *before, dropped = first ? 0 : 5;
    for (int n = 0; n < IMAGES; n++) {
        const int count = whole_number(&t, n ? 0 : 1, EACH), lost = whole_number(&t, 0, 3);
        memcpy(counts + 4 * n, (const int32_t[]){count, lost, 0, 0}, 4 * sizeof *counts);
        for (int i = 0; i < count; i++) {
            const float x = (float)(tiles[3 + n].x + i), y = (float)(tiles[3 + n].y + 1);
            const ref_detection d = {i, 2 * i, 3 + n, 0.5f, {x, y, x + 7, y + 9}};
            put_row(rows + n * ROWS + i * IST_DET_WORDS, &d, (float)tiles[3 + n].x, (float)tiles[3 + n].y, 0);
            if (n < images && taken < IST_TL_CAPACITY)
                put_row(want + IST_TL_HEADER + taken++ * IST_DET_WORDS, &d, 0, 0, 3 + n);
            else if (n < images)
                dropped++;
        }
        if (n < images) dropped += lost;
    }
    want[IST_TL_COUNT] = taken, want[IST_TL_DROPPED] = dropped;
    external upload = external_create(&t, group, sizeof group),
             buffer = external_create(&t, found, IST_TILED_WORDS * 4);
    ist_tile_keep node = {.label = "tile",
                          .upload = ist_plan_external(t.plan, UPLOAD, IST_ELEM_I32),
                          .found = ist_plan_external(t.plan, FOUND, IST_ELEM_I32),
                          .det = {.batch = IMAGES, .max_objects = EACH}};
    node.det.objects = ist_plan_const(t.plan, rows, IMAGES, 1, EACH, IST_DET_WORDS, IST_ELEM_I32, "rows");
    node.det.counts = ist_plan_const(t.plan, counts, IMAGES, 1, 1, 4, IST_ELEM_I32, "counts");
    cr_assert(each_emits(&t, way, &node));
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, FOUND, buffer.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    const int32_t *got = external_read(&t, &buffer);
    for (int i = 0; i < IST_TILED_WORDS; i++)
        cr_assert_eq(got[i], want[i], "%s: word %d is %d, not %d", way.v->name, i, got[i], want[i]);
    external_release(&t, &upload);
    external_release(&t, &buffer);
    optest_end(&t);
    return true;
}

Test(op_tiles, objects_are_appended) {
    static const int before[] = {0, 17, 300, IST_TL_CAPACITY - 3, IST_TL_CAPACITY};
    hide(0);
    for (unsigned i = 0; i < 10; i++) each_variant(IST_NODE_TILE_KEEP, 0, keep, &before[i % 5], i, false);
    each_had_its_case(IST_NODE_TILE_KEEP, 0);
}

/* ---- TILE_MERGE, TILE_OBJECTS ---- */

typedef struct merging {
    int objects;
    double iou;
    bool agnostic;
} merging;

static int parts; /* detections that went for being parts */

static bool merge(each_way way, const void *shape, unsigned bits) {
    const merging *m = shape;
    optest t;
    optest_begin(&t, "tiles", bits);
    int32_t *found = optest_alloc(&t, IST_TILED_WORDS * sizeof *found);
    ref_detection *all = optest_alloc(&t, sizeof *all * (size_t)(m->objects * TILES + 1));
    int *stay = optest_alloc(&t, sizeof *stay * (size_t)(m->objects * TILES + 1));
    memset(found, 0, IST_TILED_WORDS * sizeof *found);
    const int count = draw(&t, all, m->objects);
    found[IST_TL_COUNT] = count, found[IST_TL_DROPPED] = 4;
    for (int i = 0; i < count; i++) put_row(found + IST_TL_HEADER + i * IST_DET_WORDS, &all[i], 0, 0, all[i].tile);
    external upload = external_create(&t, upload_of(&t), WORDS * 4);
    external buffer = external_create(&t, found, IST_TILED_WORDS * 4);
    ist_tile_merge node = {.label = "tiles",
                           .upload = ist_plan_external(t.plan, UPLOAD, IST_ELEM_I32),
                           .found = ist_plan_external(t.plan, FOUND, IST_ELEM_I32),
                           .iou = m->iou,
                           .agnostic = m->agnostic,
                           .most = MOST};
    ist_tile_objects objects = {
        .label = "objects", .upload = node.upload, .found = node.found, .det = {.max_objects = MOST}};
    cr_assert(each_emits(&t, way, &node));
    ist_emit(t.plan, IST_NODE_TILE_OBJECTS, &objects);
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, FOUND, buffer.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    const int left = ref_tiles_stay(all, count, tiles, WIDTH, HEIGHT, m->iou, m->agnostic, stay);
    const int want = left < MOST ? left : MOST;
    const int32_t *got = external_read(&t, &buffer);
    cr_assert_eq(got[IST_TL_KEPT], left, "%s: %d stay, not %d of %d", way.v->name, got[IST_TL_KEPT], left, count);
    for (int i = 0; i < left; i++)
        cr_assert_eq(got[IST_TL_HEADER + IST_TL_CAPACITY * IST_DET_WORDS + i], stay[i], "%s: %d", way.v->name, i);
    bool needed[TILES] = {true};
    for (int i = 0; i < want; i++) needed[all[stay[i]].tile] = true;
    const uint32_t *up = external_read(&t, &upload);
    for (int k = 0; k < TILES; k++)
        cr_assert_eq(up[k ? OWN_AT + (k - 1) * OWN : 0], needed[k], "%s: tile %d", way.v->name, k);
    int counts[4], total, of[MOST];
    ref_map boxes = optest_read(&t, objects.det.boxes);
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, objects.det.counts, counts, &t.err));
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, objects.det.total, &total, &t.err));
    EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, objects.tile_of, of, &t.err));
    cr_assert(counts[0] == want && counts[1] == 4 + left - want && total == want);
    for (int i = 0; i < MOST; i++)
        for (int c = 0; c < 4; c++) {
            const ref_tile *k = i < want ? &tiles[all[stay[i]].tile] : tiles;
            int w, h;
            ist_segmenter_size(SIDE, k->width, k->height, &w, &h);
            double scale = c % 2 ? (double)h / k->height : (double)w / k->width;
            double at = i < want ? ((double)all[stay[i]].box[c] - (c % 2 ? k->y : k->x)) * scale : 0;
            cr_assert(fabs(boxes.v[4 * i + c] - at) < 1e-4, "%d: %g, not %g", i, boxes.v[4 * i + c], at);
            cr_assert_eq(of[i], i < want ? all[stay[i]].tile : 0);
        }
    for (int i = 0; i < count; i++) parts += ref_ends_at_border(&all[i], &tiles[all[i].tile], WIDTH, HEIGHT);
    external_release(&t, &upload);
    external_release(&t, &buffer);
    optest_end(&t);
    return true;
}

Test(op_tiles, as_the_reference) {
    static const merging all[] = {{1, 0.5, false},  {30, 0.5, false}, {30, 0.3, true}, {0, 0.5, false},
                                  {120, 0.7, true}, {9, 1, false},    {60, 0.2, false}};
    hide(0);
    for (unsigned i = 0; i < 7; i++) each_variant(IST_NODE_TILE_MERGE, 0, merge, &all[i], i, false);
    each_had_its_case(IST_NODE_TILE_MERGE, 0);
    cr_expect_gt(parts, 100, "%d detections end at a border", parts);
}

/* An object in the overlap of two tiles, of which one has a part of it with a higher score: the part goes, the object
 * stays, although they overlap by less than the threshold. */
Test(op_tiles, parts_go) {
    const ref_detection all[] = {{0, 1, 1, 0.9f, {118, 10, 130, 60}}, /* cut at tile 1's right border */
                                 {0, 2, 2, 0.6f, {118, 10, 158, 60}}, /* all of it in tile 2 */
                                 {1, 3, 1, 0.8f, {118, 10, 130, 60}}, /* a part of another class */
                                 {0, 4, 1, 0.3f, {10, 10, 40, 60}}};  /* elsewhere */
    int stay[4];
    cr_assert_eq(ref_tiles_stay(all, 4, tiles, WIDTH, HEIGHT, 0.5, false, stay), 3);
    cr_expect(stay[0] == 2 && stay[1] == 1 && stay[2] == 3);
    cr_assert_eq(ref_tiles_stay(all, 4, tiles, WIDTH, HEIGHT, 0.5, true, stay), 2);
}
