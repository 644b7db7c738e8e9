/* Layers on few tokens: packs weights by slices of hidden channels and records one launch of op/token_mma. */
#include "ops/token.h"
#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MODE_PLAIN, MODE_FIRST, MODE_ATTENTION };
enum { ROWS = 8, ITEMS = 256, SLICE = 128, OUT_MAX = 512, HIDDEN_MAX = 256 };

bool ist_token_layers(const ist_plan *p, int tokens) {
    return !ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && tokens <= ROWS;
}

/* Matrix [out][in]: rows [first, first + rows), inputs [from, from + inputs), as fragments by blocks of eight rows. */
static float *pack_part(const float *w, int in, int first, int rows, int from, int inputs, float *to) {
    for (int r = first; r < first + rows; r += 8)
        for (int k = from; k < from + inputs; k += 32)
            to = ist_fragments(w + (size_t)r * (size_t)in + k, 1, 1, (size_t)in, false, to);
    return to;
}

static ist_tensor pack_weights(ist_plan *p, const ist_token_layer *l, int slices, const char *label) {
    size_t count = (size_t)l->hidden * (size_t)(l->in + l->out);
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int s = 0, each = l->hidden / slices; s < slices; s++) {
        if (l->in) to = pack_part(l->w1, l->in, s * each, each, 0, l->in, to);
        to = pack_part(l->w, l->hidden, 0, l->out, s * each, each, to);
    }
    t = ist_plan_const(p, packed, 1, 1, slices, (int)(count / (size_t)slices), IST_ELEM_T, label);
    free(packed);
    return t;
}

/* {b, gamma, beta}, then b1. */
static ist_tensor pack_table(ist_plan *p, const ist_token_layer *l, const char *label) {
    size_t out = (size_t)l->out, first = l->in ? (size_t)l->hidden : 0, count = 3 * out + first;
    float *table = malloc(count * sizeof *table);
    ist_tensor t = {0};
    if (!table) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a table of %zu numbers", label, count);
        return t;
    }
    memcpy(table, l->b, out * sizeof *table);
    memcpy(table + out, l->gamma, out * sizeof *table);
    memcpy(table + 2 * out, l->beta, out * sizeof *table);
    if (first) memcpy(table + 3 * out, l->b1, first * sizeof *table);
    t = ist_plan_const(p, table, 1, 1, 1, (int)count, IST_ELEM_F32, label);
    free(table);
    return t;
}

static bool like(ist_tensor t, ist_tensor x, int c) {
    return t.n == x.n && t.h == 1 && t.w == x.w && t.c == c && t.elem == IST_ELEM_T && (t.ld | t.c0) % 8 == 0;
}

static bool check(ist_plan *p, ist_tensor x, const ist_token_layer *l, int mode, const char *label) {
    if (ist_plan_status(p)) return false;
    bool good = ist_token_layers(p, x.w) && like(x, x, mode == MODE_FIRST ? l->in : l->hidden) && l->hidden >= 32 &&
                l->hidden % 32 == 0 && l->in % 32 == 0 && l->in <= HIDDEN_MAX && l->out >= 64 && l->out % 64 == 0 &&
                l->out <= OUT_MAX && (mode == MODE_FIRST ? l->hidden % SLICE == 0 : l->hidden <= HIDDEN_MAX) &&
                (!ist_has(l->add) || like(l->add, x, l->out));
    if (!good)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: a layer of %d, %d and %d channels on tokens [%d,%d,%d,%d]", label, l->in,
                      l->hidden, l->out, x.n, x.h, x.w, x.c);
    return good;
}

static ist_tensor launch(ist_plan *p, ist_tensor x, ist_tensor k, ist_tensor v, const ist_token_layer *l, int mode,
                         const char *label) {
    int slices = mode == MODE_FIRST ? l->hidden / SLICE : 1, tiles = ist_div_up(x.n, 2);
    ist_tensor y = ist_plan_tensor(p, x.n, 1, x.w, l->out, IST_ELEM_T), none = {0};
    ist_tensor weights = pack_weights(p, l, slices, label), table = pack_table(p, l, label);
    ist_arg partial = IST_IN(none), arrived = IST_IN(none);
    if (slices > 1) {
        partial = (ist_arg)IST_OUT(ist_plan_tensor(p, tiles, slices, 16, l->out, IST_ELEM_F32));
        arrived = (ist_arg)IST_INOUT(ist_plan_persistent(p, 1, 1, tiles, 1, IST_ELEM_I32));
    }
    ist_defines defines = ist_defines_of(p, "-DMODE=%d -DIN=%d -DHID=%d -DOUT=%d -DSLICES=%d", mode, l->in ? l->in : 32,
                                         l->hidden / slices, l->out, slices);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/token_mma",
                                     .isa = "isa/ptx",
                                     .defines = defines.text,
                                     .kernel = "tokens",
                                     .dims = 2,
                                     .global = {(size_t)tiles * ITEMS, (size_t)slices},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(k), IST_IN(v), IST_IN(l->add),
                                              IST_IN(weights), IST_IN(table), partial, arrived,
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.w, x.n, 0, 0),
                                              IST_INT8(x.ld, x.c0, k.ld, k.c0, v.ld, v.c0, l->add.ld, l->add.c0),
                                              IST_FLOAT(l->eps), IST_FLOAT(0.17677669529663688f)}, /* 1 / sqrt(32) */
                                     .arg_count = 14,
                                     .flops = 2.0 * x.n * x.w * l->hidden * (l->in + l->out)});
    return y;
}

