/* Two-way attention with the projections moved to the tokens: packs weights, chooses a row, records.
 *
 * Rows: op/two_way_cpu and op/two_way_tokens_cpu (a work-item per group), op/two_way_mma (matrix instructions, half
 * storage, few tokens) and op/two_way (work-groups with local memory). two_way_mma.c records op/two_way_mma. How the
 * image is cut into groups depends on the device alone, never on the number of prompts: a frame's results have the same
 * bits whatever stands beside it. */
#include "ops/two_way.h"
#include "ops/rows.h"
#include "ops/token.h"
#include "ops/two_way_rows.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUB_ROWS = 96,         /* CPU: image rows in the second-level cache, whole tiles of op/two_way_cpu */
    CPU_GROUP_ROWS = 1056, /* most of those that a group takes: its part of the sums is little beside them */
    CPU_GROUP_STEP = 24,
    ANY_GROUP_ROWS = 32,
    LOCAL_ROOM = 24 << 10 /* bytes of local memory for eight rows of the image */
};

static int blocks_of(int tokens) {
    return ist_div_up(tokens, COLUMNS / HEADS);
}

/* Work-items per group of the portable row's image steps. */
static int group_items(const ist_plan *p) {
    return ist_plan_caps(p) & IST_CAP_GROUP256 ? 256 : 64;
}

/* Image rows that a group of the portable row keeps in local memory. */
static int local_rows(const ist_plan *p, int tokens) {
    bool room = ist_device_local_bytes(ist_plan_device(p)) >= LOCAL_ROOM;
    return group_items(p) == 256 && blocks_of(tokens) == 1 && room ? 8 : 4;
}

bool ist_two_way_halves(const ist_plan *p, int tokens, int k) {
    return !ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && tokens * HEADS <= COLUMNS &&
           k % 64 == 0 && k <= IMAGE_MAX;
}

static ist_defines defines_of(const ist_plan *p, int k, int tokens) {
    if (ist_cpu_row(p)) return ist_defines_of(p, "-DK=%d -DBLOCKS=%d -DSUB=%d", k, blocks_of(tokens), SUB_ROWS);
    return ist_defines_of(p, "-DK=%d -DBLOCKS=%d -DGROUP=%d -DROWS=%d", k, blocks_of(tokens), group_items(p),
                          local_rows(p, tokens));
}

static void use_row(const ist_plan *p, ist_launch *l) {
    bool cpu = ist_cpu_row(p);
    l->op = cpu ? "op/two_way_tokens_cpu" : "op/two_way";
    l->isa = cpu ? "isa/tile+isa/columns" : NULL;
}

/* ---- tokens ---- */

/* dst[head][row][d16] = src[head * d + i][row] for an [8 d][rows] matrix. */
static void pack_heads(const float *src, int rows, int d, float *dst) {
    int d16 = ist_div_up(d, 16) * 16;
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < d; i++)
                dst[((size_t)h * (size_t)rows + (size_t)r) * (size_t)d16 + (size_t)i] =
                    src[((size_t)h * (size_t)d + (size_t)i) * (size_t)rows + (size_t)r];
}

/* A matrix [8 d][rows] by heads, or zeros when src is NULL. */
static ist_tensor head_const(ist_plan *p, const float *src, int rows, int d, const char *label) {
    size_t count = (size_t)HEADS * (size_t)rows * (size_t)(ist_div_up(d, 16) * 16);
    float *packed = calloc(count, sizeof *packed);
    ist_tensor t = {0};
    if (packed) {
        if (src) pack_heads(src, rows, d, packed);
        t = ist_plan_const_bytes(p, packed, count * sizeof *packed, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    }
    free(packed);
    return t;
}

static bool check(ist_plan *p, bool good, ist_tensor x, int tokens, int k, int d, const char *label) {
    if (ist_plan_status(p)) return false;
    if (good && tokens >= 1 && tokens <= IST_TWO_WAY_TOKENS && k >= COLUMNS && k <= IMAGE_MAX && k % COLUMNS == 0 &&
        d >= 4 && d <= HEAD_MAX && d % 4 == 0)
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: two-way attention of [%d,%d,%d,%d] with %d tokens, %d channels, %d per head",
                  label, x.n, x.h, x.w, x.c, tokens, k, d);
    return false;
}

bool ist_image_shares(const ist_plan *p) {
    return ist_cpu_row(p);
}

/* What kernels call `wanted`. */
static int wanted(ist_prompt_way only) {
    return ist_has(only.ways) ? only.way + 1 : 0;
}

/* Only rows that share know ways and plain columns. */
static bool may_choose(const ist_plan *p, ist_prompt_way only, bool plain) {
    return ist_image_shares(p) || !(ist_has(only.ways) || plain);
}

