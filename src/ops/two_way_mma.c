/* Two-way attention on matrix instructions (cl/op/two_way_mma.cl, image steps by warpgroups two_way_wgmma.cl): packs
 * weights as halves and records the launches. */
#include "ops/fragments.h"
#include "ops/two_way_rows.h"

#include "base/mem.h"

#include <stdlib.h>

enum { STEP_ITEMS = 128, ITEMS = 256 /* of the other kernels */ };

/* Whether image steps are of warpgroups. */
static bool by_groups(const ist_plan *p, int k) {
    return (ist_plan_caps(p) & IST_CAP_PTX_WGMMA) && (k == 64 || k == 128 || k == 256);
}

int ist_two_way_place(const ist_plan *p, int k, int channel) {
    return by_groups(p, k) ? ist_place_channel(channel) : channel;
}

/* ---- tokens ---- */

/* Channels of a head, padded; channels of a token that a work-item takes; halves of a head's weights. */
static int fold_wide(int d) {
    return d <= 16 ? 16 : 32;
}

static int fold_each(int c, int d) {
    return ist_div_up(c, ITEMS / fold_wide(d) * 8) * 8;
}

/* Of each job and head w [slice][wide][each] and m [k][wide]. */
static ist_tensor fold_weights(ist_plan *p, const ist_fold_job *jobs, int count, int c, const char *label) {
    int k_out = jobs->fold.k, d = jobs->fold.d, wide = fold_wide(d), each = fold_each(c, d);
    size_t room = (size_t)(ITEMS / wide * each), one = (room + (size_t)k_out) * (size_t)wide;
    float *packed = calloc((size_t)count * HEADS * one, sizeof *packed);
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label,
                      (size_t)count * HEADS * one);
        return t;
    }
    for (int j = 0; j < count * HEADS; j++) {
        const ist_head_fold *f = &jobs[j / HEADS].fold;
        float *w = packed + (size_t)j * one, *m = w + room * (size_t)wide;
        for (int i = 0, o = j % HEADS * d; i < d; i++, o++) {
            for (int k = 0; k < c; k++) w[(k / each * wide + i) * each + k % each] = f->w[o * c + k];
            for (int k = 0; k < k_out; k++) m[ist_two_way_place(p, k_out, k) * wide + i] = f->m[o * k_out + k];
        }
    }
    t = ist_plan_const(p, packed, 1, count, HEADS, (int)one, IST_ELEM_T, label);
    free(packed);
    return t;
}

static ist_tensor fold_table(ist_plan *p, const ist_fold_job *jobs, int count, const char *label) {
    float table[IST_FOLDS * HEADS * 2 * HEAD_MAX] = {0};
    int d = jobs->fold.d, wide = fold_wide(d);
    for (int j = 0; j < count; j++)
        for (int o = 0; o < HEADS * d; o++) {
            float *at = table + (j * HEADS + o / d) * 2 * wide + o % d;
            at[0] = jobs[j].fold.b[o];
            at[wide] = jobs[j].fold.mb ? jobs[j].fold.mb[o] : 0;
        }
    return ist_plan_const(p, table, 1, count, HEADS, 2 * wide, IST_ELEM_F32, label);
}

static bool in_pieces(ist_tensor t) {
    return t.c % 8 == 0 && (t.ld | t.c0) % 8 == 0;
}

