/* Exact minimum-cost assignment on the device and the three things detections are matched with (matcher.md).
 *
 * Shortest augmenting paths (Jonker & Volgenant 1987; rectangular form Crouse 2016) on 64-bit integer costs: the costs
 * are rounded to fixed point once, then every device computes the same numbers. Sources are the smaller side in rising
 * order; at equal distance a free column wins, then the lowest index: a constant matrix gives the identity. */
#ifndef IST_OPS_ASSIGN_H
#define IST_OPS_ASSIGN_H

#include "ops/detect.h"

#define IST_ASSIGN_MAX 4096 /* rows, columns */
#define IST_TRACK_MAX  300  /* tracks alive at once: when full, the one unseen for longest makes room */

/* cost F32 [n, rows, cols, 1] dense, of which item i uses the first dims[i][0] rows and dims[i][1] columns; dims I32
 * [n, 1, 1, 2]. q = rint(cost * 2^bits) must stay below 2^51 in magnitude; +inf forbids a pair, NaN counts as 1. Result
 * I32 [n, 1, rows, 1]: column of each row or -1. *complete (may be NULL): I32 [n, 1, 1, 1], 0 where forbidden pairs
 * left fewer than min(rows, cols) pairs. */
ist_tensor ist_op_assign(ist_plan *p, ist_tensor cost, ist_tensor dims, int bits, ist_tensor *complete,
                         const char *label);

/* ist_assign of isthmus.h without the argument checks on the engine: checks the matrix, records a plan of its own,
 * makes one write and one read (set-up entries of the ledger), waits. */
ist_status ist_assign_solve(ist_device *device, const float *cost, int rows, int cols, int ld, int *row_to_col,
                            double *total, ist_error *err);

/* Each returns I32 [batch, 1, max_objects, 2]: match and the bits of its IoU, for ist_op_pack. */

/* Track ids (1..). Pairs of equal label and IoU >= track_iou are allowed; the assignment maximises the sum of IoU over
 * allowed pairs. Unmatched objects start new tracks by falling score. A track unseen for more than `age` frames ends.
 * Images of a batch are consecutive frames. State persists over replays, each of which sets
 * IST_UP_TRACK_HALF unlike the one before; IST_UP_RESET_TRACKS starts over, ids included. */
ist_tensor ist_op_match_tracks(ist_plan *p, ist_tensor upload, const ist_detections *det, float track_iou, int age,
                               const char *label);
/* Index of the target. Pairs of equal label (target label -1: any) and IoU > 0 are allowed; maximal sum of IoU. */
ist_tensor ist_op_match_targets(ist_plan *p, ist_tensor upload, const ist_detections *det, int max_targets,
                                const char *label);
/* Index of the target under D-FINE's set matching: all queries of the raw output against the targets, cost 2 focal
 * class
 * + 5 L1 - 2 GIoU. An object gets the target of its query (of two objects of one query the one with the target's label,
 * else the higher score). A target label of -1 uses the query's highest class. logits F32 [batch,1,queries,classes],
 * boxes F32 [batch,1,queries,4]. */
ist_tensor ist_op_match_set(ist_plan *p, ist_tensor upload, const ist_detections *det, ist_tensor logits,
                            ist_tensor boxes, int max_targets, const char *label);

#endif
