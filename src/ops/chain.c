/* Gathers operators into chains and cuts these into pieces; chain_launch.c, on CPUs chain_cpu.c, writes the launch of
 * each piece. */
#include "ops/amx.h"
#include "ops/chain_internal.h"
#include "ops/epilogue.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Beyond this many rows matrix kernels over all of them win. */
enum { LINES_PER_UNIT = 16 }; /* of a depthwise convolution's result */
enum { ROWS_MAX = 1280, KEYS_ROOM = 1400, LINEAR_ROOM = 1024, LOCAL_REST = 1280 };
enum { NORM_MOST = 512 }; /* on matrix instructions: what fits registers */

/* Vectors of sixteen floats; any number of rows, for they are taken a cache's worth at a time. */
static bool pays_on_cpu(const ist_plan *p, int width, int inner) {
    return ist_cpu_row(p) && !ist_plan_half(p) && !ist_plan_bf16(p) && width % 16 == 0 && inner % 16 == 0;
}

static bool pays(const ist_plan *p, int rows, int own, int width, int inner) {
    return !ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_GROUP256) && rows <= ROWS_MAX &&
           ist_device_local_bytes(ist_plan_device(p)) >= 16u * IST_CHAIN_SLOTS + LOCAL_REST &&
           inner + 2 * width + LINEAR_ROOM <= IST_CHAIN_SLOTS && 2 * own + 2 * width + KEYS_ROOM <= IST_CHAIN_SLOTS;
}

static void begin(ist_plan *p, struct ist_chain chain) {
    struct ist_chain *c = malloc(sizeof *c);
    if (!c) {
        ist_plan_fail(p, IST_E_MEMORY, "out of host memory for a chain of operators");
        return;
    }
    *c = chain;
    c->parts = c->cpu && ist_plan_caps(p) & IST_CAP_X86_AMX;
    c->inside = ist_plan_buffers(p);
    ist_plan_set_chain(p, c);
}

void ist_chain_begin(ist_plan *p, int n, int rows, int width, int inner) {
    bool cpu = pays_on_cpu(p, width, inner);
    if (ist_plan_status(p) || (!cpu && !pays(p, n * rows, rows, width, inner))) return;
    begin(p, (struct ist_chain){.cpu = cpu, .n = n, .rows = rows});
}

void ist_chain_begin_map(ist_plan *p, int n, int h, int w, int c) {
    int units = ist_plan_units(p);
    if (ist_plan_status(p) || !pays_on_cpu(p, c, c) || h % 2 || w % 2 || h < 2 * LINES_PER_UNIT * units) return;
    begin(p, (struct ist_chain){.cpu = true, .n = n, .rows = h * w, .width = w});
}

/* Appends W^T in blocks of outputs, [block][in][outputs of the block]: all in one, rounded up to 4, or, on CPUs,
 * rounded up to 16 and in blocks of `panel`, then of half as many, down to 16. */
static bool pack(struct ist_chain *c, int panel, const ist_filter *f, size_t *at) {
    int all = (int)ist_round_up((size_t)f->out, c->cpu ? 16 : 4), block = c->cpu ? panel : all;
    size_t count = (size_t)f->in * (size_t)all;
    if (!ist_grow((void **)&c->weights, &c->weight_capacity, c->weight_count + count, sizeof *c->weights)) return false;
    float *to = c->weights + c->weight_count;
    for (int first = 0; first < all; first += block) {
        while (first + block > all) block /= 2;
        for (int i = 0; i < f->in; i++)
            for (int o = first; o < first + block; o++)
                *to++ = o < f->out ? f->w[(size_t)o * (size_t)f->in + (size_t)i] : 0;
    }
    *at = c->weight_count;
    c->weight_count += count;
    return true;
}

