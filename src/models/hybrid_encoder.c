/* D-FINE's hybrid encoder (Peterande/D-FINE, src/zoo/dfine/hybrid_encoder.py).
 *
 * Exact rewrites: nearest upsampling commutes with 1x1 convolutions, so the half of a top-down cv1 that reads the
 * upsampled map runs at the low resolution; its other half and the input projection before it are one matrix where that
 * is not more work; the two 1x1 convolutions of a CSP block are one; q, k and v of the transformer layer are one
 * product, to which the position term, a constant, is added; maps of c4 channels get some of zeros where the device's
 * convolutions read whole groups of channels (size N: 24 for 21). SiLU of zero is zero. */
#include "models/dfine.h"

#include "ops/chain.h"
#include "ops/csp.h"

#include <math.h>
#include <stdlib.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define SILU      .epi.act = IST_ACT_SILU

/* ---- transformer layer (AIFI) ---- */

/* A quarter-block pair of the position table for coordinate v: sin(v w_j), cos(v w_j), w_j = 10000^(-j/q). */
static void sine_row(double v, int q, double *row) {
    for (int j = 0; j < q; j++) {
        double angle = v * pow(10000.0, -(double)j / q);
        row[j] = sin(angle);
        row[q + j] = cos(angle);
    }
}

/* Adds W[:, half * C/2 ..] row to sum[2C]: the part of one coordinate in the projections to q and k. */
static void project_row(const ist_conv_weights *in_proj, int half, const double *row, double *sum) {
    int width = in_proj->in, count = width / 2;
    for (int o = 0; o < 2 * width; o++) {
        const float *w = in_proj->w + (size_t)o * width + (size_t)half * count;
        double acc = 0;
        for (int i = 0; i < count; i++) acc += row[i] * w[i];
        sum[o] = acc;
    }
}

/* [1,1,h*w,3C]: what the position table adds to q and k of each token, and zeros for v. Token r has coordinates
 * r / h and r mod h (the official code calls the first one w; equal to y, x on square maps). The table is a sum of a
 * term of each coordinate, which is all that is projected. */
static ist_tensor position_term(const ist_net *net, const ist_conv_weights *in_proj, int h, int w) {
    ist_tensor term = {0};
    if (!in_proj->w || ist_plan_status(net->plan)) return term;
    int width = in_proj->in, tokens = h * w, firsts = (tokens - 1) / h + 1;
    size_t wide = 2 * (size_t)width;
    double *row = malloc((size_t)width * sizeof *row), *sums = malloc((size_t)(firsts + h) * wide * sizeof *sums);
    float *table = calloc((size_t)tokens * 3 * (size_t)width, sizeof *table);
    if (row && sums && table) {
        for (int i = 0; i < firsts + h; i++) {
            sine_row(i < firsts ? i : i - firsts, width / 4, row);
            project_row(in_proj, i >= firsts, row, sums + (size_t)i * wide);
        }
        for (int r = 0; r < tokens; r++) {
            const double *a = sums + (size_t)(r / h) * wide, *b = sums + (size_t)(firsts + r % h) * wide;
            for (size_t o = 0; o < wide; o++) table[(size_t)r * 3 * (size_t)width + o] = (float)(a[o] + b[o]);
        }
        term = ist_plan_const(net->plan, table, 1, 1, tokens, 3 * width, IST_ELEM_T, "position term");
    } else {
        ist_plan_fail(net->plan, IST_E_MEMORY, "out of host memory for %d positions", tokens);
    }
    free(row);
    free(sums);
    free(table);
    return term;
}

static ist_tensor transformer_layer(const ist_net *net, const char *name, ist_tensor map) {
    int width = map.c;
    ist_name weight = ist_name_of("%s.self_attn.in_proj_weight", name);
    ist_name bias = ist_name_of("%s.self_attn.in_proj_bias", name), attn = ist_name_of("%s.self_attn", name);
    ist_attention_opts heads = {.heads = IST_DFINE_HEADS, .scale = (float)(1 / sqrt(width / IST_DFINE_HEADS))};
    ist_conv_weights in_proj = ist_take_linear(net, weight.text, bias.text);
    ist_tensor pos = position_term(net, &in_proj, map.h, map.w); /* [1,1,T,3C] */

    ist_tensor t = ist_view(map, map.n, 1, map.h * map.w); /* [n,1,T,C] */
    ist_chain_begin(net->plan, t.n, t.w, width, 4 * width);
    ist_tensor qkv = ist_apply(net, t, in_proj, OPTS(.epi.add_before = pos), attn.text); /* [n,1,T,3C] */
    ist_tensor q = ist_slice(qkv, 0, width), k = ist_slice(qkv, width, width), v = ist_slice(qkv, 2 * width, width);
    ist_tensor a = ist_op_attention(net->plan, q, k, v, &heads, attn.text);              /* [n,1,T,C] */
    a = ist_dense(net, a, NULL, "%s.self_attn.out_proj", name);                          /* [n,1,T,C] */
    t = ist_layer_norm(net, a, 1e-5f, &(ist_norm_opts){.add = t}, "%s.norm1", name);     /* [n,1,T,C] */
    ist_tensor f = ist_dense(net, t, OPTS(.epi.act = IST_ACT_GELU), "%s.linear1", name); /* [n,1,T,ff] */
    f = ist_dense(net, f, NULL, "%s.linear2", name);                                     /* [n,1,T,C] */
    t = ist_layer_norm(net, f, 1e-5f, &(ist_norm_opts){.add = t}, "%s.norm2", name);     /* [n,1,T,C] */
    ist_chain_end(net->plan, &t, 1, attn.text);
    return ist_view(t, map.n, map.h, map.w);
}

