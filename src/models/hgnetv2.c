/* HGNetv2, the backbone of D-FINE (Peterande/D-FINE, src/nn/backbone/hgnetv2.py).
 *
 * A unit is convolution, batch norm, ReLU and, in the small sizes, a learnable affine of two scalars; all of it is one
 * launch. Every block owns one wide map: its input and the results of its layers lie side by side in it, and whoever
 * makes a block's input writes it there.
 *
 * In half, weights are rounded for maps whose channels have the means that a uniform image would give them: the outputs
 * for that image stay those of the exact weights (ist_settle_about), and what the errors change elsewhere is less,
 * since maps differ less from them than from zero. */
#include "models/dfine.h"
#include "ops/chain.h"
#include "ops/image.h"
#include "ops/stage.h"
#include "ops/stem.h"

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define RELU      .epi.act = IST_ACT_RELU

/* The stem's layers in the checkpoint's order. */
enum { STEM1, STEM2A, STEM2B, STEM3, STEM4, STEM_LAYERS };
enum { MOST_STEM = 64, MOST_CHANNELS = 5120 }; /* of the stem's first maps; of a block's map: size X, stage 4 */
static const char *const stem_names[] = {"backbone.stem.stem1", "backbone.stem.stem2a", "backbone.stem.stem2b",
                                         "backbone.stem.stem3", "backbone.stem.stem4"};

/* The means of a map's channels, for a uniform image; without meaning where weights are not rounded. */
typedef struct map_means {
    float of[MOST_CHANNELS];
} map_means;

/* ist_settle_about for a layer of `in` and `out` channels, or one that is depthwise; one of another shape stays as it
 * is, for the operator to refuse. `result` is not `means`. */
static void settle(const ist_net *net, ist_conv_weights *w, int in, int out, const float *means, bool relu,
                   float *result) {
    if (w->out == out && (w->in == in || (w->in == 1 && in == out))) ist_settle_about(net, w, means, relu, result);
}

/* Layer by layer. Takes the weights. */
static void stem_in_steps(const ist_net *net, int mid, ist_tensor image, ist_conv_weights w[STEM_LAYERS],
                          ist_tensor x) {
    int h = image.h / 2, width = image.w / 2;
    ist_tensor cat = ist_plan_tensor(net->plan, image.n, h, width, 2 * mid, IST_ELEM_T); /* [n,h,w,2m] */
    ist_tensor pool = ist_slice(cat, 0, mid), conv = ist_slice(cat, mid, mid);
    ist_tensor y =
        ist_apply(net, image, w[STEM1], OPTS(.stride = 2, IST_PAD(1), RELU), stem_names[STEM1]); /* [n,h,w,m] */
    ist_tensor z = ist_apply(net, y, w[STEM2A], OPTS(IST_PAD_FAR, RELU, .pool = pool),
                             stem_names[STEM2A]); /* [n,h,w,m/2], [n,h,w,m] */
    ist_apply(net, z, w[STEM2B], OPTS(IST_PAD_FAR, RELU, .into = conv), stem_names[STEM2B]);   /* [n,h,w,m] */
    z = ist_apply(net, cat, w[STEM3], OPTS(.stride = 2, IST_PAD(1), RELU), stem_names[STEM3]); /* [n,h/2,w/2,m] */
    ist_apply(net, z, w[STEM4], OPTS(RELU, .into = x), stem_names[STEM4]);                     /* [n,h/2,w/2,o] */
}

/* The first filter reads images whose white is not 1. */
static void rescale(ist_conv_weights *w) {
    size_t count = (size_t)w->out * (size_t)w->in * (size_t)w->kh * (size_t)w->kw;
    for (size_t i = 0; w->w && i < count; i++) w->w[i] *= 1 / IST_DETECTOR_WHITE;
}

/* The weights for a uniform image of a third of white; the largest of four like values is that value. */
static void settle_stem(const ist_net *net, int mid, int out, ist_conv_weights w[STEM_LAYERS], map_means *means) {
    static const float image[3] = {1 / 3.0f, 1 / 3.0f, 1 / 3.0f};
    float cat[2 * MOST_STEM] = {0}, y[MOST_STEM] = {0};
    settle(net, &w[STEM1], 3, mid, image, true, cat);
    settle(net, &w[STEM2A], mid, mid / 2, cat, true, y);
    settle(net, &w[STEM2B], mid / 2, mid, y, true, cat + mid);
    settle(net, &w[STEM3], 2 * mid, mid, cat, true, y);
    settle(net, &w[STEM4], mid, out, y, true, means->of);
}

static ist_stem_layer fused_layer(const ist_conv_weights *w) {
    return (ist_stem_layer){ist_filter_of(w), w->lab_scale, w->lab_bias};
}

