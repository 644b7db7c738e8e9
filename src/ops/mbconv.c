/* Inverted bottlenecks: the fused CPU rows op/mbconv_cpu and, with AMX, op/mbconv_amx (mbconv_amx.c), elsewhere three
 * convolutions, of which the last two are one launch on matrix instructions of warpgroups (mbconv_wgmma.c). */
#include "ops/mbconv_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

/* COLS: of a segment; at most RUN of op/mbconv_cpu, which keeps that many pixels in private memory. */
enum { TILE = 64, VEC = 16, PIXELS = 6, COLS = 64, HIDDEN_MAX = 256, GROUPS_PER_UNIT = 8, ROWS_MIN = 8 };

static bool matrix(const ist_filter *f) {
    return f->kh == 1 && f->kw == 1;
}

static bool check(ist_plan *p, ist_tensor x, const ist_mbconv *b, const char *label) {
    if (ist_plan_status(p)) return false;
    int hidden = b->expand.out;
    if (matrix(&b->expand) && matrix(&b->project) && b->expand.in == x.c && b->spread.out == hidden &&
        b->spread.in == 1 && b->spread.kh == 3 && b->spread.kw == 3 && b->project.in == hidden &&
        (b->stride == 1 || b->stride == 2) && (!b->residual || (b->stride == 1 && b->project.out == x.c)))
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: bottleneck %d -> %d -> %d, stride %d, on [%d,%d,%d,%d]", label, b->expand.in,
                  hidden, b->project.out, b->stride, x.n, x.h, x.w, x.c);
    return false;
}

static bool fused(const ist_plan *p, ist_tensor x, const ist_mbconv *b) {
    return ist_cpu_row(p) && x.elem == IST_ELEM_T && x.c % VEC == 0 && b->expand.out % TILE == 0 &&
           b->expand.out <= HIDDEN_MAX && b->project.out % TILE == 0;
}

/* ---- two or three launches ---- */

static ist_tensor in_steps(ist_plan *p, ist_tensor x, const ist_mbconv *b, const char *label) {
    ist_conv_opts expand = {.epi.act = IST_ACT_GELU}, project = {.epi.act = b->act};
    ist_conv_opts spread = {.epi.act = IST_ACT_GELU, .stride = b->stride, .top = 1, .left = 1, .bottom = 1, .right = 1};
    if (b->residual) project.epi.add_before = x;
    ist_tensor y = ist_op_linear(p, x, b->expand, &expand, label);
    if (!ist_plan_status(p) && ist_mbconv_takes_half(p, y, x, b)) return ist_mbconv_half(p, y, x, b, label);
    y = ist_op_dwconv(p, y, b->spread, &spread, label);
    return ist_op_linear(p, y, b->project, &project, label);
}

/* ---- one launch ---- */

/* A matrix [out][in] as [out / panel][in][panel]. */
static void pack_matrix(const ist_filter *f, int panel, float *dst) {
    for (int o = 0; o < f->out; o += panel)
        for (int i = 0; i < f->in; i++)
            for (int k = 0; k < panel; k++) *dst++ = f->w[(size_t)(o + k) * (size_t)f->in + (size_t)i];
}

/* [c][9] as [c / 16][9][16]. */
static void pack_spread(const ist_filter *f, float *dst) {
    for (int o = 0; o < f->out; o += VEC)
        for (int t = 0; t < 9; t++)
            for (int k = 0; k < VEC; k++) *dst++ = f->w[(o + k) * 9 + t];
}

ist_tensor ist_mbconv_pack(ist_plan *p, const ist_filter *f, const char *label) {
    size_t count = (size_t)f->out * (size_t)f->in * (size_t)(f->kh * f->kw);
    float *w = malloc(count * sizeof *w);
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    if (matrix(f))
        pack_matrix(f, ist_panel_columns(p), w);
    else
        pack_spread(f, w);
    t = ist_plan_const_bytes(p, w, count * sizeof *w, label);
    free(w);
    return t;
}

ist_tensor ist_mbconv_bias(ist_plan *p, const ist_filter *f, const char *label) {
    float *zeros = f->b ? NULL : calloc((size_t)f->out, sizeof *zeros);
    ist_tensor t = {0};
    if (f->b || zeros)
        t = ist_plan_const(p, f->b ? f->b : zeros, 1, 1, 1, f->out, IST_ELEM_F32, label);
    else
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d biases", label, f->out);
    free(zeros);
    return t;
}

int ist_mbconv_bands(const ist_plan *p, int rows, int segments, int groups_per_unit) {
    int bands = ist_div_up(groups_per_unit * ist_plan_units(p), segments), most = rows / ROWS_MIN;
    if (bands > most) bands = most > 1 ? most : 1;
    return bands;
}

static ist_tensor in_one(ist_plan *p, ist_tensor x, const ist_mbconv *b, ist_alike *alike, const char *label) {
    int hidden = b->expand.out, s = b->stride, h = (x.h - 1) / s + 1, w = (x.w - 1) / s + 1;
    int cols = w < COLS ? w : COLS, segments = ist_div_up(w, cols);
    int bands = ist_mbconv_bands(p, h, segments * x.n, GROUPS_PER_UNIT);
    int pieces = segments * bands, units = ist_plan_units(p), length = (cols - 1) * s + 3;
    ist_tensor y = ist_plan_tensor(p, x.n, h, w, b->project.out, IST_ELEM_T);
    *alike = ist_alike_behind(*alike, x.h, s);
    ist_tensor scratch = ist_plan_tensor(p, units, 3, length + (PIXELS - 1) * s, hidden, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DCIN=%d -DHIDDEN=%d -DCOUT=%d -DSTRIDE=%d -DACT=%d -DPANEL=%d", x.c, hidden,
                                   b->project.out, s, (int)b->act, ist_panel_columns(p));
    double in = (double)ist_pixels(x), out = (double)ist_pixels(y);
    ist_launch l = {
        .label = label,
        .op = "op/mbconv_cpu",
        .isa = "isa/tile+isa/alike",
        .defines = d.text,
        .kernel = "mbconv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(ist_mbconv_pack(p, &b->expand, label)),
                 IST_IN(ist_mbconv_bias(p, &b->expand, label)), IST_IN(ist_mbconv_pack(p, &b->spread, label)),
                 IST_IN(ist_mbconv_bias(p, &b->spread, label)), IST_IN(ist_mbconv_pack(p, &b->project, label)),
                 IST_IN(ist_mbconv_bias(p, &b->project, label)), IST_IN(ist_plan_current_limit(p)),
                 IST_IN(alike->content), IST_INT8(x.h, x.w, x.ld, x.c0, length, cols, bands, segments),
                 IST_INT8(x.n, h, w, y.ld, y.c0, b->residual, pieces, ist_plan_work_turn(p)), ist_alike_ints(*alike, h),
                 IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 15,
        .flops = 2.0 * hidden * (in * x.c + out * 9 + out * y.c),
        .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * (in * x.c + out * y.c)};
    ist_plan_launch(p, &l);
    return ist_plan_status(p) ? (ist_tensor){0} : y;
}

ist_tensor ist_op_mbconv(ist_plan *p, ist_tensor x, const ist_mbconv *b, ist_alike *alike, const char *label) {
    if (!check(p, x, b, label)) return (ist_tensor){0};
    if (ist_mbconv_takes_amx(p, x, b)) return ist_mbconv_amx(p, x, b, alike, label);
    if (fused(p, x, b)) return in_one(p, x, b, alike, label);
    *alike = (ist_alike){0};
    return in_steps(p, x, b, label);
}
