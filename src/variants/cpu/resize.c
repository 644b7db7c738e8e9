/* Preprocessing on CPUs: a work-item makes a tile of results (cl/cpu/image). */
#include "variants/resize.h"
#include "variants/variant.h"

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    (void)p, (void)v;
    return ((const ist_resize *)node)->channels == 3;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    enum { ROWS = 8, COLUMNS = 64 };
    (void)v, (void)way;
    ist_resize_launch(p, node, "cpu/image", ROWS, COLUMNS, 1);
}

const ist_family ist_cpu_resize = {.takes = takes, .emit = emit};
