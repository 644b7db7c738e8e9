/* CSP blocks against the scalar definitions of their layers, by every variant of the table. */
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int n, h, w, in, c, necks;
} shape;

static ist_filter filter(optest *t, int out, int in, int k, bool bias) {
    float most = 1.5f / (float)(in * k * k > 4 ? in * k * k / 4 : 1);
    return (ist_filter){out,
                        in,
                        k,
                        k,
                        optest_values(t, (size_t)out * in * k * k, -most, most),
                        bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL};
}

static ist_csp block_of(optest *t, shape s) {
    ist_csp b = {.first = filter(t, 2 * s.c, s.in, 1, true), .necks = s.necks};
    for (int i = 0; i < s.necks; i++) b.neck[i] = filter(t, s.c, s.c, 3, i % 2 == 0);
    b.last = filter(t, s.c, s.c, 3, true);
    return b;
}

static ref_map convolved(optest *t, ref_map x, const ist_filter *f, ref_map add) {
    ref_map y = optest_zeros(t, x.n, x.h, x.w, f->out);
    ref_epilogue e = {.act = IST_ACT_SILU, .add_after = add};
    int pad = f->kh / 2;
    ref_conv(x, f->w, f->b, (ref_window){f->kh, f->kw, 1, pad, pad}, &e, y);
    return y;
}

static ref_map part(optest *t, ref_map x, int first, int c) {
    ref_map y = optest_zeros(t, x.n, x.h, x.w, c);
    for (int i = 0; i < x.n * x.h * x.w; i++)
        memcpy(y.v + (size_t)i * c, x.v + (size_t)i * x.c + first, (size_t)c * sizeof(float));
    return y;
}

static ref_map wanted(optest *t, ref_map x, const ist_csp *b) {
    ref_map none = {0}, both = convolved(t, x, &b->first, none);
    int c = b->last.out;
    ref_map l = part(t, both, 0, c), r = part(t, both, c, c);
    for (int i = 0; i < b->necks; i++) l = convolved(t, l, &b->neck[i], i + 1 == b->necks ? r : none);
    return convolved(t, l, &b->last, none);
}

/* Bits of a case; LIMIT: as many items as the two bits ITEMS say. */
enum { SLICE = 1, LIMIT = 2, ITEMS = 4, SALT = 16 };

static bool csp_case(each_way way, const void *what, unsigned bits) {
    const shape s = *(const shape *)what;
    const bool slice = bits & SLICE;
    const int items = bits & LIMIT ? (int)(bits / ITEMS % 4) : -1;
    const unsigned salt = bits / SALT;
    optest t;
    optest_begin(&t, "csp", salt);
    ist_csp b = block_of(&t, s);
    ref_map x = optest_random(&t, s.n, s.h, s.w, s.in);
    b.label = "csp";
    b.x = optest_in(&t, x, IST_ELEM_T, slice);
    if (slice) b.y = optest_out(&t, s.n, s.h, s.w, s.c, IST_ELEM_T, true);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    if (!each_emits(&t, way, &b)) {
        optest_drop(&t);
        return false;
    }
    optest_run(&t);
    each_launched(&t, way);
    double tol = optest_tolerance(&t, 9 * s.c);
    optest_check(&t, way.v->name, b.y, wanted(&t, x, &b), tol, tol * 2, items);
    optest_end(&t);
    return true;
}

/* items -1: all. */
static void check_case(shape s, bool slice, int items, unsigned salt, unsigned needs) {
    unsigned bits = (slice ? SLICE : 0) | (items >= 0 ? LIMIT + ITEMS * (unsigned)items : 0) | SALT * salt;
    each_variant(IST_NODE_CSP, needs, csp_case, &s, bits, true);
}

/* Widths around the tiles of 8, 16 and 48 pixels; heights with one band and with several; channels on both sides of
 * what the fused kernel takes. */
Test(csp, matches_its_layers) {
    const shape shapes[] = {{1, 9, 21, 12, 21, 2}, {1, 40, 40, 128, 21, 2}, {2, 20, 20, 21, 21, 3},
                            {1, 33, 8, 7, 17, 1},  {3, 16, 49, 20, 24, 1},  {1, 17, 15, 5, 23, 2},
                            {1, 1, 31, 9, 21, 1},  {1, 12, 7, 16, 21, 2},   {1, 10, 20, 32, 32, 2},
                            {2, 9, 11, 10, 8, 1}};
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof shapes / sizeof shapes[0]); i++)
        check_case(shapes[i], i % 2, -1, i, 0);
    each_had_its_case(IST_NODE_CSP, 0);
}

Test(csp, items_beyond_the_count_are_untouched) {
    for (int items = 0; items <= (optest_small() ? 0 : 3); items++)
        check_case((shape){3, 18, 20, 21, 21, 2}, true, items, 50 + (unsigned)items, 0);
}

/* On matrix instructions, by emulation where there are none (nvidia/ptx): tiles that end inside and outside the map,
 * inputs that are no whole step, one and two bottlenecks, 32 and 64 channels. */
Test(csp, on_matrix_instructions) {
    each_needs(IST_NODE_CSP, IST_CAP_PTX_MMA);
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
    check_case((shape){1, 6, 11, 40, 24, 2}, false, -1, 70, IST_CAP_PTX_MMA);
    if (!optest_small()) {
        check_case((shape){1, 5, 9, 64, 64, 1}, false, -1, 71, IST_CAP_PTX_MMA);
        check_case((shape){2, 4, 8, 24, 10, 1}, false, 1, 72, IST_CAP_PTX_MMA);
        /* small tiles, of which even two units have enough */
        check_case((shape){1, 3, 4, 40, 24, 2}, false, -1, 73, IST_CAP_PTX_MMA);
        /* warpgroups: tiles of 4 x 4, 8 x 4 and 8 x 8 pixels of two units */
        check_case((shape){1, 4, 7, 136, 48, 1}, true, -1, 74, IST_CAP_PTX_MMA);
        check_case((shape){1, 3, 4, 72, 64, 2}, false, -1, 75, IST_CAP_PTX_MMA);
        check_case((shape){1, 7, 7, 64, 40, 1}, false, -1, 76, IST_CAP_PTX_MMA);
        check_case((shape){2, 8, 8, 200, 64, 1}, true, 1, 77, IST_CAP_PTX_MMA);
        check_case((shape){1, 7, 13, 64, 64, 2}, false, -1, 78, IST_CAP_PTX_MMA);
    }
    each_had_its_case(IST_NODE_CSP, IST_CAP_PTX_MMA);
}

Test(csp, refuses_what_is_no_block) {
    optest t;
    optest_begin(&t, "refusal", 0);
    ist_csp b = block_of(&t, (shape){1, 8, 8, 16, 21, 2});
    b.label = "block.a";
    b.x = ist_plan_input(t.plan, 1, 8, 8, 12, IST_ELEM_T);
    ist_emit(t.plan, IST_NODE_CSP, &b);
    cr_assert_not(ist_has(b.y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text,
                     "block.a: CSP block of 42 outputs, 2 bottlenecks and 21 channels on [1,8,8,12]"));
    optest_drop(&t);
}
