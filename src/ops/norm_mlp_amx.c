/* Norm and linear layers on AMX (op/norm_mlp_amx). */
#include "ops/bf16.h"
#include "ops/norm_mlp_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

enum {
    C_MAX = 320,
    BLOCK_MAX = 160,
    CHUNK = 128,
    CACHED = 1 << 20 /* bytes of weights that stay in a core's cache */
};

/* Largest block of hidden channels. */
static int block_of(int hidden) {
    int block = BLOCK_MAX;
    while (hidden % block) block -= IST_AMX_BLOCK;
    return block;
}

bool ist_norm_mlp_takes_amx(const ist_plan *p, ist_tensor x, const ist_norm_mlp *l) {
    return ist_cpu_row(p) && ist_plan_caps(p) & IST_CAP_X86_AMX && !ist_plan_half(p) && x.elem == IST_ELEM_T &&
           x.c % IST_AMX_DEPTH == 0 && x.c <= C_MAX && l->fc1.out % IST_AMX_BLOCK == 0 && !l->spread.out;
}

ist_tensor ist_norm_mlp_amx(ist_plan *p, ist_tensor x, const ist_norm_mlp *l, const char *label) {
    int hidden = l->fc1.out, c2 = l->fc2.out, rows = x.h * x.w;
    /* A block's weights are read for CHUNK / 32 tiles of rows, in whose time the next block's come from further away.
     */
    int parts = ist_amx_parts(p), lines = (parts == 3 ? 16 : 32) * IST_AMX_BLOCK / CHUNK;
    if (2.0 * parts * hidden * (x.c + c2) <= CACHED) lines = 0;
    ist_tensor none = {0}, y = ist_plan_tensor(p, x.n, x.h, x.w, c2 ? c2 : hidden, IST_ELEM_T);
    ist_tensor norm = ist_norm_mlp_values(p, l->gamma, x.c, l->beta, x.c, label);
    ist_tensor w1 = ist_amx_matrix(p, &l->fc1, IST_AMX_NEIGHBOURS, label), b1 = ist_norm_mlp_values(p, l->fc1.b, hidden, NULL, 0, label);
    ist_tensor w2 = c2 ? ist_amx_matrix(p, &l->fc2, IST_AMX_NEIGHBOURS, label) : none;
    ist_tensor b2 = c2 ? ist_norm_mlp_values(p, l->fc2.b, c2, NULL, 0, label) : none;
    ist_defines d = ist_defines_of(p, "-DC_MAX=%d -DBLOCK_MAX=%d -DCHUNK=%d -DPARTS=%d -DASM=%d", C_MAX, BLOCK_MAX,
                                   CHUNK, parts, ist_amx_instructions(p));
    ist_plan_launch(p,
                    &(ist_launch){.label = label,
                                  .op = "op/norm_mlp_amx",
                                  .isa = "isa/tile+isa/bf16+isa/amx+isa/amx_rest",
                                  .defines = d.text,
                                  .kernel = "norm_mlp",
                                  .dims = 2,
                                  .global = {(size_t)ist_div_up(rows, CHUNK), (size_t)x.n},
                                  .local = {1, 1},
                                  .args = {IST_OUT(y), IST_IN(x), IST_IN(norm), IST_IN(w1), IST_IN(b1), IST_IN(w2),
                                           IST_IN(b2), IST_IN(ist_plan_current_limit(p)),
                                           IST_INT8(rows, x.c, hidden, block_of(hidden), c2 > 0, (int)l->act, lines, 0),
                                           IST_INT4(x.ld, x.c0, y.ld, y.c0), IST_FLOAT(l->eps)},
                                  .arg_count = 11,
                                  .flops = 2.0 * x.n * rows * hidden * (x.c + c2),
                                  .bytes = 4.0 * x.n * rows * (x.c + y.c)});
    return ist_plan_status(p) ? none : y;
}
