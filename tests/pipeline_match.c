/* Matching through the public API: tracks over a sequence, given targets, and ist_assign on an engine without a model.
 * The solver itself is tested against SciPy in op_assign.c, costs and pairing rules in op_match.c. */
#include "ref.h"
#include "support/engines.h"

#include "synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 8, FRAMES = 12, WIDTH = 320, HEIGHT = 240, STEP = 3, MOST_TRACKS = 300 };

static ist_error err;

static ist_config small_config(ist_match_mode match) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = OBJECTS;
    c.match = match;
    return c;
}

/* ---- tracks ---- */

/* What a tracker may answer: every id is either that of a living track with the same label and enough overlap, or the
 * next new one in order of score; and no object starts a track while a fitting one stays free. */
typedef struct model_track {
    int id, label, unseen;
    bool taken;
    float box[4];
} model_track;

typedef struct tracker {
    float least;
    int age, last, count, continued, started;
    model_track tracks[MOST_TRACKS];
} tracker;

static model_track *living(tracker *m, int id) {
    for (int t = 0; t < m->count; t++)
        if (m->tracks[t].id == id) return &m->tracks[t];
    return NULL;
}

static bool fits(const tracker *m, const model_track *t, const ist_object *o) {
    return t->label == o->label && ref_iou(o->box, t->box) >= m->least + 1e-5;
}

static void continue_track(tracker *m, model_track *t, const ist_object *o) {
    double overlap = ref_iou(o->box, t->box);
    cr_assert(!t->taken, "id %d twice in one frame", t->id);
    cr_assert_eq(o->label, t->label, "id %d changed its label", t->id);
    cr_assert_geq(overlap, m->least - 1e-5, "id %d jumped", t->id);
    cr_assert_float_eq(o->match_iou, overlap, 1e-5);
    t->taken = true;
    m->continued++;
}

static void check_frame(tracker *m, const ist_frame *f) {
    for (int t = 0; t < m->count; t++) m->tracks[t].taken = false;
    int before = m->count;
    for (int i = 0; i < f->object_count; i++) {
        const ist_object *o = &f->objects[i];
        model_track *t = living(m, o->match);
        if (t) {
            continue_track(m, t, o);
            continue;
        }
        cr_assert_eq(o->match, ++m->last, "a new id %d, the last one was %d", o->match, m->last - 1);
        cr_assert_eq(o->match_iou, 0);
        cr_assert_lt(m->count, MOST_TRACKS);
        m->tracks[m->count++] = (model_track){.id = o->match, .label = o->label, .taken = true};
        m->started++;
    }
    for (int i = 0; i < f->object_count; i++)
        for (int t = 0; t < before && f->objects[i].match_iou == 0; t++)
            cr_assert(m->tracks[t].taken || !fits(m, &m->tracks[t], &f->objects[i]), "track %d stayed free",
                      m->tracks[t].id);
    int kept = 0;
    for (int t = 0; t < m->count; t++) {
        model_track k = m->tracks[t];
        k.unseen = k.taken ? 0 : k.unseen + 1;
        for (int i = 0; i < f->object_count; i++)
            if (f->objects[i].match == k.id) memcpy(k.box, f->objects[i].box, sizeof k.box);
        if (k.unseen <= m->age) m->tracks[kept++] = k;
    }
    m->count = kept;
}

/* Frame i of a camera that moves over one large picture; the pixels stay the scene's. */
static ist_image view_of(const ist_image *scene, int i) {
    ist_image m = *scene;
    m.width = WIDTH;
    m.height = HEIGHT;
    m.stride = (size_t)scene->width * 3;
    m.pixels = (const uint8_t *)scene->pixels + (size_t)i * STEP * 3 + (size_t)(i / 2) * m.stride;
    m.tag = (uint64_t)i;
    return m;
}

static void ids_of(const ist_frame *f, int *ids) {
    for (int i = 0; i < OBJECTS; i++) ids[i] = i < f->object_count ? f->objects[i].match : 0;
}

/* In batches the tracks go on from image to image. On a GPU the size of a batch can decide which kernels run, and with
 * them which of two objects of nearly the same score comes first: the ids are those of single images on CPUs only. */
