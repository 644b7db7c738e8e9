/* Folds of tokens on CPUs: packs weights in the order in which op/two_way_tokens_cpu's fold_heads reads them, and
 * records. */
#include "ops/two_way_rows.h"

#include "base/mem.h"

#include <stdlib.h>

enum { TILE_ROWS = 6, VEC = 16 };

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

void ist_fold_heads_cpu(ist_plan *p, const ist_fold_job *job, ist_fold_form form, int wanted, ist_tensor y,
                        const char *defines, const char *label) {
    const ist_head_fold *f = &job->fold;
    ist_tensor x = job->x, add = job->add, m = {0};
    bool added = ist_has(add), plain = form == IST_FOLD_PLAIN;
    int wide = HEADS * f->d, rows = plain ? 0 : ist_div_up(f->k + 1, TILE_ROWS) * TILE_ROWS;
    size_t in = (size_t)wide * (size_t)x.c, out = (size_t)wide * (size_t)rows;
    float *packed = calloc(in + out + (size_t)wide, sizeof *packed);
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
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/two_way_tokens_cpu",
                         .isa = "isa/tile+isa/columns",
                         .defines = defines,
                         .kernel = "fold_heads",
                         .dims = 1,
                         .global = {(size_t)ist_plan_units(p)},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(add), IST_IN(w), IST_IN(b), IST_IN(m),
                                  IST_IN(ist_plan_current_limit(p)),
                                  IST_INT8(x.w, x.c, f->d, (int)form, x.n, plain ? 1 : f->k / COLUMNS, 0, 0),
                                  IST_INT4(x.ld, x.c0, add.ld, add.c0),
                                  IST_INT4(added, added && add.n == 1, wanted, f->relative), IST_FLOAT(f->scale),
                                  IST_IN(f->only.ways), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 13,
                         .shares = true,
                         .flops = 2.0 * x.n * x.w * wide * (x.c + (plain ? 0 : f->k))});
}