static bool check_fold(ist_plan *p, const ist_fold_job *job, const char *label) {
    ist_tensor x = job->x, add = job->add;
    const ist_head_fold *f = &job->fold;
    bool good = x.h == 1 && x.c % 2 == 0 && x.elem == IST_ELEM_T && may_choose(p, f->only, f->plain) &&
                !ist_two_way_halves(p, x.w, f->k) && (!f->relative || ist_image_shares(p)) &&
                (!ist_has(add) || (add.w == x.w && add.c == x.c && (add.n == 1 || add.n == x.n) && add.elem == x.elem));
    return check(p, good, x, x.w, f->k, f->d, label);
}

ist_tensor ist_op_fold_heads(ist_plan *p, ist_tensor x, ist_tensor add, const ist_head_fold *f, const char *label) {
    int tokens = x.w, k = f->k, d = f->d;
    bool added = ist_has(add);
    ist_fold_job job = {x, add, *f};
    if (!check_fold(p, &job, label)) return (ist_tensor){0};
    int columns = blocks_of(tokens) * COLUMNS;
    ist_fold_form form = f->plain ? IST_FOLD_PLAIN : f->columns ? IST_FOLD_COLUMNS : IST_FOLD_PANELS;
    ist_tensor y = form == IST_FOLD_PANELS ? ist_plan_tensor(p, x.n, k / COLUMNS, tokens * HEADS, COLUMNS, IST_ELEM_F32)
                                           : ist_plan_tensor(p, x.n, 1, (f->plain ? d : k) + 1, columns, IST_ELEM_F32);
    ist_defines defines = defines_of(p, k, tokens);
    if (ist_cpu_row(p)) {
        ist_fold_heads_cpu(p, &job, form, wanted(f->only), y, defines.text, label);
        return y;
    }
    ist_tensor w = head_const(p, f->w, x.c, d, label), b = head_const(p, f->b, 1, d, label);
    ist_tensor m = ist_plan_const(p, f->m, 1, 1, HEADS * d, k, IST_ELEM_F32, label);
    ist_tensor mb = head_const(p, f->mb, 1, d, label);
    ist_launch l = {.label = label,
                    .defines = defines.text,
                    .kernel = "fold_heads",
                    .dims = 3,
                    .global = {(size_t)group_items(p), HEADS, (size_t)x.n},
                    .local = {(size_t)group_items(p), 1, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(add), IST_IN(w), IST_IN(b), IST_IN(m), IST_IN(mb),
                             IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, d, (int)form),
                             IST_INT4(x.ld, x.c0, add.ld, add.c0), IST_INT4(added, added && add.n == 1, 0, 0),
                             IST_FLOAT(f->scale)},
                    .arg_count = 12,
                    .flops = 2.0 * x.n * tokens * HEADS * d * (x.c + k)};
    use_row(p, &l);
    ist_plan_launch(p, &l);
    return y;
}

/* ---- the image ---- */

/* {bias, gamma, beta} [3][k], zeros without an update. */
static ist_tensor norm_const(ist_plan *p, const ist_image_update *u, int k, const char *label) {
    float all[3 * IMAGE_MAX] = {0};
    size_t row = (size_t)k * sizeof(float);
    if (u) {
        memcpy(all, u->bias, row);
        memcpy(all + k, u->gamma, row);
        memcpy(all + 2 * k, u->beta, row);
    }
    return ist_plan_const(p, all, 1, 1, 3, k, IST_ELEM_F32, label);
}

static bool columns_fit(ist_tensor t, int prompts, int k, int tokens) {
    return t.n == prompts && t.w == k + 1 && t.c == blocks_of(tokens) * COLUMNS && t.elem == IST_ELEM_F32;
}

static bool halves_fit(ist_tensor t, int prompts, int k, int tokens) {
    return t.n == prompts && t.w == tokens * HEADS + 2 && t.c == k && t.elem == IST_ELEM_T && t.ld == k && t.c0 == 0;
}