Test(pipeline_match, ids_are_stable_over_a_sequence_and_do_not_depend_on_batching) {
    ist_image scene = engines_image(WIDTH + FRAMES * STEP, HEIGHT + FRAMES, 6);
    ist_config c = small_config(IST_MATCH_TRACKS);
    ist_engine *single = engines_open(&c);
    tracker m = {.least = c.track_iou, .age = c.track_age};
    int ids[FRAMES][OBJECTS], batched[OBJECTS];
    for (int i = 0; i < FRAMES; i++) {
        ist_image view = view_of(&scene, i);
        const ist_result *r = engines_run(single, &view, 1);
        cr_assert_eq(r->frames[0].object_count, OBJECTS);
        check_frame(&m, &r->frames[0]);
        ids_of(&r->frames[0], ids[i]);
        ist_release(single, &r);
    }
    ist_close(&single);
    cr_assert_gt(m.continued, FRAMES * OBJECTS / 2, "%d of %d continued", m.continued, FRAMES * OBJECTS);
    cr_assert_gt(m.started, OBJECTS, "the sequence needs newcomers");

    c.batch = 5;
    ist_engine *batch = engines_open(&c);
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(batch, &info, &err), IST_OK);
    tracker again = {.least = c.track_iou, .age = c.track_age};
    for (int from = 0; from < FRAMES; from += c.batch) {
        int count = FRAMES - from < c.batch ? FRAMES - from : c.batch;
        ist_image views[5];
        for (int i = 0; i < count; i++) views[i] = view_of(&scene, from + i);
        const ist_result *r = engines_run(batch, views, count);
        for (int i = 0; i < count; i++) {
            check_frame(&again, &r->frames[i]);
            ids_of(&r->frames[i], batched);
            if (info.device.type != IST_DEVICE_CPU) continue;
            cr_assert_arr_eq(batched, ids[from + i], sizeof batched, "frame %d", from + i);
        }
        ist_release(batch, &r);
    }
    ist_close(&batch);
    cr_assert_gt(again.continued, FRAMES * OBJECTS / 2, "%d of %d continued", again.continued, FRAMES * OBJECTS);
    cr_assert_gt(again.started, OBJECTS, "the sequence needs newcomers");
    free((void *)scene.pixels);
}

