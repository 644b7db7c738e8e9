/* Chains: operators on the same rows (queries, tokens) gathered into few launches: on GPUs for short sequences, where a
 * launch costs more than the work (cl/op/chain.cl), on CPUs so that what lies between stays in a core's cache
 * (cl/op/chain_cpu.cl).
 *
 * Between ist_chain_begin and ist_chain_end the operators that can be part of a chain are recorded as steps. The chain
 * is cut only where a step reads rows that other groups make: the keys of an attention. On CPUs and on matrix
 * instructions it is cut at every attention, which is a launch of its own there. Tensors made and used up inside one
 * piece never leave local memory or cache. Where a chain does not pay, beginning does nothing and operators launch as
 * always. */
#ifndef IST_OPS_CHAIN_H
#define IST_OPS_CHAIN_H

#include "ops/ops.h"

/* Begins a chain over `rows` rows of n items if the device has what it needs and, but on CPUs, the rows are few;
 * `width` and `inner`: channels of the rows and of the widest intermediate result, which must fit local memory or, on
 * CPUs, be multiples of 16. */
void ist_chain_begin(ist_plan *p, int n, int rows, int width, int inner);
/* Begins a chain over the pixels of n maps whose last operator is the depthwise 3x3 convolution of stride 2 that reads
 * them, of c channels: on CPUs with few enough compute units that each has a band of the map worth its upper edge. */
void ist_chain_begin_map(ist_plan *p, int n, int h, int w, int c);
/* Launches what was gathered. Of the tensors made since the beginning only `results` (and taps) can be read later.
 * `label` names the launches. Does nothing when no chain was begun; to be called also when the plan has failed. */
void ist_chain_end(ist_plan *p, const ist_tensor *results, int count, const char *label);

/* ---- for operators ---- */

typedef enum ist_chain_op {
    IST_CHAIN_LINEAR,     /* filter, ints {act}; rows {x, before, after}; on CPUs floats {scale, shift} of the result */
    IST_CHAIN_SUM,        /* rows {a, b or none}; ints {clamped}; floats {low, high} */
    IST_CHAIN_GATE,       /* rows {x, y, g}; data {gamma, beta}; floats {eps} */
    IST_CHAIN_NORM,       /* rows {x, add or none}; data {gamma, beta}; floats {eps, clamp or 0}; ints {act} */
    IST_CHAIN_ATTENTION,  /* rows {q}; whole {k, v}; ints {heads}; floats {scale} */
    IST_CHAIN_DEFORM,     /* rows {offsets, weights, boxes}; whole {memory}; ints {heads, points}; data {table} */
    IST_CHAIN_GATHER,     /* whole {x, index} */
    IST_CHAIN_BOX_INIT,   /* rows {a, b} */
    IST_CHAIN_BOX_REFINE, /* rows {a, b} */
    IST_CHAIN_FDR,        /* rows {increment, previous or none, first boxes}; out {boxes, corners}; data {offsets} */
    IST_CHAIN_LQE,        /* rows {corners} */
    IST_CHAIN_DEPTHWISE   /* rows {x}; data {weights [9][c], bias}; ints {act}: the last, of a map */
} ist_chain_op;

typedef struct ist_chain_step {
    ist_chain_op op;
    ist_tensor out[2];
    ist_tensor rows[3];  /* read at the row that is made */
    ist_tensor whole[2]; /* read at any row */
    ist_filter filter;   /* 1x1; packed now */
    int ints[2];
    float floats[2];
    const float *data[2]; /* copied now */
    int sizes[2];
    double flops;
    size_t data_at[2], weights_at; /* set by ist_chain_take: where the copies are */
    bool has_bias, parts;          /* parts: a linear layer whose weights are packed for isa/amx */
} ist_chain_step;

/* Makes the operator a step if there is a chain; false: it has to launch. */
bool ist_chain_take(ist_plan *p, const ist_chain_step *step, const char *label);
/* Attention into `out`, never a step of a chain; every map of opts is used. */
void ist_attention_launch(ist_plan *p, ist_tensor out, ist_tensor q, ist_tensor k, ist_tensor v,
                          const ist_attention_opts *opts, const char *label);
/* ist_op_linear's and ist_op_dwconv's way into a chain. */
ist_tensor ist_chain_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);
ist_tensor ist_chain_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);

#endif
