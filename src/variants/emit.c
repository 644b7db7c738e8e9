/* From a node to launches: places for its results, the choice of a variant, the record. */
#include "variants/variant.h"

#include "variants/conv.h"
#include "variants/padding_reuse.h"
#include "variants/sequence.h"
#include "variants/tune.h"

#include "base/mem.h"

const char *ist_machine_name(ist_machine machine) {
    static const char *const names[] = {
#define X(id, name) name,
        IST_MACHINE_LIST(X)
#undef X
    };
    return machine < IST_MACHINES ? names[machine] : "?";
}

ist_origin ist_variant_origin(const ist_variant *v) {
    return (ist_origin){ist_kind_of(v->kind)->name, ist_machine_name(v->machine), v->name};
}

/* ---- choosing ---- */

static bool storage_fits(const ist_plan *p, ist_storage s) {
    switch (s) {
    case IST_STORAGE_HALF:
        return ist_plan_half(p);
    case IST_STORAGE_FLOAT:
        return !ist_plan_half(p);
    case IST_STORAGE_EXACT:
        return !ist_plan_half(p) && !ist_plan_bf16(p);
    case IST_STORAGE_BF16:
        return !ist_plan_half(p) && ist_plan_bf16(p);
    default:
        return true;
    }
}

bool ist_variant_runs(const ist_plan *p, const ist_variant *v) {
    unsigned caps = ist_plan_caps(p);
    return (caps & v->needs) == v->needs && !(caps & v->without) && storage_fits(p, v->storage);
}

bool ist_variant_takes(const ist_plan *p, const ist_variant *v, const void *node) {
    return ist_variant_runs(p, v) && (!v->family->takes || v->family->takes(p, v, node));
}

int ist_variant_ways(const ist_plan *p, const ist_variant *v, const void *node) {
    return v->family->ways ? v->family->ways(p, v, node) : 1;
}

double ist_variant_cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    return v->family->cost ? v->family->cost(p, v, node, way) : 0;
}

/* The cheaper of `best` and the variant's ways, if it takes the node. */
static void consider(const ist_plan *p, const ist_variant *v, const void *node, ist_variant_choice *best, double *least) {
    if (!ist_variant_takes(p, v, node)) return;
    int ways = ist_variant_ways(p, v, node);
    for (int way = 1; way <= ways; way++) {
        double cost = ist_variant_cost(p, v, node, way);
        if (best->variant && cost >= *least) continue;
        *best = (ist_variant_choice){v, way};
        *least = cost;
    }
}

ist_variant_choice ist_variant_cheapest(const ist_plan *p, ist_node_kind kind, const void *node) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    ist_variant_choice best = {NULL, 1};
    double least = 0;
    for (int i = 0; i < count; i++) consider(p, &v[i], node, &best, &least);
    return best;
}

int ist_variant_channels(const ist_plan *p, ist_node_kind kind, int channels) {
    int count, most = 1;
    const ist_variant *v = ist_variants_of(kind, &count);
    for (int i = 0; i < count; i++)
        if (v[i].family->chunk > most && ist_variant_runs(p, &v[i])) most = v[i].family->chunk;
    return ist_div_up(channels, most) * most;
}

ist_variant_choice ist_variant_choose(ist_plan *p, ist_node_kind kind, const void *node) {
    ist_variant_choice tuned = ist_tuned_choice(p, kind, node);
    return tuned.variant ? tuned : ist_variant_cheapest(p, kind, node);
}

/* ---- emitting ---- */

static void clear_results(const ist_kind *k, void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && (f->kind == IST_FIELD_OUT || f->kind == IST_FIELD_MADE); i++)
            *(ist_tensor *)ist_field_at(node, f, i) = (ist_tensor){0};
}

static void place_results(ist_plan *p, const ist_kind *k, void *node) {
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_OUT; i++) {
            ist_tensor *t = ist_field_at(node, f, i);
            if (!ist_has(*t) && t->n) *t = ist_plan_tensor(p, t->n, t->h, t->w, t->c, t->elem);
        }
}

/* False, and the plan failed, when the node cannot be recorded. */
static bool prepare(ist_plan *p, ist_node_kind kind, void *node) {
    const ist_kind *k = ist_kind_of(kind);
    ist_error err = {0};
    if (!ist_plan_status(p) && k->infer(node, &err)) ist_plan_fail(p, err.code, "%s", err.text);
    if (!ist_plan_status(p)) place_results(p, k, node);
    if (!ist_plan_status(p)) return true;
    clear_results(k, node);
    return false;
}

