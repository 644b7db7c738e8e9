/* Suppression of duplicates in the whole frame: what the engine keeps of its detections is what the scalar reference
 * keeps of those of an engine without, bit for bit; tracks and targets then are of these. The operator itself is tested
 * in op_nms.c. */
#include "ref.h"
#include "support/engines.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 300, MOST = 16 };

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = MOST;
    return c;
}

typedef struct found {
    ist_object objects[ALL];
    int count, stay, index[ALL];
} found;

/* Everything that the detector finds in an image. */
static void detect(const ist_image *image, found *all) {
    ist_config c = small_config();
    c.max_objects = ALL;
    ist_engine *e = engines_open(&c);
    const ist_result *r = engines_run(e, image, 1);
    all->count = r->frames[0].object_count;
    memcpy(all->objects, r->frames[0].objects, (size_t)all->count * sizeof *all->objects);
    ist_release(e, &r);
    ist_close(&e);
}

static void keep(found *all, double iou, bool agnostic) {
    float boxes[4 * ALL], scores[ALL];
    int labels[ALL];
    for (int i = 0; i < all->count; i++) {
        memcpy(boxes + 4 * i, all->objects[i].box, 4 * sizeof *boxes);
        scores[i] = all->objects[i].score;
        labels[i] = all->objects[i].label;
    }
    all->stay = ref_nms(boxes, scores, agnostic ? NULL : labels, all->count, iou, all->index);
    cr_assert_lt(all->stay, all->count, "nothing to suppress");
}

static void check(const found *all, const ist_frame *f) {
    int objects = all->stay < MOST ? all->stay : MOST;
    cr_assert(f->object_count == objects && f->dropped == all->stay - objects,
              "%d objects and %d dropped, not %d and %d", f->object_count, f->dropped, objects, all->stay - objects);
    for (int i = 0; i < objects; i++) {
        const ist_object *got = &f->objects[i], *want = &all->objects[all->index[i]];
        cr_assert(got->label == want->label && got->score == want->score && got->query == want->query,
                  "object %d is %d with %.9g of query %d, not %d with %.9g of %d", i, got->label, got->score,
                  got->query, want->label, want->score, want->query);
        cr_assert_arr_eq(got->box, want->box, sizeof want->box);
    }
}

Test(pipeline_nms, as_the_reference_keeps) {
    found *all = malloc(sizeof *all);
    ist_image image = engines_image(320, 240, 6);
    detect(&image, all);
    cr_assert_eq(all->count, ALL);
    for (int agnostic = 0; agnostic < 2; agnostic++) {
        ist_config c = small_config();
        c.nms_iou = 0.3;
        c.nms_agnostic = agnostic;
        c.match = agnostic ? IST_MATCH_TRACKS : IST_MATCH_TARGETS;
        ist_engine *e = engines_open(&c);
        keep(all, c.nms_iou, agnostic);
        ist_target target = {.label = -1};
        memcpy(target.box, all->objects[all->index[1]].box, sizeof target.box);
        image.targets = &target;
        image.target_count = 1;
        const ist_result *r = engines_run(e, &image, 1);
        check(all, &r->frames[0]);
        for (int i = 0; i < r->frames[0].object_count; i++)
            cr_assert_eq(r->frames[0].objects[i].match, agnostic ? i + 1 : i == 1 ? 0 : -1);
        cr_assert(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
        ist_release(e, &r);
        ist_close(&e);
    }
    free((void *)image.pixels);
    free(all);
}
