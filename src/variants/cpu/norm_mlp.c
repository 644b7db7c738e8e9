/* Norm and linear layers, with the depthwise convolution in front, as one kernel that keeps what lies between in a core's
 * cache (cl/cpu/norm_mlp). */
#include "variants/cpu/norm_mlp_args.h"
#include "variants/cpu/weights.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <stdlib.h>

enum { VEC = 16, C_MAX = 320, CHUNK = 66 };
/* By Strassen's algorithm: rows of a piece, hidden channels of a block at most and at least, products. */
enum { STRASSEN_CHUNK = 96, STRASSEN_BLOCK = 256, STRASSEN_LEAST = 128, PRODUCTS = 7 };

/* Largest block of hidden channels that fits private memory. */
static int block_of(int hidden, int most, int step) {
    int block = most;
    while (hidden % block) block -= step;
    return block;
}

/* Results may end in half of a wide panel, hidden channels may not: their blocks are sums of the second layer. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    const int panel = ist_panel_of(v), least = panel == 64 ? 32 : panel;
    ist_tensor x = l->x;
    (void)p;
    return x.elem == IST_ELEM_T && x.c % VEC == 0 && x.c <= C_MAX &&
           l->fc1.out % (l->fc2.out ? panel : least) == 0 && l->fc2.out % least == 0;
}

/* Whether the layers are one step of Strassen's algorithm (cl/cpu/strassen.cl), which halves all their widths. */
static bool by_strassen(const ist_variant *v, const ist_norm_mlp *l) {
    ist_tensor x = l->x;
    return ist_panel_of(v) == 64 && x.c >= 64 && x.c % 32 == 0 && l->fc1.out >= 64 &&
           l->fc1.out % (l->fc2.out ? STRASSEN_LEAST : 32) == 0;
}

/* The right factors of Strassen's products of one panel: of its columns, whose weights are f->in apart, and those
 * `right` floats further. B's first index is the half of `depth` inputs. */
static float *strassen_panel(const ist_filter *f, const float *w, size_t right, int depth, int columns, float *to) {
    const size_t each = (size_t)(depth / 2) * (size_t)columns;
    for (int i = 0; i < depth / 2; i++)
        for (int k = 0; k < columns; k++, to++) {
            const float *left = w + (size_t)k * (size_t)f->in + (size_t)i;
            double b11 = left[0], b21 = left[depth / 2], b12 = left[right], b22 = left[right + (size_t)(depth / 2)];
            to[0] = (float)b11;
            to[each] = (float)b21;
            to[2 * each] = (float)(b11 + b22 - b12);
            to[3 * each] = (float)(b22 - b12);
            to[4 * each] = (float)(b21 + b12 - b11 - b22);
            to[5 * each] = (float)(b12 - b11);
            to[6 * each] = (float)b22;
        }
    return to + (PRODUCTS - 1) * each;
}

/* A matrix [out][in] as panels of these, for each block of inputs and each of outputs: their halves in panels of 64
 * columns, the last ones 48 and 32 (strassen_columns of cl/cpu/strassen.cl). */
static ist_tensor strassen_weights(ist_plan *p, const ist_filter *f, int in, int out, const char *label) {
    size_t count = (size_t)f->out * (size_t)f->in / 4 * PRODUCTS;
    float *w = malloc(count * sizeof *w), *to = w;
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int i = 0; i < f->in; i += in)
        for (int o = 0; o < f->out; o += out)
            for (int left = out / 2, columns; left; left -= columns) {
                columns = left == 80 ? 48 : left < 64 ? left : 64;
                const float *from = f->w + (size_t)(o + out / 2 - left) * (size_t)f->in + (size_t)i;
                to = strassen_panel(f, from, (size_t)(out / 2) * (size_t)f->in, in, columns, to);
            }
    t = ist_plan_const_bytes(p, w, count * sizeof *w, label);
    free(w);
    return t;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_norm_mlp *l = node;
    const char *label = l->label;
    ist_tensor x = l->x, y = l->y;
    (void)way;
    int hidden = l->fc1.out, c2 = l->fc2.out, rows = x.h * x.w, units = ist_plan_units(p);
    bool spread = l->spread.out > 0, strassen = by_strassen(v, l);
    int block = hidden, chunk = strassen ? STRASSEN_CHUNK : CHUNK, panel = ist_panel_of(v);
    if (c2) block = strassen ? block_of(hidden, STRASSEN_BLOCK, STRASSEN_LEAST) : block_of(hidden, C_MAX, panel);
    int pieces = ist_div_up(ist_div_up(rows, chunk), units) * units; /* as many for every unit */
    ist_tensor none = {0}, w0 = spread ? ist_cpu_taps(p, &l->spread, label) : none;
    ist_tensor b0 = spread ? ist_cpu_values(p, l->spread.b, x.c, NULL, 0, label) : none;
    ist_tensor norm = ist_cpu_values(p, l->norm.gamma, x.c, l->norm.beta, x.c, label);
    ist_tensor b1 = ist_cpu_values(p, l->fc1.b, hidden, NULL, 0, label), w1, w2 = none;
    if (strassen) {
        w1 = strassen_weights(p, &l->fc1, x.c, block, label);
        if (c2) w2 = strassen_weights(p, &l->fc2, block, c2, label);
    } else {
        w1 = ist_cpu_panels(p, &l->fc1, panel, label);
        if (c2) w2 = ist_cpu_panels(p, &l->fc2, panel, label);
    }
    ist_tensor b2 = c2 ? ist_cpu_values(p, l->fc2.b, c2, NULL, 0, label) : none;
    ist_defines d = ist_defines_of(p, "-DC_MAX=%d -DCHUNK=%d -DPANEL=%d", C_MAX, chunk, panel);
    if (strassen) d = ist_defines_of(p, "-DC_MAX=%d -DCHUNK=%d -DBLOCK=%d -DSTRASSEN", C_MAX, chunk, STRASSEN_BLOCK);
    double elem = ist_plan_half(p) ? 2 : 4;
    const ist_cpu_norm_mlp_args by_value = {.x_ld = x.ld,
                                            .x_c0 = x.c0,
                                            .y_ld = y.ld,
                                            .y_c0 = y.c0,
                                            .items = x.n,
                                            .rows = rows,
                                            .width = spread ? x.w : 0,
                                            .c = x.c,
                                            .hidden = hidden,
                                            .block_c = block,
                                            .c2 = c2,
                                            .act = (int)l->act,
                                            .pieces = pieces,
                                            .backwards = ist_plan_work_turn(p),
                                            .eps = l->eps};
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "cpu/norm_mlp",
                         .isa = strassen ? "cpu/tile+cpu/strassen" : "cpu/tile",
                         .defines = d.text,
                         .kernel = "norm_mlp",
                         .dims = 1,
                         .global = {(size_t)units},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(norm), IST_IN(w0), IST_IN(b0), IST_IN(w1), IST_IN(b1),
                                  IST_IN(w2), IST_IN(b2), IST_IN(ist_plan_current_limit(p)),
                                  IST_STRUCT(cpu_norm_mlp_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 12,
                         .flops = 2.0 * x.n * rows * ((double)hidden * (x.c + c2) + (spread ? 9 * x.c : 0)),
                         .bytes = elem * x.n * rows * (x.c + y.c)});
}

const ist_family ist_cpu_norm_mlp = {.takes = takes, .emit = emit};