/* image [n,h,w,3] -> x [n,h/4,w/4,o]. The 2x2 convolutions and the pooling see one more zero row and column. */
static void stem(const ist_net *net, int mid, ist_tensor image, ist_tensor x, map_means *means) {
    ist_conv_weights w[STEM_LAYERS];
    ist_stem_layer layers[STEM_LAYERS];
    for (int i = 0; i < STEM_LAYERS; i++) {
        w[i] = ist_take_conv_bn(net, "%s", stem_names[i]);
        if (i == STEM1) rescale(&w[i]);
    }
    settle_stem(net, mid, x.c, w, means);
    for (int i = 0; i < STEM_LAYERS; i++) {
        ist_settle(net, &w[i]);
        layers[i] = fused_layer(&w[i]);
    }
    if (!ist_plan_status(net->plan) && ist_stem_fits(net->plan, image, layers)) {
        ist_op_stem(net->plan, image, layers, x, "backbone.stem");
        for (int i = 0; i < STEM_LAYERS; i++) ist_conv_weights_free(&w[i]);
    } else {
        stem_in_steps(net, mid, image, w, x);
    }
    ist_tap(net, x, "stem");
}

static int block_input(const ist_hgnet_stage *stage, int b) {
    return b ? stage->out : stage->in;
}

/* The map of block b: its input and its layers' results. */
static ist_tensor block_map(const ist_net *net, const ist_hgnet_stage *stage, int b, int n, int h, int w) {
    return ist_plan_tensor(net->plan, n, h, w, block_input(stage, b) + stage->layers * stage->mid, IST_ELEM_T);
}

/* Convolution and batch norm NAME to `out` channels of a map with `means`; those of its result go to `result`. */
static ist_tensor unit(const ist_net *net, ist_tensor x, int out, const float *means, const ist_conv_opts *opts,
                       float *result, const char *name) {
    ist_conv_weights w = ist_take_conv_bn(net, "%s", name);
    settle(net, &w, x.c, out, means, opts->epi.act == IST_ACT_RELU, result);
    return ist_apply(net, x, w, opts, name);
}

/* Block b of stage s; its input is already in `cat`, and the means of its channels in `means`; those of its result go
 * to `out`. What the last block before a depthwise downsampling ends with begins a chain with it, in which the wide map
 * need not exist (ops/chain.h). */
static ist_tensor block(const ist_net *net, const ist_hgnet_stage *stage, int s, int b, ist_tensor cat, ist_tensor into,
                        map_means *means, map_means *out) {
    int in = block_input(stage, b), mid = stage->mid;
    ist_tensor x = ist_slice(cat, 0, in), y = x;
    map_means between;
    for (int i = 0; i < stage->layers; i++) {
        ist_name layer = ist_name_of("backbone.stages.%d.blocks.%d.layers.%d", s, b, i);
        ist_tensor place = ist_slice(cat, in + i * mid, mid);
        float *mine = means->of + in + i * mid, *before = i ? mine - mid : means->of;
        if (stage->light) {
            ist_conv_weights point = ist_take_conv_bn(net, "%s.conv1", layer.text);
            ist_conv_weights depth = ist_take_conv_bn(net, "%s.conv2", layer.text);
            settle(net, &point, y.c, mid, before, false, between.of);
            settle(net, &depth, mid, mid, between.of, true, mine);
            y = ist_apply_separable(net, y, point, depth, OPTS(IST_PAD(2), RELU, .into = place),
                                    layer.text); /* [n,h,w,mid] */
        } else {
            y = unit(net, y, mid, before, OPTS(IST_PAD(1), RELU, .into = place), mine, layer.text); /* [n,h,w,mid] */
        }
    }
    ist_name squeeze = ist_name_of("backbone.stages.%d.blocks.%d.aggregation.0", s, b);
    ist_name excite = ist_name_of("backbone.stages.%d.blocks.%d.aggregation.1", s, b);
    if (s < 3 && b + 1 == stage->blocks) ist_chain_begin_map(net->plan, cat.n, cat.h, cat.w, stage->out);
    ist_conv_opts last = {RELU, .epi.add_after = b ? x : (ist_tensor){0}, .into = into};
    y = unit(net, cat, stage->out / 2, means->of, OPTS(RELU), between.of, squeeze.text); /* [n,h,w,out/2] */
    y = unit(net, y, stage->out, between.of, &last, out->of, excite.text);               /* [n,h,w,out] */
    for (int o = 0; b && o < stage->out; o++) out->of[o] += means->of[o];
    return y;
}

/* Stage s - 1's result x -> in, half its height and width; ends the chain that makes x. */
static void downsample(const ist_net *net, int s, ist_tensor x, ist_tensor in, int levels, const map_means *means,
                       map_means *out) {
    ist_name name = ist_name_of("backbone.stages.%d.downsample", s);
    bool feature = s - 1 >= 4 - levels;
    unit(net, x, x.c, means->of, OPTS(.stride = 2, IST_PAD(1), .into = in), out->of, name.text);
    ist_chain_end(net->plan, (ist_tensor[]){in, x}, feature ? 2 : 1, name.text);
}

static ist_stage_shape shape_of(const ist_hgnet_stage *stage) {
    return (ist_stage_shape){stage->in, stage->mid, stage->out / 2, stage->out};
}

