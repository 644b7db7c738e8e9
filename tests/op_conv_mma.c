/* The convolution variants on matrix instructions where there are none: the capability is claimed, nvidia/ptx then
 * computes in plain OpenCL what the instructions do. Checks the variants' index arithmetic on any device, slowly;
 * op_conv with ISTHMUS_HALF=1 checks the instructions where they exist. */
#include "device/device.h"
#include "support/claimed_matrix.h"
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void claim_all(void) {
    convtest_needs(IST_MACHINE_NVIDIA);
    claim("+PTX_MMA,+PTX_WGMMA");
}
TestSuite(conv_mma, .init = claim_all);

/* The variant whose tile is smallest and whose warps share sums; all are one kernel with other numbers. */
Test(conv_mma, index_arithmetic) {
    const convtest_shape shapes[] = {
        {1, 5, 7, 72, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU}}, /* one tap */
        {2,
         4,
         6,
         64,
         20,
         3,
         1,
         1,
         2,
         {.act = IST_ACT_RELU, .lab = true, .before = true, .up2 = true}},   /* blocks of channels, two splits */
        {1, 9, 8, 24, 36, 3, 2, 1, 1, {.act = IST_ACT_GELU, .after = true}}, /* taps of whole chunks */
        {1, 7, 6, 5, 19, 3, 1, 1, 1, {.act = IST_ACT_NONE, .slices = true}}, /* single elements */
    };
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        convtest_check(convtest_variant("mma_16x32"), &shapes[i], -1, i);
    if (!optest_small())
        convtest_check(convtest_variant("mma_32x32d"), &shapes[0], -1, 8); /* twice the inputs in a step */
}

/* 3x3 convolutions whose tiles copy the pixels of all taps together: one block of channels; two in two splits, of two
 * images whose pixels share tiles; tiles that are lines of sixteen pixels, one for each of two images. */
Test(conv_mma, pixels_of_all_taps) {
    const convtest_extras extras = {.act = IST_ACT_SILU, .after = true};
    convtest_check(convtest_variant("mma_64x32"), &(convtest_shape){1, 5, 7, 64, 24, 3, 1, 1, 1, extras}, -1, 10);
    if (optest_small()) return;
    convtest_check(convtest_variant("mma_64x32"), &(convtest_shape){2, 5, 7, 128, 24, 3, 1, 1, 2, extras}, -1, 11);
    convtest_check(convtest_variant("mma_64x32"), &(convtest_shape){2, 4, 16, 64, 24, 3, 1, 1, 1, extras}, -1, 12);
}

/* Four warps, whose results pass through local memory as halves: addends on both sides of the activation; an addend
 * that does not start on 16 bytes. */
Test(conv_mma, results_in_place) {
    const convtest_extras both = {.act = IST_ACT_SILU, .before = true, .up2 = true, .after = true};
    const convtest_extras slices = {.act = IST_ACT_RELU, .lab = true, .after = true, .slices = true};
    convtest_check(convtest_variant("mma_64x64w"), &(convtest_shape){1, 6, 6, 24, 70, 1, 1, 0, 1, both}, -1, 30);
    if (!optest_small())
        convtest_check(convtest_variant("mma_64x64w"), &(convtest_shape){1, 7, 6, 8, 36, 3, 1, 1, 1, slices}, -1, 31);
}

/* Warpgroups: channels that end within a step, windows of blocks of channels with stride and addends, two products of a
 * warpgroup with a step under way beside another's, filters of 2x2, both addends. */
Test(conv_mma, warpgroups) {
    const convtest_shape shapes[] = {
        {1, 5, 7, 72, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU}},
        {2, 8, 12, 64, 24, 3, 2, 1, 1, {.act = IST_ACT_RELU, .lab = true, .before = true, .up2 = true, .after = true}},
        {1, 11, 13, 136, 48, 1, 1, 0, 1, {.act = IST_ACT_GELU}},
        {1, 5, 3, 64, 24, 2, 1, 0, 1, {.act = IST_ACT_NONE}},
        {1, 7, 9, 64, 88, 3, 1, 1, 1, {.act = IST_ACT_SILU, .lab = true, .before = true, .after = true}},
    };
    static const char *const names[] = {"wg_128x64", "wg_128x96", "wg_256x128", "wg_64x64", "wg_64x96"};
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        convtest_check(convtest_variant(names[i]), &shapes[i], -1, 30 + i);
}

