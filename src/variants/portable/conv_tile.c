/* Portable convolutions on register tiles (cl/portable/conv_tile), for GPUs: a tile of local memory feeds many
 * products, and where tiles are few their sums are split among groups, which a second launch adds up. */
#include "variants/portable/conv_tile.h"
#include "variants/divider.h"
#include "variants/panels.h"
#include "variants/padding_reuse.h"
#include "variants/portable/conv_tile_args.h"
#include "variants/variant.h"

#include <math.h>

enum { MOST_SPLITS = 8, LEAST_STEPS = 4, MOST_PARTS = 16 << 20 /* values of all parts */ };

/* Steps of the whole sum. */
static int steps_of(const ist_conv_tile *r, const ist_conv_problem *q) {
    return q->taps * ist_div_up(q->f.in, r->bk);
}

/* Of a group's work-items, which take a part of the steps each. */
static int slices_of(const ist_conv_tile *r) {
    return r->warps_k > 1 ? r->warps_k : 1;
}

size_t ist_conv_tile_local_bytes(const ist_conv_tile *r) {
    return (size_t)(slices_of(r) * 2 * r->bk * (r->mr + 4 + r->nv * r->vl)) * sizeof(float);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    const bool normed = q->norm_eps > 0;
    if (normed && (!ist_conv_keeps_pixels(q) || slices_of(v->config) > 1)) return false;
    return ist_device_local_bytes(ist_plan_device(p)) >= ist_conv_tile_local_bytes(v->config);
}

static int ways(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_conv_tile *r = v->config;
    const double whole = (double)q.x.n * q.oh * q.ow * ist_div_up(q.f.out, r->nv * r->vl) * r->nv * r->vl;
    int parts = q.norm_eps > 0 ? 1 : steps_of(r, &q) / (LEAST_STEPS * slices_of(r));
    (void)p;
    if (parts > MOST_SPLITS) parts = MOST_SPLITS;
    if (parts > MOST_PARTS / whole) parts = (int)(MOST_PARTS / whole);
    return parts < 1 ? 1 : parts;
}

enum { STAGES = 4 };

/* Whether a step's values are fetched in STAGES, which leaves room for a fourth group of these tiles beside each other
 * on one GPU (perf/notes/portable_gpu.md); smaller ones have it anyway and take longer with them. */
static bool in_stages(const ist_conv_tile *r, const ist_conv *q, bool split) {
    const bool tile = r->mr == 128 && r->nv * r->vl == 64 && slices_of(r) == 1;
    return tile && !split && q->norm_eps == 0 && ist_conv_keeps_pixels(q) && q->filter.in % r->bk == 0 &&
           ist_conv_tile_whole(q->x);
}

/* How many groups a compute unit has room for, from what its work-items keep: sums, the quads that they fetch and where
 * from, factors, and the rest. */
static int side_by_side(const ist_conv_tile *r, bool normed, bool staged) {
    enum { UNIT_REGISTERS = 1 << 16, REST = 22, OF_NORM = 8, GRANULE = 8 };
    const int bn = r->nv * r->vl, items = r->items / slices_of(r);
    const int fetched = (2 * r->mr + bn) * r->bk / items / (staged ? STAGES : 1);
    const int registers = r->warps_m * r->warps_n + fetched + r->warps_m + r->warps_n + REST + (normed ? OF_NORM : 0);
    const int room = UNIT_REGISTERS / (r->items * (int)ist_round_up((size_t)registers, GRANULE));
    return room > 0 ? room : 1;
}

/* All but that, fitted on one GPU (perf/notes/portable_gpu.md): groups that find room run side by side, those that do
 * not after them; a step takes as long as the products of all, and what nothing hides. */
