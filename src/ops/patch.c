/* Patch embedding: the rows of one launch, op/patch_mma and, on CPUs, op/patch_cpu (patch_cpu.c), or two
 * convolutions. */
#include "ops/patch_rows.h"

#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { COLORS = 3, MID = 32, OUT = 64, TAPS = 9, ITEMS = 256, HIGH = 8, WIDE = 16 };

static bool takes(const ist_plan *p, ist_tensor image, const ist_filter *first, const ist_filter *second) {
    return !ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && image.elem == IST_ELEM_T &&
           image.c == COLORS && first->out == MID && second->out == OUT;
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

static ist_tensor in_one(ist_plan *p, ist_tensor x, const ist_filter *first, const ist_filter *second,
                         const char *label) {
    int mid_h = (x.h + 1) / 2, mid_w = (x.w + 1) / 2, h = (mid_h + 1) / 2, w = (mid_w + 1) / 2;
    int across = ist_div_up(w, WIDE), counts[2] = {MID * 32, OUT * MID * TAPS};
    float bias[MID + OUT] = {0}, *packed = malloc((size_t)(counts[0] + counts[1]) * sizeof *packed);
    ist_tensor none = {0}, y = ist_plan_tensor(p, x.n, h, w, OUT, IST_ELEM_T);
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, counts[0] + counts[1]);
        return none;
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
    double middle = (double)x.n * mid_h * mid_w, out = (double)ist_pixels(y);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/patch_mma",
                                     .isa = "isa/ptx",
                                     .defines = d.text,
                                     .kernel = "patch",
                                     .dims = 2,
                                     .global = {(size_t)(across * ist_div_up(h, HIGH)) * ITEMS, (size_t)x.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(w1), IST_IN(w2), IST_IN(shift),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, h, w),
                                              IST_INT4(mid_h, mid_w, across, 0), IST_INT4(x.ld, x.c0, y.ld, y.c0)},
                                     .arg_count = 9,
                                     .flops = 2.0 * TAPS * MID * (middle * COLORS + out * OUT),
                                     .bytes = 2.0 * ((double)ist_pixels(x) * COLORS + out * OUT)});
    return ist_plan_status(p) ? none : y;
}

ist_tensor ist_op_patch_embed(ist_plan *p, ist_tensor image, ist_filter first, ist_filter second, ist_alike *alike,
                              const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    if (first.in != image.c || second.in != first.out || first.kh != 3 || first.kw != 3 || second.kh != 3 ||
        second.kw != 3) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d -> %d -> %d on [%d,%d,%d,%d]", label, first.in, first.out, second.out,
                      image.n, image.h, image.w, image.c);
        return none;
    }
    if (ist_patch_takes_cpu(p, image, &first, &second)) return ist_patch_cpu(p, image, &first, &second, alike, label);
    *alike = (ist_alike){0};
    if (takes(p, image, &first, &second)) return in_one(p, image, &first, &second, label);
    ist_conv_opts gelu = {.epi.act = IST_ACT_GELU, .stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1};
    ist_conv_opts plain = {.stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1};
    image = ist_op_conv(p, image, first, &gelu, label);
    return ist_op_conv(p, image, second, &plain, label);
}
