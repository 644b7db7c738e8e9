/* HGNetv2's stem as one launch on CPUs: five layers' lines go through rings in a core's cache (cl/cpu/stem). */
#include "variants/cpu/stem_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { SCALES = 16 }; /* floats in front of the weights: scale and shift of the five layers */

/* Floats of scratch for a group: see the rings in the kernel. */
static size_t room(ist_tensor image, int m) {
    size_t w = (size_t)image.w / 2, mid = (size_t)m;
    return 3 * ((size_t)image.w * 3 + 16) + 3 * (w + 1) * mid + 2 * (w + 2) * (mid / 2) + 3 * (w + 1) * 2 * mid +
           w / 2 * mid;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_stem *q = node;
    ist_tensor image = q->image;
    int m = q->layers[0].f.out;
    (void)p, (void)v;
    return (m == 16 || m == 24 || m == 32) && image.c == 3 && image.elem == IST_ELEM_T && image.ld == 3 && !image.c0 &&
           image.h >= 64 && image.w >= 64 && image.h % 32 == 0 && image.w % 32 == 0 && q->layers[4].f.out % 16 == 0;
}

/* ---- weights ---- */

static float weight(const ist_filter *f, int o, int i, int y, int x) {
    return o < f->out
               ? f->w[(((size_t)o * (size_t)f->in + (size_t)i) * (size_t)f->kh + (size_t)y) * (size_t)f->kw + (size_t)x]
               : 0.0f;
}

/* [ky][kx][in][lane], then the bias. */
static float *pack_plain(const ist_filter *f, int first, int lanes, float *dst) {
    for (int y = 0; y < f->kh; y++)
        for (int x = 0; x < f->kw; x++)
            for (int i = 0; i < f->in; i++)
                for (int o = 0; o < lanes; o++) *dst++ = weight(f, first + o, i, y, x);
    return dst;
}

static float *pack_bias(const ist_filter *f, int lanes, float *dst) {
    for (int o = 0; o < lanes; o++) *dst++ = f->b && o < f->out ? f->b[o] : 0.0f;
    return dst;
}

/* [ky][in][left column's 8 outputs, right column's]; the bias belongs to the left. */
static float *pack_columns(const ist_filter *f, float *dst) {
    for (int y = 0; y < 2; y++)
        for (int i = 0; i < f->in; i++)
            for (int lane = 0; lane < 16; lane++) *dst++ = weight(f, lane % 8, i, y, lane / 8);
    return pack_bias(f, 16, dst);
}

static ist_tensor pack(ist_plan *p, const ist_stem_layer layers[5], const char *label) {
    int m = layers[0].f.out, lanes = m > 16 ? 32 : 16, out = layers[4].f.out;
    size_t count =
        SCALES + (size_t)(27 + 20 * m + 3) * (size_t)lanes + (size_t)(4 * m + 1) * 16 + (size_t)(m + 1) * (size_t)out;
    float *all = calloc(count, sizeof *all), *dst = all + SCALES;
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return (ist_tensor){0};
    }
    for (int l = 0; l < 5; l++) {
        all[2 * l] = layers[l].lab_scale;
        all[2 * l + 1] = layers[l].lab_bias;
    }
    dst = pack_bias(&layers[0].f, lanes, pack_plain(&layers[0].f, 0, lanes, dst));
    if (m == 16)
        dst = pack_columns(&layers[1].f, dst);
    else
        dst = pack_bias(&layers[1].f, 16, pack_plain(&layers[1].f, 0, 16, dst));
    dst = pack_bias(&layers[2].f, lanes, pack_plain(&layers[2].f, 0, lanes, dst));
    dst = pack_bias(&layers[3].f, lanes, pack_plain(&layers[3].f, 0, lanes, dst));
    for (int j = 0; j < out; j += 16) dst = pack_plain(&layers[4].f, j, 16, dst);
    pack_bias(&layers[4].f, out, dst);
    ist_tensor packed = ist_plan_const_bytes(p, all, count * sizeof *all, label);
    free(all);
    return packed;
}

/* ---- launch ---- */

/* Output lines of an item of work: few, since a unit takes them one below the other, so that only what it takes from
 * another's share at the end makes lines twice. */
enum { BAND = 4 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_stem *q = node;
    ist_tensor image = q->image, y = q->y, packed = pack(p, q->layers, q->label);
    int m = q->layers[0].f.out, bands = ist_div_up(y.h, BAND), floats = (int)ist_round_up(room(image, m), 32);
    ist_tensor scratch = ist_plan_tensor(p, 1, 1, ist_plan_units(p), floats, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(p, "-DVL=16 -DM=%d -DROOM=%d", m, floats);
    const ist_cpu_stem_args by_value = {.items = image.n,
                                        .x_h = image.h,
                                        .x_w = image.w,
                                        .y_ld = y.ld,
                                        .y_c0 = y.c0,
                                        .y_c = y.c,
                                        .band_lines = BAND,
                                        .bands = bands};
    double elem = ist_plan_half(p) ? 2 : 4;
    (void)v, (void)way;
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "cpu/stem",
                                     .isa = "portable/vector",
                                     .defines = defines.text,
                                     .kernel = "stem",
                                     .dims = 1,
                                     .global = {(size_t)ist_plan_units(p)},
                                     .local = {1},
                                     .args = {IST_IN(image), IST_IN(packed), IST_OUT(scratch), IST_OUT(y),
                                              IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(cpu_stem_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
                                     .arg_count = 7,
                                     .shares = true,
                                     .flops = 2 * ist_multiply_adds(IST_NODE_STEM, q),
                                     .bytes = elem * (ist_pixels(image) * 3.0 + (double)ist_pixels(y) * y.c)});
}

const ist_family ist_cpu_stem = {.takes = takes, .emit = emit};
