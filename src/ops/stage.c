/* A stage of HGNetv2 in one launch: packs its weights as fragments and records it. */
#include "ops/stage.h"
#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 256, DEEP = IST_STAGE_DEEP, INPUTS = 32, OUTPUTS = 8, SCALES = 12, TAPS = 9 };

/* A kernel for stages of one shape. */
typedef struct stage_row {
    ist_stage_shape shape;
    const char *op;
    unsigned caps;
    int tile;           /* side of a group's part of the downsampled map */
    int parts;          /* warps that share a sum of a 3x3 layer: what the channels are divided by */
    int groups_of_unit; /* with more, what they compute twice costs more than the launches that they save */
    bool whole;         /* can store the stage's own result */
} stage_row;
static const stage_row rows[] = {
    {{16, 16, 32, 64}, "op/stage_mma", IST_CAP_PTX_MMA, 5, 1, 4, false},
    /* 191 KiB of local memory, as that probe asks for */
    {{64, 32, 128, 256}, "op/stage_wide_mma", IST_CAP_PTX_MMA | IST_CAP_PTX_WGMMA, 4, 2, 1, true},
};

static const stage_row *row_of(const ist_plan *p, ist_stage_shape s) {
    if (!ist_plan_half(p) || ist_cpu_row(p)) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!memcmp(&rows[i].shape, &s, sizeof s) && (ist_plan_caps(p) & rows[i].caps) == rows[i].caps) return &rows[i];
    return NULL;
}

static bool filter_is(const ist_filter *f, int out, int in, int k) {
    return f->out == out && f->in == in && f->kh == k && f->kw == k;
}

static bool layers_fit(ist_stage_shape s, const ist_stem_layer layers[IST_STAGE_LAYERS], const ist_filter *down) {
    for (int i = 0; i < DEEP; i++)
        if (!filter_is(&layers[i].f, s.deep, i ? s.deep : s.in, 3)) return false;
    return filter_is(&layers[DEEP].f, s.mix, s.in + DEEP * s.deep, 1) &&
           filter_is(&layers[DEEP + 1].f, s.out, s.mix, 1) && filter_is(down, s.out, 1, 3);
}

static int tiles_of(const stage_row *row, int side) {
    return ist_div_up(ist_div_up(side, 2), row->tile);
}

bool ist_stage_fits(const ist_plan *p, ist_stage_shape shape, int n, int h, int w) {
    const stage_row *row = row_of(p, shape);
    return row &&
           (double)n * tiles_of(row, h) * tiles_of(row, w) <= (double)row->groups_of_unit * ist_plan_units(p);
}

static bool suits(const stage_row *row, ist_tensor x, ist_tensor y, ist_tensor whole) {
    bool has = ist_has(whole), aligned = (x.ld | x.c0 | y.ld | y.c0 | (has ? whole.ld | whole.c0 : 0)) % 8 == 0;
    if (has && (!row->whole || whole.n != x.n || whole.h != x.h || whole.w != x.w || whole.c != row->shape.out ||
                whole.elem != IST_ELEM_T))
        return false;
    return x.elem == IST_ELEM_T && x.c == row->shape.in && aligned;
}

/* Appends fragments of a layer, [out][part][tap][in / parts], each part rounded up to whole steps. `room` has place for
 * all rows of one part. */
static float *pack_layer(const ist_filter *f, int parts, float *room, float *to) {
    int taps = f->kh * f->kw, own = f->in / parts, inputs = ist_div_up(own * taps, INPUTS) * INPUTS;
    for (int part = 0; part < parts; part++) {
        memset(room, 0, (size_t)inputs * (size_t)f->out * sizeof *room);
        for (int o = 0; o < f->out; o++)
            for (int i = 0; i < own; i++)
                for (int t = 0; t < taps; t++)
                    room[o * inputs + t * own + i] = f->w[(o * f->in + part * own + i) * taps + t];
        for (int k = 0; k < inputs; k += INPUTS)
            to = ist_fragments(room + k, f->out / OUTPUTS, 1, (size_t)inputs, false, to);
    }
    return to;
}

/* No layer has more weights than this, filled up. */
static size_t most_weights(const ist_filter *f) {
    return ((size_t)f->in * (size_t)f->kh * (size_t)f->kw + 2 * INPUTS) * (size_t)f->out;
}