static bool is_pointwise(ist_node_kind kind, const void *node) {
    switch (kind) {
    case IST_NODE_CONV:
        return ist_conv_keeps_pixels(node);
    case IST_NODE_NORM_MLP:
        return !((const ist_norm_mlp *)node)->spread.out;
    default:
        return kind == IST_NODE_LAYER_NORM;
    }
}

static ist_repeats repeats_of(const ist_family *f, ist_node_kind kind, const void *node) {
    if (f->rows != IST_REPEATS_POINTS) return f->rows;
    return is_pointwise(kind, node) ? IST_REPEATS_LEFT_OUT : IST_REPEATS_UNKNOWN;
}

/* Makes rows of operands that were left out and are needed. */
static void make_rows(ist_plan *p, ist_node_kind kind, ist_repeats rows, void *node) {
    const char *label = *(const char *const *)node;
    ist_tensor *x;
    ist_padding_reuse *reuse = ist_padding_reuse_of(kind, node, &x);
    if (reuse && rows != IST_REPEATS_LEFT_OUT) ist_padding_reuse_fill(p, *x, reuse, label);
    if (kind != IST_NODE_CONV) return;
    ist_conv *q = node;
    ist_padding_reuse result = q->reuse;
    result.kept = result.ahead;
    result.left_out = rows == IST_REPEATS_LEFT_OUT;
    if (!ist_has(result.content) || !ist_padding_reuse_covers(&q->addend, &result, q->x.h))
        ist_padding_reuse_fill(p, q->o.epi.add_before, &q->addend, label);
}

static void record(ist_plan *p, ist_variant_choice c, void *node) {
    ist_origin outer = ist_plan_origin(p, ist_variant_origin(c.variant));
    ist_tensor *x;
    ist_padding_reuse *reuse = ist_padding_reuse_of(c.variant->kind, node, &x);
    const ist_repeats rows = repeats_of(c.variant->family, c.variant->kind, node);
    make_rows(p, c.variant->kind, rows, node);
    if (reuse && c.variant->family->rows == IST_REPEATS_POINTS && rows == IST_REPEATS_LEFT_OUT)
        *reuse = ist_padding_reuse_points(*reuse, x->h);
    c.variant->family->emit(p, c.variant, node, c.way);
    if (reuse && rows == IST_REPEATS_UNKNOWN) *reuse = (ist_padding_reuse){0};
    ist_plan_origin(p, outer);
    if (ist_plan_status(p)) clear_results(ist_kind_of(c.variant->kind), node);
}

/* Says what the last variant, which takes every node, wants of the device. */
static void fail_without_variant(ist_plan *p, ist_node_kind kind, const void *node) {
    int count, bit = 0;
    const ist_variant *v = ist_variants_of(kind, &count);
    const char *label = *(const char *const *)node, *name = ist_kind_of(kind)->name;
    unsigned missing = count ? v[count - 1].needs & ~ist_plan_caps(p) : 0;
    while (missing && !(missing >> bit & 1)) bit++;
    if (missing)
        ist_plan_fail(p, IST_E_UNSUPPORTED, "%s: %s needs %s (%s), which this device does not have or gets wrong", label,
                      name, ist_cap_meaning(bit), ist_cap_name(bit));
    else
        ist_plan_fail(p, IST_E_UNSUPPORTED, "%s: there is no variant for %s", label, name);
}

void ist_emit(ist_plan *p, ist_node_kind kind, void *node) {
    if (!prepare(p, kind, node)) return;
    if (ist_plan_sequence(p)) {
        ist_sequence_take(p, kind, node);
        if (ist_plan_status(p)) clear_results(ist_kind_of(kind), node);
        return;
    }
    ist_variant_choice c = ist_variant_choose(p, kind, node);
    if (c.variant) {
        record(p, c, node);
        return;
    }
    fail_without_variant(p, kind, node);
    clear_results(ist_kind_of(kind), node);
}

void ist_emit_by(ist_plan *p, const ist_variant *v, int way, void *node) {
    if (!prepare(p, v->kind, node)) return;
    if (!ist_variant_takes(p, v, node)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: variant %s cannot do this %s", *(const char *const *)node, v->name,
                      ist_kind_of(v->kind)->name);
        clear_results(ist_kind_of(v->kind), node);
        return;
    }
    ist_variant_choice best = {NULL, 1};
    double least = 0;
    if (!way) consider(p, v, node, &best, &least);
    record(p, way ? (ist_variant_choice){v, way} : best, node);
}
