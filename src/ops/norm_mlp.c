/* Norm and linear layers: the fused rows op/norm_mlp_cpu, with AMX op/norm_mlp_amx (norm_mlp_amx.c) and, on matrix
 * instructions, op/norm_mlp_mma (norm_mlp_mma.c); there also norm and first layer as one convolution; elsewhere the
 * operators one by one. */
#include "ops/conv_rows.h"
#include "ops/mbconv_rows.h"
#include "ops/norm_mlp_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { VEC = 16, C_MAX = 320, CHUNK = 66 };
/* By Strassen's algorithm: rows of a piece, hidden channels of a block at most and at least, products. */
enum { STRASSEN_CHUNK = 96, STRASSEN_BLOCK = 256, STRASSEN_LEAST = 128, PRODUCTS = 7 };

static bool check(ist_plan *p, ist_tensor x, const ist_norm_mlp *l, const char *label) {
    if (ist_plan_status(p)) return false;
    const ist_filter *a = &l->fc1, *b = &l->fc2;
    const ist_filter *f = &l->spread;
    bool spread = f->out == 0 || (f->out == x.c && f->in == 1 && f->kh == 3 && f->kw == 3);
    bool second = b->out == 0 || (b->out == x.c && b->in == a->out && b->kh == 1 && b->kw == 1);
    if (a->in == x.c && a->kh == 1 && a->kw == 1 && second && spread) return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: layers %d -> %d and %d -> %d on [%d,%d,%d,%d]", label, a->in, a->out, b->in,
                  b->out, x.n, x.h, x.w, x.c);
    return false;
}

/* Largest block of hidden channels that fits private memory. */
static int block_of(int hidden, int most, int step) {
    int block = most;
    while (hidden % block) block -= step;
    return block;
}

/* Results may end in half of a wide panel, hidden channels may not: their blocks are sums of the second layer. */
static bool fused(const ist_plan *p, ist_tensor x, const ist_norm_mlp *l) {
    const int panel = ist_panel_columns(p), least = panel == 64 ? 32 : panel;
    return ist_cpu_row(p) && x.elem == IST_ELEM_T && x.c % VEC == 0 && x.c <= C_MAX &&
           l->fc1.out % (l->fc2.out ? panel : least) == 0 && l->fc2.out % least == 0;
}

/* Whether the layers are one step of Strassen's algorithm (cl/isa/strassen.cl), which halves all their widths. */
static bool by_strassen(const ist_plan *p, ist_tensor x, const ist_norm_mlp *l) {
    return ist_panel_columns(p) == 64 && x.c >= 64 && x.c % 32 == 0 && l->fc1.out >= 64 &&
           l->fc1.out % (l->fc2.out ? STRASSEN_LEAST : 32) == 0;
}

/* A matrix [out][in] as [out / panel][in][panel], the last panel as narrow as it is. */
static ist_tensor packed(ist_plan *p, const ist_filter *f, const char *label) {
    size_t count = (size_t)f->out * (size_t)f->in;
    int panel = ist_panel_columns(p);
    float *w = malloc(count * sizeof *w), *dst = w;
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int o = 0; o < f->out; o += panel)
        for (int i = 0; i < f->in; i++)
            for (int k = 0; k < panel && o + k < f->out; k++)
                *dst++ = f->w[(size_t)(o + k) * (size_t)f->in + (size_t)i];
    t = ist_plan_const_bytes(p, w, count * sizeof *w, label);
    free(w);
    return t;
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
 * columns, the last ones 48 and 32 (strassen_columns of cl/isa/strassen.cl). */
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

ist_tensor ist_norm_mlp_values(ist_plan *p, const float *v, int count, const float *w, int more, const char *label) {
    float *all = calloc((size_t)(count + more), sizeof *all);
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d values", label, count + more);
        return t;
    }
    if (v) memcpy(all, v, (size_t)count * sizeof *all);
    if (w) memcpy(all + count, w, (size_t)more * sizeof *all);
    t = ist_plan_const(p, all, 1, 1, 1, count + more, IST_ELEM_F32, label);
    free(all);
    return t;
}

