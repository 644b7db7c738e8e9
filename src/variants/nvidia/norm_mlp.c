/* Norm and both linear layers on matrix instructions (cl/nvidia/norm_mlp_mma) or those of warpgroups
 * (cl/nvidia/norm_mlp_wgmma): packs weights as halves and records the launch. Norm and one layer as a convolution. */
#include "variants/fragments.h"
#include "variants/nvidia/norm_mlp.h"
#include "variants/nvidia/norm_mlp_args.h"
#include "variants/nvidia/weights.h"
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/span.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 256, LOCAL_ROOM = 98 << 10, STAGES_MAX = 4, CHUNK = 8 };
enum { C_MAX = 160 };           /* more are norm_mlp_wide's, or the two layers are faster alone */
enum { SPREAD_ROWS = 1 << 15 }; /* so many rows at most, else the convolution in front is faster alone */

#define WGMMA_PARTS "nvidia/ptx+nvidia/norm+nvidia/wgmma+nvidia/mlp_chunks+portable/left_out+nvidia/spread"
enum { WIDE = 64, RING = 3 }; /* rows of a warpgroup, hidden channels at a time; weights of so many of these */

/* Rows of a group; hidden channels at a time; slices of weights in local memory, where warps multiply. Warpgroups along
 * the rows (0: none, but warps) and along the hidden channels. */
typedef struct mlp_tile {
    int rows, hidden, stages, down, across;
} mlp_tile;

static int local_bytes(mlp_tile t, int c, int hidden) {
    return 16 * (t.rows * (c / 8 + 1) + t.stages * c * t.hidden / 8 + t.rows * (t.hidden / 8 + 1) + hidden / 4);
}

/* With both layers' weights of WIDE hidden channels RING times. */
static int wide_bytes(mlp_tile t, int c, int hidden) {
    int pieces = c / CHUNK, apart = pieces + (12 - pieces % 8) % 8;
    return RING * (ist_div_up(c, WIDE) * WIDE + c) * 2 * WIDE + t.rows * apart * 16 + (hidden + c) * 4 + 1024;
}

/* Two warpgroups: of one's rows where that leaves no compute unit a second group. */
static mlp_tile wide_tile(const ist_plan *p, int64_t rows) {
    mlp_tile t = {.hidden = WIDE, .across = rows <= (int64_t)WIDE * ist_plan_units(p) ? 2 : 1};
    t.down = 2 / t.across;
    t.rows = WIDE * t.down;
    return t;
}

/* The largest that fits, for `rows` in all: large tiles read the weights less often, small ones occupy the device. */
static mlp_tile small_tile(const ist_plan *p, int64_t rows, int c, int hidden) {
    mlp_tile t = {.rows = rows / 64 >= ist_plan_units(p) ? 64 : 32};
    for (t.hidden = 64; t.hidden >= 32; t.hidden -= 32)
        for (t.stages = STAGES_MAX; t.stages >= 2; t.stages--)
            if (hidden % t.hidden == 0 && t.rows * (c + 8) * 4 <= local_bytes(t, c, hidden) &&
                local_bytes(t, c, hidden) <= LOCAL_ROOM)
                return t;
    return (mlp_tile){0};
}

/* Slices from h on as fragments: `scaled` is W1 times the norm's scale. */
static float *pack_fragments(const ist_norm_mlp *l, const float *scaled, int c, int h, int each, float *to) {
    int hidden = l->fc1.out;
    for (int o = h; o < h + each; o += 8)
        for (int k = 0; k < c; k += 32) to = ist_fragments(scaled + o * c + k, 1, 1, (size_t)c, false, to);
    for (int o = 0; o < c; o += 8)
        for (int k = h; k < h + each; k += 32)
            to = ist_fragments(l->fc2.w + o * hidden + k, 1, 1, (size_t)hidden, false, to);
    return to;
}

/* The same as tiles of rows of 64 halves, whose 16-byte parts are exchanged but in one that is half full. What a
 * work-item has of 32 channels is eight in a row: fragments of the first layer's input, the second's results. */