/* One addend, which comes with the last steps of the product: where there are fewer steps than are under way and more,
 * of half the size, one for all images, behind the limit, of so few groups that more steps are under way, fewer
 * than there are and all of them. */
Test(conv_mma, warpgroups_one_addend) {
    const struct {
        const char *variant;
        convtest_shape shape;
        int limit;
    } cases[] = {
        {"wg_128x64", {1, 5, 7, 72, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU, .before = true}}, -1},
        {"wg_64x64",
         {3, 6, 6, 264, 72, 1, 1, 0, 1, {.act = IST_ACT_RELU, .lab = true, .after = true, .after_one = true}},
         2},
        {"wg_64x128", {2, 8, 12, 64, 24, 3, 2, 1, 1, {.act = IST_ACT_GELU, .before = true, .up2 = true}}, -1},
        {"wg_256x64", {1, 10, 13, 136, 40, 1, 1, 0, 1, {.act = IST_ACT_NONE, .after = true}}, -1},
        {"wg_64x64", {1, 6, 8, 64, 24, 3, 1, 1, 1, {.act = IST_ACT_RELU, .after = true}}, -1},
        {"wg_64x64", {1, 5, 7, 712, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU, .before = true}}, -1},
        {"wg_128x64", {1, 11, 13, 520, 40, 1, 1, 0, 1, {.act = IST_ACT_SILU, .after = true}}, -1},
    };
    for (unsigned i = 0; i < (optest_small() ? 2 : sizeof cases / sizeof cases[0]); i++)
        convtest_check(convtest_variant(cases[i].variant), &cases[i].shape, cases[i].limit, 94 + i);
}

/* Warpgroups whose pixels are squares with what lies around them: of two images in one tile, and one square too few;
 * blocks of channels in turn, with addends. More groups than a small CPU has units, so that blocks take turns. */
Test(conv_mma, warpgroups_patches) {
    const convtest_extras extras = {.act = IST_ACT_SILU, .before = true, .up2 = true, .after = true};
    convtest_check(convtest_variant("wg_128x64"), &(convtest_shape){2, 16, 16, 128, 24, 3, 1, 1, 1, extras}, -1, 40);
    if (optest_small()) return;
    convtest_check(convtest_variant("wg_256x64"),
                   &(convtest_shape){5, 15, 8, 64, 72, 3, 1, 1, 1, {.act = IST_ACT_RELU}}, -1, 41);
}

/* Few enough groups that each keeps the squares of all blocks of channels: three blocks, of squares that end beyond the
 * map; two squares, one of them of the next image, behind a limit; one block; two squares of a warpgroup; so many
 * blocks that they take turns all the same, with more steps of weights under way. */
Test(conv_mma, warpgroups_kept_patches) {
    const convtest_extras extras = {.act = IST_ACT_SILU, .before = true, .after = true};
    convtest_check(convtest_variant("wg_64x64"), &(convtest_shape){1, 8, 15, 192, 40, 3, 1, 1, 1, extras}, -1, 42);
    if (optest_small()) return;
    convtest_check(convtest_variant("wg_128x96"),
                   &(convtest_shape){3, 7, 8, 128, 88, 3, 1, 1, 1, {.act = IST_ACT_RELU, .after = true}}, 2, 43);
    convtest_check(convtest_variant("wg_64x48"), &(convtest_shape){1, 8, 8, 64, 56, 3, 1, 1, 1, {.lab = true}}, -1, 44);
    convtest_check(convtest_variant("wg_256x64"),
                   &(convtest_shape){1, 16, 24, 128, 56, 3, 1, 1, 1, {.act = IST_ACT_SILU}}, -1, 45);
    convtest_check(convtest_variant("wg_128x64"), &(convtest_shape){1, 8, 16, 384, 40, 3, 1, 1, 1, extras}, -1, 46);
}

