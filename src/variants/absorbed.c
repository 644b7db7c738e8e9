/* Attention with absorbed projections: checks, and what the kernels of all machines share. See absorbed.h. */
#include "variants/absorbed.h"
#include "variants/defines.h"
#include "variants/portable/prompt_args.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = IST_TWO_WAY_HEADS, COLUMNS = IST_BLOCK_COLUMNS };

static bool check(ist_plan *p, bool good, ist_tensor x, int tokens, int k, int d, const char *label) {
    if (ist_plan_status(p)) return false;
    if (good && tokens >= 1 && tokens <= IST_TWO_WAY_TOKENS && k >= COLUMNS && k <= IST_IMAGE_CHANNELS &&
        k % COLUMNS == 0 && d >= 4 && d <= IST_HEAD_CHANNELS && d % 4 == 0)
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: two-way attention of [%d,%d,%d,%d] with %d tokens, %d channels, %d per head",
                  label, x.n, x.h, x.w, x.c, tokens, k, d);
    return false;
}

/* ---- tokens ---- */

static void pack_heads(const float *src, int rows, int d, float *dst) {
    int d16 = ist_div_up(d, 16) * 16;
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < d; i++)
                dst[((size_t)h * (size_t)rows + (size_t)r) * (size_t)d16 + (size_t)i] =
                    src[((size_t)h * (size_t)d + (size_t)i) * (size_t)rows + (size_t)r];
}

ist_tensor ist_head_const(ist_plan *p, const float *src, int rows, int d, const char *label) {
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

static bool check_fold(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_fold_job *job, const char *label) {
    ist_tensor x = job->x, add = job->add;
    const ist_head_fold *f = &job->fold;
    bool good = x.h == 1 && x.c % 2 == 0 && x.elem == IST_ELEM_T &&
                (kernels->shares || !(ist_has(f->only.ways) || f->plain || f->relative)) &&
                (!ist_has(add) || (add.w == x.w && add.c == x.c && (add.n == 1 || add.n == x.n) && add.elem == x.elem));
    return check(p, good, x, x.w, f->k, f->d, label);
}

ist_tensor ist_fold_heads(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_fold_job *job,
                          const char *label) {
    const ist_head_fold *f = &job->fold;
    ist_tensor x = job->x, y;
    if (!check_fold(p, kernels, job, label)) return (ist_tensor){0};
    ist_fold_form form = f->plain ? IST_FOLD_PLAIN : f->columns ? IST_FOLD_COLUMNS : IST_FOLD_PANELS;
    if (form == IST_FOLD_PANELS)
        y = ist_plan_tensor(p, x.n, f->k / COLUMNS, x.w * HEADS, COLUMNS, IST_ELEM_F32);
    else
        y = ist_plan_tensor(p, x.n, 1, (f->plain ? f->d : f->k) + 1, ist_blocks_of(x.w) * COLUMNS, IST_ELEM_F32);
    kernels->fold(p, kernels, job, form, y, label);
    return y;
}

ist_fold_args ist_fold_args_of(const ist_fold_job *job, ist_fold_form form) {
    ist_tensor x = job->x, add = job->add;
    bool added = ist_has(add);
    return (ist_fold_args){.tokens = x.w,
                           .x_c = x.c,
                           .x_ld = x.ld,
                           .x_c0 = x.c0,
                           .added = added,
                           .add_once = added && add.n == 1,
                           .add_ld = add.ld,
                           .add_c0 = add.c0,
                           .d = job->fold.d,
                           .form = (int)form,
                           .scale = job->fold.scale};
}

void ist_hide_tokens(ist_plan *p, const char *op, ist_tensor columns, int entries, ist_tensor counts,
                     const char *label) {
    if (ist_plan_status(p)) return;
    ist_defines defines = ist_defines_of(p, "%s", "");
    const ist_hide_tokens_args by_value = {.rows = columns.w, .width = columns.c, .heads = HEADS};
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = op,
                                     .defines = defines.text,
                                     .kernel = "hide_tokens",
                                     .dims = 2,
                                     .global = {(size_t)entries, (size_t)columns.n},
                                     .local = {HEADS, 1},
                                     .args = {IST_INOUT(columns), IST_IN(counts), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(hide_tokens_args, &by_value)},
                                     .arg_count = 4});
}

