/* SAM's mask decoder (Kirillov et al., ICCV 2023; segment-anything's modeling/mask_decoder.py): a two-way transformer
 * between a few tokens and the 64x64 image (sam_two_way.h), upscaling (sam_upscale.h), and one dot product per mask. */
#include "models/bridge.h"
#include "models/mobilesam.h"
#include "models/sam_two_way.h"
#include "models/sam_upscale.h"
#include "ops/token.h"

#include <stdlib.h>

enum { MASK_TOKENS = IST_SAM_OWN_TOKENS - 1, DIM = IST_SAM_DIM };

/* ---- read-out ---- */

/* Token `index` of every prompt as [P,1,1,256]: a channel slice of the prompt's row of all tokens. */
static ist_tensor token_at(ist_tensor q, int index) {
    q.ld *= q.w;
    q.c0 += index * q.c;
    q.w = 1;
    return q;
}

static ist_tensor mlp3(const ist_net *net, ist_tensor x, const ist_conv_opts *last, const char *at) {
    ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    x = ist_dense(net, x, &relu, "mask_decoder.%s.layers.0", at);
    x = ist_dense(net, x, &relu, "mask_decoder.%s.layers.1", at);
    return ist_dense(net, x, last, "mask_decoder.%s.layers.2", at);
}

/* The vectors of the masks [P,1,masks,32] and the predicted IoU of all [P,1,1,4], one perceptron after the other. */
static ist_tensor perceptrons(const ist_net *net, ist_tensor q, int first, int masks, ist_tensor *vectors) {
    ist_plan *p = net->plan;
    ist_tensor hyper = ist_plan_tensor(p, q.n, 1, 1, masks * IST_SAM_DIM / 8, IST_ELEM_T); /* [P,1,1,masks*32] */
    for (int m = 0; m < masks; m++)
        mlp3(net, token_at(q, 1 + first + m), &(ist_conv_opts){.into = ist_slice(hyper, m * 32, 32)},
             ist_name_of("output_hypernetworks_mlps.%d", first + m).text);
    hyper.w = masks;
    hyper.c = hyper.ld = 32;
    *vectors = hyper;
    ist_tensor iou = ist_plan_tensor(p, q.n, 1, 1, MASK_TOKENS, IST_ELEM_F32);
    mlp3(net, token_at(q, 0), &(ist_conv_opts){.into = iou}, "iou_prediction_head");
    return iou;
}

/* The same in one launch. */
static ist_tensor joined_perceptrons(const ist_net *net, ist_tensor q, int first, int masks, ist_tensor *vectors) {
    ist_plan *p = net->plan;
    ist_conv_weights w[1 + MASK_TOKENS][3] = {{{0}}};
    ist_perceptron all[1 + MASK_TOKENS];
    ist_tensor iou = {0};
    for (int i = 0; i <= masks; i++) {
        ist_name at = ist_name_of("output_hypernetworks_mlps.%d", first + i - 1);
        for (int l = 0; l < 3; l++) {
            int out = l < 2 ? DIM : i ? DIM / 8 : MASK_TOKENS;
            w[i][l] = ist_take_dense(net, "mask_decoder.%s.layers.%d", i ? at.text : "iou_prediction_head", l);
            if (!ist_plan_status(p) && (w[i][l].in != DIM || w[i][l].out != out))
                ist_plan_fail(p, IST_E_WEIGHTS, "%s.layers.%d: %d x %d weights, want %d x %d",
                              i ? at.text : "iou_prediction_head", l, w[i][l].out, w[i][l].in, out, DIM);
            all[i].w[l] = w[i][l].w;
            all[i].b[l] = w[i][l].b;
        }
    }
    if (!ist_plan_status(p))
        iou = ist_op_perceptrons(p, q, all, masks + 1, MASK_TOKENS, 1 + first, vectors, "output perceptrons");
    for (int i = 0; i <= masks; i++)
        for (int l = 0; l < 3; l++) ist_conv_weights_free(&w[i][l]);
    return iou;
}

static ist_sam_masks read_out(const ist_net *net, const ist_sam_upscale *up, ist_tensor q, ist_tensor k,
                              bool multimask) {
    int first = multimask ? 1 : 0, masks = multimask ? MASK_TOKENS - 1 : 1;
    ist_tensor vectors = {0};
    bool joined = !ist_plan_status(net->plan) && ist_token_layers(net->plan, q.w);
    ist_tensor iou = (joined ? joined_perceptrons : perceptrons)(net, q, first, masks, &vectors);
    return (ist_sam_masks){
        .low_res = ist_sam_upscale_masks(up, k, vectors), .iou = ist_slice(iou, first, masks), .masks = masks};
}

/* The image of each prompt, the first where the caller has named none. */
static ist_tensor images_of(ist_plan *p, ist_tensor image_of, int prompts) {
    if (ist_has(image_of)) return image_of;
    int *zeros = calloc((size_t)prompts, sizeof *zeros);
    if (!zeros) ist_plan_fail(p, IST_E_MEMORY, "mask decoder: out of host memory");
    if (zeros) image_of = ist_plan_const(p, zeros, 1, 1, prompts, 1, IST_ELEM_I32, "image of prompt");
    free(zeros);
    return image_of;
}

ist_sam_masks ist_sam_decode(ist_plan *p, const ist_weights *weights, ist_tensor embedding, ist_tensor content,
                             ist_tensor image_of, ist_tensor sparse, ist_tensor dense, bool multimask) {
    const ist_net net = {p, weights};
    ist_sam_upscale up;
    ist_tensor image, pe;
    int wanted = multimask ? 1 + MASK_TOKENS : 2; /* IoU and masks */
    if (ist_plan_status(p)) return (ist_sam_masks){0};
    ist_sam_prompted in = {embedding, images_of(p, image_of, sparse.n), sparse, dense};
    ist_sam_upscale_begin(&net, &up);
    up.seen = (ist_upscale_seen){content, in.image_of};
    ist_tensor q = ist_sam_two_way(&net, &in, wanted, &up, &image, &pe);
    ist_tap(&net, q, "tokens");
    ist_tap(&net, image, "keys");
    ist_sam_masks out = read_out(&net, &up, q, image, multimask);
    ist_sam_upscale_free(&up);
    ist_plan_tap(p, "masks", out.low_res);
    ist_plan_tap(p, "iou", out.iou);
    ist_plan_tap(p, "dense_pe", pe);
    return out;
}
