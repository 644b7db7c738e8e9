/* Tensors as operators want them: batch norm folded into its convolution, RepVGG branches summed, float32.
 *
 * Names given here are those of the training form; a deployed checkpoint (conv_bn_fused, bottleneck conv) goes through
 * the same calls. LAB stays an epilogue, y = lab_scale * act(v) + lab_bias, and is never folded. Folding is done in
 * double precision, eps 1e-5. All arrays are malloc'd and belong to the struct; after a failure the struct is empty. */
#ifndef IST_WEIGHTS_FOLD_H
#define IST_WEIGHTS_FOLD_H

#include "weights/weights.h"

/* A convolution (or, with kh = kw = 1, a linear layer). */
typedef struct ist_conv_weights {
    int out, in; /* in: channels per group, 1 for a depthwise convolution */
    int kh, kw;
    float *w; /* [out][in][kh][kw] */
    float *b; /* [out], never NULL: zeros when the layer has no bias */
    int has_lab;
    int settled;               /* the weights are as a plan holds them: not to be rounded again */
    float lab_scale, lab_bias; /* 1 and 0 without LAB */
} ist_conv_weights;

/* Layer norm (or LN2d) affine, both [n]. */
typedef struct ist_norm_weights {
    int n;
    float *w, *b;
} ist_norm_weights;

/* conv: name of the weight, "encoder.lateral_convs.0.conv.weight", rank 4. bn: prefix of weight, bias, running_mean and
 * running_var, or NULL. lab: prefix of scale and bias, or NULL. The convolution's own bias joins in where it exists. */
ist_status ist_fold_conv(const ist_weights *weights, const char *conv, const char *bn, const char *lab,
                         ist_conv_weights *out, ist_error *err);

/* The name that the weight of such a convolution has in this checkpoint: `conv`, or what deploy() left in its place. */
void ist_fold_conv_name(const ist_weights *weights, const char *conv, char *name, size_t size);

/* block: prefix of conv1.{conv,norm} (3x3) and conv2.{conv,norm} (1x1), "encoder.fpn_blocks.0.cv2.0.bottlenecks.0".
 * Result: one 3x3 convolution. */
ist_status ist_fold_repvgg(const ist_weights *weights, const char *block, ist_conv_weights *out, ist_error *err);
/* The name of a weight that has the shape of the result. */
void ist_fold_repvgg_name(const ist_weights *weights, const char *block, char *name, size_t size);

/* weight [out,in] and bias [out] by full names; bias may be NULL. kh = kw = 1. */
ist_status ist_load_linear(const ist_weights *weights, const char *weight, const char *bias, ist_conv_weights *out,
                           ist_error *err);

/* prefix.weight [n] and prefix.bias [n]. */
ist_status ist_load_norm(const ist_weights *weights, const char *prefix, ist_norm_weights *out, ist_error *err);

/* Rounds the weights to values that half can hold, keeping the sums of each filter's and each input channel's weights
 * (src/weights/halve.c). Those beyond half stay as they are. */
void ist_conv_weights_halve(ist_conv_weights *conv);

/* The same for inputs whose means are about `mean` [in] (of a depthwise convolution [out]): the biases take what
 * rounding changes of the outputs' means, which go to `result` [out] and are those of the weights as they were. */
void ist_conv_weights_halve_about(ist_conv_weights *conv, const float *mean, float *result);

/* Free the arrays and empty the struct; accept an empty struct and NULL. */
void ist_conv_weights_free(ist_conv_weights *conv);
void ist_norm_weights_free(ist_norm_weights *norm);

#endif
