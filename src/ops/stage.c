/* HGNetv2's first stage in one launch: packs its weights as fragments and records it. */
#include "ops/stage.h"
#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of cl/op/stage_mma.cl. */
enum { TILE = 5, ITEMS = 256, DEEP = IST_STAGE_DEEP, IN = IST_STAGE_IN, MIX = IST_STAGE_MIX, OUT = IST_STAGE_OUT };
enum { INPUTS = 32, OUTPUTS = 8, SCALES = 12, TAPS = 9, LINE = 10 * IN /* a 3x3 layer's inputs in whole steps */ };
enum { WEIGHTS = DEEP * LINE * IN + (DEEP + 1) * IN * MIX + MIX * OUT };
enum { CONSTANTS = SCALES + DEEP * IN + MIX + OUT + (TAPS + 1) * OUT };

static bool filter_is(const ist_filter *f, int out, int in, int k) {
    return f->out == out && f->in == in && f->kh == k && f->kw == k;
}

static bool layers_fit(const ist_stem_layer layers[IST_STAGE_LAYERS], const ist_filter *down) {
    for (int i = 0; i < DEEP; i++)
        if (!filter_is(&layers[i].f, IN, IN, 3)) return false;
    return filter_is(&layers[DEEP].f, MIX, (DEEP + 1) * IN, 1) && filter_is(&layers[DEEP + 1].f, OUT, MIX, 1) &&
           filter_is(down, OUT, 1, 3);
}

static int tiles_of(int side) {
    return ist_div_up(ist_div_up(side, 2), TILE);
}

/* With more groups, what they compute twice costs more than the launches that they save. */
bool ist_stage_fits(const ist_plan *p, int n, int h, int w) {
    enum { GROUPS_OF_UNIT = 4 };
    return (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && !ist_cpu_row(p) &&
           (double)n * tiles_of(h) * tiles_of(w) <= (double)GROUPS_OF_UNIT * ist_plan_units(p);
}

static bool check(ist_plan *p, ist_tensor x, ist_tensor y, const ist_stem_layer layers[IST_STAGE_LAYERS],
                  const ist_filter *down, const char *label) {
    if (ist_plan_status(p)) return false;
    bool aligned = (x.ld | x.c0 | y.ld | y.c0) % 8 == 0;
    if (ist_stage_fits(p, x.n, x.h, x.w) && x.elem == IST_ELEM_T && x.c == IN && aligned && layers_fit(layers, down))
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: no fused stage for a map [%d,%d,%d,%d] and its layers", label, x.n, x.h, x.w,
                  x.c);
    return false;
}

/* Fragments of a layer, [out][tap][in] rounded up to `inputs`; room has OUT * LINE floats. */
static float *pack_layer(const ist_filter *f, int inputs, float *room, float *to) {
    int taps = f->kh * f->kw;
    memset(room, 0, (size_t)inputs * (size_t)f->out * sizeof *room);
    for (int o = 0; o < f->out; o++)
        for (int i = 0; i < f->in; i++)
            for (int t = 0; t < taps; t++) room[o * inputs + t * f->in + i] = f->w[(o * f->in + i) * taps + t];
    for (int k = 0; k < inputs; k += INPUTS)
        to = ist_fragments(room + k, f->out / OUTPUTS, 1, (size_t)inputs, false, to);
    return to;
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
    for (int o = 0; o < OUT; o++) {
        for (int t = 0; t < TAPS; t++) bias[t * OUT + o] = down->w[o * TAPS + t];
        if (down->b) bias[TAPS * OUT + o] = down->b[o];
    }
}

typedef struct packed {
    ist_tensor weights, constants;
} packed;

static bool pack(ist_plan *p, const ist_stem_layer layers[IST_STAGE_LAYERS], const ist_filter *down, const char *label,
                 packed *c) {
    float *w = malloc(WEIGHTS * sizeof *w), *to = w, *room = malloc((size_t)OUT * LINE * sizeof *room);
    float *constants = calloc(CONSTANTS, sizeof *constants);
    if (w && room && constants) {
        for (int i = 0; i < DEEP; i++) to = pack_layer(&layers[i].f, LINE, room, to);
        to = pack_layer(&layers[DEEP].f, (DEEP + 1) * IN, room, to);
        pack_layer(&layers[DEEP + 1].f, MIX, room, to);
        pack_constants(layers, down, constants);
        c->weights = ist_plan_const(p, w, 1, 1, 1, WEIGHTS, IST_ELEM_T, label);
        c->constants = ist_plan_const(p, constants, 1, 1, 1, CONSTANTS, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, (int)WEIGHTS);
    }
    free(w);
    free(room);
    free(constants);
    return !ist_plan_status(p);
}

ist_tensor ist_op_stage(ist_plan *p, ist_tensor x, const ist_stem_layer layers[IST_STAGE_LAYERS], ist_filter down,
                        ist_tensor into, const char *label) {
    ist_tensor none = {0},
               y = ist_plan_into(p, into, x.n, ist_div_up(x.h, 2), ist_div_up(x.w, 2), OUT, IST_ELEM_T, label);
    packed c;
    if (!check(p, x, y, layers, &down, label)) return none;
    if (!ist_plan_representable(p, down.w, (size_t)OUT * TAPS, label) || !pack(p, layers, &down, label, &c))
        return none;
    ist_defines d = ist_defines_of(p, "-DTILE=%d", (int)TILE);
    int across = tiles_of(x.w);
    ist_launch l = {.label = label,
                    .op = "op/stage_mma",
                    .isa = "isa/ptx",
                    .defines = d.text,
                    .kernel = "stage",
                    .dims = 2,
                    .global = {(size_t)across * (size_t)tiles_of(x.h) * ITEMS, (size_t)x.n},
                    .local = {ITEMS, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(c.weights), IST_IN(c.constants),
                             IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, x.ld, x.c0),
                             IST_INT8(y.n, y.h, y.w, y.ld, y.c0, across, 0, 0)},
                    .arg_count = 7,
                    .flops = 2.0 * ist_pixels(x) * (DEEP * TAPS * IN * IN + (DEEP + 1) * IN * MIX + MIX * OUT) +
                             2.0 * ist_pixels(y) * TAPS * OUT,
                    .bytes = 2.0 * ((double)ist_pixels(x) * IN + (double)ist_pixels(y) * OUT)};
    ist_plan_launch(p, &l);
    return ist_plan_status(p) ? none : y;
}
