/* Layer normalisation and D-FINE's gate. One source, op/norm, serves both machines: on CPUs a work-item per group of
 * rows, elsewhere 8 to 64 work-items of a group of 64 per row. */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <string.h>

enum { CHANNELS_MAX = 1024, GROUP = 64, GROUP_VALUES = 16384 };

/* Grid and options of a normalisation over `x`: sets sizes {pixels, c, rows per group} too. */
typedef struct grid {
    size_t global[3], local[3];
    int pixels, rows;
    bool cpu;
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
static grid grid_of(const ist_plan *p, ist_tensor x, int values, const ist_tensor others[3]) {
    grid g = {.pixels = x.h * x.w, .rows = 1, .local = {1, 1}};
    g.global[1] = (size_t)x.n;
    if (ist_cpu_row(p)) {
        g.rows = GROUP_VALUES / values < g.pixels ? GROUP_VALUES / values : g.pixels;
        g.global[0] = (size_t)ist_div_up(g.pixels, g.rows);
        g.cpu = true;
        g.defines = ist_defines_of(p, "-DWIDE");
        return g;
    }
    bool aligned = quads(x) && quads(others[0]) && quads(others[1]) && quads(others[2]);
    int width = x.c % 4 ? 1 : 4, vectors = x.c / width, lanes = lanes_of(g.pixels * x.n, vectors);
    g.fetched = aligned && width == 4;
    if (g.fetched)
        for (lanes = 8; lanes < GROUP / 2 && ist_div_up(vectors, lanes) > 8;) lanes *= 2;
    g.local[0] = GROUP;
    g.global[0] = ist_round_up((size_t)g.pixels * (size_t)lanes, GROUP);
    g.defines = ist_defines_of(p, "-DLANES=%d -DVW=%d -DPARTS=%d%s", lanes, width, ist_div_up(vectors, lanes),
                               aligned && width == 4 ? " -DALIGNED" : "");
    return g;
}

static bool check_channels(ist_plan *p, int c, const char *label) {
    if (ist_plan_status(p)) return false;
    if (c >= 1 && c <= CHANNELS_MAX) return true;
    ist_plan_fail(p, IST_E_LIMIT, "%s: normalisation over %d channels, the most is %d", label, c, CHANNELS_MAX);
    return false;
}

static bool same_pixels(ist_tensor a, ist_tensor b) {
    return a.h == b.h && a.w == b.w && a.c == b.c;
}

ist_tensor ist_op_layernorm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps,
                            const ist_norm_opts *opts, const char *label) {
    ist_norm_opts o = opts ? *opts : (ist_norm_opts){0};
    if (!check_channels(p, x.c, label)) return (ist_tensor){0};
    if (ist_has(o.add) && (!same_pixels(o.add, x) || (o.add.n != 1 && o.add.n != x.n))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] added to [%d,%d,%d,%d] before the normalisation", label,
                      o.add.n, o.add.h, o.add.w, o.add.c, x.n, x.h, x.w, x.c);
        return (ist_tensor){0};
    }
    ist_tensor out = ist_plan_into(p, o.into, x.n, x.h, x.w, x.c, IST_ELEM_T, label);
    if (ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_NORM,
                                         .out = {out},
                                         .rows = {x, o.add},
                                         .data = {gamma, beta},
                                         .sizes = {x.c, x.c},
                                         .floats = {eps, o.clamp},
                                         .ints = {(int)o.act}},
                       label))
        return out;
    ist_tensor g = ist_plan_const(p, gamma, 1, 1, 1, x.c, IST_ELEM_F32, label);
    ist_tensor b = ist_plan_const(p, beta, 1, 1, 1, x.c, IST_ELEM_F32, label);
    int add = !ist_has(o.add) ? 0 : o.add.n == x.n ? 1 : 2;
    grid at = grid_of(p, x, x.c, (ist_tensor[]){o.add, out, {0}});
    double bytes = (double)ist_pixels(x) * x.c * (add ? 3 : 2) * (ist_plan_half(p) ? 2 : 4);
    if (at.fetched) {
        size_t used = strlen(at.defines.text);
        snprintf(at.defines.text + used, sizeof at.defines.text - used, " -DFETCHED -DADD=%d -DACT=%d%s", add,
                 (int)o.act, o.clamp > 0 ? " -DCLAMPED" : "");
    }
    ist_arg queue = IST_IN((ist_tensor){0});
    if (at.cpu) queue = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    ist_plan_launch(
        p,
        &(ist_launch){.label = label,
                      .op = "op/norm",
                      .isa = at.fetched ? "isa/fetch" : NULL,
                      .defines = at.defines.text,
                      .kernel = at.fetched ? "layernorm_fetched" : "layernorm",
                      .dims = at.cpu ? 1 : 2,
                      .global = {at.cpu ? (size_t)ist_plan_units(p) : at.global[0], at.cpu ? 1 : at.global[1]},
                      .local = {at.local[0], at.local[1]},
                      .args = {IST_OUT(out), IST_IN(x), IST_IN(o.add), IST_IN(g), IST_IN(b),
                               IST_IN(ist_plan_current_limit(p)), IST_INT4(x.ld, o.add.ld, out.ld, 0),
                               IST_INT4(x.c0, o.add.c0, out.c0, 0), IST_INT4(at.pixels, x.c, at.rows, x.n),
                               IST_INT4(add, (int)o.act, 0, 0), IST_FLOAT4(eps, o.clamp, 1.0f / (float)x.c, 0), queue},
                      .arg_count = at.cpu ? 12 : 11,
                      .shares = at.cpu,
                      .bytes = bytes});
    return out;
}