ist_tensor ist_op_token_layer(ist_plan *p, ist_tensor x, const ist_token_layer *l, const char *label) {
    int mode = l->in ? MODE_FIRST : MODE_PLAIN;
    ist_tensor none = {0};
    return check(p, x, l, mode, label) ? launch(p, x, none, none, l, mode, label) : none;
}

ist_tensor ist_op_token_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_token_layer *l,
                                  const char *label) {
    ist_tensor none = {0};
    if (!check(p, q, l, MODE_ATTENTION, label)) return none;
    if (l->in || !like(k, q, l->hidden) || !like(v, q, l->hidden)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: keys and values unlike the queries", label);
        return none;
    }
    return launch(p, q, k, v, l, MODE_ATTENTION, label);
}

/* ---- perceptrons ---- */

enum { RESULTS = 32, PROMPTS = 16 };

/* Layers of a perceptron as fragments; the last has RESULTS outputs, zeros where there are fewer. */
static float *pack_perceptron(const ist_perceptron *m, int c, const float *last, float *to) {
    to = pack_part(m->w[0], c, 0, c, 0, c, to);
    to = pack_part(m->w[1], c, 0, c, 0, c, to);
    return pack_part(last, c, 0, RESULTS, 0, c, to);
}

static bool pack_perceptrons(ist_plan *p, const ist_perceptron *all, int count, int c, int results, ist_tensor *weights,
                             ist_tensor *table, const char *label) {
    size_t one = (size_t)c * (size_t)(2 * c + RESULTS), row = (size_t)(2 * c + RESULTS), last = (size_t)(RESULTS * c);
    float *room = calloc((size_t)count * (one + row) + last, sizeof *room);
    if (!room) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, (size_t)count * one);
        return false;
    }
    float *packed = room + last, *to = packed, *biases = packed + (size_t)count * one;
    for (int i = 0; i < count; i++) {
        int outputs = i ? RESULTS : results;
        float *b = biases + (size_t)i * row;
        memset(room, 0, last * sizeof *room);
        memcpy(room, all[i].w[2], (size_t)(outputs * c) * sizeof *room);
        to = pack_perceptron(&all[i], c, room, to);
        memcpy(b, all[i].b[0], (size_t)c * sizeof *b);
        memcpy(b + c, all[i].b[1], (size_t)c * sizeof *b);
        memcpy(b + 2 * c, all[i].b[2], (size_t)outputs * sizeof *b);
    }
    *weights = ist_plan_const(p, packed, 1, 1, count, (int)one, IST_ELEM_T, label);
    *table = ist_plan_const(p, biases, 1, 1, count, (int)row, IST_ELEM_F32, label);
    free(room);
    return !ist_plan_status(p);
}

ist_tensor ist_op_perceptrons(ist_plan *p, ist_tensor x, const ist_perceptron *all, int count, int results, int first,
                              ist_tensor *vectors, const char *label) {
    ist_tensor none = {0}, weights, table;
    *vectors = none;
    if (ist_plan_status(p)) return none;
    if (!ist_token_layers(p, x.w) || !like(x, x, x.c) || x.c < 64 || x.c > HIDDEN_MAX || x.c % 64 || count < 2 ||
        results < 1 || results > RESULTS || first < 0 || first + count - 1 > x.w) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d perceptrons, %d results, from token %d on, of tokens [%d,%d,%d,%d]",
                      label, count, results, first, x.n, x.h, x.w, x.c);
        return none;
    }
    if (!pack_perceptrons(p, all, count, x.c, results, &weights, &table, label)) return none;
    ist_tensor y = ist_plan_tensor(p, x.n, 1, 1, results, IST_ELEM_F32);
    *vectors = ist_plan_tensor(p, x.n, 1, count - 1, RESULTS, IST_ELEM_T);
    ist_defines defines = ist_defines_of(p, "-DMODE=3 -DIN=%d", x.c);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/token_mma",
                                     .isa = "isa/ptx",
                                     .defines = defines.text,
                                     .kernel = "perceptrons",
                                     .dims = 2,
                                     .global = {(size_t)ist_div_up(x.n, PROMPTS) * ITEMS, (size_t)count},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(*vectors), IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.w, x.n, first, results),
                                              IST_INT4(x.ld, x.c0, 0, 0)},
                                     .arg_count = 8,
                                     .flops = 2.0 * x.n * count * x.c * (2.0 * x.c + RESULTS)});
    return y;
}
