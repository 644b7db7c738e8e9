/* Deformable attention: four or eight channels for each work-item (cl/portable/deform). */
#include "variants/deform.h"
#include "variants/defines.h"
#include "variants/variant.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_deform *d = node;
    ist_tensor memory = d->memory, out = d->y;
    bool aligned = (memory.c / d->heads | memory.ld | memory.c0 | out.ld | out.c0) % 8 == 0;
    size_t items = (size_t)(d->offsets.h * d->offsets.w) * (size_t)(memory.c / (aligned ? 8 : 4));
    (void)v, (void)way;
    ist_deform_launch(p, d, ist_deform_points(d), ist_round_up(items, GROUP), GROUP, aligned ? " -DALIGNED" : "");
}

const ist_family ist_portable_deform = {.emit = emit};