/* Images of `pixels` with which each group of a GPU has more than two tiles of 128 pixels; at least `least`. */
static int images_for_all(int pixels, int least) {
    optest t;
    optest_begin(&t, "compute units", 0);
    const ist_device_info *facts = ist_device_facts(ist_plan_device(t.plan));
    int needed = facts->type == IST_DEVICE_GPU ? 3 * 128 * facts->compute_units / pixels + 1 : least;
    optest_drop(&t);
    return needed > least ? needed : least;
}

/* Groups that stay for several tiles: channels that end within a step and within a tile; squares of several images, of
 * which the last tile has one too few; an addend before and behind the activation, of half the size and for all images;
 * a limit. */
Test(conv_mma, walking_groups) {
    const convtest_extras before = {.act = IST_ACT_SILU, .before = true, .up2 = true};
    convtest_check(convtest_variant("wk_128x192"),
                   &(convtest_shape){images_for_all(22 * 30, 1), 22, 30, 136, 232, 1, 1, 0, 1, before}, -1, 90);
    if (optest_small()) return;
    const convtest_extras after = {.act = IST_ACT_RELU, .lab = true, .after = true, .after_one = true};
    int n = images_for_all(19 * 17, 3);
    convtest_check(convtest_variant("wk_256x128"), &(convtest_shape){n, 19, 17, 192, 72, 1, 1, 0, 1, after}, n - 1, 91);
    const convtest_extras same = {.act = IST_ACT_RELU, .after = true};
    n = images_for_all(24 * 15, 3);
    convtest_check(convtest_variant("wk_256x128"), &(convtest_shape){n, 24, 15, 64, 136, 3, 1, 1, 1, same}, -1, 92);
    n = images_for_all(16 * 24, 2);
    convtest_check(convtest_variant("wk_128x192"), &(convtest_shape){n, 16, 24, 128, 64, 3, 1, 1, 1, {.lab = true}},
                   n - 1, 93);
}

/* Filters that stay in local memory: several chunks of channels, the last not whole; squares of two images, of which
 * the last warpgroup has none left. */
Test(conv_mma, resident_filters) {
    convtest_check(convtest_variant("wr_64"), &(convtest_shape){1, 11, 13, 136, 72, 1, 1, 0, 1, {.act = IST_ACT_SILU}},
                   -1, 50);
    if (optest_small()) return;
    convtest_check(convtest_variant("wr_64"),
                   &(convtest_shape){2, 8, 23, 64, 24, 3, 1, 1, 1, {.act = IST_ACT_RELU, .lab = true}}, -1, 51);
}

/* Pixels and filters in registers: images, whose windows begin in the middle of a word, and 8, 16 and 32 channels;
 * blocks of results that are stored by one, two and four words. */
Test(conv_mma, direct) {
    const convtest_shape shapes[] = {
        {2, 7, 10, 3, 32, 3, 2, 1, 1, {.act = IST_ACT_RELU}},
        {2, 5, 9, 16, 16, 3, 1, 1, 1, {.act = IST_ACT_SILU, .lab = true}},
        {1, 6, 7, 8, 24, 2, 1, 0, 1, {.act = IST_ACT_NONE}},
        {1, 7, 9, 8, 8, 3, 2, 1, 1, {.act = IST_ACT_RELU}},
        {1, 6, 7, 32, 64, 1, 1, 0, 1, {.act = IST_ACT_NONE}},
        {1, 5, 6, 32, 16, 2, 1, 0, 1, {.act = IST_ACT_NONE}},
    };
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        convtest_check(convtest_variant("mr_16"), &shapes[i], -1, 70 + i);
}