static void pack_constants(const ist_stem_layer layers[IST_STAGE_LAYERS], const ist_filter *down, float *to) {
    float *bias = to + SCALES;
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        const ist_stem_layer *l = &layers[i];
        to[2 * i] = l->lab_scale;
        to[2 * i + 1] = l->lab_bias;
        if (l->f.b) memcpy(bias, l->f.b, (size_t)l->f.out * sizeof *bias);
        bias += l->f.out;
    }
    for (int o = 0; o < down->out; o++) {
        for (int t = 0; t < TAPS; t++) bias[t * down->out + o] = down->w[o * TAPS + t];
        if (down->b) bias[TAPS * down->out + o] = down->b[o];
    }
}

typedef struct packed {
    ist_tensor weights, constants;
} packed;

static bool pack(ist_plan *p, const stage_row *row, const ist_stem_layer layers[IST_STAGE_LAYERS],
                 const ist_filter *down, const char *label, packed *c) {
    ist_stage_shape s = row->shape;
    int count = SCALES + DEEP * s.deep + s.mix + s.out + (TAPS + 1) * s.out;
    size_t most = 0, all = 0;
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        size_t own = most_weights(&layers[i].f);
        all += own;
        most = own > most ? own : most;
    }
    float *w = malloc(all * sizeof *w), *to = w, *room = malloc(most * sizeof *room);
    float *constants = calloc((size_t)count, sizeof *constants);
    if (w && room && constants) {
        for (int i = 0; i < IST_STAGE_LAYERS; i++) to = pack_layer(&layers[i].f, i < DEEP ? row->parts : 1, room, to);
        pack_constants(layers, down, constants);
        c->weights = ist_plan_const(p, w, 1, 1, 1, (int)(to - w), IST_ELEM_T, label);
        c->constants = ist_plan_const(p, constants, 1, 1, 1, count, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, all);
    }
    free(w);
    free(room);
    free(constants);
    return !ist_plan_status(p);
}

static double flops_of(ist_stage_shape s, ist_tensor x, ist_tensor y) {
    double deep = (double)TAPS * s.deep * (s.in + (DEEP - 1) * s.deep);
    return 2.0 * ist_pixels(x) * (deep + (double)(s.in + DEEP * s.deep) * s.mix + (double)s.mix * s.out) +
           2.0 * ist_pixels(y) * TAPS * s.out;
}

static void launch(ist_plan *p, const stage_row *row, ist_tensor x, const packed *c, ist_tensor y, ist_tensor whole,
                   const char *label) {
    ist_defines d = ist_defines_of(p, "-DTILE=%d", row->tile);
    int across = tiles_of(row, x.w), own = ist_has(whole) ? whole.ld : 0;
    ist_launch l = {.label = label,
                    .op = row->op,
                    .isa = "isa/ptx",
                    .defines = d.text,
                    .kernel = "stage",
                    .dims = 2,
                    .global = {(size_t)across * (size_t)tiles_of(row, x.h) * ITEMS, (size_t)x.n},
                    .local = {ITEMS, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(c->weights), IST_IN(c->constants),
                             IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, x.ld, x.c0),
                             IST_INT8(y.n, y.h, y.w, y.ld, y.c0, across, own, whole.c0), IST_OUT(whole)},
                    .arg_count = row->whole ? 8 : 7,
                    .flops = flops_of(row->shape, x, y),
                    .bytes = 2.0 * ((double)ist_pixels(x) * (x.c + (own ? whole.c : 0)) + (double)ist_pixels(y) * y.c)};
    ist_plan_launch(p, &l);
}

ist_tensor ist_op_stage(ist_plan *p, ist_stage_shape shape, ist_tensor x, const ist_stem_layer layers[IST_STAGE_LAYERS],
                        ist_filter down, ist_tensor into, ist_tensor whole, const char *label) {
    ist_tensor none = {0},
               y = ist_plan_into(p, into, x.n, ist_div_up(x.h, 2), ist_div_up(x.w, 2), shape.out, IST_ELEM_T, label);
    packed c;
    if (ist_plan_status(p)) return none;
    const stage_row *row = row_of(p, shape);
    if (!row || !ist_stage_fits(p, shape, x.n, x.h, x.w) || !suits(row, x, y, whole) ||
        !layers_fit(shape, layers, &down)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: no fused stage for a map [%d,%d,%d,%d] and its layers", label, x.n, x.h,
                      x.w, x.c);
        return none;
    }
    if (!ist_plan_representable(p, down.w, (size_t)shape.out * TAPS, label) || !pack(p, row, layers, &down, label, &c))
        return none;
    launch(p, row, x, &c, y, whole, label);
    return ist_plan_status(p) ? none : y;
}
