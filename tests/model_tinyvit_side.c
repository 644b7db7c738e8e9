/* TinyViT at other input sides than MobileSAM's, against the network written with the scalar references: LiteMedSAM's
 * 256 pixels in a square, of which the picture fills a part, and a small odd one. */
#include "models/sam.h"
#include "ref.h"
#include "synth.h"
#include "variants/lower.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

static ist_error err;

static ref_map new_map(int h, int w, int c) {
    ref_map m = {1, h, w, c, NULL};
    m.v = calloc(ref_size(m), sizeof *m.v);
    cr_assert_not_null(m.v);
    return m;
}

/* ---- the published network (tiny_vit_sam.py) in plain C ---- */

typedef struct network {
    const ist_weights *weights;
    char prefix[128];
} network;

/* The values of PREFIX + suffix; the caller frees them. */
static float *values(const network *n, const char *suffix) {
    char name[192];
    snprintf(name, sizeof name, "image_encoder.%s%s", n->prefix, suffix);
    const ist_weight *t = ist_weights_find(n->weights, name);
    cr_assert_not_null(t, "%s", name);
    float *v = malloc(t->count * sizeof *v);
    cr_assert_not_null(v);
    OK(ist_weight_read_f32(t, v, &err));
    return v;
}

static network inside(const network *n, const char *fmt, int i) {
    network in = *n;
    size_t used = strlen(in.prefix);
    snprintf(in.prefix + used, sizeof in.prefix - used, fmt, i);
    return in;
}

/* Convolution PART.c and its batch norm, eps 1e-5; depthwise when `depth`. */
static ref_map conv_bn(const network *n, const char *part, ref_map x, int out, int k, int stride, bool depth, int act,
                       ref_map residual) {
    network in = inside(n, "", 0);
    strcat(in.prefix, part);
    float *w = values(&in, "c.weight"), *gamma = values(&in, "bn.weight"), *beta = values(&in, "bn.bias");
    float *mean = values(&in, "bn.running_mean"), *var = values(&in, "bn.running_var");
    size_t each = (size_t)(depth ? 1 : x.c) * (size_t)(k * k);
    for (int o = 0; o < out; o++) {
        double scale = gamma[o] / sqrt((double)var[o] + 1e-5);
        for (size_t i = 0; i < each; i++) w[(size_t)o * each + i] = (float)(w[(size_t)o * each + i] * scale);
        beta[o] = (float)(beta[o] - mean[o] * scale);
    }
    ref_map y = new_map((x.h - 1) / stride + 1, (x.w - 1) / stride + 1, out);
    ref_window window = {k, k, stride, k / 2, k / 2};
    ref_epilogue e = {.act = act, .add_before = residual};
    if (depth)
        ref_dwconv(x, w, beta, window, &e, y);
    else
        ref_conv(x, w, beta, window, &e, y);
    free(w), free(gamma), free(beta), free(mean), free(var);
    return y;
}

/* Replaces *x. */
static void take(ref_map *x, ref_map y) {
    free(x->v);
    *x = y;
}

enum { GELU = 3 };
static const ref_map none = {0};

static void bottleneck(const network *n, ref_map *x, int mid, int out, int stride, bool residual) {
    ref_map y = conv_bn(n, "conv1.", *x, mid, 1, 1, false, GELU, none);
    take(&y, conv_bn(n, "conv2.", y, mid, 3, stride, true, GELU, none));
    take(&y, conv_bn(n, "conv3.", y, out, 1, 1, false, residual ? GELU : 0, residual ? *x : none));
    take(x, y);
}

static ref_map norm(const network *n, const char *name, ref_map x, float eps) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "%sweight", name);
    float *gamma = values(n, suffix);
    snprintf(suffix, sizeof suffix, "%sbias", name);
    float *beta = values(n, suffix);
    ref_map y = new_map(x.h, x.w, x.c);
    ref_layernorm(x, none, 0, gamma, beta, eps, 0, y);
    free(gamma), free(beta);
    return y;
}

/* A linear layer, or a convolution whose bias may be missing. */
static ref_map dense(const network *n, const char *name, ref_map x, int out, int k, bool bias, int act,
                     ref_map residual) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "%sweight", name);
    float *w = values(n, suffix), *b = NULL;
    snprintf(suffix, sizeof suffix, "%sbias", name);
    if (bias) b = values(n, suffix);
    ref_map y = new_map(x.h, x.w, out);
    ref_epilogue e = {.act = act, .add_before = residual};
    ref_conv(x, w, b, (ref_window){k, k, 1, k / 2, k / 2}, &e, y);
    free(w), free(b);
    return y;
}

