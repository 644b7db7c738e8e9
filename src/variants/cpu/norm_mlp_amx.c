/* Norm and linear layers on AMX (cl/cpu/norm_mlp_amx). */
#include "variants/cpu/amx.h"
#include "variants/cpu/norm_mlp_args.h"
#include "variants/cpu/weights.h"
#include "variants/defines.h"

#include "base/mem.h"

enum {
    C_MAX = 320,
    BLOCK_MAX = 160, /* hidden channels at a time */
    STEPS_MAX = 5,   /* of a panel of weights: three parts are 30 KB */
    TILES = 8        /* of a piece at most: 1.1 MB of second-level cache for 320 channels in three parts */
};

/* Largest block of hidden channels. */
static int block_of(int hidden) {
    int block = BLOCK_MAX;
    while (hidden % block) block -= IST_AMX_BLOCK;
    return block;
}

static bool layers_fit(const ist_norm_mlp *l) {
    return l->x.elem == IST_ELEM_T && l->x.c % IST_AMX_DEPTH == 0 && l->x.c <= C_MAX &&
           l->fc1.out % IST_AMX_BLOCK == 0;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    (void)p, (void)v;
    return layers_fit(l) && !l->spread.out;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    enum { SIDE = IST_AMX_BLOCK };
    const ist_norm_mlp *l = node;
    const char *label = l->label;
    ist_tensor x = l->x, y = l->y;
    (void)v, (void)way;
    int hidden = l->fc1.out, c2 = l->fc2.out, rows = x.h * x.w, parts = ist_amx_parts(p), units = ist_plan_units(p);
    int block = block_of(hidden), all = ist_div_up(rows, SIDE);
    int pieces = ist_div_up(ist_div_up(all, TILES), units) * units; /* as many for every unit */
    pieces = pieces < all ? pieces : all;
    int most = ist_div_up(all, pieces);
    /* As the kernel lays it out: u, what lies between the layers, sums. */
    int bytes = most * SIDE * x.c * parts * 2 + (most + 2) * SIDE * SIDE * 4;
    if (c2) bytes += most * SIDE * block * parts * 2;
    bytes = (int)ist_round_up((size_t)bytes, 4096);
    ist_tensor none = {0}, scratch = ist_plan_tensor(p, units, 1, 1, bytes / 4, IST_ELEM_F32);
    ist_tensor norm = ist_cpu_values(p, l->norm.gamma, x.c, l->norm.beta, x.c, label);
    ist_tensor w1 = ist_amx_matrix(p, &l->fc1, label);
    ist_tensor b1 = ist_cpu_values(p, l->fc1.b, hidden, NULL, 0, label);
    ist_tensor w2 = c2 ? ist_amx_matrix(p, &l->fc2, label) : none;
    ist_tensor b2 = c2 ? ist_cpu_values(p, l->fc2.b, c2, NULL, 0, label) : none;
    ist_defines d = ist_defines_of(p, "-DC_MAX=%d -DSTEPS_MAX=%d -DPARTS=%d -DASM=%d", C_MAX, STEPS_MAX, parts,
                                   ist_amx_instructions(p));
    const ist_norm_mlp_amx_args by_value = {.x_ld = x.ld,
                                            .x_c0 = x.c0,
                                            .y_ld = y.ld,
                                            .y_c0 = y.c0,
                                            .items = x.n,
                                            .rows = rows,
                                            .c = x.c,
                                            .hidden = hidden,
                                            .block_c = block,
                                            .second = c2 > 0,
                                            .act = (int)l->act,
                                            .pieces = pieces,
                                            .backwards = ist_plan_work_turn(p),
                                            .piece_tiles = most,
                                            .scratch_bytes = bytes,
                                            .eps = l->eps};
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "cpu/norm_mlp_amx",
                         .isa = "cpu/tile+cpu/amx",
                         .defines = d.text,
                         .kernel = "norm_mlp",
                         .dims = 1,
                         .global = {(size_t)units},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(norm), IST_IN(w1), IST_IN(b1),
                                  IST_IN(w2), IST_IN(b2), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(norm_mlp_amx_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 11,
                         .flops = 2.0 * x.n * rows * hidden * (x.c + c2),
                         .bytes = 4.0 * x.n * rows * (x.c + y.c)});
}

const ist_family ist_cpu_norm_mlp_amx = {.takes = takes, .emit = emit};

/* The depthwise convolution by itself, then the same. */
static bool takes_spread(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    (void)p, (void)v;
    return layers_fit(l) && l->spread.out > 0;
}

static void emit_spread(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    ist_emit_spread_first(p, node);
}

const ist_family ist_cpu_norm_mlp_amx_spread = {.takes = takes_spread, .emit = emit_spread};
