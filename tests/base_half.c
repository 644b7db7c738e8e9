/* Rounding to the 16-bit formats and back: exact results for every half, ties to even. */
#include "base/half.h"

#include <criterion/criterion.h>
#include <math.h>

Test(base_half, half_round_trip) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ist_half_to_float((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00 && h & 0x3ff)
            cr_assert(isnan(f) && (ist_float_to_half(f) & 0x7fff) == 0x7e00);
        else
            cr_assert_eq(ist_float_to_half(f), h, "0x%04x", h);
    }
    cr_expect_eq(ist_half_to_float(0x3c00), 1.0f);
    cr_expect_eq(ist_half_to_float(0x0001), 0x1p-24f);
    cr_expect_eq(ist_half_to_float(0x7bff), 65504.0f);
}

/* Between every two neighbours: the midpoint goes to the even one, next to it to the nearer one. */
Test(base_half, half_rounding) {
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = ist_half_to_float((uint16_t)h), b = ist_half_to_float((uint16_t)(h + 1)), middle = (a + b) / 2;
        cr_assert_eq(ist_float_to_half(middle), h + (h & 1), "0x%04x", h);
        cr_assert_eq(ist_float_to_half(nextafterf(middle, 0)), h);
        cr_assert_eq(ist_float_to_half(-nextafterf(middle, INFINITY)), 0x8000 | (h + 1));
    }
    cr_expect_eq(ist_float_to_half(65519.0f), 0x7bff);
    cr_expect_eq(ist_float_to_half(65520.0f), 0x7c00);
    cr_expect_eq(ist_float_to_half(-1e30f), 0xfc00);
    cr_expect_eq(ist_float_to_half(0x1p-26f), 0);
}

Test(base_half, bfloat16_rounding) {
    for (uint32_t b = 0; b < 0x7f80; b++) {
        float a = ist_bf16_to_float((uint16_t)b), middle = ist_bits_to_float(b << 16 | 0x8000);
        cr_assert_eq(ist_float_to_bf16(a), b, "0x%04x", b);
        cr_assert_eq(ist_float_to_bf16(middle), b + (b & 1), "0x%04x", b);
        cr_assert_eq(ist_float_to_bf16(ist_bits_to_float(b << 16 | 0x7fff)), b);
        cr_assert_eq(ist_float_to_bf16(-ist_bits_to_float(b << 16 | 0x8001)), 0x8000 | (b + 1));
    }
    cr_expect_eq(ist_float_to_bf16(INFINITY), 0x7f80);
    cr_expect(isnan(ist_bf16_to_float(ist_float_to_bf16(ist_bits_to_float(0x7f800001)))), "a NaN in the lost bits");
}