/* A token outside of the map is zero before the norm, which makes its shift of it: qkv [heads * 96] of that. */
static float *padding(const network *n, int c) {
    float *w = values(n, "attn.qkv.weight"), *b = values(n, "attn.qkv.bias"), *beta = values(n, "attn.norm.bias");
    for (int o = 0; o < 3 * c; o++) {
        double sum = b[o];
        for (int i = 0; i < c; i++) sum += (double)w[(size_t)o * (size_t)c + (size_t)i] * beta[i];
        b[o] = (float)sum;
    }
    free(w), free(beta);
    return b;
}

static void attention(const network *n, ref_map *x, int ws) {
    int heads = x->c / 32;
    ref_map z = norm(n, "attn.norm.", *x, 1e-5f), a = new_map(x->h, x->w, x->c);
    float *pad = padding(n, x->c), *bias = values(n, "attn.attention_biases");
    take(&z, dense(n, "attn.qkv.", z, 3 * x->c, 1, true, 0, none));
    ref_window_attention(z, pad, bias, heads, ws, a);
    take(&a, dense(n, "attn.proj.", a, x->c, 1, true, 0, *x));
    free(z.v), free(pad), free(bias);
    take(x, a);
}

static void window_block(const network *n, ref_map *x, int ws) {
    attention(n, x, ws);
    take(x, conv_bn(n, "local_conv.", *x, x->c, 3, 1, true, 0, none));
    ref_map f = norm(n, "mlp.norm.", *x, 1e-5f);
    take(&f, dense(n, "mlp.fc1.", f, 4 * x->c, 1, true, GELU, none));
    take(&f, dense(n, "mlp.fc2.", f, x->c, 1, true, 0, *x));
    take(x, f);
}

static ref_map reference(const ist_weights *weights, ref_map image) {
    static const int dims[4] = {64, 128, 160, 320}, blocks[4] = {2, 2, 6, 2}, windows[4] = {0, 7, 14, 7};
    network all = {.weights = weights};
    ref_map x = conv_bn(&all, "patch_embed.seq.0.", image, 32, 3, 2, false, GELU, none);
    take(&x, conv_bn(&all, "patch_embed.seq.2.", x, 64, 3, 2, false, 0, none));
    for (int l = 0; l < 4; l++) {
        network layer = inside(&all, "layers.%d.", l);
        for (int b = 0; b < blocks[l]; b++) {
            network block = inside(&layer, "blocks.%d.", b);
            if (windows[l])
                window_block(&block, &x, windows[l]);
            else
                bottleneck(&block, &x, 4 * dims[l], dims[l], 1, true);
        }
        network down = inside(&layer, "downsample.", 0);
        if (l < 3) bottleneck(&down, &x, dims[l + 1], dims[l + 1], l < 2 ? 2 : 1, false);
    }
    take(&x, dense(&all, "neck.0.", x, 256, 1, false, 0, none));
    take(&x, norm(&all, "neck.1.", x, 1e-6f));
    take(&x, dense(&all, "neck.2.", x, 256, 3, false, 0, none));
    take(&x, norm(&all, "neck.3.", x, 1e-6f));
    return x;
}

/* ---- the engine's ---- */

/* A picture of w x h in a zero square. */
static ref_map picture(int side, int w, int h) {
    ref_map m = new_map(side, side, 3);
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    cr_assert_not_null(rgb);
    synth_phantom(h, w, 5, rgb);
    for (int y = 0; y < h; y++)
        for (int i = 0; i < 3 * w; i++)
            ref_at(m, 0, y, 0)[i] = ((float)rgb[(size_t)y * 3 * (size_t)w + (size_t)i] - 120) / 58;
    free(rgb);
    return m;
}