/* Appends the weights as isa/amx has them. */
static bool pack_parts(struct ist_chain *c, const ist_filter *f, size_t *at) {
    size_t count = ist_amx_pairs(f, IST_AMX_PARTS);
    if (!count || !ist_grow((void **)&c->weights, &c->weight_capacity, c->weight_count + count, sizeof *c->weights))
        return false;
    ist_amx_pack(f, IST_AMX_PARTS, (uint32_t *)(c->weights + c->weight_count));
    *at = c->weight_count;
    c->weight_count += count;
    return true;
}

/* Whether a layer takes fewer cycles on the matrix unit: a step of 32 rows, 600 for their products and 18 a row for
 * their parts, and a block's way through memory, against multiplications and additions at 85 % of their peak. */
static bool parts_pay(const ist_filter *f) {
    double steps = ist_div_up(f->in, IST_AMX_DEPTH), blocks = ist_div_up(f->out, IST_AMX_BLOCK);
    double unit = steps * (blocks * 600 / 32 + 18) + 8 * blocks;
    return unit * 1.1 < f->in * (double)ist_round_up((size_t)f->out, 16) / (32 * 0.85);
}

static bool copy_data(struct ist_chain *c, const float *data, int count, size_t *at) {
    size_t room = ist_round_up((size_t)count, c->cpu ? 16 : 4);
    if (!data) return true;
    if (!ist_grow((void **)&c->table, &c->table_capacity, c->table_count + room, sizeof *c->table)) return false;
    memcpy(c->table + c->table_count, data, (size_t)count * sizeof *data);
    memset(c->table + c->table_count + count, 0, (room - (size_t)count) * sizeof *data);
    *at = c->table_count;
    c->table_count += room;
    return true;
}

static bool rows_fit(const struct ist_chain *c, ist_tensor t, bool repeats) {
    return !ist_has(t) || (t.h * t.w == c->rows && (t.n == c->n || (repeats && t.n == 1)));
}

bool ist_chain_take(ist_plan *p, const ist_chain_step *step, const char *label) {
    struct ist_chain *c = ist_plan_chain(p);
    if (!c) return false;
    if (ist_plan_status(p)) return true;
    bool fits = true;
    bool ended = c->width && c->count && c->steps[c->count - 1].op == IST_CHAIN_DEPTHWISE;
    for (int i = 0; i < 2 && step->op != IST_CHAIN_DEPTHWISE; i++) fits = fits && rows_fit(c, step->out[i], false);
    for (int i = 0; i < 3; i++) fits = fits && rows_fit(c, step->rows[i], true);
    if (ended) {
        ist_plan_fail(p, IST_E_STATE, "%s: behind the depthwise convolution that ends a chain", label);
        return true;
    }
    if (!fits) {
        ist_plan_fail(p, IST_E_STATE, "%s: not on the %d rows of %d items of the chain it is in", label, c->rows, c->n);
        return true;
    }
    bool room = ist_grow((void **)&c->steps, &c->capacity, c->count + 1, sizeof *c->steps);
    ist_chain_step s = *step;
    room = room && copy_data(c, s.data[0], s.sizes[0], &s.data_at[0]) &&
           copy_data(c, s.data[1], s.sizes[1], &s.data_at[1]);
    if (s.op == IST_CHAIN_LINEAR) {
        s.has_bias = s.filter.b != NULL;
        if (!ist_plan_representable(p, s.filter.w, (size_t)s.filter.out * (size_t)s.filter.in, label)) return true;
        s.parts = c->parts && parts_pay(&s.filter);
        room = room &&
               (s.parts ? pack_parts(c, &s.filter, &s.weights_at)
                        : pack(c, ist_panel_columns(p), &s.filter, &s.weights_at)) &&
               copy_data(c, s.filter.b, s.filter.out, &s.data_at[0]);
    }
    s.data[0] = s.data[1] = s.filter.w = s.filter.b = NULL;
    if (room)
        c->steps[c->count++] = s;
    else
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a chain of operators", label);
    return true;
}