/* ---- the image ---- */

ist_image_side_args ist_image_args_of(const ist_image_side *image, int length) {
    return (ist_image_side_args){.length = length,
                                 .x_ld = image->x.ld,
                                 .x_c0 = image->x.c0,
                                 .position_ld = image->position.ld,
                                 .position_c0 = image->position.c0,
                                 .mapped = ist_has(image->map)};
}

/* {bias, gamma, beta} [3][k], zeros without an update. */
static ist_tensor norm_const(ist_plan *p, const ist_image_update *u, int k, const char *label) {
    float all[3 * IST_IMAGE_CHANNELS] = {0};
    size_t row = (size_t)k * sizeof(float);
    if (u) {
        memcpy(all, u->bias, row);
        memcpy(all + k, u->gamma, row);
        memcpy(all + 2 * k, u->beta, row);
    }
    return ist_plan_const(p, all, 1, 1, 3, k, IST_ELEM_F32, label);
}

static bool columns_fit(ist_tensor t, int prompts, int k, int tokens) {
    return t.n == prompts && t.w == k + 1 && t.c == ist_blocks_of(tokens) * COLUMNS && t.elem == IST_ELEM_F32;
}

static bool check_step(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_image_side *s,
                       const ist_image_update *u, ist_tensor queries, int tokens, const char *label) {
    int n = queries.n, k = s->x.c, by = u && kernels->shares ? u->values.w / HEADS : tokens; /* of the update */
    bool good = columns_fit(queries, n, k, tokens) && s->x.elem == IST_ELEM_T && s->position.elem == IST_ELEM_T &&
                s->position.c == k && s->position.h * s->position.w == s->x.h * s->x.w &&
                (ist_has(s->map) ? ist_pixels(s->map) >= n : s->x.n >= n) &&
                (kernels->shares || !ist_has(s->only.ways)) && ist_blocks_of(by) == ist_blocks_of(tokens) &&
                (!u || !u->relative || kernels->shares);
    if (good && u)
        good = columns_fit(u->keys, n, k, by) && u->values.n == n && u->values.w == by * HEADS &&
               u->values.h == k / COLUMNS && u->values.c == COLUMNS && u->values.elem == IST_ELEM_F32;
    return check(p, good, s->x, tokens, k, 4, label);
}

ist_tensor ist_image_step(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_image_side *side,
                          const ist_image_update *update, ist_tensor queries, int tokens, ist_tensor *updated,
                          const char *label) {
    static const float zeros[IST_IMAGE_CHANNELS] = {0};
    if (ist_plan_status(p) || !check_step(p, kernels, side, update, queries, tokens, label)) return (ist_tensor){0};
    int k = side->x.c, length = side->x.h * side->x.w, rows = kernels->group_rows(p, length, queries.n);
    ist_image_step_job s = {.side = side,
                            .update = update,
                            .queries = queries,
                            .limit = ist_plan_current_limit(p),
                            .n = queries.n,
                            .k = k,
                            .length = length,
                            .tokens = tokens,
                            .columns = tokens * HEADS,
                            .groups = ist_div_up(length, rows),
                            .rows = rows,
                            .label = label};
    if (update) *updated = s.updated = ist_plan_tensor(p, s.n, 1, length, k, IST_ELEM_T);
    s.shift = ist_plan_const(p, side->shift ? side->shift : zeros, 1, 1, 1, k, IST_ELEM_F32, label);
    s.norm = norm_const(p, update, k, label);
    s.parts = ist_plan_tensor(p, s.n, s.groups, k + 2, queries.c, IST_ELEM_F32);
    kernels->step(p, kernels, &s);
    return s.parts;
}

ist_tensor ist_image_merge(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_merge_job *job,
                           const char *label) {
    ist_tensor parts = job->parts;
    bool good = parts.w == job->k + 2 && parts.c == ist_blocks_of(job->tokens) * COLUMNS &&
                (kernels->shares || !ist_has(job->only.ways));
    if (!check(p, good, parts, job->tokens, job->k, job->d, label)) return (ist_tensor){0};
    ist_tensor y = ist_plan_tensor(p, parts.n, 1, job->tokens, HEADS * job->d, IST_ELEM_T);
    kernels->merge(p, kernels, job, y, label);
    return y;
}
