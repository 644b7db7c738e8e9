/* From a checkpoint to a graph: a layer's filter by its name, and the node that it is part of.
 *
 * A model function takes an `ist_net` and reads like its paper: one layer per line. Failures are sticky in the graph:
 * once it has failed, everything here is a no-op that returns something empty. Names are printf formats, so that the
 * numbers of a layer stand where the checkpoint has them. Only shapes are read here; numbers are loaded when a plan is
 * made of the graph (weights/recipe.h). Knows no model. */
#ifndef IST_MODELS_NET_H
#define IST_MODELS_NET_H

#include "graph/graph.h"
#include "weights/recipe.h"

/* A model being recorded; both are borrowed. */
typedef struct ist_net {
    ist_graph *graph;
    const ist_weights *weights;
} ist_net;

/* The full official name of a tensor or layer (the longest has 78 characters), for lines that need one twice. */
typedef struct ist_name {
    char text[128];
} ist_name;
ist_name ist_name_of(const char *fmt, ...) IST_PRINTF(1, 2);

/* ---- numbers by name ---- */

/* NAME.conv.weight, batch norm NAME.bn, and LAB's NAME.lab.scale and .bias where the checkpoint has them. */
ist_filter ist_take_conv_bn(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* NAME.conv.weight, batch norm NAME.norm. */
ist_filter ist_take_conv_norm(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* Full names of a weight of rank 4 and of its batch norm, which may be NULL. */
ist_filter ist_take_conv(const ist_net *net, const char *weight, const char *bn);
/* NAME.weight, NAME.bias where the checkpoint has it: of a convolution or a matrix [out,in]. */
ist_filter ist_take_dense(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* A matrix and its bias by full names. */
ist_filter ist_take_linear(const ist_net *net, const char *weight, const char *bias);
/* NAME.conv1 (3x3) and NAME.conv2 (1x1) with their batch norms as one 3x3 filter. */
ist_filter ist_take_repvgg(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* NAME.weight and NAME.bias of a norm. */
ist_affine ist_take_norm(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* Any tensor. */
ist_array ist_take_array(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* A tensor of one element, now. */
float ist_take_scalar(const ist_net *net, const char *name);

/* The outputs of a, then those of b: two 1x1 layers of one input. */
ist_filter ist_take_stack(const ist_net *net, ist_filter a, ist_filter b);
/* Outputs [first, first + count) of a 1x1 layer. */
ist_filter ist_take_outputs(const ist_net *net, ist_filter f, int first, int count);
/* With weights, not the bias, times `scale`. */
ist_filter ist_take_scaled(const ist_net *net, ist_filter f, float scale);

/* ---- nodes ---- */

/* Zero padding of k on all sides; of one row and column at the far sides. For ist_conv_opts initialisers. */
#define IST_PAD(k)  .top = (k), .left = (k), .bottom = (k), .right = (k)
#define IST_PAD_FAR .bottom = 1, .right = 1

/* Adds a node of the kind's struct, and returns the first of its results: NODE(net, GATHER, gather, .x = x, ..). */
ist_tensor ist_net_node(const ist_net *net, ist_node_kind kind, void *node);
#define IST_NODE(net, ID, type, ...) ist_net_node(net, IST_NODE_##ID, &(ist_##type){__VA_ARGS__})

/* A convolution, depthwise where the filter has one channel per group and as many outputs as x has channels, or a linear
 * layer. `opts` may be NULL. */
ist_tensor ist_net_apply(const ist_net *net, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
/* The same of ist_take_conv_bn, ist_take_conv_norm and ist_take_dense. */
ist_tensor ist_net_conv_bn(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
ist_tensor ist_net_conv_norm(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
ist_tensor ist_net_dense(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
/* A layer norm whose operands and attributes are given. */
ist_tensor ist_net_layer_norm(const ist_net *net, ist_layer_norm node, const char *fmt, ...) IST_PRINTF(3, 4);
ist_tensor ist_net_add(const ist_net *net, ist_tensor a, ist_tensor b, const char *label);

/* ist_graph_name. */
#define ist_net_name(net, t, ...) ist_graph_name((net)->graph, t, __VA_ARGS__)

#endif