/* The request takes its place between the batches that are in flight when it is made. */
Test(pipeline_match, reset_starts_over) {
    ist_config c = small_config(IST_MATCH_TRACKS);
    c.frames_in_flight = 4;
    ist_engine *e = engines_open(&c);
    ist_image a = engines_image(WIDTH, HEIGHT, 6), b = engines_image(WIDTH, HEIGHT, 7);
    const ist_image *order[] = {&a, &b, &b, &b};
    int first_new[] = {1, OBJECTS + 1, 1, 1}; /* ids of the third batch begin again and the fourth continues them */
    for (int i = 0; i < 4; i++) {
        if (i == 2) cr_assert_eq(ist_reset_tracks(e, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_submit(e, order[i], 1, &err), IST_OK, "%s", err.text);
    }
    for (int i = 0; i < 4; i++) {
        const ist_result *r;
        cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
        const ist_frame *f = &r->frames[0];
        cr_assert_eq(f->object_count, OBJECTS);
        for (int k = 0; k < OBJECTS && i != 1; k++) {
            cr_assert_eq(f->objects[k].match, first_new[i] + k, "batch %d, object %d: id %d", i, k,
                         f->objects[k].match);
            cr_assert_float_eq(f->objects[k].match_iou, i == 3, 1e-6);
        }
        ist_release(e, &r);
    }
    ist_close(&e);
    c = small_config(IST_MATCH_NONE);
    e = engines_open(&c);
    cr_assert_eq(ist_reset_tracks(e, &err), IST_E_STATE);
    ist_close(&e);
    free((void *)a.pixels);
    free((void *)b.pixels);
}

/* A picture comes back after `gap` frames of another one. Only the same box continues a track here. */
static void returns_after(int gap, int age, bool continues) {
    ist_config c = small_config(IST_MATCH_TRACKS);
    c.track_iou = 0.99f;
    c.track_age = age;
    ist_engine *e = engines_open(&c);
    ist_image a = engines_image(WIDTH, HEIGHT, 6), b = engines_image(WIDTH, HEIGHT, 7);
    tracker m = {.least = c.track_iou, .age = age};
    int ids[OBJECTS], again[OBJECTS];
    for (int i = 0; i < gap + 2; i++) {
        const ist_result *r = engines_run(e, i == 0 || i == gap + 1 ? &a : &b, 1);
        check_frame(&m, &r->frames[0]);
        ids_of(&r->frames[0], i == 0 ? ids : again);
        ist_release(e, &r);
    }
    for (int k = 0; k < OBJECTS; k++) {
        if (continues)
            cr_assert_eq(again[k], ids[k], "object %d: id %d after %d frames, was %d", k, again[k], gap, ids[k]);
        else
            cr_assert_gt(again[k], 2 * OBJECTS, "object %d: id %d survived %d frames", k, again[k], gap);
    }
    ist_close(&e);
    free((void *)a.pixels);
    free((void *)b.pixels);
}

Test(pipeline_match, tracks_survive_their_age_and_no_longer) {
    returns_after(2, 2, true);
    returns_after(3, 2, false);
    returns_after(1, 0, false);
}

/* ---- targets ---- */

/* The objects of `f` as targets in another order; label -1 for every third when `any`. */
static int shuffled(const ist_frame *f, bool any, ist_target *targets) {
    int n = f->object_count;
    for (int i = 0; i < n; i++) {
        const ist_object *o = &f->objects[(i * 3 + 2) % n]; /* 3 and n = 8 have no common divisor */
        targets[i].label = any && i % 3 == 0 ? -1 : o->label;
        memcpy(targets[i].box, o->box, sizeof o->box);
    }
    return n;
}

/* Every object has the target with its own box. */
static void each_finds_itself(const ist_frame *f, const ist_target *targets, int count) {
    bool used[64] = {false};
    cr_assert_eq(f->object_count, OBJECTS);
    for (int i = 0; i < f->object_count; i++) {
        const ist_object *o = &f->objects[i];
        cr_assert(o->match >= 0 && o->match < count && !used[o->match], "object %d: target %d", i, o->match);
        used[o->match] = true;
        const ist_target *t = &targets[o->match];
        cr_assert_arr_eq(t->box, o->box, sizeof o->box, "object %d has the target of another one", i);
        cr_assert(t->label < 0 || t->label == o->label);
        cr_assert_float_eq(o->match_iou, 1, 1e-6);
    }
}

static void none_matches(const ist_frame *f) {
    cr_assert_eq(f->object_count, OBJECTS);
    for (int i = 0; i < f->object_count; i++) {
        cr_assert_eq(f->objects[i].match, -1);
        cr_assert_eq(f->objects[i].match_iou, 0);
    }
}

static const ist_result *with_targets(ist_engine *e, ist_image m, const ist_target *targets, int count) {
    m.targets = targets;
    m.target_count = count;
    return engines_run(e, &m, 1);
}

static void finds_own_detections(ist_match_mode mode) {
    ist_config c = small_config(mode);
    c.max_targets = 20;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(WIDTH, HEIGHT, 6);
    const ist_result *r = with_targets(e, m, NULL, 0);
    none_matches(&r->frames[0]);
    ist_target targets[20] = {0};
    for (int any = 0; any < 2; any++) {
        int count = shuffled(&r->frames[0], any, targets + 5);
        const ist_result *got = with_targets(e, m, targets + 5, count);
        each_finds_itself(&got->frames[0], targets + 5, count);
        ist_release(e, &got);
        for (int i = 0; i < 5; i++) /* more targets than objects: boxes where nothing is */
            targets[i] = (ist_target){{9000 + 100 * (float)i, 9000, 9050 + 100 * (float)i, 9050}, i % 2 ? -1 : 3};
        got = with_targets(e, m, targets, count + 5);
        each_finds_itself(&got->frames[0], targets, count + 5);
        ist_release(e, &got);
        got = with_targets(e, m, targets + 5, 3); /* fewer */
        int matched = 0;
        for (int i = 0; i < OBJECTS; i++) {
            const ist_object *o = &got->frames[0].objects[i];
            if (o->match < 0) continue;
            cr_assert_lt(o->match, 3);
            cr_assert_arr_eq(targets[5 + o->match].box, o->box, sizeof o->box);
            matched++;
        }
        cr_assert_eq(matched, 3);
        ist_release(e, &got);
    }
    ist_release(e, &r);
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_match, targets_by_overlap) {
    finds_own_detections(IST_MATCH_TARGETS);
}

Test(pipeline_match, targets_by_the_set_cost) {
    finds_own_detections(IST_MATCH_TARGETS_SET);
}

/* Each image of a batch has its own targets; a label that differs forbids a pair; an engine may have room for none. */
Test(pipeline_match, targets_belong_to_their_image) {
    ist_config c = small_config(IST_MATCH_TARGETS);
    c.batch = 3;
    ist_engine *e = engines_open(&c);
    ist_image m[3] = {engines_image(WIDTH, HEIGHT, 6), engines_image(200, 180, 8), engines_image(WIDTH, HEIGHT, 7)};
    const ist_result *r = engines_run(e, m, 3);
    ist_target first[OBJECTS], last[OBJECTS];
    m[0].target_count = shuffled(&r->frames[0], false, first);
    m[2].target_count = shuffled(&r->frames[2], false, last);
    m[0].targets = first;
    m[2].targets = last;
    const ist_result *got = engines_run(e, m, 3);
    each_finds_itself(&got->frames[0], first, OBJECTS);
    none_matches(&got->frames[1]);
    each_finds_itself(&got->frames[2], last, OBJECTS);
    ist_release(e, &got);
    for (int i = 0; i < OBJECTS; i++) first[i].label += 1000;
    got = engines_run(e, m, 1);
    none_matches(&got->frames[0]);
    ist_close(&e);
    c.max_targets = 0;
    e = engines_open(&c);
    got = engines_run(e, m + 1, 1);
    none_matches(&got->frames[0]);
    ist_close(&e);
    for (int i = 0; i < 3; i++) free((void *)m[i].pixels);
}

/* ---- ist_assign ---- */

/* Least total over all ways to pair rows with columns, rows <= cols; +inf when there is none. */
static double least_total(const float *cost, int row, int rows, int cols, int ld, unsigned used) {
    if (row == rows) return 0;
    double least = INFINITY;
    for (int c = 0; c < cols; c++)
        if (!(used >> c & 1)) {
            double rest = least_total(cost, row + 1, rows, cols, ld, used | 1u << c);
            least = fmin(least, cost[row * ld + c] + rest);
        }
    return least;
}

static void transposed(const float *cost, int rows, int cols, int ld, float *to) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) to[c * rows + r] = cost[r * ld + c];
}

