/* Patch embedding in one launch on CPUs with wide vectors: see cl/op/patch_cpu.cl. */
#include "ops/patch_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

/* As in the kernel. */
enum { COLORS = 3, MID = 32, OUT = 64, TAPS = 9, ROWS = 6, RUN = 11, FIRST = 12, BLOCK = 5 * MID, TILE = ROWS * OUT };
enum { VEC = 16, AHEAD = 16, PARTS = (TAPS * COLORS + 1) * MID + 2 * TILE, FLOATS = PARTS + 25 * MID * OUT };

/* bfloat16 keeps its two convolutions, which have rows of their own. */
bool ist_patch_takes_cpu(const ist_plan *p, ist_tensor image, const ist_filter *first, const ist_filter *second) {
    return ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_SIMD16) && !ist_plan_bf16(p) && image.elem == IST_ELEM_T &&
           image.ld == COLORS && !image.c0 && first->out == MID && second->out == OUT;
}

/* Taps of one direction that see a part of a block (or of five lines): the first or the last for differences, both
 * for what was subtracted, the middle one for what lies between. */
enum { BETWEEN = 3 };
static bool sees(int part, int tap) {
    return part == BETWEEN ? tap == 1 : part == 2 ? tap != 1 : tap == 2 * part;
}

/* The second filter where lines are `row` and columns `column`: [in][out]. */
static float *pack_seen(const ist_filter *f, int row, int column, float *to) {
    for (int i = 0; i < MID; i++)
        for (int o = 0; o < OUT; o++) {
            double sum = 0;
            for (int tap = 0; tap < TAPS; tap++)
                if (sees(row, tap / 3) && sees(column, tap % 3)) sum += (double)f->w[(o * MID + i) * TAPS + tap];
            *to++ = (float)(row == 1 ? -sum : sum);
        }
    return to;
}

static float *pack_columns(const ist_filter *f, int row, int column, float *to) {
    to = pack_seen(f, row, column, to);
    return column == 2 ? to : pack_seen(f, row, BETWEEN, to);
}

static float *pack_part(const ist_filter *f, int row, int column, float *to) {
    to = pack_columns(f, row, column, to);
    return row == 2 ? to : pack_columns(f, BETWEEN, column, to);
}

static void pack(const ist_filter *first, const ist_filter *second, float *to) {
    static const int parts[9][2] = {{2, 2}, {2, 0}, {2, 1}, {0, 2}, {1, 2}, {0, 0}, {0, 1}, {1, 0}, {1, 1}};
    for (int i = 0; i < TAPS * COLORS; i++)
        for (int o = 0; o < MID; o++) *to++ = first->w[(o * COLORS + i % COLORS) * TAPS + i / COLORS];
    for (int o = 0; o < MID; o++) *to++ = first->b ? first->b[o] : 0.0f;
    for (int i = 0; i < TILE; i++) *to++ = second->b ? second->b[i % OUT] : 0.0f;
    for (int i = 0; i < TILE; i++) *to++ = 0.0f;
    for (int i = 0; i < 9; i++) to = pack_part(second, parts[i][0], parts[i][1], to);
}

ist_tensor ist_patch_cpu(ist_plan *p, ist_tensor x, const ist_filter *first, const ist_filter *second, ist_alike *alike,
                         const char *label) {
    int mid_h = (x.h + 1) / 2, mid_w = (x.w + 1) / 2, h = (mid_h + 1) / 2, w = (mid_w + 1) / 2;
    int blocks = ist_div_up(w, 2), pairs = ist_div_up(h, 2), units = ist_plan_units(p);
    int line = (int)ist_round_up((size_t)(2 * FIRST * ist_div_up(blocks, FIRST / 4) * COLORS + AHEAD), VEC);
    int room = 3 * line + 6 * ist_div_up(blocks, ROWS) * ROWS * BLOCK + (5 * RUN + 1) * TILE;
    float *packed = malloc(FLOATS * sizeof *packed);
    ist_tensor none = {0}, y = ist_plan_tensor(p, x.n, h, w, OUT, IST_ELEM_T);
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, FLOATS);
        return none;
    }
    pack(first, second, packed);
    ist_tensor weights = ist_plan_const_bytes(p, packed, FLOATS * sizeof *packed, label);
    free(packed);
    room = (int)ist_round_up((size_t)room, 32);
    ist_tensor scratch = ist_plan_tensor(p, 1, 1, units, room, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DPANEL=64");
    *alike = ist_alike_behind(ist_alike_behind(*alike, x.h, 2), mid_h, 2);
    double middle = (double)x.n * mid_h * mid_w, out = (double)ist_pixels(y);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/patch_cpu",
                         .isa = "isa/tile+isa/alike",
                         .defines = d.text,
                         .kernel = "patch",
                         .dims = 1,
                         .global = {(size_t)units},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(weights),
                                  IST_IN(ist_plan_current_limit(p)), IST_IN(alike->content),
                                  IST_INT8(x.h, x.w, mid_h, mid_w, h, w, y.ld, y.c0), IST_INT4(x.n, pairs, room, line),
                                  ist_alike_ints(*alike, h), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 10,
                         .shares = true,
                         .flops = 2.0 * TAPS * MID * (middle * COLORS + out * OUT),
                         .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * ((double)ist_pixels(x) * COLORS + out * OUT)});
    return ist_plan_status(p) ? none : y;
}
