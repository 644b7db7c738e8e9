/* Window attention: a query per work-item (cl/portable/attention), or two matrix products on register tiles
 * (cl/portable/window_tile). */
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/variant.h"
#include "variants/window.h"

#include "base/mem.h"

enum { GROUP = 64, WARP = 32, GROUP_MAX = 256, HEAD_QUADS = IST_WINDOW_HEAD / 4 };
enum { QUERIES_MAX = 104, QUERY_TILE = 7, KEYS_MAX = 28, SMALL_WINDOW = 52 };

static ist_launch launch_of(ist_plan *p, const ist_window_attention *a) {
    int tokens = a->ws * a->ws;
    ist_tensor pad = ist_plan_const(p, a->pad, 1, 1, 1, a->qkv.c, IST_ELEM_F32, a->label);
    ist_tensor table = ist_plan_const(p, a->bias, 1, 1, a->heads, tokens, IST_ELEM_F32, a->label);
    ist_launch l = ist_window_launch(p, a, pad, table);
    l.dims = 3;
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)a->qkv.n;
    l.local[1] = l.local[2] = 1;
    return l;
}

/* What the kernels take by value and further options; rows of the result that repeat others are left out. */
static ist_window_args leave_out(ist_window_attention *a, ist_defines *d) {
    ist_window_args by_value = ist_window_args_of(a);
    ist_padding_reuse_define(d, &a->reuse);
    by_value.in = ist_padding_reuse_read(a->reuse, a->y.h);
    by_value.out = ist_padding_reuse_leave_out(&a->reuse, ist_padding_reuse_windows(a->reuse, a->y.h, a->ws), a->y.h);
    return by_value;
}

/* ---- a query per work-item ---- */

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_window_attention *a = node;
    const ist_tensor content = a->reuse.content;
    ist_defines d = ist_defines_of(p, "-DWS=%d", a->ws);
    (void)v, (void)way;
    const ist_window_args by_value = leave_out(a, &d);
    ist_launch l = launch_of(p, a);
    l.op = "portable/attention";
    l.isa = "portable/left_out";
    l.defines = d.text;
    l.global[0] = (size_t)ist_windows(a) * (size_t)ist_div_up(a->ws * a->ws, GROUP) * GROUP;
    l.local[0] = GROUP;
    l.args[l.arg_count++] = (ist_arg)IST_IN(content);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(window_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_window = {.emit = emit, .rows = IST_REPEATS_LEFT_OUT};

/* ---- register tiles ---- */

/* What a group has of a window: a part of the queries, and so many keys at a time; what its work-items have of both. */
typedef struct tiles {
    int parts, queries, keys, key_tile, query_tiles, key_tiles, items;
} tiles;

/* Where `parts` groups, or fewer, have a window's queries. Few keys at a time, so that many groups find room beside
 * each other; a small window's all at once. */
static tiles tiles_by(int ws, int parts) {
    const int tokens = ws * ws, small = tokens <= SMALL_WINDOW;
    tiles t = {.queries = ist_div_up(tokens, parts), .key_tile = small ? 8 : 4};
    t.parts = ist_div_up(tokens, t.queries);
    t.keys = small ? tokens : ist_div_up(tokens, ist_div_up(tokens, KEYS_MAX));
    t.query_tiles = ist_div_up(t.queries, QUERY_TILE);
    t.key_tiles = ist_div_up(t.keys, t.key_tile);
    int across = t.key_tiles > HEAD_QUADS ? t.key_tiles : HEAD_QUADS;
    t.items = ist_div_up(t.query_tiles * across, WARP) * WARP;
    return t;
}

/* Bytes of local memory of cl/portable/window_tile. */
static size_t bytes_of(const tiles *t, int ws) {
    int query_width = (2 * t->query_tiles | 1) * 4, key_width = (t->key_tile / 4 * t->key_tiles | 1) * 4;
    int keys = IST_WINDOW_HEAD * key_width, weights = t->keys * query_width, span = 2 * ws - 1;
    int rows = IST_WINDOW_HEAD + t->key_tiles + 1; /* queries, maxima, factors */
    int values = t->keys * IST_WINDOW_HEAD;
    const bool rounds = t->keys < ws * ws; /* more than one: the next one's keys and values have places of their own */
    const int round = rounds ? keys + weights + 2 * values : (keys > weights ? keys : weights) + values;
    return sizeof(float) * (size_t)(rows * query_width + span * span + round);
}

/* As many queries a group as local memory has room for; where it has too little for any, a group of none. */
static tiles tiles_of(const ist_plan *p, const ist_window_attention *a) {
    const size_t room = ist_device_local_bytes(ist_plan_device(p));
    const int tokens = a->ws * a->ws;
    for (int parts = ist_div_up(tokens, QUERIES_MAX); parts <= tokens; parts++) {
        tiles t = tiles_by(a->ws, parts);
        if (t.items <= GROUP_MAX && bytes_of(&t, a->ws) <= room) return t;
    }
    return (tiles){0};
}

static bool takes_tile(const ist_plan *p, const ist_variant *v, const void *node) {
    (void)v;
    return tiles_of(p, node).items > 0;
}

static void emit_tile(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_window_attention *a = node;
    const ist_tensor content = a->reuse.content;
    tiles t = tiles_of(p, a);
    bool aligned = (a->qkv.ld | a->qkv.c0 | a->y.ld | a->y.c0) % 4 == 0;
    ist_defines d = ist_defines_of(p, "-DWS=%d -DQUERIES=%d -DKEYS=%d -DKEY_TILE=%d -DITEMS=%d%s", a->ws, t.queries,
                                   t.keys, t.key_tile, t.items, aligned ? " -DALIGNED" : "");
    (void)v, (void)way;
    const ist_window_args by_value = leave_out(a, &d);
    ist_launch l = launch_of(p, a);
    l.op = "portable/window_tile";
    l.isa = "portable/left_out";
    l.defines = d.text;
    l.global[0] = (size_t)ist_windows(a) * (size_t)(t.parts * t.items);
    l.local[0] = (size_t)t.items;
    l.args[l.arg_count++] = (ist_arg)IST_IN(content);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(window_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_window_tile = {.takes = takes_tile, .emit = emit_tile, .rows = IST_REPEATS_LEFT_OUT};
