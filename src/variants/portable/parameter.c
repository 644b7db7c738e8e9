/* Constants: rows of the checkpoint, and the position code of a grid (PositionEmbeddingRandom of segment-anything's
 * modeling/prompt_encoder.py). */
#include "variants/grid_code.h"
#include "variants/variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void emit_parameter(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_parameter *q = node;
    ist_tensor y = q->y;
    size_t first = q->rows[0].count, second = q->rows[1].count;
    float *all = malloc((first + second) * sizeof *all);
    (void)v, (void)way;
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", q->label);
        return;
    }
    memcpy(all, q->rows[0].v, first * sizeof *all);
    if (second) memcpy(all + first, q->rows[1].v, second * sizeof *all);
    q->y = ist_plan_const(p, all, y.n, y.h, y.w, y.c, y.elem, q->label);
    free(all);
}

const ist_family ist_portable_parameter = {.emit = emit_parameter};

float *ist_grid_code_values(ist_plan *p, const ist_grid_code *q) {
    const int grid = q->grid, points = ist_plan_has_values(p) ? grid * grid : 0;
    const int half = (int)(q->gauss.count / 2), dim = 2 * half;
    const float *gauss = q->gauss.v;
    float *code = malloc(sizeof *code * (size_t)(grid * grid) * (size_t)dim);
    if (!code) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", q->label);
    for (int at = 0; code && at < points; at++)
        for (int f = 0; f < half; f++) {
            double x = 2.0 * ((at % grid + 0.5) / grid) - 1.0, y = 2.0 * ((at / grid + 0.5) / grid) - 1.0;
            double z = 6.283185307179586 * (x * gauss[f] + y * gauss[half + f]);
            code[at * dim + f] = (float)sin(z);
            code[at * dim + half + f] = (float)cos(z);
        }
    return code;
}

static void emit_code(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_grid_code *q = node;
    float *code = ist_grid_code_values(p, q);
    (void)v, (void)way;
    if (code) q->y = ist_plan_const(p, code, 1, 1, q->grid * q->grid, (int)q->gauss.count, IST_ELEM_T, q->label);
    free(code);
}

const ist_family ist_portable_grid_code = {.emit = emit_code};
