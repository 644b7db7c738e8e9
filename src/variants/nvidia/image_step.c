/* Steps of the image on matrix instructions (cl/nvidia/two_way_mma, by warpgroups two_way_wgmma). */
#include "variants/nvidia/tokens.h"
#include "variants/fragments.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { HEADS = IST_TWO_WAY_HEADS, COLUMNS = IST_BLOCK_COLUMNS, STEP_ITEMS = 128, GROUP_ROWS = 64 };

int ist_two_way_channel(bool groups, int k, int channel) {
    return ist_two_way_groups(groups, k) ? ist_place_channel(channel) : channel;
}

int ist_two_way_part_floats(int tokens, int k) {
    return 2 * COLUMNS + tokens * HEADS * k / 2;
}

static bool in_pieces(ist_tensor t) {
    return t.c % 8 == 0 && (t.ld | t.c0) % 8 == 0;
}

/* {shift, bias} [k], then {gamma, gamma, beta, beta} of each two channels. The bias has the shift where that is not
 * added to the image first. */
static ist_tensor step_table(ist_plan *p, bool groups, const float *shift, const ist_image_update *u, int k,
                             const char *label) {
    float all[4 * IST_IMAGE_CHANNELS] = {0};
    for (int i = 0; i < k; i++) {
        if (shift) all[i] = shift[i];
        if (!u) continue;
        all[k + i] = u->bias[i] + (groups ? 0 : all[i]);
        all[2 * k + i / 2 * 4 + i % 2] = u->gamma[i];
        all[2 * k + i / 2 * 4 + 2 + i % 2] = u->beta[i];
    }
    return ist_plan_const(p, all, 1, 1, 4, k, IST_ELEM_F32, label);
}

/* A copy whose pieces of eight channels are aligned, of every item whatever the limit. */
static ist_tensor in_order(ist_plan *p, ist_tensor t, const char *label) {
    if (in_pieces(t)) return t;
    ist_tensor limit = ist_plan_current_limit(p);
    ist_copy copy = {.label = label, .x = t};
    ist_plan_limit(p, (ist_tensor){0});
    ist_emit(p, IST_NODE_COPY, &copy);
    ist_plan_limit(p, limit);
    return copy.y;
}

static bool halves_fit(ist_tensor t, int prompts, int k, int tokens) {
    return t.n == prompts && t.w == tokens * HEADS + 2 && t.c == k && t.elem == IST_ELEM_T && t.ld == k && t.c0 == 0;
}

static bool check(ist_plan *p, const ist_image_side *s, const ist_image_update *u, ist_tensor queries, int tokens,
                  const char *label) {
    int n = queries.n, k = s->x.c;
    if (ist_plan_status(p)) return false;
    if (ist_two_way_matrix(tokens, k) && halves_fit(queries, n, k, tokens) && s->x.elem == IST_ELEM_T &&
        s->position.elem == IST_ELEM_T && s->position.c == k && s->position.h * s->position.w == s->x.h * s->x.w &&
        !ist_has(s->only.ways) && (ist_has(s->map) ? ist_pixels(s->map) >= n : s->x.n >= n) &&
        (!u || (halves_fit(u->keys, n, k, tokens) && halves_fit(u->values, n, k, tokens) && !u->relative)))
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: two-way attention of [%d,%d,%d,%d] with %d tokens", label, s->x.n, s->x.h,
                  s->x.w, k, tokens);
    return false;
}

ist_tensor ist_image_step_mma(ist_plan *p, bool wgmma, const ist_image_side *image, const ist_image_update *u,
                              ist_tensor queries, int tokens, ist_tensor *updated, const char *label) {
    ist_tensor none = {0};
    if (!check(p, image, u, queries, tokens, label)) return none;
    ist_image_side side = *image;
    int k = side.x.c, length = side.x.h * side.x.w, n = queries.n, columns = tokens * HEADS;
    int parts_of = ist_div_up(length, GROUP_ROWS), floats = ist_two_way_part_floats(tokens, k);
    bool groups = ist_two_way_groups(wgmma, k);
    ist_arg out = IST_IN(none);
    if (u) *updated = ist_plan_tensor(p, n, 1, length, k, IST_ELEM_T);
    if (u) out = (ist_arg)IST_OUT(*updated);
    side.x = in_order(p, side.x, label);
    side.position = in_order(p, side.position, label);
    ist_tensor table = step_table(p, groups, side.shift, u, k, label);
    ist_tensor parts = ist_plan_tensor(p, n, parts_of, 1, floats, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(p, "-DK=%d -DSTEP=%d%s", k, u ? 2 : 1, groups && side.shift ? " -DSHIFT" : "");
    const ist_nvidia_image_step_args by_value = {.image = ist_image_args_of(&side, length),
                                                 .shifted = side.shift != NULL,
                                                 .groups = parts_of,
                                                 .part_floats = floats,
                                                 .read_columns = columns,
                                                 .eps = u ? u->eps : 0};
    ist_plan_launch(
        p,
        &(ist_launch){.label = label,
                      .op = groups ? "nvidia/two_way_wgmma" : "nvidia/two_way_mma",
                      .isa = groups ? "nvidia/ptx+nvidia/sums+nvidia/wgmma" : "nvidia/ptx+nvidia/sums",
                      .defines = defines.text,
                      .kernel = "image_step",
                      .dims = 2,
                      .global = {(size_t)parts_of * STEP_ITEMS, (size_t)n},
                      .local = {STEP_ITEMS, 1},
                      .args = {out, IST_OUT(parts), IST_IN(side.x), IST_IN(side.position), IST_IN(side.map),
                               IST_IN(table), IST_IN(u ? u->keys : none), IST_IN(u ? u->values : none), IST_IN(queries),
                               IST_IN(ist_plan_current_limit(p)), IST_STRUCT(nvidia_image_step_args, &by_value)},
                      .arg_count = 11,
                      .flops = (u ? 8.0 : 4.0) * n * length * columns * k});
    return parts;
}
