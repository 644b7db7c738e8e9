/* Separable convolutions in one launch on matrix instructions, of warps or of warpgroups (cl/nvidia/separable). */
#include "variants/fragments.h"
#include "variants/nvidia/separable_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Inputs of a step and columns of a fragment (the kernel). */
enum { STEP = 64, FRAGMENT_ROWS = 32, FRAGMENT = 8, ITEMS = 256 };

/* Output pixels of a group for a filter: with the windows' borders somewhat less than 128 pixels. */
typedef struct shape {
    int k, stride, tile_h, tile_w, cols;
} shape;
static const shape shapes[] = {{5, 1, 5, 10, 5}, {3, 2, 5, 5, 5}, {3, 1, 6, 14, 7}};

/* Channels of a group, widest first, and its warps. */
typedef struct width {
    int bn, warps_m, warps_n, stages;
} width;
static const width widths[] = {{64, 4, 2, 3}, {48, 4, 2, 4}, {32, 4, 2, 4}, {24, 8, 1, 4}, {16, 8, 1, 4}};

static const shape *shape_of(const ist_filter *depth, const ist_conv_opts *o) {
    int stride = o->stride ? o->stride : 1;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].k == depth->kh && shapes[i].k == depth->kw && shapes[i].stride == stride) return &shapes[i];
    return NULL;
}

static int tiles_of(const shape *s, int oh, int ow) {
    return ist_div_up(oh, s->tile_h) * ist_div_up(ow, s->tile_w);
}

static bool by_warpgroups(const ist_variant *v) {
    return v->needs & IST_CAP_PTX_WGMMA;
}

/* The widest that still gives most compute units a group, else the narrowest that divides the channels; none where no
 * width does. */
static const width *width_of(const ist_plan *p, int mid, int tiles) {
    int units = ist_plan_units(p);
    const width *best = NULL;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (mid % widths[i].bn) continue;
        best = &widths[i];
        if (4 * tiles * (mid / widths[i].bn) >= 3 * units) break;
    }
    return best;
}

/* Few groups: with more, what they compute twice costs more than a launch and the way through global memory. */
static bool few_groups(const ist_plan *p, const ist_separable *q, const shape *s) {
    enum { GROUPS_OF_UNIT = 2 };
    int units = ist_plan_units(p), mid = q->point.out, tiles = q->x.n * tiles_of(s, q->y.h, q->y.w);
    const width *v = width_of(p, mid, tiles);
    return v && (double)tiles * (mid / v->bn) <= (double)GROUPS_OF_UNIT * units;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_separable *q = node;
    const ist_conv_opts *o = &q->o;
    ist_tensor x = q->x, y = q->y;
    const shape *s = shape_of(&q->depth, o);
    (void)v;
    if (!s || x.elem != IST_ELEM_T || y.elem != IST_ELEM_T) return false;
    bool parts = x.c % 8 == 0 && x.ld % 8 == 0 && x.c0 % 8 == 0 && q->point.out % 16 == 0;
    bool pairs = y.ld % 2 == 0 && y.c0 % 2 == 0;
    return parts && pairs && !ist_has(o->epi.add_before) && !ist_has(o->epi.add_after) && few_groups(p, q, s);
}

typedef struct packed {
    ist_tensor weights, depth;
} packed;

/* Weights of `mid` outputs with `in` inputs each, as fragments, or for warpgroups as tiles of `bn` outputs. */
static void pack_point(const float *w, size_t mid, size_t in, size_t bn, bool tiles, float *to) {
    if (!tiles) {
        for (size_t k = 0; k < in; k += FRAGMENT_ROWS) to = ist_fragments(w + k, (int)mid / FRAGMENT, 1, in, false, to);
        return;
    }
    for (size_t o = 0; o < mid; o++)
        for (size_t k = 0; k < in; k++)
            to[(o / bn * (in / STEP) + k / STEP) * bn * STEP +
               (size_t)ist_group_tile_at((int)(o % bn), (int)(k % STEP))] = w[o * in + k];
}

