/* Layer normalisation and D-FINE's gate. One source, op/norm, serves both machines: on CPUs a work-item per group of
 * rows, elsewhere a group of 64 work-items per row. */
#include "ops/ops.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { CHANNELS_MAX = 1024, LANES = 64, GROUP_VALUES = 16384 };

/* Grid of a normalisation over `x`: sets sizes {pixels, c, rows per group} too. */
typedef struct grid {
    size_t global[3], local[3];
    int pixels, rows;
} grid;

static grid grid_of(const ist_plan *p, ist_tensor x, int c) {
    grid g = {.pixels = x.h * x.w, .rows = 1};
    bool wide = ist_cpu_row(p);
    if (wide) g.rows = GROUP_VALUES / c < g.pixels ? GROUP_VALUES / c : g.pixels;
    g.global[0] = (size_t)ist_div_up(g.pixels, g.rows) * (wide ? 1 : LANES);
    g.global[1] = (size_t)x.n;
    g.local[0] = wide ? 1 : LANES;
    g.local[1] = 1;
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
    ist_tensor g = ist_plan_const(p, gamma, 1, 1, 1, x.c, IST_ELEM_F32, label);
    ist_tensor b = ist_plan_const(p, beta, 1, 1, 1, x.c, IST_ELEM_F32, label);
    int add = !ist_has(o.add) ? 0 : o.add.n == x.n ? 1 : 2;
    grid at = grid_of(p, x, x.c);
    ist_defines d = ist_defines_of(p, "%s", ist_cpu_row(p) ? "-DWIDE" : "");
    double bytes = (double)ist_pixels(x) * x.c * (add ? 3 : 2) * (ist_plan_half(p) ? 2 : 4);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/norm",
                                     .defines = d.text,
                                     .kernel = "layernorm",
                                     .dims = 2,
                                     .global = {at.global[0], at.global[1]},
                                     .local = {at.local[0], at.local[1]},
                                     .args = {IST_OUT(out), IST_IN(x), IST_IN(o.add), IST_IN(g), IST_IN(b),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.ld, o.add.ld, out.ld, 0),
                                              IST_INT4(x.c0, o.add.c0, out.c0, 0), IST_INT4(at.pixels, x.c, at.rows, 0),
                                              IST_INT4(add, (int)o.act, 0, 0), IST_FLOAT4(eps, o.clamp, 0, 0)},
                                     .arg_count = 11,
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
    ist_tensor ga = ist_plan_const(p, gamma, 1, 1, 1, x.c, IST_ELEM_F32, label);
    ist_tensor be = ist_plan_const(p, beta, 1, 1, 1, x.c, IST_ELEM_F32, label);
    grid at = grid_of(p, x, 4 * x.c);
    ist_defines d = ist_defines_of(p, "%s", ist_cpu_row(p) ? "-DWIDE" : "");
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/norm",
                                     .defines = d.text,
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