/* A complete assignment whose costs add up to `total`. */
static void consistent(const float *cost, int rows, int cols, int ld, const int *match, double total) {
    bool used[128] = {false};
    int pairs = 0;
    double sum = 0;
    for (int r = 0; r < rows; r++) {
        if (match[r] < 0) continue;
        cr_assert(match[r] < cols && !used[match[r]], "row %d: column %d", r, match[r]);
        used[match[r]] = true;
        sum += cost[r * ld + match[r]];
        pairs++;
    }
    cr_assert_eq(pairs, rows < cols ? rows : cols);
    cr_assert_float_eq(sum, total, 1e-12 * fabs(total));
}

static ist_engine *open_for_assignment(void) {
    ist_config c = ist_config_default();
    return engines_open(&c);
}

Test(pipeline_match, assignment_equals_all_permutations) {
    ist_engine *e = open_for_assignment();
    uint64_t base = synth_base("assign", 1), at = 0;
    for (int n = 0; n < 300; n++) {
        int rows = 1 + n % 6, cols = 1 + n / 6 % 6, ld = cols + n % 3, match[6];
        float cost[6 * 8], flipped[6 * 6];
        for (int i = 0; i < rows * ld; i++) {
            uint32_t k = synth_draw(base, at++);
            cost[i] = n % 4 == 3 && k % 4 == 0 ? INFINITY                     /* forbidden pairs */
                      : n % 4 == 2             ? (float)(k % 3)               /* ties */
                      : n % 4 == 1             ? ((float)k - 0x1p23f) * 1e30f /* signed, large */
                                               : (float)k * 0x1p-24f;
        }
        for (int r = 0; r < rows; r++)
            for (int c = cols; c < ld; c++) cost[r * ld + c] = NAN; /* between the rows: not looked at */
        transposed(cost, rows, cols, ld, flipped);
        double want =
            rows <= cols ? least_total(cost, 0, rows, cols, ld, 0) : least_total(flipped, 0, cols, rows, rows, 0);
        double total = -1, most = 0;
        ist_status st = ist_assign(e, cost, rows, cols, ld, match, &total, &err);
        if (isinf(want)) {
            cr_assert_eq(st, IST_E_ARGUMENT, "case %d has no complete assignment", n);
            continue;
        }
        cr_assert_eq(st, IST_OK, "case %d: %s", n, err.text);
        consistent(cost, rows, cols, ld, match, total);
        for (int i = 0; i < rows * cols; i++)
            if (isfinite(flipped[i])) most = fmax(most, fabs((double)flipped[i]));
        cr_assert_float_eq(total, want, 6 * 0x1p-49 * most, "case %d, %d x %d: %.17g, least is %.17g", n, rows, cols,
                           total, want);
    }
    ist_close(&e);
}

