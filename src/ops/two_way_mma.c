/* Two-way attention on matrix instructions (cl/op/two_way_mma.cl, image steps by warpgroups two_way_wgmma.cl): packs
 * weights as halves and records the launches. */
#include "ops/fragments.h"
#include "ops/two_way_rows.h"

#include "base/mem.h"

#include <stdlib.h>

enum { STEP_ITEMS = 128 };

/* Whether image steps are of warpgroups. */
static bool by_groups(const ist_plan *p, int k) {
    return (ist_plan_caps(p) & IST_CAP_PTX_WGMMA) && (k == 64 || k == 128 || k == 256);
}

int ist_two_way_place(const ist_plan *p, int k, int channel) {
    return by_groups(p, k) ? ist_place_channel(channel) : channel;
}

static bool in_pieces(ist_tensor t) {
    return t.c % 8 == 0 && (t.ld | t.c0) % 8 == 0;
}

/* {shift, bias} [k], then {gamma, gamma, beta, beta} of each two channels. The bias has the shift where that is not
 * added to the image first. */
static ist_tensor step_table(ist_plan *p, const ist_two_way_step *s) {
    float all[4 * IMAGE_MAX] = {0};
    const ist_image_update *u = s->update;
    for (int i = 0; i < s->k; i++) {
        if (s->side->shift) all[i] = s->side->shift[i];
        if (!u) continue;
        all[s->k + i] = u->bias[i] + (by_groups(p, s->k) ? 0 : all[i]);
        all[2 * s->k + i / 2 * 4 + i % 2] = u->gamma[i];
        all[2 * s->k + i / 2 * 4 + 2 + i % 2] = u->beta[i];
    }
    return ist_plan_const(p, all, 1, 1, 4, s->k, IST_ELEM_F32, s->label);
}

int ist_two_way_part_floats(int tokens, int k) {
    return 2 * COLUMNS + tokens * HEADS * k / 2;
}

/* A copy whose pieces of eight channels are aligned, of every item whatever the limit. */
static ist_tensor in_order(ist_plan *p, ist_tensor t, const char *label) {
    if (in_pieces(t)) return t;
    ist_tensor limit = ist_plan_current_limit(p);
    ist_plan_limit(p, (ist_tensor){0});
    t = ist_op_copy(p, t, (ist_tensor){0}, label);
    ist_plan_limit(p, limit);
    return t;
}

ist_tensor ist_two_way_step_mma(ist_plan *p, ist_two_way_step *s, int tokens) {
    ist_image_side side = *s->side;
    const ist_image_update *u = s->update;
    side.x = in_order(p, side.x, s->label);
    side.position = in_order(p, side.position, s->label);
    ist_tensor table = step_table(p, s), none = {0};
    bool groups = by_groups(p, s->k);
    ist_arg out = IST_IN(none);
    if (u) out = (ist_arg)IST_OUT(s->updated);
    s->parts = ist_plan_tensor(p, s->n, s->groups, 1, ist_two_way_part_floats(tokens, s->k), IST_ELEM_F32);
    ist_defines defines =
        ist_defines_of(p, "-DK=%d -DSTEP=%d%s", s->k, u ? 2 : 1, groups && side.shift ? " -DSHIFT" : "");
    ist_plan_launch(
        p, &(ist_launch){.label = s->label,
                         .op = groups ? "op/two_way_wgmma" : "op/two_way_mma",
                         .isa = groups ? "isa/ptx+isa/sums+isa/wgmma" : "isa/ptx+isa/sums",
                         .defines = defines.text,
                         .kernel = "image_step",
                         .dims = 2,
                         .global = {(size_t)s->groups * STEP_ITEMS, (size_t)s->n},
                         .local = {STEP_ITEMS, 1},
                         .args = {out, IST_OUT(s->parts), IST_IN(side.x), IST_IN(side.position), IST_IN(side.map),
                                  IST_IN(table), IST_IN(u ? u->keys : none), IST_IN(u ? u->values : none),
                                  IST_IN(s->queries), IST_IN(s->limit),
                                  IST_INT4(s->length, s->groups, s->columns, ist_two_way_part_floats(tokens, s->k)),
                                  IST_INT4(side.x.ld, side.x.c0, side.position.ld, side.position.c0),
                                  IST_INT4(ist_has(side.map), side.shift != NULL, 0, 0), IST_FLOAT(u ? u->eps : 0)},
                         .arg_count = 14,
                         .flops = (u ? 8.0 : 4.0) * s->n * s->length * s->columns * s->k});
    return s->parts;
}
