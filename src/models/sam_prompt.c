/* SAM's prompt encoder (Kirillov et al., ICCV 2023; segment-anything's modeling/prompt_encoder.py): points, boxes and
 * masks become tokens and a dense map. */
#include "models/bridge.h"
#include "models/mobilesam.h"
#include "ops/prompt.h"

#include <stdlib.h>
#include <string.h>

/* Fourier matrix and label embeddings as ist_op_point_tokens wants them; one allocation, freed by the caller. */
static float *load_code(const ist_net *net, ist_point_code *code) {
    static const char *const names[] = {"not_a_point_embed", "point_embeddings.0", "point_embeddings.1",
                                        "point_embeddings.2", "point_embeddings.3"};
    int64_t gauss_dims[2] = {2, IST_SAM_DIM / 2}, row_dims[2] = {1, IST_SAM_DIM};
    float *all = malloc(6 * IST_SAM_DIM * sizeof *all), *part = NULL;
    ist_error *err = ist_plan_error(net->plan);
    if (!all) ist_plan_fail(net->plan, IST_E_MEMORY, "prompt encoder: out of host memory");
    if (!ist_plan_status(net->plan) &&
        !ist_weights_f32(net->weights, "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", 2, gauss_dims,
                         &part, err))
        memcpy(all, part, IST_SAM_DIM * sizeof *all);
    free(part);
    for (int i = 0; i < 5 && !ist_plan_status(net->plan); i++) {
        part = NULL;
        ist_name name = ist_name_of("prompt_encoder.%s.weight", names[i]);
        if (!ist_weights_f32(net->weights, name.text, 2, row_dims, &part, err))
            memcpy(all + (i + 1) * IST_SAM_DIM, part, IST_SAM_DIM * sizeof *all);
        free(part);
    }
    *code = (ist_point_code){.gauss = all, .table = all + IST_SAM_DIM, .side = IST_SAM_SIDE};
    return all;
}

/* The decoder's own: the IoU token, the mask tokens. */
static ist_tensor own_tokens(const ist_net *net) {
    static const struct {
        const char *name;
        int rows;
    } tables[] = {{"mask_decoder.iou_token.weight", 1}, {"mask_decoder.mask_tokens.weight", IST_SAM_OWN_TOKENS - 1}};
    float values[IST_SAM_OWN_TOKENS * IST_SAM_DIM], *to = values;
    ist_plan *p = net->plan;
    for (int i = 0; i < 2 && !ist_plan_status(p); i++) {
        float *table = NULL;
        int64_t dims[2] = {tables[i].rows, IST_SAM_DIM};
        if (!ist_weights_f32(net->weights, tables[i].name, 2, dims, &table, ist_plan_error(p)))
            memcpy(to, table, (size_t)(tables[i].rows * IST_SAM_DIM) * sizeof *to);
        to += tables[i].rows * IST_SAM_DIM;
        free(table);
    }
    if (ist_plan_status(p)) return (ist_tensor){0};
    return ist_plan_const(p, values, 1, 1, IST_SAM_OWN_TOKENS, IST_SAM_DIM, IST_ELEM_T, "output tokens");
}

static ist_tensor tokens(ist_plan *p, const ist_weights *weights, ist_tensor points, ist_tensor labels, int first_label,
                         bool pad, bool own) {
    ist_net net = {p, weights};
    ist_point_code code;
    ist_tensor y = {0}, before = {0};
    if (ist_plan_status(p)) return y;
    if (own) before = own_tokens(&net);
    float *owned = load_code(&net, &code);
    if (!ist_plan_status(p))
        y = ist_op_point_tokens(p, points, labels, first_label, pad, &code, before, "prompt_encoder");
    free(owned);
    return y;
}

ist_tensor ist_sam_box_tokens(ist_plan *p, const ist_weights *weights, ist_tensor boxes, bool own) {
    return tokens(p, weights, boxes, (ist_tensor){0}, 2, false, own); /* corners have labels 2 and 3 */
}

ist_tensor ist_sam_point_tokens(ist_plan *p, const ist_weights *weights, ist_tensor points, ist_tensor labels,
                                bool pad) {
    return tokens(p, weights, points, labels, 0, pad, true);
}

ist_tensor ist_sam_join_tokens(ist_plan *p, ist_tensor a, ist_tensor b) {
    return ist_op_join_tokens(p, a, b, "prompt tokens");
}

ist_tensor ist_sam_mask_prompt(ist_plan *p, const ist_weights *weights, ist_tensor masks) {
    ist_net bridge = {p, weights}, *net = &bridge;
    ist_norm_opts gelu = {.act = IST_ACT_GELU};
    ist_tensor x = masks;                                                                      /* [P,256,256,1] */
    x = ist_dense(net, x, &(ist_conv_opts){.stride = 2}, "prompt_encoder.mask_downscaling.0"); /* [P,128,128,4] */
    x = ist_layer_norm(net, x, 1e-6f, &gelu, "prompt_encoder.mask_downscaling.1");
    x = ist_dense(net, x, &(ist_conv_opts){.stride = 2}, "prompt_encoder.mask_downscaling.3"); /* [P,64,64,16] */
    x = ist_layer_norm(net, x, 1e-6f, &gelu, "prompt_encoder.mask_downscaling.4");
    return ist_dense(net, x, NULL, "prompt_encoder.mask_downscaling.6"); /* [P,64,64,256] */
}
