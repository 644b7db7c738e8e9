/* The rows of the convolution family, for conv.c and for tests that run every row a device can run. */
#ifndef IST_OPS_CONV_ROWS_H
#define IST_OPS_CONV_ROWS_H

#include "ops/ops.h"

/* Which operator a dense problem is: the same kernels serve all. */
typedef enum ist_conv_kind { IST_CONV_DENSE, IST_CONV_DECONV2X2 } ist_conv_kind;

typedef struct ist_conv_row {
    const char *name, *op;
    unsigned needs; /* ist_cap bits */
    int mr, nv, vl, items;
    double speed;
} ist_conv_row;

int ist_conv_row_count(void);
const ist_conv_row *ist_conv_row_at(int index);
/* The row the heuristic takes for `pixels` results per phase and `channels`; NULL when the device can run none. */
const ist_conv_row *ist_conv_choose(const ist_plan *p, int pixels, int channels);
/* ist_op_conv / ist_op_deconv2x2 with a given row; NULL: the heuristic's. */
ist_tensor ist_op_conv_row(ist_plan *p, ist_conv_kind kind, ist_tensor x, ist_filter f, const ist_conv_opts *opts,
                           const ist_conv_row *row, const char *label);

#endif
