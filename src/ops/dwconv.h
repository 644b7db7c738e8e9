/* The rows of depthwise convolutions, for dwconv.c and for tests that run every row a device can run. */
#ifndef IST_OPS_DWCONV_H
#define IST_OPS_DWCONV_H

#include "ops/ops.h"

typedef enum ist_dwconv_row {
#define ROW(name, op, needs) IST_DWCONV_##name,
#include "ops/rows/dwconv.inc"
#undef ROW
    IST_DWCONV_ROWS
} ist_dwconv_row;

const char *ist_dwconv_row_name(ist_dwconv_row row);
/* The device has what the row needs. */
bool ist_dwconv_row_runs(const ist_plan *p, ist_dwconv_row row);
/* ist_op_dwconv with a given row. */
ist_tensor ist_op_dwconv_row(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_dwconv_row row,
                             const char *label);

#endif