static double groups_time(const ist_plan *p, const ist_conv_tile *r, double groups, int steps, double activation,
                          bool normed, bool staged) {
    const double rate = 155.4, latency = 100, product = 0.153, begin = 694, end = 16.3;
    const int bn = r->nv * r->vl, units = ist_plan_units(p), slices = slices_of(r);
    const int room = side_by_side(r, normed, staged);
    const double sums = r->warps_m * r->warps_n, norm = normed ? 1.07 : 1;
    const double step = norm * r->mr * bn * r->bk * slices / (rate * r->speed);
    const double waves = floor(groups / (units * room)), rest = ceil((groups - waves * units * room) / units);
    const double each = ist_div_up(steps, slices) * step + r->mr * bn * activation;
    const double wave =
        begin + ist_div_up(steps, slices) * (latency + product * sums * r->bk) + end * sums * (activation > 0 ? 2 : 1);
    return waves * (wave + room * each) + (rest > 0 ? wave + rest * each : 0);
}

double ist_conv_tile_time(const ist_plan *p, const ist_conv_tile *r, double tiles, int steps) {
    return IST_CONV_TILE_START + groups_time(p, r, tiles, steps, 0, false, false);
}

double ist_conv_tile_activation(ist_act act) {
    return act == IST_ACT_GELU ? 0.087 : act == IST_ACT_SILU || act == IST_ACT_SIGMOID ? 0.077 : 0;
}

/* Nanoseconds; cycles on a CPU, for which the tiles are not meant: as portable/conv.c. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double sum = 0.00073, cycle = 27.2;
    const ist_conv_tile *r = v->config;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const int bn = r->nv * r->vl, steps = ist_div_up(steps_of(r, &q), way);
    const double pixels = (double)q.x.n * q.oh * q.ow, tiles = ceil(pixels / r->mr) * ist_div_up(q.f.out, bn);
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU)
        return 100 * tiles * r->mr * bn * r->bk * (slices_of(r) * ist_div_up(steps, slices_of(r))) * way / cycle;
    const double activation = way > 1 ? 0 : ist_conv_tile_activation(q.o->epi.act);
    return IST_CONV_TILE_START +
           groups_time(p, r, tiles * way, steps, activation, q.norm_eps > 0, in_stages(r, node, way > 1)) +
           (way > 1 ? IST_CONV_TILE_NEXT + (1 + way) * pixels * q.f.out * sum : 0);
}

bool ist_conv_tile_whole(ist_tensor x) {
    return !ist_has(x) || (x.ld % 4 == 0 && x.c0 % 4 == 0);
}

/* For ALIGNED of portable/vector. */
static bool aligned(const ist_plan *p, const ist_conv_problem *q) {
    const ist_epilogue *e = &q->o->epi;
    const bool stored = !ist_plan_half(p) || (q->x.elem == IST_ELEM_T && q->y.elem == IST_ELEM_T);
    return stored && ist_conv_tile_whole(q->x) && ist_conv_tile_whole(q->y) && ist_conv_tile_whole(e->add_before) &&
           ist_conv_tile_whole(e->add_after);
}

ist_defines ist_conv_tile_storage(const ist_plan *p, const ist_conv_problem *q) {
    const bool half = ist_plan_half(p);
    return ist_defines_of(p, "-DVL=4%s%s%s", half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                          half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "", aligned(p, q) ? " -DALIGNED" : "");
}

/* Which rows of input and output are there. */
typedef struct rows_there {
    ist_padding_reuse operand;
    ist_padding_reuse_args in, out;
} rows_there;

