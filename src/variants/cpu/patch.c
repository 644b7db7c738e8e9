/* Patch embedding as one launch on CPUs with wide vectors (cl/cpu/patch). */
#include "variants/padding_reuse.h"
#include "variants/cpu/patch_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

/* As in the kernel. */
enum { COLORS = 3, MID = 32, OUT = 64, TAPS = 9, ROWS = 6, RUN = 11, FIRST = 12, BLOCK = 5 * MID, TILE = ROWS * OUT };
enum { VEC = 16, AHEAD = 16, PARTS = (TAPS * COLORS + 1) * MID + 2 * TILE, FLOATS = PARTS + 25 * MID * OUT };

/* bfloat16 keeps its two convolutions, which have variants of their own. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_patch_embed *q = node;
    ist_tensor image = q->image;
    (void)v;
    return !ist_plan_bf16(p) && image.elem == IST_ELEM_T && image.ld == COLORS && !image.c0 && q->first.out == MID &&
           q->second.out == OUT && q->first.in == COLORS;
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

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_patch_embed *q = node;
    const ist_filter *first = &q->first, *second = &q->second;
    const char *label = q->label;
    ist_tensor x = q->image, y = q->y;
    ist_padding_reuse *reuse = &q->reuse;
    int mid_h = (x.h + 1) / 2, mid_w = (x.w + 1) / 2, h = y.h, w = y.w;
    (void)v, (void)way;
    int blocks = ist_div_up(w, 2), pairs = ist_div_up(h, 2), units = ist_plan_units(p);
    int line = (int)ist_round_up((size_t)(2 * FIRST * ist_div_up(blocks, FIRST / 4) * COLORS + AHEAD), VEC);
    int room = 3 * line + 6 * ist_div_up(blocks, ROWS) * ROWS * BLOCK + (5 * RUN + 1) * TILE;
    float *packed = malloc(FLOATS * sizeof *packed);
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, FLOATS);
        return;
    }
    pack(first, second, packed);
    ist_tensor weights = ist_plan_const_bytes(p, packed, FLOATS * sizeof *packed, label);
    free(packed);
    room = (int)ist_round_up((size_t)room, 32);
    ist_tensor scratch = ist_plan_tensor(p, 1, 1, units, room, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DPANEL=64");
    *reuse = ist_padding_reuse_behind(ist_padding_reuse_behind(*reuse, x.h, 2), mid_h, 2);
    const ist_cpu_patch_args by_value = {.x_h = x.h,
                                         .x_w = x.w,
                                         .mid_h = mid_h,
                                         .mid_w = mid_w,
                                         .items = x.n,
                                         .y_h = h,
                                         .y_w = w,
                                         .y_ld = y.ld,
                                         .y_c0 = y.c0,
                                         .pairs = pairs,
                                         .group_room = room,
                                         .line_room = line,
                                         .same = ist_padding_reuse_args_of(*reuse, h)};
    double middle = (double)x.n * mid_h * mid_w, out = (double)ist_pixels(y);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "cpu/patch",
                         .isa = "cpu/tile+cpu/repeated_rows",
                         .defines = d.text,
                         .kernel = "patch",
                         .dims = 1,
                         .global = {(size_t)units},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(weights),
                                  IST_IN(ist_plan_current_limit(p)), IST_IN(reuse->content),
                                  IST_STRUCT(cpu_patch_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 8,
                         .shares = true,
                         .flops = 2.0 * TAPS * MID * (middle * COLORS + out * OUT),
                         .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * ((double)ist_pixels(x) * COLORS + out * OUT)});
}

const ist_family ist_cpu_patch = {.takes = takes, .emit = emit, .rows = IST_REPEATS_MADE};