ist_tensor ist_chain_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    static const ist_conv_opts plain = {0};
    const ist_conv_opts *o = opts ? opts : &plain;
    if (ist_plan_status(p)) return (ist_tensor){0};
    bool cpu = ist_plan_chain(p)->cpu;
    if (x.c != f.in || (f.out > 1024 && !cpu) || (o->epi.has_lab && !cpu) || o->epi.up2) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d to %d channels%s on %d channels, in a chain", label, f.in, f.out,
                      o->epi.has_lab || o->epi.up2 ? " with a scale or an upsampled addend" : "", x.c);
        return (ist_tensor){0};
    }
    ist_elem elem = ist_has(o->into) ? o->into.elem : IST_ELEM_T;
    ist_tensor y = ist_plan_into(p, o->into, x.n, x.h, x.w, f.out, elem, label);
    if (ist_plan_status(p) || !ist_epilogue_check(p, &o->epi, y, label)) return (ist_tensor){0};
    ist_chain_take(p,
                   &(ist_chain_step){.op = IST_CHAIN_LINEAR,
                                     .out = {y},
                                     .rows = {x, o->epi.add_before, o->epi.add_after},
                                     .filter = f,
                                     .ints = {(int)o->epi.act},
                                     .floats = {o->epi.has_lab ? o->epi.lab_scale : 1, o->epi.lab_bias},
                                     .flops = 2.0 * ist_pixels(x) * f.in * f.out},
                   label);
    return y;
}

ist_tensor ist_chain_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    const struct ist_chain *chain = ist_plan_chain(p);
    const ist_epilogue *e = &opts->epi;
    if (ist_plan_status(p)) return (ist_tensor){0};
    bool pads = opts->top == 1 && opts->left == 1 && opts->bottom == 1 && opts->right == 1;
    if (x.w != chain->width || f.kh != 3 || f.kw != 3 || opts->stride != 2 || !pads || f.out != x.c || x.c % 16 ||
        e->has_lab || ist_has(e->add_before) || ist_has(e->add_after)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: depthwise %dx%d on [%d,%d,%d,%d], not the 3x3 of stride 2 behind a map",
                      label, f.kh, f.kw, x.n, x.h, x.w, x.c);
        return (ist_tensor){0};
    }
    ist_tensor y = ist_plan_into(p, opts->into, x.n, x.h / 2, x.w / 2, x.c, IST_ELEM_T, label);
    float *w = malloc(9 * (size_t)x.c * sizeof *w);
    if (!w) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", label, 9 * x.c);
    for (int i = 0; w && i < 9 * x.c; i++) w[i] = f.w[i % x.c * 9 + i / x.c];
    ist_chain_step step = {.op = IST_CHAIN_DEPTHWISE,
                           .out = {y},
                           .rows = {x},
                           .data = {w, f.b},
                           .sizes = {9 * x.c, x.c},
                           .ints = {(int)e->act},
                           .flops = 18.0 * ist_pixels(y) * x.c};
    step.has_bias = f.b != NULL;
    if (w) ist_chain_take(p, &step, label);
    free(w);
    return ist_plan_status(p) ? (ist_tensor){0} : y;
}

static bool touches(const ist_chain_step *s, int buffer) {
    for (int i = 0; i < 2; i++)
        if (s->out[i].buffer == buffer || s->whole[i].buffer == buffer) return true;
    for (int i = 0; i < 3; i++)
        if (s->rows[i].buffer == buffer) return true;
    return false;
}

int ist_chain_argument(ist_plan *p, const char *label, ist_arg *arguments, int *count, int most, ist_tensor t,
                       ist_arg_kind use) {
    for (int i = 0; i < *count; i++) {
        if (arguments[i].tensor.buffer != t.buffer) continue;
        if (arguments[i].kind != use) arguments[i].kind = IST_ARG_INOUT;
        return i;
    }
    if (*count == most) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: a piece of a chain uses more than %d tensors from outside", label, most);
        return 0;
    }
    arguments[*count] = (ist_arg){.kind = use, .tensor = t};
    return (*count)++;
}