static bool check_step(ist_plan *p, const ist_image_side *s, const ist_image_update *u, ist_tensor queries, int tokens,
                       const char *label) {
    int n = queries.n, k = s->x.c;
    bool halves = ist_two_way_halves(p, tokens, k);
    bool good = (halves ? halves_fit : columns_fit)(queries, n, k, tokens) && s->x.elem == IST_ELEM_T &&
                s->position.elem == IST_ELEM_T && s->position.c == k &&
                s->position.h * s->position.w == s->x.h * s->x.w &&
                (ist_has(s->map) ? ist_pixels(s->map) >= n : s->x.n >= n) && may_choose(p, s->only, false);
    int by = u && ist_image_shares(p) ? u->values.w / HEADS : tokens; /* of the update */
    good = good && blocks_of(by) == blocks_of(tokens) && (!u || !u->relative || ist_image_shares(p));
    if (good && u && halves)
        good = halves_fit(u->keys, n, k, tokens) && halves_fit(u->values, n, k, tokens);
    else if (good && u)
        good = columns_fit(u->keys, n, k, by) && u->values.n == n && u->values.w == by * HEADS &&
               u->values.h == k / COLUMNS && u->values.c == COLUMNS && u->values.elem == IST_ELEM_F32;
    return check(p, good, s->x, tokens, k, 4, label);
}

/* The CPU row does all in one launch: the image rows stay in the cache between update and reading. */
static void launch_cpu(ist_plan *p, const ist_two_way_step *s) {
    const ist_image_side *x = s->side;
    const ist_image_update *u = s->update;
    ist_tensor none = {0};
    ist_arg out = IST_IN(none);
    if (u) out = (ist_arg)IST_OUT(s->updated);
    int columns = u ? u->values.w : s->columns;
    ist_plan_launch(p,
                    &(ist_launch){.label = s->label,
                                  .op = "op/two_way_cpu",
                                  .isa = "isa/tile+isa/columns",
                                  .defines = s->defines.text,
                                  .kernel = "image_step",
                                  .dims = 2,
                                  .global = {(size_t)s->groups, (size_t)s->n},
                                  .local = {1, 1},
                                  .args = {out, IST_OUT(s->parts), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map),
                                           IST_IN(s->shift), IST_IN(u ? u->keys : none), IST_IN(u ? u->values : none),
                                           IST_IN(s->norm), IST_IN(s->queries), IST_IN(x->only.ways), IST_IN(s->limit),
                                           IST_INT8(s->length, s->groups, s->rows, columns, s->columns),
                                           IST_INT4(x->x.ld, x->x.c0, x->position.ld, x->position.c0),
                                           IST_INT4(u != NULL, ist_has(x->map), wanted(x->only), u && u->relative),
                                           IST_FLOAT(u ? u->eps : 0.0f)},
                                  .arg_count = 16,
                                  .flops = 4.0 * s->n * s->length * s->k *
                                           (s->columns + (u ? columns - (u->relative ? HEADS : 0) : 0)),
                                  .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * s->n * s->length * s->k * (u ? 3 : 2)});
}

static void launch_update(ist_plan *p, const ist_two_way_step *s, size_t items, int local) {
    const ist_image_side *x = s->side;
    const ist_image_update *u = s->update;
    ist_plan_launch(p, &(ist_launch){.label = s->label,
                                     .op = "op/two_way",
                                     .defines = s->defines.text,
                                     .kernel = "image_update",
                                     .dims = 2,
                                     .global = {(size_t)ist_div_up(s->length, local) * items, (size_t)s->n},
                                     .local = {items, 1},
                                     .args = {IST_OUT(s->updated), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map),
                                              IST_IN(s->shift), IST_IN(u->keys), IST_IN(u->values), IST_IN(s->norm),
                                              IST_IN(s->limit), IST_INT4(s->length, 0, 0, s->columns),
                                              IST_INT4(x->x.ld, x->x.c0, x->position.ld, x->position.c0),
                                              IST_INT4(ist_has(x->map), 0, 0, 0), IST_FLOAT(u->eps)},
                                     .arg_count = 13,
                                     .flops = 4.0 * s->n * s->length * s->columns * s->k});
}

static void launch_read(ist_plan *p, const ist_two_way_step *s, const ist_image_side *x, size_t items) {
    ist_plan_launch(p, &(ist_launch){.label = s->label,
                                     .op = "op/two_way",
                                     .defines = s->defines.text,
                                     .kernel = "image_read",
                                     .dims = 2,
                                     .global = {(size_t)s->groups * items, (size_t)s->n},
                                     .local = {items, 1},
                                     .args = {IST_OUT(s->parts), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map),
                                              IST_IN(s->shift), IST_IN(s->queries), IST_IN(s->limit),
                                              IST_INT4(s->length, s->groups, s->rows, s->columns),
                                              IST_INT4(x->x.ld, x->x.c0, x->position.ld, x->position.c0),
                                              IST_INT4(ist_has(x->map), 0, 0, 0)},
                                     .arg_count = 10,
                                     .flops = 4.0 * s->n * s->length * s->columns * s->k});
}

/* Image rows of a CPU's group, whole tiles: such that units get equal shares, since their runtimes hand out many groups
 * at once. */