/* Sums whose parts lie in `parts`, [splits,1,pixels,width]. */
static void launch_sum(ist_plan *p, const ist_conv_problem *q, ist_tensor bias, ist_tensor parts,
                       const rows_there *rows) {
    const ist_conv_opts *o = q->o;
    const ist_conv_sum_args arg = {.shape = ist_conv_shape_of(q),
                                   .epi = ist_conv_epilogue_of(q),
                                   .splits = parts.n,
                                   .width = parts.c,
                                   .out = rows->out};
    const ist_defines defines = ist_conv_tile_storage(p, q);
    ist_plan_launch(
        p,
        &(ist_launch){
            .label = q->label,
            .op = "portable/conv_sum",
            .isa = "portable/vector+portable/left_out+portable/conv_store",
            .defines = defines.text,
            .kernel = "conv_sum",
            .dims = 2,
            .global = {ist_round_up((size_t)ist_div_up(q->f.out, 4), 16), ist_round_up((size_t)parts.w, 4)},
            .local = {16, 4},
            .args = {IST_OUT(q->y), IST_IN(parts), IST_IN(bias), IST_IN(o->epi.add_before), IST_IN(o->epi.add_after),
                     IST_IN(ist_plan_current_limit(p)), IST_IN(rows->operand.content), IST_STRUCT(conv_sum_args, &arg)},
            .arg_count = 8,
            .bytes = sizeof(float) * (double)parts.n * parts.w * q->f.out,
        });
}

/* Loads without a condition give the 64 x 64 tiles a better order of instructions, up to 10 % of their time on one GPU
 * (perf/notes/portable_gpu.md); others take up to 9 % longer with them. */
static bool full_steps(const ist_conv_tile *r, int in) {
    return in % r->bk == 0 && r->mr == 64 && r->nv * r->vl == 64;
}

static void add_tile(ist_defines *defines, const ist_conv_tile *r, int in, ist_act act, bool staged) {
    ist_defines_add(defines, " -DBM=%d -DBN=%d -DTM=%d -DTN=%d -DBK=%d -DACT=%d%s", r->mr, r->nv * r->vl, r->warps_m,
                    r->warps_n, r->bk, (int)act, full_steps(r, in) ? " -DFULL_STEPS" : "");
    if (staged) ist_defines_add(defines, " -DSTAGES=%d", STAGES);
    if (slices_of(r) > 1) ist_defines_add(defines, " -DSLICES=%d", slices_of(r));
}

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_panel *w, int splits,
                   bool staged, const rows_there *rows) {
    const ist_conv_opts *o = q->o;
    const int bn = r->nv * r->vl, pixels = q->x.n * q->oh * q->ow, col_tiles = ist_div_up(q->f.out, bn);
    const int split_steps = ist_div_up(steps_of(r, q), splits);
    splits = ist_div_up(steps_of(r, q), split_steps); /* none without a step */
    const bool split = splits > 1;
    const ist_conv_tile_args arg = {.shape = ist_conv_shape_of(q),
                                    .epi = ist_conv_epilogue_of(q),
                                    .col_tiles = col_tiles,
                                    .split_steps = split_steps,
                                    .by_col_tiles = ist_divider_of(col_tiles),
                                    .by_w = ist_divider_of(q->ow),
                                    .by_h = ist_divider_of(q->oh),
                                    .by_kw = ist_divider_of(q->f.kw),
                                    .by_tap_steps = ist_divider_of(ist_div_up(q->f.in, r->bk)),
                                    .in = rows->in,
                                    .out = rows->out,
                                    .norm_eps = q->norm_eps};
    const ist_tensor none = {0};
    const ist_tensor parts = split ? ist_plan_tensor(p, splits, 1, pixels, col_tiles * bn, IST_ELEM_F32) : none;
    ist_defines defines = ist_conv_tile_storage(p, q);
    ist_defines_add(&defines, "%s", q->f.in % 4 == 0 && ist_conv_tile_whole(q->x) ? " -DWHOLE" : "");
    if (split)
        ist_defines_add(&defines, " -DPARTS");
    else if (q->f.out % 4 == 0)
        ist_defines_add(&defines, " -DWHOLE_Y");
    add_tile(&defines, r, q->f.in, split ? IST_ACT_NONE : o->epi.act, staged);
    if (q->norm_eps > 0) ist_defines_add(&defines, " -DNORM");
    ist_padding_reuse_define(&defines, &rows->operand);
    ist_plan_launch(
        p, &(ist_launch){
               .label = q->label,
               .op = r->op,
               .isa = "portable/vector+portable/left_out+portable/conv_store",
               .defines = defines.text,
               .kernel = "conv",
               .dims = 2,
               .global = {(size_t)ist_div_up(pixels, r->mr) * (size_t)col_tiles * (size_t)r->items, (size_t)splits},
               .local = {(size_t)r->items, 1},
               .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), IST_OUT(parts), IST_OUT(split ? none : q->y),
                        IST_IN(split ? none : o->epi.add_before), IST_IN(split ? none : o->epi.add_after),
                        IST_IN(ist_plan_current_limit(p)), IST_IN(rows->operand.content),
                        IST_STRUCT(conv_tile_args, &arg)},
               .arg_count = 10,
               .flops = 2.0 * pixels * q->taps * q->f.in * q->f.out,
               .bytes = ist_conv_bytes(p, q, sizeof(float)),
           });
    if (split) launch_sum(p, q, w->bias, parts, rows);
}