/* ---- fusion blocks ---- */

/* c4 as the maps have it. */
static int elan_channels(const ist_net *net, const ist_dfine_arch *arch) {
    return ist_conv_channels(net->plan, arch->elan);
}

/* CSP block of RepVGG bottlenecks and the 3x3 convolution behind it: x, whose channels from `in0` on are a map of c4,
 * -> [n,h,w,c4]. */
static ist_tensor csp(const ist_net *net, const ist_dfine_arch *arch, const char *name, ist_tensor x, int in0,
                      ist_tensor into) {
    int run = arch->elan, c4 = elan_channels(net, arch);
    ist_name block = ist_name_of("%s.0", name);
    ist_conv_weights left = ist_take_conv_norm(net, "%s.conv1", block.text), neck[IST_CSP_NECKS] = {{0}};
    ist_conv_weights right = ist_take_conv_norm(net, "%s.conv2", block.text);
    ist_conv_weights both = ist_widen(net, ist_stack(net, left, right), 0, in0, run, c4);
    ist_settle(net, &both);
    ist_csp layers = {.first = ist_filter_of(&both), .necks = arch->bottlenecks};
    for (int b = 0; b < arch->bottlenecks; b++) {
        neck[b] = ist_widen(net, ist_take_repvgg(net, "%s.bottlenecks.%d", block.text, b), 0, 0, run, c4);
        ist_settle(net, &neck[b]);
        layers.neck[b] = ist_filter_of(&neck[b]);
    }
    ist_conv_weights last = ist_widen(net, ist_take_conv_norm(net, "%s.1", name), 0, 0, run, c4);
    ist_settle(net, &last);
    layers.last = ist_filter_of(&last);
    ist_tensor y = ist_op_csp(net->plan, x, &layers, into, name); /* [n,h,w,c4] */
    ist_conv_weights_free(&both);
    for (int b = 0; b < arch->bottlenecks; b++) ist_conv_weights_free(&neck[b]);
    ist_conv_weights_free(&last);
    return y;
}

/* RepNCSPELAN4 behind its cv1, whose result is already in the first 2C channels of `cat`. */
static ist_tensor elan(const ist_net *net, const ist_dfine_arch *arch, const char *name, ist_tensor cat,
                       ist_tensor into) {
    int width = arch->hidden, c4 = elan_channels(net, arch);
    ist_name cv2 = ist_name_of("%s.cv2", name), cv3 = ist_name_of("%s.cv3", name), cv4 = ist_name_of("%s.cv4", name);
    ist_tensor y = ist_slice(cat, width, width);
    y = csp(net, arch, cv2.text, y, width, ist_slice(cat, 2 * width, c4)); /* [n,h,w,c4] */
    csp(net, arch, cv3.text, y, 0, ist_slice(cat, 2 * width + c4, c4));    /* [n,h,w,c4] */
    ist_conv_weights w = ist_take_conv_norm(net, "%s", cv4.text);
    w = ist_widen(net, w, w.out, 2 * width, arch->elan, c4);
    return ist_apply(net, cat, w, OPTS(SILU, .into = into), cv4.text); /* [n,h,w,C] */
}

/* Room for what cv4 reads. */
static ist_tensor elan_map(const ist_net *net, const ist_dfine_arch *arch, ist_tensor like) {
    int channels = 2 * arch->hidden + 2 * elan_channels(net, arch);
    return ist_plan_tensor(net->plan, like.n, like.h, like.w, channels, IST_ELEM_T);
}

static ist_tensor input_projection(const ist_net *net, int level, ist_tensor feature) {
    ist_tensor y = ist_conv_norm(net, feature, NULL, "encoder.input_proj.%d", level); /* [n,h,w,C] */
    ist_tap(net, y, "enc.proj%d", level);
    return y;
}

/* cv1's product with the projected map of `level`: directly from the backbone's map when projecting it first is not
 * less work (in * C + C * 2C against in * 2C multiply-adds per pixel). */
