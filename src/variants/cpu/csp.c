/* CSP blocks of few channels as one launch: lanes are pixels, so that vectors are full (cl/cpu/csp). */
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

/* The numbers of the kernel. */
enum { GROUP = 7, VEC = 16, VECTORS = 3, STEP = 48, LINES_MIN = 8, WIDTH_MIN = 8 };

/* Channels between one vector and two, which would be half empty. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_csp *b = node;
    int c = b->last.out;
    (void)p, (void)v;
    return b->x.elem == IST_ELEM_T && c > VEC && c < 2 * VEC && ist_div_up(2 * c, VEC) == VECTORS &&
           b->x.w >= WIDTH_MIN;
}

/* [in][out of whole vectors], then the bias. */
static float *pack_first(const ist_filter *f, float *dst) {
    int wide = (int)ist_round_up((size_t)f->out, VEC);
    for (int i = 0; i < f->in; i++)
        for (int o = 0; o < wide; o++) *dst++ = o < f->out ? f->w[(size_t)o * (size_t)f->in + (size_t)i] : 0.0f;
    for (int o = 0; o < wide; o++) *dst++ = f->b && o < f->out ? f->b[o] : 0.0f;
    return dst;
}

/* [group][in][tap][GROUP], then the bias. */
static float *pack_later(const ist_filter *f, float *dst) {
    int all = (int)ist_round_up((size_t)f->out, GROUP);
    for (int first = 0; first < all; first += GROUP)
        for (int i = 0; i < f->in; i++)
            for (int t = 0; t < 9; t++)
                for (int o = first; o < first + GROUP; o++)
                    *dst++ = o < f->out ? f->w[((size_t)o * (size_t)f->in + (size_t)i) * 9 + (size_t)t] : 0.0f;
    for (int o = 0; o < all; o++) *dst++ = f->b && o < f->out ? f->b[o] : 0.0f;
    return dst;
}

static ist_tensor packed(ist_plan *p, const ist_csp *b, const char *label) {
    size_t c = (size_t)b->last.out, wide = ist_round_up(2 * c, VEC), all = ist_round_up(c, GROUP);
    size_t count = ((size_t)b->first.in + 1) * wide + (size_t)(b->necks + 1) * all * (9 * c + 1);
    float *w = malloc(count * sizeof *w);
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    float *dst = pack_first(&b->first, w);
    for (int i = 0; i < b->necks; i++) dst = pack_later(&b->neck[i], dst);
    pack_later(&b->last, dst);
    t = ist_plan_const_bytes(p, w, count * sizeof *w, label);
    free(w);
    return t;
}

/* Bands of an item: one for each compute unit, if there are lines enough that those made twice cost little. */
static int bands_of(ist_tensor x, int units) {
    int bands = ist_div_up(units, x.n), most = x.h / LINES_MIN;
    if (bands > most) bands = most;
    return bands > 1 ? bands : 1;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_csp *b = node;
    const char *label = b->label;
    ist_tensor x = b->x, y = b->y;
    (void)v, (void)way;
    int units = ist_plan_units(p), c = b->last.out, wide = VECTORS * VEC;
    int bands = bands_of(x, units), lines = ist_div_up(x.h, bands) + 2 * b->necks + 2;
    /* an odd number of vectors, so that planes do not meet in the same sets of a cache */
    int size = ((lines * (x.w + 1) + 2 * STEP) / VEC | 1) * VEC;
    ist_tensor scratch = ist_plan_tensor(p, 1, units, wide + c, size, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DC=%d", c);
    ist_launch l = {.label = label,
                    .op = "cpu/csp",
                    .isa = "cpu/tile",
                    .defines = d.text,
                    .kernel = "csp",
                    .dims = 1,
                    .global = {(size_t)units},
                    .local = {1},
                    .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(packed(p, b, label)),
                             IST_IN(ist_plan_current_limit(p)), IST_INT8(x.h, x.w, x.ld, x.c0, x.c, 0, 0, 0),
                             IST_INT8(x.n, y.ld, y.c0, b->necks, bands, ist_plan_work_turn(p), size, 0),
                             IST_INOUT(ist_plan_work_queue(p))},
                    .arg_count = 8,
                    .shares = true,
                    .flops = 2.0 * ist_pixels(x) * c * (2.0 * x.c + 9.0 * (b->necks + 1) * c),
                    .bytes = 4.0 * ist_pixels(x) * (x.c + c)};
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_csp = {.takes = takes, .emit = emit};
