/* What the kernels of D-FINE's deformable attention have in common. */
#ifndef IST_VARIANTS_DEFORM_H
#define IST_VARIANTS_DEFORM_H

#include "core/plan.h"
#include "graph/nodes.h"

enum { IST_POINTS_MAX = 64 };

static inline int ist_deform_points(const ist_deform *d) {
    return d->weights.c / d->heads;
}
/* [4][pad]: width, height, first token and reach of each point; the last point repeats up to `pad`. */
void ist_deform_table(const ist_deform *d, int pad, float table[4 * IST_POINTS_MAX]);
/* Records the launch of `units` work-items in groups of `group`; `options` are those of the machine. */
void ist_deform_launch(ist_plan *p, const ist_deform *d, int pad, size_t units, size_t group, const char *options);

enum { IST_DEFORM_QUERIES = 4 /* of a group on CPUs */ };

#endif
