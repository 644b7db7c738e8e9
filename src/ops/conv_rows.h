/* The rows of the convolution family: for conv.c, for the files that pack and launch a kind of row, and for tests that
 * run every row a device can run. */
#ifndef IST_OPS_CONV_ROWS_H
#define IST_OPS_CONV_ROWS_H

#include "ops/divider.h"
#include "ops/ops.h"

/* Panels: weights are panels of one column tile, arithmetic is fp32 (conv_panels.c). MMA: weights are halves in the
 * order of a matrix instruction's fragments, sums are fp32; for plans with half storage (conv_mma.c). WGMMA: the same
 * with the instructions of isa/wgmma, weights as the tiles that these read (conv_wgmma.c). WALK: the same by groups
 * that stay for many tiles (conv_walk.c). RESIDENT: the same, with weights that stay in local memory (conv_resident.c).
 * DIRECT: MMA's instructions with weights and pixels in registers (conv_direct.c). MATRIX: the same for the
 * instructions of isa/matrix (conv_matrix.c). BF16: panels of bfloat16 pairs, inputs are rounded on the way, sums are
 * fp32; where ist_plan_bf16 allows it (conv_bf16.c). TOKENS: panels that pass once for all of few pixels, on CPUs
 * (conv_tokens.c). AMX: the same on the matrix unit of x86 CPUs, and floats in three
 * parts where it does not (conv_amx.c). */
typedef enum ist_conv_family {
    IST_CONV_PANELS,
    IST_CONV_MMA,
    IST_CONV_WGMMA,
    IST_CONV_WALK,
    IST_CONV_RESIDENT,
    IST_CONV_DIRECT,
    IST_CONV_MATRIX,
    IST_CONV_BF16,
    IST_CONV_TOKENS,
    IST_CONV_AMX
} ist_conv_family;

typedef struct ist_conv_row {
    const char *name, *op;
    ist_conv_family family;
    unsigned needs;                            /* ist_cap bits */
    int mr, nv, vl;                            /* the tile: pixels by nv * vl channels */
    int items;                                 /* work-items of a group */
    double speed;                              /* multiply-adds per time, relative to the family's other rows */
    int warps_m, warps_n, warps_k, bk, stages; /* MMA, MATRIX: warps along pixels, channels and inputs; inputs of a
                                                  step; steps in local memory. WGMMA: warpgroups, 64 pixels of
                                                  each, batches of products under way beside the step's. PANELS: bk
                                                  is the most inputs of a 1x1 convolution, 0 for any problem. TOKENS:
                                                  bk is the most pixels. AMX: bk is the number of parts: 3, or 1
                                                  for bfloat16 */
} ist_conv_row;

/* A row and how many groups share the sum of one tile (MMA; else 1). */
typedef struct ist_conv_choice {
    const ist_conv_row *row;
    int splits;
} ist_conv_choice;

int ist_conv_row_count(void);
const ist_conv_row *ist_conv_row_at(int index);

/* A problem whose shapes have been checked: everything that packing and launching need. */
typedef struct ist_conv_problem {
    ist_tensor x, y;
    ist_filter f;
    const ist_conv_opts *o;
    const char *label;
    int taps, oh, ow;
    float norm_eps; /* > 0: of a norm of x in front, whose scale and shift are in f already (MMA) */
} ist_conv_problem;

/* Weight of output o, input i, tap t, in PyTorch's order. */
static inline float ist_conv_weight(const ist_conv_problem *q, int o, int i, int t) {
    return q->f.w[((size_t)o * (size_t)q->f.in + (size_t)i) * (size_t)q->taps + (size_t)t];
}

/* 1x1 with stride 1 on the pixels themselves; 3x3 with stride 1 that keeps the extents. */
static inline bool ist_conv_is_point(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    return q->taps == 1 && o->stride <= 1 && !o->top && !o->left && !o->bottom && !o->right;
}
static inline bool ist_conv_keeps_extents(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    return q->f.kh == 3 && q->f.kw == 3 && q->taps == 9 && o->stride <= 1 && o->top == 1 && o->left == 1 &&
           q->oh == q->x.h && q->ow == q->x.w;
}

/* Bytes of the activations and of weights of `weight_bytes` each: for profiles. */
double ist_conv_bytes(const ist_plan *p, const ist_conv_problem *q, int weight_bytes);