Test(pipeline_match, assignment_of_larger_matrices) {
    static const int shapes[][3] = {{40, 40, 40}, {17, 90, 100}, {90, 17, 17}, {1, 100, 100}, {100, 1, 3}};
    ist_engine *e = open_for_assignment();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int rows = shapes[s][0], cols = shapes[s][1], ld = shapes[s][2], match[100], want[100];
        float *cost = malloc((size_t)(rows * ld) * sizeof *cost);
        for (int i = 0; i < rows * ld; i++)
            cost[i] = (float)synth_draw(synth_base("larger", s), (uint64_t)i) * 0x1p-20f;
        double total, least;
        cr_assert(ref_assign(cost, rows, cols, ld, want, &least));
        cr_assert_eq(ist_assign(e, cost, rows, cols, ld, match, &total, &err), IST_OK, "%s", err.text);
        consistent(cost, rows, cols, ld, match, total);
        cr_assert_float_eq(total, least, 1e-9 * least, "%d x %d: %.17g, least is %.17g", rows, cols, total, least);
        free(cost);
    }
    ist_close(&e);
}

/* Masks for given boxes: no detector; the objects are the targets, in their order, and the masks are those that the
 * same boxes get as detections. */
Test(pipeline_match, given_boxes_get_the_masks_of_equal_detections) {
    ist_config c = engines_config("n", true);
    ist_image m = engines_image(211, 160, 6);
    ist_engine *found = engines_open(&c);
    const ist_result *want = engines_run(found, &m, 1);
    int count = want->frames[0].object_count;
    cr_assert_geq(count, 2);
    ist_target targets[16];
    for (int i = 0; i < count; i++) {
        memcpy(targets[i].box, want->frames[0].objects[i].box, sizeof targets[i].box);
        targets[i].label = want->frames[0].objects[i].label;
    }
    c.detector = NULL;
    c.prompts = IST_PROMPTS_TARGETS;
    c.max_objects = count - 1;
    ist_engine *given = engines_open(&c);
    m.targets = targets;
    m.target_count = count;
    const ist_result *got = engines_run(given, &m, 1);
    cr_assert_eq(got->frames[0].object_count, count - 1);
    cr_assert_eq(got->frames[0].dropped, 1);
    for (int i = 0; i < count - 1; i++) {
        const ist_object *a = &want->frames[0].objects[i], *b = &got->frames[0].objects[i];
        cr_assert_eq(b->score, 1.0f);
        cr_assert_eq(b->query, -1);
        cr_assert_eq(b->match, i);
        cr_assert_eq(b->label, a->label);
        cr_assert_arr_eq(b->box, a->box, sizeof a->box);
        cr_assert_eq(b->area, a->area);
        cr_assert_eq(b->mask_score, a->mask_score);
        cr_assert_arr_eq(b->mask_box, a->mask_box, sizeof a->mask_box);
    }
    cr_assert_eq(got->transfers.writes, 1);
    cr_assert_eq(got->transfers.reads, 1);
    ist_release(given, &got);
    m.target_count = 0;
    got = engines_run(given, &m, 1);
    cr_assert_eq(got->frames[0].object_count, 0);
    ist_close(&given);
    ist_close(&found);
    free((void *)m.pixels);
}

/* The configuration's options for tracks reach the tracker: where no score is above track_high nothing begins a track. */
Test(pipeline_match, no_track_begins_weak) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = 4;
    c.match = IST_MATCH_TRACKS;
    c.track_high = 1;
    c.track_motion = 1;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(64, 48, 3);
    for (int i = 0; i < 2; i++) {
        const ist_result *r = engines_run(e, &m, 1);
        cr_assert_eq(r->frames[0].object_count, 4);
        for (int k = 0; k < 4; k++) {
            cr_expect_eq(r->frames[0].objects[k].match, -1);
            cr_expect_eq(r->frames[0].objects[k].match_iou, 0);
        }
        ist_release(e, &r);
    }
    ist_close(&e);
    free((void *)m.pixels);
}