ist_tensor ist_conv_tile_products(ist_plan *p, const ist_conv_tile *r, const char *label, int matrices, ist_tensor x,
                                  ist_tensor weights, int out) {
    const int bn = r->nv * r->vl, items = x.n / matrices, rows = items * x.h * x.w, col_tiles = ist_div_up(out, bn);
    const ist_tensor none = {0}, y = ist_plan_tensor(p, matrices, 1, rows, col_tiles * bn, IST_ELEM_F32);
    const ist_conv_tile_args arg = {.shape = {.x_h = x.h,
                                              .x_w = x.w,
                                              .x_ld = x.ld,
                                              .x_c0 = x.c0,
                                              .x_c = x.c,
                                              .kh = 1,
                                              .kw = 1,
                                              .stride = 1,
                                              .items = items,
                                              .y_h = x.h,
                                              .y_w = x.w,
                                              .y_c = out},
                                    .col_tiles = col_tiles,
                                    .split_steps = ist_div_up(x.c, r->bk),
                                    .by_col_tiles = ist_divider_of(col_tiles),
                                    .by_w = ist_divider_of(x.w),
                                    .by_h = ist_divider_of(x.h),
                                    .by_kw = ist_divider_of(1),
                                    .by_tap_steps = ist_divider_of(ist_div_up(x.c, r->bk))};
    ist_defines defines = ist_defines_of(p, "-DVL=4 -DX32 -DWHOLE -DPARTS -DMATRICES=%d", matrices);
    add_tile(&defines, r, x.c, IST_ACT_NONE, false);
    const size_t groups = (size_t)matrices * (size_t)ist_div_up(rows, r->mr) * (size_t)col_tiles;
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "portable/conv_tile",
               .isa = "portable/vector+portable/left_out+portable/conv_store",
               .defines = defines.text,
               .kernel = "conv",
               .dims = 1,
               .global = {groups * (size_t)r->items},
               .local = {(size_t)r->items},
               .args = {IST_IN(x), IST_IN(weights), IST_IN(none), IST_OUT(y), IST_OUT(none), IST_IN(none), IST_IN(none),
                        IST_IN(ist_plan_current_limit(p)), IST_IN(none), IST_STRUCT(conv_tile_args, &arg)},
               .arg_count = 10,
               .flops = 2.0 * matrices * rows * x.c * out,
               .bytes = sizeof(float) * (double)matrices * rows * (x.c + y.c),
           });
    return y;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv_tile *r = v->config;
    ist_conv_problem q = ist_conv_problem_of(node);
    ist_conv *of = node;
    ist_conv_panel w;
    rows_there rows = {.operand = of->reuse, .in = ist_padding_reuse_read(of->reuse, of->x.h)};
    rows.out = ist_padding_reuse_leave_out(&of->reuse, ist_padding_reuse_conv(of->reuse, of), of->y.h);
    if (ist_conv_panels_pack(p, &q, r->nv * r->vl, &w))
        launch(p, &q, r, &w, way < 1 ? 1 : way, in_stages(r, of, way > 1), &rows);
}

const ist_family ist_portable_conv_tile = {
    .takes = takes, .ways = ways, .cost = cost, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