static int cpu_group_rows(const ist_plan *p, int length) {
    int units = ist_plan_units(p), best = 0, least = INT_MAX;
    for (int rows = CPU_GROUP_STEP; rows <= CPU_GROUP_ROWS; rows += CPU_GROUP_STEP) {
        int share = ist_div_up(ist_div_up(length, rows), units) * rows;
        if (share <= least) best = rows, least = share;
    }
    return best;
}

ist_tensor ist_op_image_step(ist_plan *p, const ist_image_side *side, const ist_image_update *update,
                             ist_tensor queries, int tokens, ist_tensor *updated, const char *label) {
    if (ist_plan_status(p) || !check_step(p, side, update, queries, tokens, label)) return (ist_tensor){0};
    static const float zeros[IMAGE_MAX] = {0};
    bool cpu = ist_cpu_row(p), halves = ist_two_way_halves(p, tokens, side->x.c);
    int k = side->x.c, length = side->x.h * side->x.w;
    int rows = cpu ? cpu_group_rows(p, length) : halves ? MMA_GROUP_ROWS : ANY_GROUP_ROWS;
    ist_two_way_step s = {.side = side,
                          .update = update,
                          .queries = queries,
                          .limit = ist_plan_current_limit(p),
                          .n = queries.n,
                          .k = k,
                          .length = length,
                          .columns = tokens * HEADS,
                          .groups = ist_div_up(length, rows),
                          .rows = rows,
                          .defines = defines_of(p, k, tokens),
                          .label = label};
    if (update) *updated = s.updated = ist_plan_tensor(p, s.n, 1, length, k, IST_ELEM_T);
    if (halves) return ist_two_way_step_mma(p, &s, tokens);
    s.shift = ist_plan_const(p, side->shift ? side->shift : zeros, 1, 1, 1, k, IST_ELEM_F32, label);
    s.norm = norm_const(p, update, k, label);
    s.parts = ist_plan_tensor(p, s.n, s.groups, k + 2, queries.c, IST_ELEM_F32);
    if (cpu) {
        launch_cpu(p, &s);
        return s.parts;
    }
    ist_image_side changed = *side;
    size_t items = (size_t)group_items(p);
    if (update) {
        launch_update(p, &s, items, local_rows(p, tokens));
        changed = (ist_image_side){.x = s.updated, .position = side->position};
        s.shift = ist_plan_const(p, zeros, 1, 1, 1, k, IST_ELEM_F32, label);
    }
    launch_read(p, &s, &changed, items);
    return s.parts;
}

ist_tensor ist_op_image_merge(ist_plan *p, ist_tensor parts, int tokens, int k, int d, const float *w, const float *b,
                              ist_prompt_way only, const char *label) {
    bool halves = ist_two_way_halves(p, tokens, k);
    bool good = halves ? parts.w == 1 && parts.c == ist_two_way_part_floats(tokens, k)
                       : parts.w == k + 2 && parts.c == blocks_of(tokens) * COLUMNS;
    if (!check(p, good && may_choose(p, only, false), parts, tokens, k, d, label)) return (ist_tensor){0};
    if (halves) return ist_token_merge_alone(p, parts, tokens, &(ist_token_merge){k, d, w, b}, label);
    bool cpu = ist_cpu_row(p);
    ist_tensor y = ist_plan_tensor(p, parts.n, 1, tokens, HEADS * d, IST_ELEM_T);
    ist_tensor weights = head_const(p, w, k, d, label), bias = head_const(p, b, 1, d, label);
    ist_defines defines = defines_of(p, k, tokens);
    size_t n = (size_t)parts.n, columns = (size_t)tokens * HEADS;
    ist_arg queue = IST_IN((ist_tensor){0});
    if (cpu) queue = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    ist_launch l = {.label = label,
                    .defines = defines.text,
                    .kernel = "image_merge",
                    .dims = cpu ? 1 : 3,
                    .global = {cpu ? (size_t)ist_plan_units(p) : COLUMNS, cpu ? 1 : columns, cpu ? 1 : n},
                    .local = {cpu ? 1 : COLUMNS, 1, 1},
                    .args = {IST_OUT(y), IST_IN(parts), IST_IN(weights), IST_IN(bias),
                             IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, parts.h, d, y.ld), IST_INT((int)n),
                             IST_IN(only.ways), IST_INT(wanted(only)), queue},
                    .arg_count = cpu ? 10 : 6,
                    .shares = cpu,
                    .flops = 2.0 * parts.n * tokens * HEADS * k * (parts.h + d)};
    use_row(p, &l);
    ist_plan_launch(p, &l);
    return y;
}
