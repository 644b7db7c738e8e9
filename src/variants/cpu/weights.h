/* Weights and biases as the fused kernels of CPUs read them. */
#ifndef IST_VARIANTS_CPU_WEIGHTS_H
#define IST_VARIANTS_CPU_WEIGHTS_H

#include "variants/variant.h"

/* What tells variants for vectors of 16 floats from those for shorter ones: the columns of a panel of weights. 64 and six
 * rows are 24 vectors of 16 floats. */
typedef struct ist_cpu_panel {
    int columns; /* 64 or 16 */
} ist_cpu_panel;
static inline int ist_panel_of(const ist_variant *v) {
    return ((const ist_cpu_panel *)v->config)->columns;
}

/* A matrix [out][in] as [out / panel][in][panel], the last panel as narrow as it is. */
ist_tensor ist_cpu_panels(ist_plan *p, const ist_filter *f, int panel, const char *label);
/* A depthwise 3x3 filter [c][9] as [c / 16][9][16]. */
ist_tensor ist_cpu_taps(ist_plan *p, const ist_filter *f, const char *label);
/* A constant of floats: `count` values of v, or zeros, then `more` of w. */
ist_tensor ist_cpu_values(ist_plan *p, const float *v, int count, const float *w, int more, const char *label);

/* Bands of rows: enough for every compute unit, of rows enough that the two extra ones cost little. */
int ist_cpu_bands(const ist_plan *p, int rows, int segments, int groups_per_unit);

#endif
