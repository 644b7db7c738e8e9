/* Norm and both linear layers on matrix instructions of warpgroups, for more channels than norm_mlp.c takes
 * (cl/nvidia/norm_mlp_wide): packs weights as halves and records the launch, behind that of a depthwise convolution
 * where the node has one. */
#include "variants/fragments.h"
#include "variants/nvidia/norm_mlp.h"
#include "variants/nvidia/norm_mlp_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

/* As the kernel has them: rows and work-items of a group, channels of a tile of local memory, hidden channels of a
 * chunk, of which a group has an even number. */
enum { ROWS = 128, ITEMS = 256, TILE = 64, CHUNK = 32 };

static int blocks_of(const ist_norm_mlp *l) {
    return (int)((ist_pixels(l->x) + ROWS - 1) / ROWS);
}

/* Groups that share rows: the configuration says how many at most, and all of a launch find a unit at once. */
static int split_of(const ist_plan *p, const ist_variant *v, const ist_norm_mlp *l) {
    int split = *(const int *)v->config;
    while (split > 1 && (blocks_of(l) * split > ist_plan_units(p) || l->fc1.out % (2 * CHUNK * split))) split /= 2;
    return split;
}

/* Rows, weights of both layers, four times each but for W1's, and biases. */
static int local_bytes(int c, int hidden) {
    return ROWS * c * 2 + (3 + 4) * CHUNK * c * 2 + hidden * 4 + 1024;
}

/* A group with all hidden channels takes as long as the layers apart where it is one of few. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    const int c = l->x.c;
    return ist_mlp_reads(l->x) && (c == 192 || c == 256 || c == 320) && l->fc2.out && l->act == IST_ACT_GELU &&
           l->fc1.out % (2 * CHUNK) == 0 && local_bytes(c, l->fc1.out / split_of(p, v, l)) <= IST_MLP_ROOM &&
           (split_of(p, v, l) > 1 || 2 * blocks_of(l) >= ist_plan_units(p));
}

/* By chunks: W1's tiles of 64 channels, W2's columns in the order in which a work-item has eight in a row. */
static ist_tensor pack_weights(ist_plan *p, const ist_norm_mlp *l) {
    const int c = l->x.c, hidden = l->fc1.out;
    const size_t count = 2 * (size_t)hidden * (size_t)c;
    float *packed = malloc((count + (size_t)hidden * (size_t)c) * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", l->label, count);
        return t;
    }
    float *scaled = packed + count;
    const bool made = ist_plan_has_values(p);
    if (made) ist_mlp_scale(l, scaled);
    for (int h = 0; h < hidden && made; h += CHUNK) {
        for (int tile = 0; tile < c; tile += TILE, to += CHUNK * TILE)
            for (int o = 0; o < CHUNK; o++)
                for (int k = 0; k < TILE; k++) to[ist_group_tile_at(o, k)] = scaled[(h + o) * c + tile + k];
        for (int o = 0; o < c; o++)
            for (int k = 0; k < CHUNK; k++) *to++ = l->fc2.w[ist_place_channel(o) * hidden + h + k];
    }
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, l->label);
    free(packed);
    return t;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    ist_conv spread = {
        .label = l->label, .x = l->x, .filter = l->spread, .o = {.top = 1, .left = 1, .bottom = 1, .right = 1}};
    (void)way;
    if (l->spread.out) ist_emit(p, IST_NODE_DWCONV, &spread);
    const ist_tensor x = l->spread.out ? spread.y : l->x, y = l->y;
    const int c = l->x.c, hidden = l->fc1.out, split = split_of(p, v, l), blocks = blocks_of(l);
    const int64_t all = ist_pixels(l->x);
    if (ist_plan_status(p)) return;
    ist_tensor weights = pack_weights(p, l), table = ist_mlp_table(p, l, NULL, l->label);
    ist_defines d = ist_defines_of(p, "-DC=%d -DHID=%d -DSPLIT=%d", c, hidden, split);
    const ist_norm_mlp_mma_args by_value = {
        .x_ld = x.ld, .x_c0 = x.c0, .y_ld = y.ld, .y_c0 = y.c0, .items = x.n, .rows = x.h * x.w, .eps = l->eps};
    ist_launch launch = {
        .label = l->label,
        .op = "nvidia/norm_mlp_wide",
        .isa = "nvidia/ptx+nvidia/wgmma+nvidia/mlp_chunks+nvidia/spread",
        .defines = d.text,
        .kernel = "norm_mlp",
        .dims = 1,
        .global = {(size_t)blocks * (size_t)split * ITEMS},
        .local = {ITEMS},
        .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table), IST_IN(ist_plan_current_limit(p))},
        .arg_count = 5,
        .flops = 4.0 * hidden * (double)all * c,
        .bytes = 4.0 * (double)all * c};
    if (split > 1) { /* sums of all groups that share rows, in places of the kernel's; how many have come */
        const ist_tensor partial = ist_plan_tensor(p, blocks, split, ROWS, c, IST_ELEM_T);
        const ist_tensor arrived = ist_plan_persistent(p, 1, 1, blocks, 1, IST_ELEM_I32);
        launch.args[launch.arg_count++] = (ist_arg)IST_OUT(partial);
        launch.args[launch.arg_count++] = (ist_arg)IST_INOUT(arrived);
    }
    launch.args[launch.arg_count++] = (ist_arg)IST_STRUCT(norm_mlp_mma_args, &by_value);
    ist_plan_launch(p, &launch);
}

const ist_family ist_nvidia_norm_mlp_wide = {.takes = takes, .emit = emit};