/* A 2x2 convolution with the maximum of its windows, by one launch and by two. */
static void check_pool(const char *variant, int cin, unsigned salt) {
    enum { N = 2, H = 5, W = 7, OUT = 8, SLICE = 16 };
    optest t;
    optest_begin(&t, variant, salt);
    ref_map in = optest_random(&t, N, H, W, cin), want = optest_zeros(&t, N, H, W, OUT),
            most = optest_zeros(&t, N, H, W, cin);
    float *w = optest_values(&t, (size_t)OUT * (size_t)cin * 4, -1, 1);
    for (size_t i = 0; i < (size_t)OUT * (size_t)cin * 4; i++) w[i] = rintf(w[i] * 1024) / 1024;
    ist_tensor wide = optest_out(&t, N, H, W, cin + 2 * SLICE, IST_ELEM_T, false), pool = ist_slice(wide, SLICE, cin);
    ist_conv_opts o = {.bottom = 1, .right = 1, .pool = pool};
    o.into = optest_out(&t, N, H, W, OUT, IST_ELEM_T, false);
    ist_conv q = {.label = "test",
                  .x = optest_in(&t, in, IST_ELEM_T, false),
                  .y = o.into,
                  .filter = {.out = OUT, .in = cin, .kh = 2, .kw = 2, .w = w},
                  .o = o};
    ist_emit_by(t.plan, convtest_variant(variant), 1, &q);
    if (ist_has(q.o.pool)) ist_op_maxpool2x2(t.plan, q.x, pool, "test"); /* not made by the launch itself */
    cr_assert_eq(ist_plan_describe(t.plan).launches, strcmp(variant, "mr_16") ? 2 : 1);
    optest_run(&t);
    ref_epilogue none = {0};
    ref_conv(in, w, NULL, (ref_window){2, 2, 1, 0, 0}, &none, want);
    ref_maxpool2x2(in, most);
    double tol = optest_tolerance(&t, cin * 4);
    optest_check(&t, "result", q.y, want, tol, tol * 2, -1);
    optest_check(&t, "maximum", pool, most, 0, 0, -1);
    optest_end(&t);
}

Test(conv_mma, direct_with_maximum) {
    if (optest_small()) return;
    check_pool("mr_16", 16, 80);
    check_pool("mr_16", 32, 81);
    check_pool("mma_128x16", 16, 82);
}

/* A norm in front of a linear layer: the mean is large beside the deviation, as it may be in a residual stream. */
Test(conv_mma, norm_in_front) {
    enum { N = 2, TOKENS = 19, C = 72, OUT = 35 };
    claim("+PTX_MMA,-PTX_WGMMA"); /* devices with both let it be a launch of its own */
    optest t;
    optest_begin(&t, "norm and linear layer", 20);
    ref_map x = optest_random(&t, N, 1, TOKENS, C), u = optest_zeros(&t, N, 1, TOKENS, C), none = {0};
    ref_map want = optest_zeros(&t, N, 1, TOKENS, OUT);
    for (size_t i = 0; i < ref_size(x); i++) x.v[i] = rintf((x.v[i] + 1.5f) * 512) / 512; /* exact in half */
    float *w = optest_values(&t, C * OUT, -0.2f, 0.2f), *b = optest_values(&t, 2 * C + OUT, -1, 1);
    ist_norm_mlp l = {.label = "layers",
                      .x = optest_in(&t, x, IST_ELEM_T, false),
                      .y = optest_out(&t, N, 1, TOKENS, OUT, IST_ELEM_T, true),
                      .norm = {.gamma = b, .beta = b + C, .n = C},
                      .eps = 1e-5f,
                      .act = IST_ACT_GELU,
                      .fc1 = {.out = OUT, .in = C, .kh = 1, .kw = 1, .w = w, .b = b + 2 * C}};
    ist_tensor y = l.y;
    ist_emit_by(t.plan, ist_variant_named(IST_NODE_NORM_MLP, "norm_linear"), 1, &l);
    cr_assert_eq(ist_plan_describe(t.plan).launches, 1, "norm and layer are one launch");
    optest_run(&t);
    ref_epilogue act = {.act = (int)IST_ACT_GELU};
    ref_layernorm(x, none, 0, b, b + C, 1e-5f, 0, u);
    ref_conv(u, w, b + 2 * C, (ref_window){1, 1, 1, 0, 0}, &act, want);
    optest_check(&t, "result", y, want, 2e-3, 1e-2, -1);
    optest_end(&t);
}
