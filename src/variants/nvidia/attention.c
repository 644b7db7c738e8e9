/* Attention on matrix instructions, half storage (cl/nvidia/attention). */
#include "variants/attention.h"
#include "variants/defines.h"
#include "variants/nvidia/attention_args.h"
#include "variants/variant.h"

#include "base/mem.h"

/* Warps of a group that share the keys, and eights of keys of each, an even number. */
typedef struct shares {
    int warps, tiles;
} shares;

static bool fours(ist_tensor t) {
    return t.elem == IST_ELEM_T && (t.ld | t.c0) % 4 == 0;
}

/* No warps: more keys than registers hold. */
static shares shares_of(const ist_attention *a) {
    enum { TILES_MAX = 14, WORDS_MAX = TILES_MAX * 48, WARPS_MAX = 8 }; /* what fits registers */
    int nk = a->k.h * a->k.w;
    for (shares r = {.warps = 1}; r.warps <= WARPS_MAX; r.warps *= 2) {
        r.tiles = ist_div_up(ist_div_up(nk, 8), 2 * r.warps) * 2;
        if (r.tiles <= (r.warps < 4 ? 4 : TILES_MAX) && r.tiles * ist_attention_dim(a) <= WORDS_MAX) return r;
    }
    return (shares){0};
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_attention *a = node;
    (void)p, (void)v;
    return !ist_has(a->k_count) && ist_attention_dim(a) % 16 == 0 && a->q.h * a->q.w >= 16 && shares_of(a).warps &&
           fours(a->y) && fours(a->q) && fours(a->k) && fours(a->v);
}

/* Tiles of queries that a group makes of the same keys: as many as leave each compute unit some groups. */
static int turns_of(const ist_plan *p, const ist_attention *a) {
    enum { GROUPS_OF_UNIT = 4 };
    int units = ist_plan_units(p), tiles = ist_div_up(a->q.h * a->q.w, 16);
    double groups = (double)tiles * a->heads * a->y.n / (GROUPS_OF_UNIT * units);
    int parts = groups > 1 ? ist_div_up(tiles, groups < tiles ? (int)groups : tiles) : tiles;
    return ist_div_up(tiles, parts);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_attention *a = node;
    shares r = shares_of(a);
    int turns = turns_of(p, a);
    ist_defines defines = ist_defines_of(p, "-DD=%d -DTILES=%d -DWARPS=%d", ist_attention_dim(a), r.tiles, r.warps);
    (void)v, (void)way;
    const ist_attention_mma_args by_value = {.common = ist_attention_args_of(a), .turns = turns};
    ist_launch l = ist_attention_launch(p, a);
    l.op = "nvidia/attention";
    l.isa = "nvidia/ptx+nvidia/sums";
    l.kernel = "attention_mma";
    l.defines = defines.text;
    l.local[0] = (size_t)r.warps * 32;
    l.global[0] = (size_t)ist_div_up(a->q.h * a->q.w, 16 * turns) * l.local[0];
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(attention_mma_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_nvidia_attention = {.takes = takes, .emit = emit};