static float *pack_tiles(const ist_norm_mlp *l, const float *scaled, int c, int h, float *to) {
    int hidden = l->fc1.out;
    for (int tile = 0; tile < c; tile += WIDE) {
        int width = c - tile < WIDE ? c - tile : WIDE;
        for (int o = 0; o < WIDE; o++)
            for (int k = 0; k < width; k++)
                to[ist_group_part_at(o, k, width)] = scaled[(h + o) * c + ist_place_channel(tile + k)];
        to += WIDE * width;
    }
    for (int o = 0; o < c; o++)
        for (int k = 0; k < WIDE; k++) to[ist_group_tile_at(o, k)] = l->fc2.w[ist_place_channel(o) * hidden + h + k];
    return to + (size_t)c * WIDE;
}

void ist_mlp_scale(const ist_norm_mlp *l, float *scaled) {
    const int c = l->fc1.in;
    for (int o = 0; o < l->fc1.out; o++)
        for (int i = 0; i < c; i++) scaled[o * c + i] = l->fc1.w[o * c + i] * l->norm.gamma[i];
}

/* Both layers, by slices of hidden channels. */
static ist_tensor pack_weights(ist_plan *p, const ist_norm_mlp *l, int c, mlp_tile tile, const char *label) {
    int hidden = l->fc1.out;
    size_t count = 2 * (size_t)hidden * (size_t)c;
    float *packed = malloc((count + (size_t)hidden * (size_t)c) * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    float *scaled = packed + count;
    const bool made = ist_plan_has_values(p);
    if (made) ist_mlp_scale(l, scaled);
    for (int h = 0; h < hidden && made; h += tile.hidden)
        to = tile.down ? pack_tiles(l, scaled, c, h, to) : pack_fragments(l, scaled, c, h, tile.hidden, to);
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

ist_tensor ist_mlp_table(ist_plan *p, const ist_norm_mlp *l, const ist_conv *in_front, const char *label) {
    int c = l->fc1.in, hidden = l->fc1.out, count = hidden + c * (in_front ? 2 : 1);
    float *table = calloc((size_t)count, sizeof *table);
    ist_tensor t = {0};
    if (!table) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a table of %d numbers", label, count);
        return t;
    }
    for (int o = 0; o < hidden; o++) {
        double sum = l->fc1.b ? l->fc1.b[o] : 0;
        for (int i = 0; i < c; i++) sum += (double)l->fc1.w[o * c + i] * l->norm.beta[i];
        table[o] = (float)sum;
    }
    if (l->fc2.b) memcpy(table + hidden, l->fc2.b, (size_t)c * sizeof *table);
    if (in_front && in_front->filter.b) memcpy(table + hidden + c, in_front->filter.b, (size_t)c * sizeof *table);
    t = ist_plan_const(p, table, 1, 1, 1, count, IST_ELEM_F32, label);
    free(table);
    return t;
}

/* The linear layer in front, outputs in the order in which a work-item has eight in a row. */
static ist_tensor pack_projection(ist_plan *p, const ist_filter *f, const char *label) {
    const size_t in = (size_t)f->in, count = in * (size_t)f->out;
    float *packed = malloc(count * sizeof *packed);
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int o = 0; o < f->out; o++)
        memcpy(packed + (size_t)o * in, f->w + (size_t)ist_place_channel(o) * in, in * sizeof *packed);
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* in_front: NULL, or a linear layer with a residual that makes l->x within the launch. */
static void record(ist_plan *p, ist_norm_mlp *l, mlp_tile tile, const ist_conv *in_front) {
    const char *label = l->label;
    const ist_tensor x = in_front ? in_front->x : l->x, y = l->y;
    const ist_tensor residual = in_front ? in_front->o.epi.add_before : (ist_tensor){0};
    int hidden = l->fc1.out;
    int64_t all = ist_pixels(x);
    ist_tensor weights = pack_weights(p, l, x.c, tile, label), table = ist_mlp_table(p, l, in_front, label),
               taps = {0};
    ist_tensor project = {0};
    if (in_front) project = pack_projection(p, &in_front->filter, label);
    if (l->spread.out) taps = ist_pack_taps(p, &l->spread, label);
    const char *spread = l->spread.out ? " -DSPREAD" : "";
    const ist_padding_reuse operand = l->reuse;
    const ist_padding_reuse_args read = ist_padding_reuse_read(operand, x.h);
    const ist_padding_reuse_args out = ist_padding_reuse_leave_out(
        &l->reuse, l->spread.out ? ist_padding_reuse_behind(operand, x.h, 1) : ist_padding_reuse_points(operand, x.h),
        x.h);
    ist_defines d = tile.down ? ist_defines_of(p, "-DC=%d -DHID=%d -DDOWN=%d -DACROSS=%d%s", x.c, hidden, tile.down,
                                               tile.across, spread)
                              : ist_defines_of(p, "-DC=%d -DHID=%d -DBM=%d -DBH=%d -DSTAGES=%d%s", x.c, hidden,
                                               tile.rows, tile.hidden, tile.stages, spread);
    if (in_front) ist_defines_add(&d, " -DPROJECT");
    ist_padding_reuse_define(&d, &operand);
    const ist_norm_mlp_mma_args by_value = {.x_ld = x.ld,
                                            .x_c0 = x.c0,
                                            .y_ld = y.ld,
                                            .y_c0 = y.c0,
                                            .items = x.n,
                                            .rows = x.h * x.w,
                                            .h = x.h,
                                            .w = x.w,
                                            .eps = l->eps,
                                            .r_ld = residual.ld,
                                            .r_c0 = residual.c0,
                                            .in = read,
                                            .out = out};
    const double linear = in_front ? 2.0 * x.c : 0; /* operations of an element of the map in front */
    ist_launch launch = {.label = label,
                         .op = tile.down ? "nvidia/norm_mlp_wgmma" : "nvidia/norm_mlp_mma",
                         .isa = in_front    ? WGMMA_PARTS "+nvidia/projection"
                                : tile.down ? WGMMA_PARTS
                                            : "nvidia/ptx+portable/left_out+nvidia/spread",
                         .defines = d.text,
                         .kernel = "norm_mlp",
                         .dims = 1,
                         .global = {(size_t)((all + tile.rows - 1) / tile.rows) * ITEMS},
                         .local = {ITEMS},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table), IST_IN(taps),
                                  IST_IN(ist_plan_current_limit(p)), IST_IN(operand.content)},
                         .arg_count = 7,
                         .flops = (4.0 * hidden + linear) * (double)all * x.c,
                         .bytes = (in_front ? 6.0 : 4.0) * (double)all * x.c};
    if (in_front) {
        launch.args[launch.arg_count++] = (ist_arg)IST_IN(residual);
        launch.args[launch.arg_count++] = (ist_arg)IST_IN(project);
    }
    launch.args[launch.arg_count++] = (ist_arg)IST_STRUCT(norm_mlp_mma_args, &by_value);
    ist_plan_launch(p, &launch);
}

