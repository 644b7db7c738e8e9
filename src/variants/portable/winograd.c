/* Winograd convolutions on GPUs (cl/portable/winograd): inputs and results are transformed by launches of their own,
 * the products between them are those of portable/conv_tile. */
#include "variants/panels.h"
#include "variants/portable/conv_tile.h"
#include "variants/portable/winograd_args.h"
#include "variants/variant.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 6, MATRICES = SIDE * SIDE, RESULTS = 4 /* of a tile's side */ };
enum { LEAST_CHANNELS = 16, MEMORY_SHARE = 32 /* of the device's memory for one side's matrices: so much less */ };

/* Tiles of a map. */
typedef struct grid {
    int down, across;
} grid;
static grid grid_of(const ist_conv_problem *q) {
    return (grid){ist_div_up(q->oh, RESULTS), ist_div_up(q->ow, RESULTS)};
}

static double tiles_of(const ist_conv_problem *q) {
    const grid g = grid_of(q);
    return (double)q->x.n * g.down * g.across;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *of = node;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_conv_tile *r = v->config;
    const int width = ist_div_up(q.f.out, r->nv * r->vl) * r->nv * r->vl;
    return q.f.kh == 3 && q.f.kw == 3 && q.o->stride <= 1 && !(q.norm_eps > 0) && !ist_has(of->o.pool) &&
           q.f.in % 4 == 0 && q.f.in >= LEAST_CHANNELS && q.f.out >= LEAST_CHANNELS &&
           MATRICES * sizeof(float) * tiles_of(&q) * (width > q.f.in ? width : q.f.in) <=
               (double)ist_device_facts(ist_plan_device(p))->global_bytes / MEMORY_SHARE &&
           ist_device_local_bytes(ist_plan_device(p)) >= ist_conv_tile_local_bytes(r);
}

/* Nanoseconds on a GPU, as portable/conv_tile; not meant for CPUs, which have their own. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double value = 0.0021; /* of a matrix, written and read */
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_conv_tile *r = v->config;
    const double tiles = tiles_of(&q), products = MATRICES * ceil(tiles / r->mr) * ist_div_up(q.f.out, r->nv * r->vl);
    (void)way;
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU) return HUGE_VAL;
    return ist_conv_tile_time(p, r, products, ist_div_up(q.f.in, r->bk)) + 2 * IST_CONV_TILE_NEXT +
           MATRICES * tiles * (q.f.in + q.f.out) * value;
}

/* ---- weights ---- */

/* G g G^T of one filter, row by row; G for the points 0, 3/4, -3/4, 3/2, -3/2 and infinity. */
static void transform(const float *g, float u[MATRICES]) {
    const double p = 0.75, q = 1.5, points[SIDE - 1] = {0, p, -p, q, -q};
    const double pp = p * p, qq = q * q, fp = 2 * pp * (pp - qq), fq = 2 * qq * (qq - pp);
    const double below[SIDE - 1] = {pp * qq, fp, fp, fq, fq};
    double m[SIDE][3], t[SIDE][3];
    for (int i = 0; i < SIDE - 1; i++)
        for (int k = 0; k < 3; k++) m[i][k] = (k == 0 ? 1 : k == 1 ? points[i] : points[i] * points[i]) / below[i];
    for (int k = 0; k < 3; k++) m[SIDE - 1][k] = k == 2;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < 3; j++) t[i][j] = m[i][0] * g[j] + m[i][1] * g[3 + j] + m[i][2] * g[6 + j];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            u[SIDE * i + j] = (float)(t[i][0] * m[j][0] + t[i][1] * m[j][1] + t[i][2] * m[j][2]);
}

/* Of all filters, as if each were one of 36 taps. */
static bool pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_conv_panel *out) {
    size_t filters = (size_t)q->f.out * (size_t)q->f.in, count = 0;
    float *u = ist_mul_size(filters, MATRICES, &count) ? malloc(count * sizeof *u) : NULL;
    if (!u) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to transform %d x %d filters", q->label, q->f.out,
                      q->f.in);
        return false;
    }
    for (size_t i = 0; i < filters; i++) transform(q->f.w + 9 * i, u + MATRICES * i);
    ist_conv_problem of = *q;
    of.f.kh = of.f.kw = SIDE;
    of.f.w = u;
    of.taps = MATRICES;
    const bool packed = ist_conv_panels_pack(p, &of, nr, out);
    free(u);
    return packed;
}

/* ---- launches ---- */

static void launch(ist_plan *p, const ist_conv_problem *q, const char *kernel, int columns, ist_launch *l,
                   const ist_defines *defines) {
    const size_t across = columns % 32 ? 16 : 32;
    l->label = q->label;
    l->op = "portable/winograd";
    l->isa = "portable/vector";
    l->defines = defines->text;
    l->kernel = kernel;
    l->dims = 2;
    l->global[0] = ist_round_up((size_t)columns, across);
    l->global[1] = ist_round_up((size_t)tiles_of(q), 4);
    l->local[0] = across;
    l->local[1] = 4;
    ist_plan_launch(p, l);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv_tile *r = v->config;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const ist_epilogue *e = &q.o->epi;
    const grid g = grid_of(&q);
    const double values = sizeof(float) * MATRICES * tiles_of(&q);
    ist_conv_panel w;
    (void)way;
    if (!pack(p, &q, r->nv * r->vl, &w)) return;
    ist_winograd_map_args arg = {
        .shape = ist_conv_shape_of(&q), .epi = ist_conv_epilogue_of(&q), .down = g.down, .across = g.across};
    ist_defines defines = ist_conv_tile_storage(p, &q);
    ist_defines_add(&defines, " -DACT=%d", (int)e->act);
    const ist_tensor in = ist_plan_tensor(p, MATRICES * q.x.n, g.down, g.across, q.f.in, IST_ELEM_F32);
    launch(p, &q, "transform_input", q.f.in,
           &(ist_launch){.args = {IST_IN(q.x), IST_OUT(in), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(winograd_map_args, &arg)},
                         .arg_count = 4,
                         .bytes = values * q.f.in},
           &defines);
    const ist_tensor products = ist_conv_tile_products(p, r, q.label, MATRICES, in, w.weights, q.f.out);
    arg.width = products.c;
    launch(p, &q, "transform_output", q.f.out,
           &(ist_launch){.args = {IST_OUT(q.y), IST_IN(products), IST_IN(w.bias), IST_IN(e->add_before),
                                  IST_IN(e->add_after), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(winograd_map_args, &arg)},
                         .arg_count = 7,
                         .bytes = values * q.f.out},
           &defines);
}

const ist_family ist_portable_winograd = {.takes = takes, .cost = cost, .emit = emit};