void ist_two_way_fold_mma(ist_plan *p, const ist_fold_job *jobs, int count, ist_tensor *y, const char *label) {
    const ist_head_fold *f = &jobs->fold;
    ist_tensor x = jobs->x, add = {0}, all[IST_FOLDS] = {{0}}, out[IST_FOLDS] = {{0}};
    int tokens = x.w, adds = 0;
    bool pieces = true;
    float scales[IST_FOLDS] = {0};
    for (int j = 0; j < count; j++) {
        if (ist_has(jobs[j].add)) add = jobs[j].add, adds |= 1 << j;
        all[j] = jobs[j].x;
        scales[j] = jobs[j].fold.scale;
        pieces = pieces && in_pieces(jobs[j].x) && (!ist_has(jobs[j].add) || in_pieces(jobs[j].add));
        out[j] = y[j] = ist_plan_tensor(p, x.n, 1, tokens * HEADS + 2, f->k, IST_ELEM_T);
    }
    ist_tensor weights = fold_weights(p, jobs, count, x.c, label), table = fold_table(p, jobs, count, label);
    ist_arg results[IST_FOLDS];
    for (int j = 0; j < IST_FOLDS; j++) {
        results[j] = (ist_arg)IST_IN(out[j]);
        if (j < count) results[j].kind = IST_ARG_OUT;
    }
    ist_defines defines =
        ist_defines_of(p, "-DK=%d -DFOLD -DWIDE=%d -DEACH=%d", f->k, fold_wide(f->d), fold_each(x.c, f->d));
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/two_way_mma",
                                     .isa = "isa/ptx",
                                     .defines = defines.text,
                                     .kernel = "fold_heads",
                                     .dims = 3,
                                     .global = {HEADS * ITEMS, (size_t)x.n, (size_t)count},
                                     .local = {ITEMS, 1, 1},
                                     .args = {results[0], results[1], results[2], IST_IN(all[0]), IST_IN(all[1]),
                                              IST_IN(all[2]), IST_IN(add), IST_IN(weights), IST_IN(table),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, weights.c, 0),
                                              IST_INT8(all[0].ld, all[0].c0, all[1].ld, all[1].c0, all[2].ld, all[2].c0,
                                                       add.ld, add.c0),
                                              IST_INT4(adds, ist_has(add) && add.n == 1, pieces, 0),
                                              IST_FLOAT4(scales[0], scales[1], scales[2], 0)},
                                     .arg_count = 14,
                                     .flops = 2.0 * count * x.n * tokens * HEADS * f->d * (x.c + f->k)});
}

/* ---- the image ---- */

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

/* weights of head h: [8 eighths of k][d][k / 8]. */
static ist_tensor merge_weights(ist_plan *p, const float *w, int k, int d, const char *label) {
    size_t count = (size_t)HEADS * (size_t)d * (size_t)k;
    float *packed = malloc(count * sizeof *packed);
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int o = 0; o < HEADS * d; o++)
        for (int c = 0; c < k; c++)
            packed[((o / d * 8 + c / (k / 8)) * d + o % d) * (k / 8) + c % (k / 8)] = w[o * k + c];
    t = ist_plan_const(p, packed, 1, 1, HEADS * d, k, IST_ELEM_T, label);
    free(packed);
    return t;
}

ist_tensor ist_two_way_merge_mma(ist_plan *p, ist_tensor parts, int tokens, int k, int d, const float *w,
                                 const float *b, const char *label) {
    ist_tensor y = ist_plan_tensor(p, parts.n, 1, tokens, HEADS * d, IST_ELEM_T);
    ist_tensor weights = merge_weights(p, w, k, d, label);
    ist_tensor bias = ist_plan_const(p, b, 1, 1, 1, HEADS * d, IST_ELEM_F32, label);
    ist_defines defines = ist_defines_of(p, "-DK=%d -DMERGE=%d", k, d);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/two_way_mma",
                                     .isa = "isa/ptx",
                                     .defines = defines.text,
                                     .kernel = "image_merge",
                                     .dims = 2,
                                     .global = {(size_t)(tokens * HEADS) * ITEMS, (size_t)parts.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(parts), IST_IN(weights), IST_IN(bias),
                                              IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(tokens, parts.h, ist_two_way_part_floats(tokens, k), y.ld)},
                                     .arg_count = 6,
                                     .flops = 2.0 * parts.n * tokens * HEADS * k * (parts.h + d)});
    return y;
}
