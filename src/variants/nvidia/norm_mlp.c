/* Norm and both linear layers on matrix instructions (cl/nvidia/norm_mlp_mma) or those of warpgroups
 * (cl/nvidia/norm_mlp_wgmma): packs weights as halves and records the launch. Norm and one layer as a convolution. */
#include "variants/fragments.h"
#include "variants/nvidia/norm_mlp_args.h"
#include "variants/nvidia/weights.h"
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 256, LOCAL_ROOM = 98 << 10, STAGES_MAX = 4, CHUNK = 8 };
enum { C_MAX = 160 };           /* with more channels the two layers are faster alone */
enum { SPREAD_ROWS = 1 << 15 }; /* so many rows at most, else the convolution in front is faster alone */

enum { WIDE = 64, WIDE_ROOM = 202 << 10 }; /* rows of a warpgroup and hidden channels at a time; its local memory */

/* Rows of a group; hidden channels at a time; slices of weights in local memory, where warps multiply. Warpgroups along
 * the rows (0: none, but warps) and along the hidden channels. */
typedef struct mlp_tile {
    int rows, hidden, stages, down, across;
} mlp_tile;

static int local_bytes(mlp_tile t, int c, int hidden) {
    return 16 * (t.rows * (c / 8 + 1) + t.stages * c * t.hidden / 8 + t.rows * (t.hidden / 8 + 1) + hidden / 4);
}

/* With both layers' weights of WIDE hidden channels three times. */
static int wide_bytes(mlp_tile t, int c, int hidden) {
    int pieces = c / CHUNK, apart = pieces + (12 - pieces % 8) % 8;
    return 3 * (ist_div_up(c, WIDE) * WIDE + c) * 2 * WIDE + t.rows * apart * 16 + (hidden + c) * 4 + 1024;
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
    for (int o = 0; o < hidden && made; o++)
        for (int i = 0; i < c; i++) scaled[o * c + i] = l->fc1.w[o * c + i] * l->norm.gamma[i];
    for (int h = 0; h < hidden && made; h += tile.hidden)
        to = tile.down ? pack_tiles(l, scaled, c, h, to) : pack_fragments(l, scaled, c, h, tile.hidden, to);
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* {b1 + W1 beta, b2}. */
static ist_tensor pack_table(ist_plan *p, const ist_norm_mlp *l, int c, const char *label) {
    int hidden = l->fc1.out;
    float *table = calloc((size_t)(hidden + c), sizeof *table);
    ist_tensor t = {0};
    if (!table) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a table of %d numbers", label, hidden + c);
        return t;
    }
    for (int o = 0; o < hidden; o++) {
        double sum = l->fc1.b ? l->fc1.b[o] : 0;
        for (int i = 0; i < c; i++) sum += (double)l->fc1.w[o * c + i] * l->norm.beta[i];
        table[o] = (float)sum;
    }
    if (l->fc2.b) memcpy(table + hidden, l->fc2.b, (size_t)c * sizeof *table);
    t = ist_plan_const(p, table, 1, 1, 1, hidden + c, IST_ELEM_F32, label);
    free(table);
    return t;
}

static void record(ist_plan *p, ist_norm_mlp *l, mlp_tile tile) {
    const char *label = l->label;
    ist_tensor x = l->x, y = l->y;
    int hidden = l->fc1.out;
    int64_t all = ist_pixels(x);
    ist_tensor weights = pack_weights(p, l, x.c, tile, label), table = pack_table(p, l, x.c, label), taps = {0};
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
                                            .in = read,
                                            .out = out};
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = tile.down ? "nvidia/norm_mlp_wgmma" : "nvidia/norm_mlp_mma",
                                     .isa = tile.down
                                                ? "nvidia/ptx+nvidia/norm+nvidia/wgmma+portable/left_out+nvidia/spread"
                                                : "nvidia/ptx+portable/left_out+nvidia/spread",
                                     .defines = d.text,
                                     .kernel = "norm_mlp",
                                     .dims = 1,
                                     .global = {(size_t)((all + tile.rows - 1) / tile.rows) * ITEMS},
                                     .local = {ITEMS},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table), IST_IN(taps),
                                              IST_IN(ist_plan_current_limit(p)), IST_IN(operand.content),
                                              IST_STRUCT(norm_mlp_mma_args, &by_value)},
                                     .arg_count = 8,
                                     .flops = 4.0 * (double)all * hidden * x.c,
                                     .bytes = 4.0 * (double)all * x.c});
}

/* ---- variants ---- */

static bool layers_fit(const ist_norm_mlp *l) {
    ist_tensor x = l->x;
    return x.elem == IST_ELEM_T && (x.ld | x.c0) % 8 == 0 && x.c % 32 == 0 && x.c <= C_MAX && l->fc2.out &&
           l->act == IST_ACT_GELU && (!l->spread.out || (x.w % 4 == 0 && ist_pixels(x) <= SPREAD_ROWS));
}

static bool takes_wgmma(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    int c = l->x.c, hidden = l->fc1.out;
    (void)v;
    return layers_fit(l) && (c == 64 || c == 128 || c == 160) && hidden % (2 * WIDE) == 0 &&
           wide_bytes(wide_tile(p, ist_pixels(l->x)), c, hidden) <= WIDE_ROOM;
}

static void emit_wgmma(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    (void)v, (void)way;
    record(p, l, wide_tile(p, ist_pixels(l->x)));
}

const ist_family ist_nvidia_norm_mlp_wgmma = {.takes = takes_wgmma, .emit = emit_wgmma, .rows = IST_REPEATS_LEFT_OUT};

static bool takes_mma(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    (void)v;
    return layers_fit(l) && small_tile(p, ist_pixels(l->x), l->x.c, l->fc1.out).rows;
}

static void emit_mma(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    (void)v, (void)way;
    record(p, l, small_tile(p, ist_pixels(l->x), l->x.c, l->fc1.out));
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
    return !l->spread.out && !l->fc2.out && x.elem == IST_ELEM_T && x.c % CHUNK == 0 && x.ld % CHUNK == 0 &&
           x.c0 % CHUNK == 0 && x.c <= MOST && ist_pixels(x) <= MOST_PIXELS;
}

static void emit_linear(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    ist_emit_norm_linear(p, node);
}

const ist_family ist_nvidia_norm_linear = {.takes = takes_linear, .emit = emit_linear, .rows = IST_REPEATS_POINTS};