/* Whether the plan's device and precision can run the row; whether the row can do the problem. */
bool ist_conv_row_runs(const ist_plan *p, const ist_conv_row *row);
bool ist_conv_row_takes(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
/* Most groups that may share a tile's sum in this row: 1 but for MMA. */
int ist_conv_most_splits(const ist_conv_row *row, const ist_conv_problem *q);
/* Relative time as the row's family estimates it; MMA and WGMMA have one unit. */
double ist_conv_cost(const ist_plan *p, ist_conv_choice choice, const ist_conv_problem *q);
/* What the heuristic takes; no row when the device can run none. */
ist_conv_choice ist_conv_choose(const ist_plan *p, const ist_conv_problem *q);
/* ist_op_conv with a given row and number of splits; NULL and 0: the heuristic's. */
ist_tensor ist_op_conv_row(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_conv_choice choice,
                           const char *label);

/* A linear layer on the norm of x, act((x - mean) / deviation * gamma + beta) as one launch: whether the device can and
 * gains; the rest as ist_op_linear and ist_op_layernorm. */
bool ist_conv_takes_norm(const ist_plan *p, ist_tensor x);
ist_tensor ist_conv_of_norm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps, ist_filter f,
                            const ist_conv_opts *opts, const char *label);

/* What a family says of a launch whose arguments are op/conv_mma's. */
typedef struct ist_conv_launch {
    const char *isa, *defines;
    int groups, items, splits; /* of a split; work-items of a group; splits, 0 for 1 */
    int col_tiles;             /* groups of the same rows */
    ist_tensor weights, bias;
    ist_tensor partial, arrived; /* where splits share sums; partial alone: another result */
    int in5, win6, win7;         /* elements of in and win */
    float norm_eps;
    int tiles[8];
    ist_divider div[4];
} ist_conv_launch;

void ist_conv_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row, const ist_conv_launch *l);

/* ---- one family's relative time for a problem, and its packing and launch ---- */

bool ist_conv_panels_takes(const ist_conv_row *row, const ist_conv_problem *q);
double ist_conv_panels_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_panels(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);
/* Weights [column tile][tap][in][nr] and bias [column tile][nr], zeros beyond the last channel; false, and the plan
 * failed, when they are too large. */
typedef struct ist_conv_panel {
    ist_tensor weights, bias;
} ist_conv_panel;
bool ist_conv_panels_pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_conv_panel *out);

bool ist_conv_tokens_takes(const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_tokens(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

/* Most groups that may share a tile's sum: each has at least one step. */
int ist_conv_mma_most_splits(const ist_conv_row *row, const ist_conv_problem *q);
double ist_conv_mma_cost(const ist_plan *p, ist_conv_choice choice, const ist_conv_problem *q);
void ist_conv_mma(ist_plan *p, const ist_conv_problem *q, ist_conv_choice choice);

/* Whether the kernel can do the problem. */
bool ist_conv_wgmma_takes(const ist_conv_problem *q);
double ist_conv_wgmma_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_wgmma(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);
/* Weights [step][blocks of 16 channels][64 halves] as isa/wgmma reads them, bias [blocks of 16 channels]; false,
 * and the plan failed, when they are too large. */
bool ist_conv_wgmma_pack(ist_plan *p, const ist_conv_problem *q, int blocks, ist_tensor *weights, ist_tensor *bias);

/* 64-channel steps of a tile. */
int ist_conv_wgmma_steps(const ist_conv_problem *q);

bool ist_conv_walk_takes(const ist_conv_row *row, const ist_conv_problem *q);
double ist_conv_walk_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_walk(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

bool ist_conv_resident_takes(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
double ist_conv_resident_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_resident(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

bool ist_conv_direct_takes(const ist_conv_problem *q);
/* Whether the launch makes opts->pool as well. */
bool ist_conv_direct_pools(const ist_conv_problem *q);
double ist_conv_direct_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_direct(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

double ist_conv_matrix_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_matrix(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

double ist_conv_bf16_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_bf16(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

double ist_conv_amx_cost(const ist_plan *p, const ist_conv_row *row, const ist_conv_problem *q);
void ist_conv_amx(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row);

#endif