ist_tensor ist_op_gate(ist_plan *p, ist_tensor g, ist_tensor x, ist_tensor y, const float *gamma, const float *beta,
                       const char *label) {
    if (!check_channels(p, x.c, label)) return (ist_tensor){0};
    if (g.c != 2 * x.c || !same_pixels(x, y) || g.h != x.h || g.w != x.w || g.n != x.n || y.n != x.n) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: gate [%d,%d,%d,%d] for [%d,%d,%d,%d] and [%d,%d,%d,%d]", label, g.n, g.h,
                      g.w, g.c, x.n, x.h, x.w, x.c, y.n, y.h, y.w, y.c);
        return (ist_tensor){0};
    }
    ist_tensor out = ist_plan_tensor(p, x.n, x.h, x.w, x.c, IST_ELEM_T);
    if (ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_GATE,
                                         .out = {out},
                                         .rows = {x, y, g},
                                         .data = {gamma, beta},
                                         .sizes = {x.c, x.c},
                                         .floats = {1e-5f}},
                       label))
        return out;
    ist_tensor ga = ist_plan_const(p, gamma, 1, 1, 1, x.c, IST_ELEM_F32, label);
    ist_tensor be = ist_plan_const(p, beta, 1, 1, 1, x.c, IST_ELEM_F32, label);
    grid at = grid_of(p, x, 4 * x.c, (ist_tensor[]){g, y, out});
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/norm",
                                     .defines = at.defines.text,
                                     .kernel = "gate",
                                     .dims = 2,
                                     .global = {at.global[0], at.global[1]},
                                     .local = {at.local[0], at.local[1]},
                                     .args = {IST_OUT(out), IST_IN(g), IST_IN(x), IST_IN(y), IST_IN(ga), IST_IN(be),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(g.ld, x.ld, y.ld, out.ld),
                                              IST_INT4(g.c0, x.c0, y.c0, out.c0), IST_INT4(at.pixels, x.c, at.rows, 0),
                                              IST_FLOAT(1e-5f)},
                                     .arg_count = 11,
                                     .bytes = (double)ist_pixels(x) * x.c * 5 * (ist_plan_half(p) ? 2 : 4)});
    return out;
}