static ref_map engine(const ist_weights *weights, ref_map image, int w, int h, bool boxed) {
    ist_device *device = NULL;
    ist_plan *plan = NULL;
    ist_graph *g = NULL;
    ist_lowering *lowering = NULL;
    const int size[2] = {w, h}, side = image.w;
    ist_tensor content = {0};
    OK(ist_device_open(&(ist_device_options){0}, &device, &err));
    OK(ist_plan_begin(device, &(ist_plan_options){.taps = true}, &plan, &err));
    ist_tensor input = ist_plan_input(plan, 1, side, side, 3, IST_ELEM_T), at;
    OK(ist_graph_open(&g, &err));
    if (boxed) content = ist_graph_const(g, size, 1, 1, 1, 2, IST_ELEM_I32, "content");
    ist_tinyvit(&(ist_net){g, weights}, ist_graph_input(g, 1, side, side, 3, IST_ELEM_T), content);
    ist_lower(plan, g, &input, &lowering);
    ist_lowering_close(&lowering);
    ist_graph_close(&g);
    OK(ist_plan_finish(plan, &err));
    OK(ist_plan_write_f32(plan, input, image.v, &err));
    OK(ist_plan_replay(plan, &err));
    at = ist_plan_tapped(plan, "embedding");
    ref_map got = new_map(at.h, at.w, at.c);
    OK(ist_plan_read_f32(plan, at, got.v, &err));
    ist_plan_close(&plan);
    ist_device_close(&device);
    return got;
}

static void check(int side, int w, int h) {
    ist_weights *weights = NULL;
    OK(synth_weights(IST_MODEL_MOBILE_SAM, 1, 1, &weights, &err));
    ref_map image = picture(side, w, h), want = reference(weights, image);
    for (int boxed = 0; boxed < 2; boxed++) {
        ref_map got = engine(weights, image, w, h, boxed);
        cr_assert(got.h == side / 16 && got.w == side / 16 && got.c == 256);
        double worst = 0, squares = 0;
        for (size_t i = 0; i < ref_size(want); i++) {
            worst = fmax(worst, fabs((double)got.v[i] - want.v[i]));
            squares += (double)want.v[i] * want.v[i];
        }
        double rms = sqrt(squares / (double)ref_size(want));
        cr_expect_gt(rms, 0.1);
        cr_expect_lt(worst, 1e-3 * rms, "side %d: differs by %g, rms %g", side, worst, rms);
        free(got.v);
    }
    free(image.v), free(want.v);
    ist_weights_close(&weights);
}

Test(model_tinyvit_side, litemedsam) {
    check(256, 256, 181);
}

Test(model_tinyvit_side, one_window_and_less) {
    check(96, 50, 96);
}

/* Three sides of the wrong kind: the graph is refused by a sentence. */
Test(model_tinyvit_side, refused) {
    static const int sides[][2] = {{100, 100}, {16, 16}, {64, 96}};
    ist_weights *weights = NULL;
    OK(synth_weights(IST_MODEL_MOBILE_SAM, 1, 1, &weights, &err));
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        ist_graph *g = NULL;
        OK(ist_graph_open(&g, &err));
        ist_tensor image = ist_graph_input(g, 1, sides[i][0], sides[i][1], 3, IST_ELEM_T);
        cr_expect_not(ist_has(ist_tinyvit(&(ist_net){g, weights}, image, (ist_tensor){0})));
        cr_expect(ist_graph_failed(g));
        cr_expect_not_null(strstr(g->error.text, "squares of multiples of 32"), "%s", g->error.text);
        ist_graph_close(&g);
    }
    ist_weights_close(&weights);
}

/* The contract's: what was asked for, else what the file says, else 1024. */
Test(model_tinyvit_side, of_a_checkpoint) {
    ist_weights *weights = NULL;
    int side = 0;
    OK(synth_weights(IST_MODEL_MOBILE_SAM, 1, 1, &weights, &err));
    static const struct {
        const char *text;
        int file, asked, side;
    } cases[] = {{NULL, 0, 0, 1024}, {"256", 256, 0, 256}, {"256", 256, 512, 512}, {"big", 0, 0, 1024}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_checkpoint_info info;
        if (cases[i].text) OK(ist_weights_set_metadata(weights, "image_size", cases[i].text, &err));
        OK(ist_checkpoint_identify(weights, &info, &err));
        cr_expect_eq(info.side, cases[i].file);
        OK(ist_segmenter_side(&info, cases[i].asked, &side, &err));
        cr_expect_eq(side, cases[i].side);
        ist_checkpoint_info_free(&info);
    }
    ist_checkpoint_info info = {.kind = IST_MODEL_MOBILE_SAM, .side = 100};
    cr_expect_eq(ist_segmenter_side(&info, 0, &side, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "segmenter size 100: mobilesam works at multiples of 32 from 64 to 1024");
    cr_expect_eq(ist_segmenter_side(&info, 2048, &side, &err), IST_E_ARGUMENT);
    cr_expect_not_null(strstr(err.text, "size 2048"));
    ist_weights_close(&weights);
}
