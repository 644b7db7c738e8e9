/* D-FINE as DEIM trains it: the same tensors, SiLU in the decoder. What the checkpoint says reaches every MLP of the
 * decoder and nothing else. */
#include "models/dfine.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static ist_error err;

typedef struct counts {
    int relu, silu, inside; /* inside: of the decoder's */
} counts;

static counts count(const ist_graph *g) {
    counts c = {0};
    for (size_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].kind != IST_NODE_CONV) continue;
        const ist_conv *conv = g->nodes[i].of;
        c.relu += conv->o.epi.act == IST_ACT_RELU;
        c.silu += conv->o.epi.act == IST_ACT_SILU;
        c.inside += !strncmp(conv->label, "decoder.", 8) && conv->o.epi.act == IST_ACT_SILU;
    }
    return c;
}

/* The graph of N at 256 x 256, whose metadata say `activation` unless it is NULL. */
static counts record(const char *activation) {
    ist_weights *w = NULL;
    ist_checkpoint_info info;
    ist_graph *g = NULL;
    cr_assert_eq(synth_weights(IST_MODEL_DFINE_N, 3, 1, &w, &err), IST_OK, "%s", err.text);
    if (activation) cr_assert_eq(ist_weights_set_metadata(w, "activation", activation, &err), IST_OK);
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.kind, IST_MODEL_DFINE_N);
    cr_expect_eq(info.silu, activation && !strcmp(activation, "silu"));
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
    ist_detected d = ist_dfine(&(ist_net){g, w}, &info, ist_graph_input(g, 1, 256, 256, 3, IST_ELEM_T));
    cr_assert(ist_has(d.logits) && ist_has(d.boxes), "%s", g->error.text);
    counts c = count(g);
    ist_graph_close(&g);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
    return c;
}

/* Three layers: position of each, feed-forward of each, two hidden layers of the first layer's two heads, of which the
 * first are one, and of each other head, enc_bbox_head's two, one of the quality head. */
Test(model_deim, silu_in_all_of_the_decoder) {
    enum { LAYERS = 3, MLPS = LAYERS + LAYERS + 1 + 2 + 2 * (LAYERS - 1) + 2 + 1 };
    counts published = record(NULL), relu = record("relu"), silu = record("silu");
    cr_expect_eq(published.inside, 0);
    cr_expect_eq(silu.inside, MLPS, "%d", silu.inside);
    cr_expect_eq(published.relu - silu.relu, MLPS);
    cr_expect_eq(silu.silu - published.silu, MLPS);
    cr_expect(relu.relu == published.relu && relu.silu == published.silu);
}

/* L and X are trained with running statistics that are counted, where D-FINE's are frozen. */
Test(model_deim, counted_statistics_are_no_hindrance) {
    ist_weights *w = NULL;
    ist_checkpoint_info info;
    cr_assert_eq(synth_weights(IST_MODEL_DFINE_L, 80, 1, &w, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK);
    size_t unused = info.unused.count;
    ist_checkpoint_info_free(&info);
    cr_assert_eq(
        ist_weights_add(w, "backbone.stem.stem1.bn.num_batches_tracked", IST_WEIGHT_I64, 0, NULL, &(int64_t){9}, &err),
        IST_OK);
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.kind, IST_MODEL_DFINE_L);
    cr_expect_eq(info.unused.count, unused + 1);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_OK, "%s", err.text);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

/* Stems of 1, 3 and 4 channels are recognised and recorded for such images only; of 2 there is none. */
Test(model_deim, channels_of_the_stem) {
    for (int channels = 1; channels <= 4; channels++) {
        ist_weights *w = NULL;
        ist_checkpoint_info info;
        char path[] = IST_BUILD_DIR "/stem_channels.safetensors";
        ist_arch_form form = {.kind = IST_MODEL_DFINE_N, .classes = 2, .size = 640, .channels = channels};
        cr_assert_eq(synth_form_checkpoint(&form, 1, NULL, NULL, path, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_weights_open(path, &w, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK);
        cr_expect_eq(info.channels, channels == 2 ? 3 : channels);
        cr_expect_eq(ist_checkpoint_check(&info, &err), channels == 2 ? IST_E_WEIGHTS : IST_OK);
        if (channels == 2)
            cr_expect_str_eq(err.text, "backbone.stem.stem1.conv.weight: want [16,3,3,3], file has [16,2,3,3]");
        for (int c = 1; c <= 4 && channels != 2; c++) {
            ist_graph *g = NULL;
            cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
            ist_tensor image = ist_graph_input(g, 1, 256, 320, c, IST_ELEM_T);
            bool made = ist_has(ist_dfine(&(ist_net){g, w}, &info, image).logits);
            cr_expect_eq(made, c == channels, "%d channels for a stem of %d: %s", c, channels, g->error.text);
            ist_graph_close(&g);
        }
        ist_checkpoint_info_free(&info);
        ist_weights_close(&w);
        remove(path);
    }
}