static ist_conv_weights side_weights(const ist_net *net, ist_conv_weights cv1_side, int level, ist_tensor *side) {
    ist_tensor feature = *side;
    if (feature.c > cv1_side.out) {
        *side = input_projection(net, level, feature);
        return cv1_side;
    }
    return ist_compose(net, cv1_side, ist_take_conv_norm(net, "encoder.input_proj.%d", level));
}

/* top [n,h/2,w/2,C], upsampled, and the backbone's map of `level`, [n,h,w,..] -> [n,h,w,C] */
static ist_tensor top_down(const ist_net *net, const ist_dfine_arch *arch, int level, ist_tensor top, ist_tensor side,
                           ist_tensor into) {
    int width = arch->hidden;
    ist_name name = ist_name_of("encoder.fpn_blocks.%d", arch->levels - 2 - level);
    ist_name label = ist_name_of("%s.cv1", name.text), label_top = ist_name_of("%s.cv1 (low)", name.text);
    ist_conv_weights cv1 = ist_take_conv_norm(net, "%s", label.text);
    ist_conv_weights w_top = ist_part(net, &cv1, 0, 2 * width, 0, width, false);
    ist_conv_weights w_side = ist_part(net, &cv1, 0, 2 * width, width, width, true);
    ist_conv_weights_free(&cv1);
    w_side = side_weights(net, w_side, level, &side);

    ist_tensor cat = elan_map(net, arch, side);                      /* [n,h,w,2C+2c4] */
    ist_tensor u = ist_apply(net, top, w_top, NULL, label_top.text); /* [n,h/2,w/2,2C] */
    ist_conv_opts opts = {SILU, .epi.add_before = u, .epi.up2 = true, .into = ist_slice(cat, 0, 2 * width)};
    ist_apply(net, side, w_side, &opts, label.text); /* [n,h,w,2C] */
    return elan(net, arch, name.text, cat, into);    /* [n,h,w,C] */
}

/* fine [n,2h,2w,C]; `pair` [n,h,w,2C] holds the stored map of this level in its upper half -> [n,h,w,C] */
static ist_tensor bottom_up(const ist_net *net, const ist_dfine_arch *arch, int j, ist_tensor fine, ist_tensor pair,
                            ist_tensor into) {
    int width = arch->hidden;
    ist_name name = ist_name_of("encoder.pan_blocks.%d", j), down = ist_name_of("encoder.downsample_convs.%d.0", j);
    ist_tensor half = ist_slice(pair, 0, width);
    ist_conv_weights point = ist_take_conv_norm(net, "%s.cv1", down.text);
    ist_conv_weights depth = ist_take_conv_norm(net, "%s.cv2", down.text);
    ist_tensor d = ist_apply_separable(net, fine, point, depth, OPTS(.stride = 2, IST_PAD(1), .into = half),
                                       down.text); /* [n,h,w,C] */
    ist_tap(net, d, "enc.down%d", j);
    ist_tensor cat = elan_map(net, arch, pair); /* [n,h,w,2C+2c4] */
    ist_conv_norm(net, pair, OPTS(SILU, .into = ist_slice(cat, 0, 2 * width)), "%s.cv1", name.text); /* [n,h,w,2C] */
    return elan(net, arch, name.text, cat, into);                                                    /* [n,h,w,C] */
}

ist_pyramid ist_hybrid_encoder(const ist_net *net, const ist_dfine_arch *arch, ist_pyramid features,
                               ist_pyramid places) {
    int levels = arch->levels, width = arch->hidden;
    ist_tensor pair[3] = {{0}};
    ist_pyramid out = {.levels = levels};
    ist_tensor top = input_projection(net, levels - 1, features.maps[levels - 1]); /* [n,h,w,C] */
    top = transformer_layer(net, "encoder.encoder.0.layers.0", top);               /* [n,h,w,C] */
    ist_tap(net, top, "enc.aifi0");

    for (int j = 0, l = levels - 1; l > 0; j++, l--) {
        pair[l] = ist_plan_tensor(net->plan, top.n, top.h, top.w, 2 * width, IST_ELEM_T); /* [n,h,w,2C] */
        ist_tensor stored = ist_slice(pair[l], width, width);
        top = ist_conv_norm(net, top, OPTS(.into = stored), "encoder.lateral_convs.%d", j); /* [n,h,w,C] */
        ist_tap(net, top, "enc.lateral%d", j);
        ist_tensor place = l == 1 ? places.maps[0] : (ist_tensor){0};
        top = top_down(net, arch, l - 1, top, features.maps[l - 1], place); /* [n,2h,2w,C] */
        ist_tap(net, top, "enc.fpn%d", j);
    }
    out.maps[0] = top;
    for (int l = 1; l < levels; l++) {
        out.maps[l] = bottom_up(net, arch, l - 1, out.maps[l - 1], pair[l], places.maps[l]); /* [n,h,w,C] */
        ist_tap(net, out.maps[l], "enc.pan%d", l - 1);
    }
    return out;
}