/* Whether stage s and the downsampling behind it are one launch (ops/stage.h). */
static bool is_one(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image, int s) {
    const ist_hgnet_stage *stage = &arch->stages[s];
    return s < 3 && stage->blocks == 1 && !stage->light && stage->layers == IST_STAGE_DEEP &&
           ist_stage_fits(net->plan, shape_of(stage), image.n, image.h >> (s + 2), image.w >> (s + 2));
}

/* Such a stage: x [n,h,w,in] with `means` -> into [n,h/2,w/2,out], with those in `out`; what is downsampled to `whole`
 * when that is a tensor. */
static void stage_in_one(const ist_net *net, const ist_hgnet_stage *stage, int s, ist_tensor x, ist_tensor into,
                         ist_tensor whole, map_means *means, map_means *out) {
    ist_conv_weights w[IST_STAGE_LAYERS], down = ist_take_conv_bn(net, "backbone.stages.%d.downsample", s + 1);
    ist_stem_layer layers[IST_STAGE_LAYERS];
    ist_stage_shape shape = shape_of(stage);
    map_means between = {{0}}, mixed = {{0}};
    float *of = means->of; /* of the block's map: x, then each layer's result */
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        const char *part = i < IST_STAGE_DEEP ? "layers" : "aggregation";
        w[i] = ist_take_conv_bn(net, "backbone.stages.%d.blocks.0.%s.%d", s, part, i % IST_STAGE_DEEP);
    }
    for (int i = 0, to = shape.in; i < IST_STAGE_DEEP; i++, to += shape.deep)
        settle(net, &w[i], i ? shape.deep : shape.in, shape.deep, i ? of + to - shape.deep : of, true, of + to);
    settle(net, &w[IST_STAGE_DEEP], shape.in + IST_STAGE_DEEP * shape.deep, shape.mix, of, true, between.of);
    settle(net, &w[IST_STAGE_DEEP + 1], shape.mix, shape.out, between.of, true, mixed.of);
    settle(net, &down, shape.out, shape.out, mixed.of, false, out->of);
    for (int i = 0; i < IST_STAGE_LAYERS; i++) {
        ist_settle(net, &w[i]);
        layers[i] = fused_layer(&w[i]);
    }
    ist_settle(net, &down);
    ist_name name = ist_name_of("backbone.stages.%d", s);
    if (!ist_plan_status(net->plan))
        ist_op_stage(net->plan, shape, x, layers, ist_filter_of(&down), into, whole, name.text);
    for (int i = 0; i < IST_STAGE_LAYERS; i++) ist_conv_weights_free(&w[i]);
    ist_conv_weights_free(&down);
}

/* Stage s of the blocks whose first map is `cat` with `means`; the means of the result go there too. */
static ist_tensor stage_of_blocks(const ist_net *net, const ist_hgnet_stage *stage, int s, ist_tensor cat,
                                  map_means means[2], int *turn) {
    ist_tensor x = {0};
    for (int b = 0; b < stage->blocks; b++) {
        bool last = b + 1 == stage->blocks;
        ist_tensor next = last ? (ist_tensor){0} : block_map(net, stage, b + 1, cat.n, cat.h, cat.w);
        x = block(net, stage, s, b, cat, ist_slice(next, 0, last ? 0 : stage->out), &means[*turn],
                  &means[!*turn]); /* [n,h,w,out] */
        *turn = !*turn;
        cat = next;
    }
    return x;
}

ist_pyramid ist_hgnetv2(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image) {
    ist_pyramid features = {.levels = arch->levels};
    ist_tensor x = {0}; /* what stage s - 1 read if it is one launch with the downsampling behind it, else its result */
    map_means means[2] = {{{0}}}; /* by turns */
    int turn = 0;
    for (int s = 0; s < 4; s++) {
        const ist_hgnet_stage *stage = &arch->stages[s];
        int h = image.h >> (s + 2), w = image.w >> (s + 2), level = s - (4 - arch->levels);
        bool one = is_one(net, arch, image, s);
        ist_tensor cat = one ? ist_plan_tensor(net->plan, image.n, h, w, stage->in, IST_ELEM_T)
                             : block_map(net, stage, 0, image.n, h, w);
        ist_tensor in = ist_slice(cat, 0, stage->in);
        if (s == 0)
            stem(net, arch->stem_mid, image, in, &means[turn]); /* [n,h,w,in] */
        else if (is_one(net, arch, image, s - 1))
            stage_in_one(net, &arch->stages[s - 1], s - 1, x, in,
                         level > 0 ? features.maps[level - 1] : (ist_tensor){0}, &means[turn],
                         &means[!turn]); /* [n,h,w,in] */
        else
            downsample(net, s, x, in, arch->levels, &means[turn], &means[!turn]);
        if (s > 0) turn = !turn;
        x = one ? in : stage_of_blocks(net, stage, s, cat, means, &turn);
        ist_tensor result = x;
        if (one)
            result = level < 0 ? (ist_tensor){0} : ist_plan_tensor(net->plan, image.n, h, w, stage->out, IST_ELEM_T);
        if (level >= 0) features.maps[level] = result;
        if (ist_has(result)) ist_tap(net, result, "stage%d", s);
    }
    return features;
}
