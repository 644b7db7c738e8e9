/* Multiply-adds of a node: see kinds.h. */
#include "graph/shapes.h"

static double pixels(ist_tensor t) {
    return (double)t.n * t.h * t.w;
}

static double weights(const ist_filter *f) {
    return (double)f->out * f->in * f->kh * f->kw;
}

static double of_stem(const ist_stem *q) {
    double half = pixels(q->image) / 4, quarter = pixels(q->y);
    const ist_stem_layer *l = q->layers;
    return half * (weights(&l[0].f) + weights(&l[1].f) + weights(&l[2].f)) +
           quarter * (weights(&l[3].f) + weights(&l[4].f));
}

static double of_csp(const ist_csp *q) {
    double sum = weights(&q->first) + weights(&q->last);
    for (int i = 0; i < q->necks; i++) sum += weights(&q->neck[i]);
    return pixels(q->x) * sum;
}

/* Of windows that divide the map, padding included. */
static double of_windows(ist_tensor x, int ws, int dim) {
    double windows = (double)x.n * ((x.h + ws - 1) / ws) * ((x.w + ws - 1) / ws), tokens = (double)ws * ws;
    return 2 * windows * tokens * tokens * dim;
}

static double of_relative(const ist_relative_attention *q) {
    int d = q->y.c / q->heads, wh = ist_relative_side(q->rel_h.count, d), ww = ist_relative_side(q->rel_w.count, d);
    return pixels(q->y) * q->y.c * (2.0 * wh * ww + wh + ww);
}

static double of_attention_layer(const ist_attention_layer *l) {
    double nq = pixels(l->q), nk = pixels(l->k);
    return nq * (weights(&l->query) + weights(&l->out)) + nk * (weights(&l->key) + weights(&l->value)) +
           2 * nq * ist_tokens_of(l->k) * l->query.out;
}

static double of_token_mlps(const ist_token_mlps *q) {
    double sum = 0;
    for (int i = 0; i < q->count; i++)
        for (int k = 0; k < 3; k++) sum += weights(&q->mlp[i][k]);
    return q->x.n * sum;
}

double ist_multiply_adds(ist_node_kind kind, const void *node) {
    switch (kind) {
    case IST_NODE_CONV:
    case IST_NODE_DWCONV: {
        const ist_conv *q = node;
        return pixels(q->y) * weights(&q->filter);
    }
    case IST_NODE_ATTENTION: {
        const ist_attention *q = node;
        return 2 * pixels(q->y) * ist_tokens_of(q->k) * q->y.c;
    }
    case IST_NODE_WINDOW_ATTENTION: {
        const ist_window_attention *q = node;
        return of_windows(q->qkv, q->ws, q->y.c);
    }
    case IST_NODE_RELATIVE_ATTENTION:
        return of_relative(node);
    case IST_NODE_DEFORM: {
        const ist_deform *q = node;
        return 4 * pixels(q->y) * q->weights.c / q->heads * q->y.c;
    }
    case IST_NODE_STEM:
        return of_stem(node);
    case IST_NODE_SEPARABLE: {
        const ist_separable *q = node;
        return pixels(q->x) * weights(&q->point) + pixels(q->y) * weights(&q->depth);
    }
    case IST_NODE_CSP:
        return of_csp(node);
    case IST_NODE_FUSE: {
        const ist_fuse *q = node;
        return pixels(q->y) * (weights(&q->filter) + weights(&q->side_filter));
    }
    case IST_NODE_QKV: {
        const ist_qkv *q = node;
        return pixels(q->x) * weights(&q->filter);
    }
    case IST_NODE_PATCH_EMBED: {
        const ist_patch_embed *q = node;
        double middle = (double)q->image.n * ist_halved(q->image.h) * ist_halved(q->image.w);
        return middle * weights(&q->first) + pixels(q->y) * weights(&q->second);
    }
    case IST_NODE_MBCONV: {
        const ist_mbconv *q = node;
        return pixels(q->x) * weights(&q->expand) + pixels(q->y) * (weights(&q->spread) + weights(&q->project));
    }
    case IST_NODE_NORM_WINDOW: {
        const ist_norm_window *q = node;
        return pixels(q->x) * weights(&q->qkv) + of_windows(q->x, q->ws, q->x.c);
    }
    case IST_NODE_NORM_MLP: {
        const ist_norm_mlp *q = node;
        return pixels(q->x) * (weights(&q->spread) + weights(&q->fc1) + weights(&q->fc2));
    }
    case IST_NODE_ATTENTION_LAYER:
        return of_attention_layer(node);
    case IST_NODE_MLP_LAYER: {
        const ist_mlp_layer *l = node;
        return pixels(l->x) * (weights(&l->lin1) + weights(&l->lin2));
    }
    case IST_NODE_TOKEN_MLPS:
        return of_token_mlps(node);
    case IST_NODE_UPSCALE: {
        const ist_upscale *q = node;
        double out = (double)ist_tokens_of(q->vectors) * IST_UPSCALE_OUT;
        return pixels(q->x) * 4 * (q->x.c * IST_UPSCALE_MIDDLE + 4 * (IST_UPSCALE_MIDDLE * IST_UPSCALE_OUT + out));
    }
    default:
        return 0;
    }
}
