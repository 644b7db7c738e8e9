/* Conversions between float32 and the 16-bit formats, round to nearest even. */
#ifndef IST_BASE_HALF_H
#define IST_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ist_bits_to_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float ist_bf16_to_float(uint16_t h) {
    return ist_bits_to_float((uint32_t)h << 16);
}

/* A NaN stays one. */
static inline uint16_t ist_float_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float ist_half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return ist_bits_to_float(sign | 0x7f800000 | fraction << 13);
    if (exponent) return ist_bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal: exact */
    return sign ? -magnitude : magnitude;
}

/* Magnitudes from 65520 on become infinity, NaN stays NaN. */
static inline uint16_t ist_float_to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24; adding 1/2 lets the FPU round the sum there */
        float shifted = ist_bits_to_float(magnitude) + 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000;
    return (uint16_t)(sign | rounded >> 13);
}

#endif