/* Weights of the 1x1 convolution; for each block of `bn` channels its bias, the taps, their bias. */
static bool pack(ist_plan *p, ist_filter point, ist_filter depth, int bn, bool tiles, const char *label, packed *out) {
    size_t in = ist_round_up((size_t)point.in, STEP), mid = (size_t)point.out,
           taps = (size_t)depth.kh * (size_t)depth.kw;
    float *w = calloc(mid * in, sizeof *w), *turned = malloc(mid * in * sizeof *turned);
    float *d = calloc(mid * (taps + 2), sizeof *d);
    if (w && turned && d) {
        for (size_t o = 0; o < mid; o++)
            memcpy(w + o * in, point.w + o * (size_t)point.in, (size_t)point.in * sizeof *w);
        pack_point(w, mid, in, (size_t)bn, tiles, turned);
        for (size_t o = 0; o < mid; o++) {
            float *at = d + o / (size_t)bn * (size_t)bn * (taps + 2) + o % (size_t)bn;
            at[0] = point.b ? point.b[o] : 0.0f;
            for (size_t t = 0; t < taps; t++) at[(t + 1) * (size_t)bn] = depth.w[o * taps + t];
            at[(taps + 1) * (size_t)bn] = depth.b ? depth.b[o] : 0.0f;
        }
        out->weights = ist_plan_const(p, turned, 1, 1, (int)mid, (int)in, IST_ELEM_T, label);
        out->depth = ist_plan_const_bytes(p, d, mid * (taps + 2) * sizeof *d, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d x %d weights", label, point.out, point.in);
    }
    free(w);
    free(turned);
    free(d);
    return !ist_plan_status(p);
}

static ist_separable_args args_of(const ist_separable *q, const shape *s) {
    const ist_conv_opts *o = &q->o;
    return (ist_separable_args){.x_h = q->x.h,
                                .x_w = q->x.w,
                                .x_ld = q->x.ld,
                                .x_c0 = q->x.c0,
                                .x_c = q->x.c,
                                .top = o->top,
                                .left = o->left,
                                .items = q->y.n,
                                .y_h = q->y.h,
                                .y_w = q->y.w,
                                .y_ld = q->y.ld,
                                .y_c0 = q->y.c0,
                                .steps = ist_div_up(q->x.c, STEP),
                                .blocks = q->point.out / FRAGMENT,
                                .across = ist_div_up(q->y.w, s->tile_w),
                                .has_lab = o->epi.has_lab,
                                .lab_scale = o->epi.lab_scale,
                                .lab_bias = o->epi.lab_bias};
}

/* Outputs in a line that a work-item makes, of two channels: as few as leave each of a group's at most one piece. */
static int cols_of(const shape *s, const width *v) {
    for (int cols = 1; cols < s->cols; cols++)
        if (s->tile_w % cols == 0 && s->tile_h * (s->tile_w / cols) * (v->bn / 2) <= ITEMS) return cols;
    return s->cols;
}

static void emit(ist_plan *p, const ist_variant *variant, void *node, int way) {
    const ist_separable *q = node;
    const ist_conv_opts *o = &q->o;
    const char *label = q->label;
    ist_tensor x = q->x, y = q->y;
    const shape *s = shape_of(&q->depth, o);
    int oh = y.h, ow = y.w, mid = q->point.out;
    packed c;
    const bool groups = by_warpgroups(variant);
    (void)way;
    const width *v = width_of(p, mid, x.n * tiles_of(s, oh, ow));
    /* Warpgroups wait less with one step more on its way, for which a unit's only group has room. */
    const bool alone = x.n * tiles_of(s, oh, ow) * (mid / v->bn) <= ist_plan_units(p);
    const int stages = groups && alone && v->stages == 3 ? 4 : v->stages;
    size_t taps = (size_t)s->k * (size_t)s->k;
    if (!ist_plan_representable(p, q->depth.w, (size_t)mid * taps, label) ||
        !pack(p, q->point, q->depth, v->bn, groups, label, &c))
        return;
    ist_defines defines = ist_defines_of(
        p,
        "-DTILE_H=%d -DTILE_W=%d -DK=%d -DSTRIDE=%d -DCOLS=%d -DBN=%d -DWM=%d -DWN=%d -DSTAGES=%d -DAHEAD=%d -DACT=%d",
        s->tile_h, s->tile_w, s->k, s->stride, cols_of(s, v), v->bn, groups ? ITEMS / 32 : v->warps_m,
        groups ? 1 : v->warps_n, stages, stages - 2, (int)o->epi.act);
    if (groups) ist_defines_add(&defines, " -DWARPGROUPS");
    const ist_separable_args by_value = args_of(q, s);
    double out = (double)ist_pixels(y) * mid;
    ist_launch l = {.label = label,
                    .op = "nvidia/separable",
                    .isa = groups ? "nvidia/ptx+nvidia/wgmma" : "nvidia/ptx",
                    .defines = defines.text,
                    .kernel = "separable",
                    .dims = 3,
                    .global = {(size_t)(mid / v->bn) * ITEMS, (size_t)tiles_of(s, oh, ow), (size_t)x.n},
                    .local = {ITEMS, 1, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(c.weights), IST_IN(c.depth),
                             IST_IN(ist_plan_current_limit(p)), IST_STRUCT(separable_args, &by_value)},
                    .arg_count = 6,
                    .flops = 2.0 * ist_pixels(x) * mid * x.c + 2.0 * out * s->k * s->k,
                    .bytes = 2.0 * ((double)ist_pixels(x) * x.c + out + (double)mid * x.c)};
    ist_plan_launch(p, &l);
}

const ist_family ist_nvidia_separable = {.takes = takes, .emit = emit};
