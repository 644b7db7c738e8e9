/* Linear layers of few rows (cl/portable/conv_rows), for GPUs: those of SAM's tokens. */
#include "variants/panels.h"
#include "variants/portable/conv_rows_args.h"
#include "variants/portable/conv_tile.h"

#include <math.h>

enum { ROWS = 8, QUADS = 4, GROUP = 256, PARTS = GROUP / QUADS, MOST_ROWS = 64 };

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *of = node;
    const ist_conv_problem q = ist_conv_problem_of(of);
    const size_t local = sizeof(float) * 4 * ROWS * GROUP;
    (void)v;
    return !(of->norm_eps > 0) && q.taps == 1 && q.oh == q.x.h && q.ow == q.x.w && q.x.n * q.oh * q.ow <= MOST_ROWS &&
           q.f.in % 4 == 0 && ist_conv_tile_whole(q.x) && local <= ist_device_local_bytes(ist_plan_device(p));
}

/* As portable/conv_tile: nanoseconds. Not fitted: seven layers of SAM's decoder took 0.77 to 1.03 of it on one GPU. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double turn = 400, work = 2.2, cycle = 27.2;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const double blocks = ist_div_up(q.x.n * q.oh * q.ow, ROWS), panels = ist_div_up(q.f.out, 4 * QUADS);
    const double share = ceil(blocks * panels / ist_plan_units(p)); /* of a unit, groups */
    (void)v, (void)way;
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU)
        return 100 * blocks * ROWS * panels * 4 * QUADS * ist_round_up((size_t)q.f.in, 4 * PARTS) / cycle;
    return IST_CONV_TILE_START + ist_div_up(q.f.in, 4 * PARTS) * turn + share * q.f.in * work;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_epilogue *e = &q.o->epi;
    const int rows = q.x.n * q.oh * q.ow;
    const ist_conv_rows_args arg = {.shape = ist_conv_shape_of(&q), .epi = ist_conv_epilogue_of(&q)};
    ist_conv_panel w;
    (void)v, (void)way;
    if (!ist_conv_panels_pack(p, &q, 4 * QUADS, &w)) return;
    ist_defines defines = ist_conv_tile_storage(p, &q);
    ist_defines_add(&defines, " -DROWS=%d -DQUADS=%d -DITEMS=%d -DACT=%d", ROWS, QUADS, GROUP, (int)e->act);
    ist_plan_launch(
        p, &(ist_launch){
               .label = q.label,
               .op = "portable/conv_rows",
               .isa = "portable/vector+portable/conv_store",
               .defines = defines.text,
               .kernel = "conv",
               .dims = 2,
               .global = {(size_t)ist_div_up(q.f.out, 4 * QUADS) * GROUP, (size_t)ist_div_up(rows, ROWS)},
               .local = {GROUP, 1},
               .args = {IST_IN(q.x), IST_IN(w.weights), IST_IN(w.bias), IST_OUT(q.y), IST_IN(e->add_before),
                        IST_IN(e->add_after), IST_IN(ist_plan_current_limit(p)), IST_STRUCT(conv_rows_args, &arg)},
               .arg_count = 8,
               .flops = 2.0 * rows * q.f.in * q.f.out,
               .bytes = ist_conv_bytes(p, &q, sizeof(float)),
           });
}

const ist_family ist_portable_conv_rows = {.takes = takes, .cost = cost, .emit = emit};