static ist_tensor in_one(ist_plan *p, ist_tensor x, const ist_norm_mlp *l, const char *label) {
    int hidden = l->fc1.out, c2 = l->fc2.out, rows = x.h * x.w, units = ist_plan_units(p);
    bool spread = l->spread.out > 0, strassen = by_strassen(p, x, l);
    int block = hidden, chunk = strassen ? STRASSEN_CHUNK : CHUNK, panel = ist_panel_columns(p);
    if (c2) block = strassen ? block_of(hidden, STRASSEN_BLOCK, STRASSEN_LEAST) : block_of(hidden, C_MAX, panel);
    int pieces = ist_div_up(ist_div_up(rows, chunk), units) * units; /* as many for every unit */
    ist_tensor none = {0}, y = ist_plan_tensor(p, x.n, x.h, x.w, c2 ? c2 : hidden, IST_ELEM_T);
    ist_tensor w0 = spread ? ist_mbconv_pack(p, &l->spread, label) : none;
    ist_tensor b0 = spread ? ist_mbconv_bias(p, &l->spread, label) : none;
    ist_tensor norm = ist_norm_mlp_values(p, l->gamma, x.c, l->beta, x.c, label);
    ist_tensor b1 = ist_norm_mlp_values(p, l->fc1.b, hidden, NULL, 0, label), w1, w2 = none;
    if (strassen) {
        w1 = strassen_weights(p, &l->fc1, x.c, block, label);
        if (c2) w2 = strassen_weights(p, &l->fc2, block, c2, label);
    } else {
        w1 = packed(p, &l->fc1, label);
        if (c2) w2 = packed(p, &l->fc2, label);
    }
    ist_tensor b2 = c2 ? ist_norm_mlp_values(p, l->fc2.b, c2, NULL, 0, label) : none;
    ist_defines d = ist_defines_of(p, "-DC_MAX=%d -DCHUNK=%d -DPANEL=%d", C_MAX, chunk, panel);
    if (strassen) d = ist_defines_of(p, "-DC_MAX=%d -DCHUNK=%d -DBLOCK=%d -DSTRASSEN", C_MAX, chunk, STRASSEN_BLOCK);
    double elem = ist_plan_half(p) ? 2 : 4;
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/norm_mlp_cpu",
                         .isa = strassen ? "isa/tile+isa/strassen" : "isa/tile",
                         .defines = d.text,
                         .kernel = "norm_mlp",
                         .dims = 1,
                         .global = {(size_t)units},
                         .local = {1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(norm), IST_IN(w0), IST_IN(b0), IST_IN(w1), IST_IN(b1),
                                  IST_IN(w2), IST_IN(b2), IST_IN(ist_plan_current_limit(p)),
                                  IST_INT8(rows, x.c, hidden, block, c2, (int)l->act, c2 > 0, spread ? x.w : 0),
                                  IST_INT4(x.ld, x.c0, y.ld, y.c0), IST_INT4(x.n, pieces, ist_plan_work_turn(p), 0),
                                  IST_INOUT(ist_plan_work_queue(p)), IST_FLOAT(l->eps)},
                         .arg_count = 15,
                         .flops = 2.0 * x.n * rows * ((double)hidden * (x.c + c2) + (spread ? 9 * x.c : 0)),
                         .bytes = elem * x.n * rows * (x.c + y.c)});
    return ist_plan_status(p) ? none : y;
}

static ist_tensor in_steps(ist_plan *p, ist_tensor x, const ist_norm_mlp *l, const char *label) {
    ist_norm_mlp first = *l;
    first.fc2 = (ist_filter){0};
    ist_conv_opts act = {.epi.act = l->act}, residual = {.epi.add_before = x};
    ist_tensor y;
    if (l->fc2.out && fused(p, x, &first)) {
        y = in_one(p, x, &first, label);
    } else if (ist_conv_takes_norm(p, x)) {
        y = ist_conv_of_norm(p, x, l->gamma, l->beta, l->eps, l->fc1, &act, label);
    } else {
        y = ist_op_layernorm(p, x, l->gamma, l->beta, l->eps, NULL, label);
        y = ist_op_linear(p, y, l->fc1, &act, label);
    }
    return l->fc2.out ? ist_op_linear(p, y, l->fc2, &residual, label) : y;
}

ist_tensor ist_op_norm_mlp(ist_plan *p, ist_tensor x, const ist_norm_mlp *l, const char *label) {
    if (!check(p, x, l, label)) return (ist_tensor){0};
    if (ist_norm_mlp_takes(p, x, l)) return ist_norm_mlp_mma(p, x, l, label);
    ist_norm_mlp rest = *l;
    rest.spread = (ist_filter){0};
    if (l->spread.out && (ist_norm_mlp_takes_amx(p, x, &rest) || !fused(p, x, l))) {
        ist_conv_opts pad = {.top = 1, .left = 1, .bottom = 1, .right = 1};
        x = ist_op_dwconv(p, x, l->spread, &pad, label);
        return ist_op_norm_mlp(p, x, &rest, label);
    }
    if (ist_norm_mlp_takes_amx(p, x, &rest)) return ist_norm_mlp_amx(p, x, l, label);
    return fused(p, x, l) ? in_one(p, x, l, label) : in_steps(p, x, l, label);
}
