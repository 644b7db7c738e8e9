/* Inverted bottlenecks as one kernel that keeps its lines in a core's cache (cl/cpu/mbconv). */
#include "variants/padding_reuse.h"
#include "variants/cpu/mbconv.h"
#include "variants/cpu/weights.h"
#include "variants/defines.h"

#include "base/mem.h"

/* COLS: of a segment; at most RUN of the kernel, which keeps that many pixels in private memory. */
enum { TILE = 64, VEC = 16, PIXELS = 6, COLS = 64, HIDDEN_MAX = 256, GROUPS_PER_UNIT = 8 };

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_mbconv *b = node;
    (void)p, (void)v;
    return b->x.elem == IST_ELEM_T && b->x.c % VEC == 0 && b->expand.out % TILE == 0 && b->expand.out <= HIDDEN_MAX &&
           b->project.out % TILE == 0;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_mbconv *b = node;
    const char *label = b->label;
    ist_tensor x = b->x, y = b->y;
    int panel = ist_panel_of(v);
    (void)way;
    int hidden = b->expand.out, s = b->stride, h = y.h, w = y.w;
    int cols = w < COLS ? w : COLS, segments = ist_div_up(w, cols);
    int bands = ist_cpu_bands(p, h, segments * x.n, GROUPS_PER_UNIT);
    int units = ist_plan_units(p), length = (cols - 1) * s + 3;
    b->reuse = ist_padding_reuse_behind(b->reuse, x.h, s);
    ist_tensor scratch = ist_plan_tensor(p, units, 3, length + (PIXELS - 1) * s, hidden, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DCIN=%d -DHIDDEN=%d -DCOUT=%d -DSTRIDE=%d -DACT=%d -DPANEL=%d", x.c, hidden,
                                   b->project.out, s, (int)b->act, panel);
    double in = (double)ist_pixels(x), out = (double)ist_pixels(y);
    const ist_cpu_mbconv_args by_value = ist_cpu_mbconv_args_of(p, b, cols, bands);
    ist_launch l = {
        .label = label,
        .op = "cpu/mbconv",
        .isa = "cpu/tile+cpu/repeated_rows",
        .defines = d.text,
        .kernel = "mbconv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(ist_cpu_panels(p, &b->expand, panel, label)),
                 IST_IN(ist_cpu_values(p, b->expand.b, hidden, NULL, 0, label)), IST_IN(ist_cpu_taps(p, &b->spread, label)),
                 IST_IN(ist_cpu_values(p, b->spread.b, hidden, NULL, 0, label)), IST_IN(ist_cpu_panels(p, &b->project, panel, label)),
                 IST_IN(ist_cpu_values(p, b->project.b, y.c, NULL, 0, label)), IST_IN(ist_plan_current_limit(p)),
                 IST_IN(b->reuse.content), IST_STRUCT(cpu_mbconv_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 13,
        .flops = 2.0 * hidden * (in * x.c + out * 9 + out * y.c),
        .bytes = (ist_plan_half(p) ? 2.0 : 4.0) * (in * x.c + out * y.c)};
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_mbconv = {.takes = takes, .emit = emit, .rows = IST_REPEATS_MADE};