bool ist_chain_shares(const ist_plan *p, const struct ist_chain *c, size_t first, size_t end, int buffer) {
    bool needed = buffer <= c->inside || ist_plan_keeps(p, buffer);
    for (int i = 0; i < c->result_count && !needed; i++) needed = c->results[i].buffer == buffer;
    for (size_t i = 0; i < c->count && !needed; i++) needed = (i < first || i >= end) && touches(&c->steps[i], buffer);
    return needed;
}

/* CPUs have a kernel of its own for attention, with the queries in the lanes of its vectors; on matrix instructions
 * many small groups are faster than those of a chain, of which there are few. */
static bool alone(const struct ist_chain *c, size_t i) {
    return (c->cpu || c->matrix) && c->steps[i].op == IST_CHAIN_ATTENTION;
}

/* A step that reads, at any row, what the piece makes, or that begins or ends a piece by itself. */
static bool must_cut(const struct ist_chain *c, size_t first, size_t i) {
    if (alone(c, i) || alone(c, i - 1)) return true;
    for (int w = 0; w < 2; w++)
        for (size_t k = first; k < i && ist_has(c->steps[i].whole[w]); k++)
            for (int o = 0; o < 2; o++)
                if (c->steps[k].out[o].buffer == c->steps[i].whole[w].buffer) return true;
    return false;
}

/* [1,1,1,count], one zero when there is nothing. */
static ist_tensor constant(ist_plan *p, const float *values, size_t count, ist_elem elem, const char *label) {
    static const float zero = 0;
    return ist_plan_const(p, count ? values : &zero, 1, 1, 1, count ? (int)count : 1, elem, label);
}

/* Whether the chain can run on matrix instructions. */
static bool on_matrix(const ist_plan *p, const struct ist_chain *c) {
    if (c->cpu || !ist_plan_half(p) || !(ist_plan_caps(p) & IST_CAP_PTX_MMA)) return false;
    for (size_t i = 0; i < c->count; i++) {
        const ist_chain_step *s = &c->steps[i];
        int firsts = s->out[0].c0 | s->rows[0].c0 | s->rows[1].c0 | s->rows[2].c0;
        bool norm = s->op == IST_CHAIN_NORM || s->op == IST_CHAIN_GATE;
        if (norm && ((s->out[0].c | firsts) % 4 || s->out[0].c > NORM_MOST)) return false;
        if (s->op == IST_CHAIN_LINEAR && s->rows[0].c0 % 4) return false;
    }
    return true;
}

static void launch_pieces(ist_plan *p, struct ist_chain *c, const char *label) {
    ist_tensor weights = {0};
    if (!c->matrix) weights = constant(p, c->weights, c->weight_count, IST_ELEM_T, label);
    ist_tensor table = constant(p, c->table, c->table_count, IST_ELEM_F32, label);
    size_t first = 0;
    for (size_t i = 1; i <= c->count; i++) {
        if (i < c->count && !must_cut(c, first, i)) continue;
        const ist_chain_step *s = &c->steps[first];
        if (alone(c, first))
            ist_attention_launch(p, s->out[0], s->rows[0], s->whole[0], s->whole[1],
                                 &(ist_attention_opts){.heads = s->ints[0], .scale = s->floats[0]}, label);
        else if (c->cpu)
            ist_chain_launch_cpu(p, c, first, i, weights, table, label);
        else
            ist_chain_launch(p, c, first, i, weights, table, label);
        first = i;
    }
}

void ist_chain_end(ist_plan *p, const ist_tensor *results, int count, const char *label) {
    struct ist_chain *c = ist_plan_chain(p);
    if (!c) return;
    ist_plan_set_chain(p, NULL);
    c->results = results;
    c->result_count = count;
    c->matrix = on_matrix(p, c);
    if (!ist_plan_status(p) && c->count) launch_pieces(p, c, label);
    free(c->steps);
    free(c->weights);
    free(c->table);
    free(c);
}
