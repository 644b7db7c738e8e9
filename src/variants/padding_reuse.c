#include "variants/padding_reuse.h"

#include "base/mem.h"
#include "variants/conv.h"

static int rounded(int v, int to) {
    return ist_div_up(v, to) * to;
}

ist_padding_reuse ist_padding_reuse_behind(ist_padding_reuse in, int h, int stride) {
    if (!ist_has(in.content)) return in;
    in.kept = in.ahead;
    if (in.period > 1 && stride > 1) return (ist_padding_reuse){0};
    int out = (h - 1) / stride + 1, last = h - in.below - 2; /* a window begins a row above its place */
    if (in.period > 1)
        in.after++;
    else
        in.above = ist_div_up(in.above + 1, stride);
    in.step *= stride;
    in.below = last < 0 ? out : out - 1 - last / stride;
    return in;
}

ist_padding_reuse ist_padding_reuse_conv(ist_padding_reuse in, const ist_conv *q) {
    const ist_conv_opts *o = &q->o;
    int stride = o->stride ? o->stride : 1;
    if (ist_conv_keeps_pixels(q)) {
        in.kept = in.ahead;
        return in;
    }
    if (q->filter.kh == 3 && o->top == 1 && q->y.h == (q->x.h - 1) / stride + 1)
        return ist_padding_reuse_behind(in, q->x.h, stride);
    return (ist_padding_reuse){0};
}

ist_padding_reuse ist_padding_reuse_windows(ist_padding_reuse in, int h, int ws) {
    if (!ist_has(in.content)) return in;
    if (in.period > 1 && in.period != ws) return (ist_padding_reuse){0};
    in.period = ws;
    in.kept = in.ahead;
    in.after = rounded(in.after, ws);
    in.below = in.below < h ? h - (h - in.below) / ws * ws : h;
    return in;
}

/* Rows that are made beyond the first of those that repeat; rows at the end that are made. */
static int made_beyond(const ist_padding_reuse *a) {
    int ws = a->kept.windows;
    return a->period + a->kept.spare + (ws ? 2 * ws - 1 - a->period : 0);
}
static int made_below(const ist_padding_reuse *a, int h) {
    int ws = a->kept.windows, below = a->below + a->kept.spare;
    if (ws && below < h) below = h - (h - below) / ws * ws;
    return below < h ? below : h;
}

ist_padding_reuse ist_padding_reuse_points(ist_padding_reuse in, int h) {
    ist_padding_reuse less = in;
    less.kept = in.ahead;
    return ist_padding_reuse_covers(&in, &less, h) ? less : in;
}

bool ist_padding_reuse_covers(const ist_padding_reuse *b, const ist_padding_reuse *a, int h) {
    if (!b->left_out) return true;
    if (!a->left_out || a->content.buffer != b->content.buffer || a->content.c0 != b->content.c0 || a->step != b->step)
        return false;
    int more = a->period == b->period ? 0 : a->period - 1; /* by which a's first row may be rounded up */
    int above = b->above - a->above;
    if (b->period != 1 && (b->period != a->period || above < 0)) return false;
    if (b->period != 1) above = 0; /* rounding may take what b has more */
    return above + b->after + made_beyond(b) >= a->after + made_beyond(a) + more && made_below(b, h) >= made_below(a, h);
}

ist_padding_reuse *ist_padding_reuse_of(ist_node_kind kind, void *node, ist_tensor **x) {
#define REUSE(kind, type, operand)                                                                                     \
    case IST_NODE_##kind:                                                                                              \
        *x = &((type *)node)->operand;                                                                                 \
        return &((type *)node)->reuse
    switch (kind) {
        REUSE(CONV, ist_conv, x);
        REUSE(DWCONV, ist_conv, x);
        REUSE(LAYER_NORM, ist_layer_norm, x);
        REUSE(WINDOW_ATTENTION, ist_window_attention, qkv);
        REUSE(PATCH_EMBED, ist_patch_embed, image);
        REUSE(MBCONV, ist_mbconv, x);
        REUSE(NORM_WINDOW, ist_norm_window, x);
        REUSE(NORM_MLP, ist_norm_mlp, x);
    default:
        return NULL;
    }
#undef REUSE
}

ist_padding_reuse_args ist_padding_reuse_args_of(ist_padding_reuse a, int h) {
    if (!ist_has(a.content)) return (ist_padding_reuse_args){.step = 1, .period = 1, .beyond = 1 << 30, .past = h};
    return (ist_padding_reuse_args){.content_ld = a.content.ld,
                                    .content_c0 = a.content.c0,
                                    .step = a.step,
                                    .above = a.above,
                                    .period = a.period,
                                    .after = a.after,
                                    .beyond = made_beyond(&a),
                                    .past = h - made_below(&a, h)};
}

ist_padding_reuse_args ist_padding_reuse_read(ist_padding_reuse a, int h) {
    if (!a.left_out) a.content = (ist_tensor){0};
    a.kept = (ist_rows_kept){0};
    return ist_padding_reuse_args_of(a, h);
}

ist_padding_reuse_args ist_padding_reuse_leave_out(ist_padding_reuse *reuse, ist_padding_reuse result, int h) {
    result.left_out = ist_has(result.content);
    *reuse = result;
    return ist_padding_reuse_args_of(result, h);
}

void ist_padding_reuse_define(ist_defines *d, const ist_padding_reuse *operand) {
    if (ist_has(operand->content)) ist_defines_add(d, " -DLEFT_OUT=%d", operand->period);
}
