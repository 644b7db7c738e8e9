/* Layer normalisation and D-FINE's gate: 8 to 64 work-items of a group of 64 for each pixel (cl/portable/norm). */
#include "variants/norm.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64, EPS_GATE_DIGITS = 5 };

/* Grid and options of a normalisation over `x`. */
typedef struct grid {
    size_t global, local;
    bool fetched; /* fours of channels: the kernel whose loads come first */
    ist_defines defines;
} grid;

static bool quads(ist_tensor t) {
    return !ist_has(t) || (t.ld | t.c0) % 4 == 0;
}

/* Work-items per pixel: few for many pixels, so that each has several loads under way; `vectors` per pixel in all. */
static int lanes_of(int pixels, int vectors) {
    int lanes = 8;
    while (lanes < GROUP && (ist_div_up(vectors, lanes) > 8 || (pixels * lanes < 65536 && lanes < vectors))) lanes *= 2;
    return lanes;
}

/* `others`: the tensors beside x that are read or written four channels at a time. */
static grid grid_of(const ist_plan *p, ist_tensor x, const ist_tensor others[3]) {
    bool aligned = quads(x) && quads(others[0]) && quads(others[1]) && quads(others[2]);
    int pixels = x.h * x.w, width = x.c % 4 ? 1 : 4, vectors = x.c / width, lanes = lanes_of(pixels * x.n, vectors);
    grid g = {.local = GROUP, .fetched = aligned && width == 4};
    if (g.fetched)
        for (lanes = 8; lanes < GROUP / 2 && ist_div_up(vectors, lanes) > 8;) lanes *= 2;
    g.global = ist_round_up((size_t)pixels * (size_t)lanes, GROUP);
    g.defines = ist_defines_of(p, "-DLANES=%d -DVW=%d -DPARTS=%d%s", lanes, width, ist_div_up(vectors, lanes),
                               aligned && width == 4 ? " -DALIGNED" : "");
    return g;
}

static void emit_norm(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_layer_norm *q = node;
    ist_tensor x = q->x, add = q->add, out = q->y;
    (void)v, (void)way;
    ist_tensor g = ist_plan_const(p, q->norm.gamma, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    ist_tensor b = ist_plan_const(p, q->norm.beta, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    const ist_layernorm_args by_value = ist_layernorm_args_of(q, 1);
    grid at = grid_of(p, x, (ist_tensor[]){add, out, {0}});
    if (at.fetched)
        ist_defines_add(&at.defines, " -DFETCHED -DADD=%d -DACT=%d%s", by_value.adds, by_value.act,
                        q->clamp > 0 ? " -DCLAMPED" : "");
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "portable/norm",
                         .isa = at.fetched ? "portable/fetch" : NULL,
                         .defines = at.defines.text,
                         .kernel = at.fetched ? "layernorm_fetched" : "layernorm",
                         .dims = 2,
                         .global = {at.global, (size_t)x.n},
                         .local = {at.local, 1},
                         .args = {IST_OUT(out), IST_IN(x), IST_IN(add), IST_IN(g), IST_IN(b),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(layernorm_args, &by_value)},
                         .arg_count = 7,
                         .bytes = (double)ist_pixels(x) * x.c * (by_value.adds ? 3 : 2) * (ist_plan_half(p) ? 2 : 4)});
}

const ist_family ist_portable_norm = {.emit = emit_norm, .rows = IST_REPEATS_POINTS};

static void emit_gate(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_gate *q = node;
    grid at = grid_of(p, q->a, (ist_tensor[]){q->g, q->b, q->y});
    (void)v, (void)way;
    ist_gate_launch(p, q,
                    &(ist_launch){.defines = at.defines.text,
                                  .global = {at.global, (size_t)q->a.n},
                                  .local = {at.local, 1}},
                    1);
}

const ist_family ist_portable_gate = {.emit = emit_gate};
