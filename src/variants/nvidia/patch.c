/* Patch embedding as one launch on matrix instructions (cl/nvidia/patch). */
#include "variants/fragments.h"
#include "variants/nvidia/patch_args.h"
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { COLORS = 3, MID = 32, OUT = 64, TAPS = 9, ITEMS = 256, HIGH = 8, WIDE = 16 };

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_patch_embed *q = node;
    (void)p, (void)v;
    return q->image.elem == IST_ELEM_T && q->image.c == COLORS && q->first.out == MID && q->second.out == OUT;
}

/* The first layer's window as rows of 32 values: nine of each line and one that is zero, and two zeros. */
static void pack_first(const ist_filter *f, float *to) {
    float rows[MID * 32] = {0};
    for (int o = 0; o < MID; o++)
        for (int i = 0; i < TAPS * COLORS; i++)
            rows[o * 32 + i / COLORS / 3 * 10 + i / COLORS % 3 * COLORS + i % COLORS] =
                f->w[(o * COLORS + i % COLORS) * TAPS + i / COLORS];
    for (int o = 0; o < MID; o += 8) to = ist_fragments(rows + o * 32, 1, 1, 32, false, to);
}

/* [OUT / 8][tap] fragments, columns in the order in which a work-item has eight channels in a row. */
static void pack_second(const ist_filter *f, float *to) {
    float tile[8 * MID];
    for (int o = 0; o < OUT; o += 8)
        for (int tap = 0; tap < TAPS; tap++) {
            for (int i = 0; i < 8 * MID; i++)
                tile[i] = f->w[(ist_place_channel(o + i / MID) * MID + i % MID) * TAPS + tap];
            to = ist_fragments(tile, 1, 1, MID, false, to);
        }
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_patch_embed *q = node;
    const ist_filter *first = &q->first, *second = &q->second;
    const char *label = q->label;
    ist_tensor x = q->image, y = q->y;
    int mid_h = (x.h + 1) / 2, mid_w = (x.w + 1) / 2, h = y.h, w = y.w;
    int across = ist_div_up(w, WIDE), counts[2] = {MID * 32, OUT * MID * TAPS};
    float bias[MID + OUT] = {0}, *packed = malloc((size_t)(counts[0] + counts[1]) * sizeof *packed);
    (void)v, (void)way;
    const ist_padding_reuse image = q->reuse;
    const ist_padding_reuse_args made = ist_padding_reuse_leave_out(
        &q->reuse, ist_padding_reuse_behind(ist_padding_reuse_behind(image, x.h, 2), mid_h, 2), h);
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, counts[0] + counts[1]);
        return;
    }
    pack_first(first, packed);
    pack_second(second, packed + counts[0]);
    if (first->b) memcpy(bias, first->b, MID * sizeof *bias);
    if (second->b) memcpy(bias + MID, second->b, OUT * sizeof *bias);
    ist_tensor w1 = ist_plan_const(p, packed, 1, 1, 1, counts[0], IST_ELEM_T, label);
    ist_tensor w2 = ist_plan_const(p, packed + counts[0], 1, 1, 1, counts[1], IST_ELEM_T, label);
    ist_tensor shift = ist_plan_const(p, bias, 1, 1, 1, MID + OUT, IST_ELEM_F32, label);
    free(packed);
    ist_defines d = ist_defines_of(p, "-DMID=%d -DCOUT=%d", MID, OUT);
    ist_padding_reuse_define(&d, &image);
    const ist_patch_mma_args by_value = {.x_h = x.h,
                                         .x_w = x.w,
                                         .x_ld = x.ld,
                                         .x_c0 = x.c0,
                                         .mid_h = mid_h,
                                         .mid_w = mid_w,
                                         .y_h = h,
                                         .y_w = w,
                                         .y_ld = y.ld,
                                         .y_c0 = y.c0,
                                         .across = across,
                                         .out = made};
    double middle = (double)x.n * mid_h * mid_w, out = (double)ist_pixels(y);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "nvidia/patch",
                                     .isa = "nvidia/ptx+portable/left_out",
                                     .defines = d.text,
                                     .kernel = "patch",
                                     .dims = 2,
                                     .global = {(size_t)(across * ist_div_up(h, HIGH)) * ITEMS, (size_t)x.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(w1), IST_IN(w2), IST_IN(shift),
                                              IST_IN(ist_plan_current_limit(p)), IST_IN(q->reuse.content),
                                              IST_STRUCT(patch_mma_args, &by_value)},
                                     .arg_count = 8,
                                     .flops = 2.0 * TAPS * MID * (middle * COLORS + out * OUT),
                                     .bytes = 2.0 * ((double)ist_pixels(x) * COLORS + out * OUT)});
}

const ist_family ist_nvidia_patch = {.takes = takes, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