/* ---- variants ---- */

bool ist_mlp_reads(ist_tensor t) {
    return t.elem == IST_ELEM_T && (t.ld | t.c0) % CHUNK == 0;
}

static bool layers_fit(const ist_norm_mlp *l) {
    ist_tensor x = l->x;
    return ist_mlp_reads(x) && x.c % 32 == 0 && x.c <= C_MAX && l->fc2.out && l->act == IST_ACT_GELU &&
           (!l->spread.out || (x.w % 4 == 0 && ist_pixels(x) <= SPREAD_ROWS));
}

static bool takes_wgmma(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    int c = l->x.c, hidden = l->fc1.out;
    (void)v;
    return layers_fit(l) && (c == 64 || c == 128 || c == 160) && hidden % (2 * WIDE) == 0 &&
           wide_bytes(wide_tile(p, ist_pixels(l->x)), c, hidden) <= IST_MLP_ROOM;
}

static void emit_wgmma(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    (void)v, (void)way;
    record(p, l, wide_tile(p, ist_pixels(l->x)), NULL);
}

const ist_family ist_nvidia_norm_mlp_wgmma = {.takes = takes_wgmma, .emit = emit_wgmma, .rows = IST_REPEATS_LEFT_OUT};

/* ---- a linear layer with a residual in front: a span ---- */

