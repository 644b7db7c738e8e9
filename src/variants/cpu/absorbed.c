/* Absorbed projections on CPUs: folds and merges share out their work (cl/cpu/two_way_tokens); image rows stay in
 * the cache between an update and the reading behind it (cl/cpu/two_way). */
#include "variants/absorbed.h"
#include "variants/cpu/two_way_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

enum {
    HEADS = IST_TWO_WAY_HEADS,
    COLUMNS = IST_BLOCK_COLUMNS,
    SUB_ROWS = 96,     /* image rows in the second-level cache, whole tiles of the kernel */
    GROUP_MOST = 1056, /* most of those that a group takes: its part of the sums is little beside them */
    GROUP_STEP = 24,
    TILE_ROWS = 6,
    VEC = 16
};

static ist_defines defines_of(const ist_plan *p, int k, int tokens) {
    return ist_defines_of(p, "-DK=%d -DBLOCKS=%d -DSUB=%d", k, ist_blocks_of(tokens), SUB_ROWS);
}

/* Whole tiles: such that units get equal shares, since their runtimes hand out many groups at once. */
static int group_rows(const ist_plan *p, int length, int prompts) {
    int units = ist_plan_units(p), best = 0, least = INT_MAX;
    (void)prompts;
    for (int rows = GROUP_STEP; rows <= GROUP_MOST; rows += GROUP_STEP) {
        int share = ist_div_up(ist_div_up(length, rows), units) * rows;
        if (share <= least) best = rows, least = share;
    }
    return best;
}

/* ---- tokens ---- */

/* Where channel i of head h is among the 8 d of a token: so that vectors hold heads, or one head's channels. */
static int place(ist_fold_form form, int d, int h, int i) {
    return form == IST_FOLD_PANELS ? h * d + i : i * HEADS + h;
}

/* [8 d / 16][c][16] of w [8 d][c]. */
static void pack_inputs(const ist_head_fold *f, ist_fold_form form, int c, float *dst) {
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < f->d; i++) {
            int o = place(form, f->d, h, i);
            for (int r = 0; r < c; r++)
                dst[((size_t)(o / VEC) * (size_t)c + (size_t)r) * VEC + (size_t)(o % VEC)] =
                    f->w[(size_t)(h * f->d + i) * (size_t)c + (size_t)r];
        }
}

static void pack_bias(const ist_head_fold *f, ist_fold_form form, float *dst) {
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < f->d; i++) dst[place(form, f->d, h, i)] = f->b[h * f->d + i];
}

/* Panels: [k / 64][8 d][64] of m [8 d][k]. Columns: [k + 1][8 d], row k is mb. */
static void pack_outputs(const ist_head_fold *f, ist_fold_form form, float *dst) {
    int wide = HEADS * f->d;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < f->d; i++) {
            int from = h * f->d + i, o = place(form, f->d, h, i);
            for (int k = 0; k < f->k; k++)
                dst[form == IST_FOLD_PANELS ? (k / COLUMNS * wide + o) * COLUMNS + k % COLUMNS : k * wide + o] =
                    f->m[(size_t)from * (size_t)f->k + (size_t)k];
            if (form == IST_FOLD_COLUMNS && f->mb) dst[f->k * wide + o] = f->mb[from];
        }
}

