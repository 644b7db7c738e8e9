/* Automatic windows of 16-bit images (cl/portable/sample_window). */
#include "variants/lanes.h"
#include "variants/portable/launch_with.h"

enum { PARTS = 128, RANKS = 4, BINS = 256 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_sample_window *q = node;
    const size_t lanes = (size_t)ist_lanes_of(v)->lanes, batch = (size_t)q->batch;
    const ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_tensor counts = ist_plan_tensor(p, q->batch, PARTS, RANKS, BINS, IST_ELEM_I32);
    ist_tensor ranks = ist_plan_tensor(p, q->batch, 1, 2, RANKS, IST_ELEM_I32);
    (void)way;
    for (int lower = 0; lower < 2; lower++) {
        ist_launch count = {.label = q->label,
                            .op = "portable/sample_window",
                            .isa = "codes/frame+portable/frame",
                            .defines = defines.text,
                            .kernel = "window_count",
                            .dims = 2,
                            .global = {PARTS * lanes, batch},
                            .local = {lanes, 1}};
        ist_launch pick = count;
        pick.kernel = "window_pick";
        pick.dims = 1;
        pick.global[0] = batch * lanes;
        LAUNCH_WITH(p, count, IST_OUT(counts), IST_INOUT(ranks), IST_IN(q->upload), IST_IN(q->pixels), IST_INT(lower));
        LAUNCH_WITH(p, pick, IST_INOUT(q->upload), IST_INOUT(ranks), IST_IN(counts), IST_INT(lower));
    }
}

const ist_family ist_portable_sample_window = {.emit = emit};
