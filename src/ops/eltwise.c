/* Element-wise operators: sum, copy, expansion over items, clamp. One kernel, op/eltwise, with optional parts. */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { GROUP_VALUES = 16384, PORTABLE_GROUP = 64 };
enum {
    B_EACH = 1,
    B_ONE_ITEM = 2,
    B_ONE_PIXEL = 4,
    A_MAPPED = 8,
    CLAMPED = 16,
    A_ONE_ITEM = 32
}; /* as in cl/op/eltwise.cl */

typedef struct parts {
    ist_tensor y, a, b, map;
    int mode, stride; /* stride: pixels from an item of y to the next; 0: y.h * y.w */
    float lo, hi;
} parts;

/* Rows that begin at multiples of eight elements. */
static bool aligned(ist_tensor t) {
    return !ist_has(t) || (t.ld % 8 == 0 && t.c0 % 8 == 0);
}

/* Storage that is four bytes wide although T is half. */
static const char *wide(const ist_plan *p, ist_tensor t, const char *define) {
    return ist_plan_half(p) && ist_has(t) && t.elem != IST_ELEM_T ? define : "";
}

static ist_tensor record(ist_plan *p, const parts *e, const char *label) {
    if (ist_plan_status(p)) return (ist_tensor){0};
    if (e->a.elem == IST_ELEM_U8 || e->y.elem == IST_ELEM_U8) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: bytes are not activations", label);
        return (ist_tensor){0};
    }
    if (!(e->mode & (A_MAPPED | A_ONE_ITEM | B_ONE_PIXEL)) && !e->stride &&
        ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_SUM,
                                         .out = {e->y},
                                         .rows = {e->a, e->b},
                                         .ints = {e->mode & CLAMPED},
                                         .floats = {e->lo, e->hi}},
                       label))
        return e->y;
    bool cpu = ist_cpu_row(p);
    int pixels = e->y.h * e->y.w, c = e->y.c, rows = 1;
    int width = cpu ? 16 : c % 8 == 0 && aligned(e->a) && aligned(e->b) && aligned(e->y) ? 8 : 4, span = width;
    size_t units = 0;
    ist_arg queue = IST_IN((ist_tensor){0});
    if (cpu) {
        span = c;
        rows = ist_div_up(GROUP_VALUES, c) < pixels ? ist_div_up(GROUP_VALUES, c) : pixels;
        units = (size_t)ist_plan_units(p);
        queue = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    } else {
        units = ist_round_up((size_t)pixels * (size_t)ist_div_up(c, span), PORTABLE_GROUP);
    }
    ist_defines d = ist_defines_of(p, "-DVW=%d%s%s%s", width, wide(p, e->a, " -DA_F32"), wide(p, e->b, " -DB_F32"),
                                   wide(p, e->y, " -DY_F32"));
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "op/eltwise",
               .defines = d.text,
               .kernel = "eltwise",
               .dims = cpu ? 1 : 2,
               .global = {units, cpu ? 1 : (size_t)e->y.n},
               .local = {cpu ? 1 : PORTABLE_GROUP, 1},
               .args = {IST_OUT(e->y), IST_IN(e->a), IST_IN(e->b), IST_IN(e->map), IST_IN(ist_plan_current_limit(p)),
                        IST_INT4(e->a.ld, e->b.ld, e->y.ld, e->stride ? e->stride : pixels),
                        IST_INT4(e->a.c0, e->b.c0, e->y.c0, e->y.n), IST_INT4(pixels, c, rows, span), IST_INT(e->mode),
                        IST_FLOAT(e->lo), IST_FLOAT(e->hi), queue},
               .arg_count = cpu ? 12 : 11,
               .shares = cpu,
               .bytes = (double)ist_pixels(e->y) * c * (e->mode & B_EACH ? 3 : 2) * (ist_plan_half(p) ? 2 : 4)});
    return e->y;
}

ist_tensor ist_op_add(ist_plan *p, ist_tensor a, ist_tensor b, ist_tensor into, const char *label) {
    if (ist_plan_status(p)) return (ist_tensor){0};
    bool pixel = b.h * b.w == 1 && a.h * a.w != 1;
    if (a.c != b.c || (b.n != 1 && b.n != a.n) || (!pixel && (b.h != a.h || b.w != a.w))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] + [%d,%d,%d,%d]", label, a.n, a.h, a.w, a.c, b.n, b.h, b.w,
                      b.c);
        return (ist_tensor){0};
    }
    ist_elem elem = ist_has(into) ? into.elem : a.elem;
    ist_tensor y = ist_plan_into(p, into, a.n, a.h, a.w, a.c, elem, label);
    int mode = B_EACH | (b.n == 1 ? B_ONE_ITEM : 0) | (pixel ? B_ONE_PIXEL : 0);
    return record(p, &(parts){.y = y, .a = a, .b = b, .mode = mode}, label);
}

ist_tensor ist_op_copy(ist_plan *p, ist_tensor x, ist_tensor into, const char *label) {
    if (ist_plan_status(p)) return (ist_tensor){0};
    bool repeat = x.n == 1 && ist_has(into) && into.n > 1;
    ist_tensor y =
        ist_plan_into(p, into, repeat ? into.n : x.n, x.h, x.w, x.c, ist_has(into) ? into.elem : x.elem, label);
    return record(p, &(parts){.y = y, .a = x, .mode = repeat ? A_ONE_ITEM : 0}, label);
}

void ist_op_copy_rows(ist_plan *p, ist_tensor x, ist_tensor into, int first, const char *label) {
    if (ist_plan_status(p)) return;
    int rows = x.h * x.w, length = into.h * into.w;
    if (x.n != into.n || x.c != into.c || first < 0 || rows > length - first) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: [%d,%d,%d,%d] as rows %d and on of [%d,%d,%d,%d]", label, x.n, x.h, x.w,
                      x.c, first, into.n, into.h, into.w, into.c);
        return;
    }
    ist_tensor y = ist_view(into, x.n, x.h, x.w);
    y.c0 += first * into.ld;
    record(p, &(parts){.y = y, .a = x, .stride = length}, label);
}

ist_tensor ist_op_expand(ist_plan *p, ist_tensor x, ist_tensor map, int count, const char *label) {
    if (ist_plan_status(p)) return (ist_tensor){0};
    if (ist_pixels(map) != count || map.elem != IST_ELEM_I32) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: expansion to %d items with a map of %d", label, count, ist_pixels(map));
        return (ist_tensor){0};
    }
    ist_tensor y = ist_plan_tensor(p, count, x.h, x.w, x.c, x.elem);
    return record(p, &(parts){.y = y, .a = x, .map = map, .mode = A_MAPPED}, label);
}

ist_tensor ist_op_clamp(ist_plan *p, ist_tensor x, float lo, float hi, const char *label) {
    if (ist_plan_status(p)) return (ist_tensor){0};
    ist_tensor y = ist_plan_tensor(p, x.n, x.h, x.w, x.c, x.elem);
    return record(p, &(parts){.y = y, .a = x, .mode = CLAMPED, .lo = lo, .hi = hi}, label);
}
