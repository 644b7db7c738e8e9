/* Preprocessing on the device: raw pixels of any format -> network input, bit-exact with Pillow's BILINEAR (11 to 13)
 * (cl/portable/image). */
#include "variants/resize.h"
#include "variants/variant.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    enum { ROWS = 2, COLUMNS = 64 }; /* little for each work-item to wait for */
    (void)v, (void)way;
    ist_resize_launch(p, node, "portable/image", ROWS, COLUMNS, COLUMNS);
}

const ist_family ist_portable_resize = {.emit = emit};