/* A launch less pays where one of them leaves units idle; a group's rows are a line of the map. */
static bool takes_projected(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_spanned *s = node;
    const int first = s->region->first;
    if (s->region->end - first != 2) return false;
    const ist_conv *q = ist_span_node(s, first, IST_NODE_CONV);
    const ist_norm_mlp *l = ist_span_node(s, first + 1, IST_NODE_NORM_MLP);
    if (!q || !l || !takes_wgmma(p, v, l) || l->x.buffer != q->y.buffer) return false;
    const ist_epilogue *e = &q->o.epi;
    const mlp_tile tile = wide_tile(p, ist_pixels(l->x));
    const int more = 11 * l->x.c * (int)sizeof(float); /* local memory for its biases and the taps */
    return l->spread.out && tile.across == 2 && l->x.w == WIDE &&
           wide_bytes(tile, l->x.c, l->fc1.out) + more <= IST_MLP_ROOM && q->filter.kh == 1 && q->filter.kw == 1 &&
           q->filter.in == l->x.c && q->x.h == l->x.h && q->x.w == l->x.w && ist_mlp_reads(q->x) &&
           ist_has(e->add_before) && ist_mlp_reads(e->add_before) && e->add_before.n == l->x.n && !e->up2 &&
           !ist_has(e->add_after) && !e->act && !e->has_lab && !q->o.exact && !(q->norm_eps > 0) &&
           !ist_graph_leaves(s->graph, q->y.buffer, first, s->region->end);
}

static void emit_projected(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_spanned *s = node;
    const int first = s->region->first;
    const ist_norm_mlp *of = ist_span_node(s, first + 1, IST_NODE_NORM_MLP);
    ist_loaded loaded[2];
    (void)v, (void)way;
    ist_span_enter(s, first);
    const ist_conv *q = ist_span_load(s, first, &loaded[0]);
    const ist_norm_mlp *l = ist_span_load(s, first + 1, &loaded[1]);
    if (q && l && !ist_plan_status(p)) {
        ist_norm_mlp own = *l;
        own.x = (ist_tensor){.n = q->x.n, .h = q->x.h, .w = q->x.w, .c = q->x.c};
        own.y = ist_span_place(s, of->y);
        own.reuse = (ist_padding_reuse){0};
        if (!ist_mlp_reads(q->x) || !ist_mlp_reads(own.y) || !ist_mlp_reads(q->o.epi.add_before))
            ist_plan_fail(p, IST_E_STATE, "%s: maps whose pixels do not begin at multiples of eight channels",
                          l->label);
        record(p, &own, wide_tile(p, ist_pixels(own.x)), q);
        ist_span_made(s, of->y, own.y);
    }
    for (int i = 0; i < 2; i++) ist_span_release(&loaded[i]);
}

const ist_family ist_nvidia_projected_mlp = {.takes = takes_projected, .emit = emit_projected};

static bool takes_mma(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    (void)v;
    return layers_fit(l) && small_tile(p, ist_pixels(l->x), l->x.c, l->fc1.out).rows;
}

static void emit_mma(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    (void)v, (void)way;
    record(p, l, small_tile(p, ist_pixels(l->x), l->x.c, l->fc1.out), NULL);
}

const ist_family ist_nvidia_norm_mlp = {.takes = takes_mma, .emit = emit_mma, .rows = IST_REPEATS_LEFT_OUT};

/* ---- one layer: a convolution that has the norm's scale and shift in its weights ---- */

/* Channels, of which a work-item holds an eighth; pixels, beyond which a launch less is not worth that each column of
 * tiles reads its rows twice. */
static bool takes_linear(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { MOST = 512, MOST_PIXELS = 16384 };
    const ist_norm_mlp *l = node;
    ist_tensor x = l->x;
    (void)p, (void)v;
    return !l->spread.out && !l->fc2.out && ist_mlp_reads(x) && x.c % CHUNK == 0 && x.c <= MOST &&
           ist_pixels(x) <= MOST_PIXELS;
}

static void emit_linear(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    ist_emit_norm_linear(p, node);
}

const ist_family ist_nvidia_norm_linear = {.takes = takes_linear, .emit = emit_linear, .rows = IST_REPEATS_POINTS};