static void fold(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_fold_job *job, ist_fold_form form,
                 ist_tensor y, const char *label) {
    const ist_head_fold *f = &job->fold;
    ist_tensor x = job->x, add = job->add, m = {0};
    bool plain = form == IST_FOLD_PLAIN;
    int wide = HEADS * f->d, rows = plain ? 0 : ist_div_up(f->k + 1, TILE_ROWS) * TILE_ROWS;
    size_t in = (size_t)wide * (size_t)x.c, out = (size_t)wide * (size_t)rows;
    float *packed = calloc(in + out + (size_t)wide, sizeof *packed);
    (void)kernels;
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, in + out);
        return;
    }
    pack_inputs(f, form, x.c, packed);
    if (!plain) pack_outputs(f, form, packed + in);
    pack_bias(f, form, packed + in + out);
    ist_tensor w = ist_plan_const_bytes(p, packed, in * sizeof *packed, label);
    if (!plain) m = ist_plan_const_bytes(p, packed + in, out * sizeof *packed, label);
    ist_tensor b = ist_plan_const_bytes(p, packed + in + out, (size_t)wide * sizeof *packed, label);
    free(packed);
    ist_defines defines = defines_of(p, f->k, x.w);
    const ist_cpu_fold_args by_value = {.fold = ist_fold_args_of(job, form),
                                        .prompts = x.n,
                                        .slices = plain ? 1 : f->k / COLUMNS,
                                        .wanted_way = ist_wanted_way(f->only),
                                        .from_last = f->relative};
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "cpu/two_way_tokens",
                                     .isa = "cpu/tile+cpu/two_way_columns",
                                     .defines = defines.text,
                                     .kernel = "fold_heads",
                                     .dims = 1,
                                     .global = {(size_t)ist_plan_units(p)},
                                     .local = {1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(add), IST_IN(w), IST_IN(b), IST_IN(m),
                                              IST_IN(ist_plan_current_limit(p)), IST_STRUCT(cpu_fold_args, &by_value),
                                              IST_IN(f->only.ways), IST_INOUT(ist_plan_work_queue(p))},
                                     .arg_count = 10,
                                     .shares = true,
                                     .flops = 2.0 * x.n * x.w * wide * (x.c + (plain ? 0 : f->k))});
}

/* ---- the image ---- */

static void step(ist_plan *p, const ist_absorbed_kernels *kernels, ist_image_step_job *s) {
    const ist_image_side *x = s->side;
    const ist_image_update *u = s->update;
    ist_tensor none = {0};
    ist_arg out = IST_IN(none);
    if (u) out = (ist_arg)IST_OUT(s->updated);
    int columns = u ? u->values.w : s->columns;
    ist_defines defines = defines_of(p, s->k, s->tokens);
    const ist_cpu_image_step_args by_value = {.image = ist_image_args_of(x, s->length),
                                              .groups = s->groups,
                                              .group_rows = s->rows,
                                              .with_update = u != NULL,
                                              .update_columns = columns,
                                              .read_columns = s->columns,
                                              .wanted_way = ist_wanted_way(x->only),
                                              .from_last = u && u->relative,
                                              .eps = u ? u->eps : 0.0f};
    (void)kernels;
    ist_plan_launch(
        p, &(ist_launch){
               .label = s->label,
               .op = "cpu/two_way",
               .isa = "cpu/tile+cpu/two_way_columns",
               .defines = defines.text,
               .kernel = "image_step",
               .dims = 2,
               .global = {(size_t)s->groups, (size_t)s->n},
               .local = {1, 1},
               .args = {out, IST_OUT(s->parts), IST_IN(x->x), IST_IN(x->position), IST_IN(x->map), IST_IN(s->shift),
                        IST_IN(u ? u->keys : none), IST_IN(u ? u->values : none), IST_IN(s->norm), IST_IN(s->queries),
                        IST_IN(x->only.ways), IST_IN(s->limit), IST_STRUCT(cpu_image_step_args, &by_value)},
               .arg_count = 13,
               .flops = 4.0 * s->n * s->length * s->k * (s->columns + (u ? columns - (u->relative ? HEADS : 0) : 0)),
               .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * s->n * s->length * s->k * (u ? 3 : 2)});
}

static void merge(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_merge_job *job, ist_tensor y,
                  const char *label) {
    ist_tensor parts = job->parts;
    ist_tensor weights = ist_head_const(p, job->w, job->k, job->d, label);
    ist_tensor bias = ist_head_const(p, job->b, 1, job->d, label);
    ist_defines defines = defines_of(p, job->k, job->tokens);
    const ist_cpu_image_merge_args by_value = {
        .merge = {.tokens = job->tokens, .groups = parts.h, .d = job->d, .y_ld = y.ld},
        .prompts = parts.n,
        .wanted_way = ist_wanted_way(job->only)};
    (void)kernels;
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "cpu/two_way_tokens",
                         .isa = "cpu/tile+cpu/two_way_columns",
                         .defines = defines.text,
                         .kernel = "image_merge",
                         .dims = 1,
                         .global = {(size_t)ist_plan_units(p)},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(parts), IST_IN(weights), IST_IN(bias),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(cpu_image_merge_args, &by_value),
                                  IST_IN(job->only.ways), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 8,
                         .shares = true,
                         .flops = 2.0 * parts.n * job->tokens * HEADS * job->k * (parts.h + job->d)});
}

const ist_absorbed_kernels ist_cpu_absorbed = {true, 1, group_rows, fold, step, merge};
