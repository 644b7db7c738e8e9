/* What attention's rows for CPUs share besides cpu/tile: queries become lanes. */

/* qt[c * ld] = lane i: scale * q[at[i] + c], c < 16. Of lanes beyond `left` some or all may be left out. */
#ifdef SIMD16
NOINLINE void load_queries(__global const T *q, const int *at, int left, float scale, float16 *qt, int ld) {
    for (int i = 0; i < 16; i += 4) { /* four tokens: block b of w0 .. w3 is channels 4 b .. 4 b + 3 of all four */
        const float16 r0 = LOAD16(q, at[i]) * scale, r1 = LOAD16(q, at[i + 1]) * scale;
        const float16 r2 = LOAD16(q, at[i + 2]) * scale, r3 = LOAD16(q, at[i + 3]) * scale;
        const float16 r01 = LOW_OF_EACH(r0, r1), r23 = LOW_OF_EACH(r2, r3);
        const float16 s01 = HIGH_OF_EACH(r0, r1), s23 = HIGH_OF_EACH(r2, r3);
        const float16 w0 = LOW_PAIRS(r01, r23), w1 = HIGH_PAIRS(r01, r23);
        const float16 w2 = LOW_PAIRS(s01, s23), w3 = HIGH_PAIRS(s01, s23);
        float *to = (float *)qt + i;
#define COLUMN(b, lanes)                                                                                               \
    vstore4(w0.lanes, 0, to + 64 * ld * b), vstore4(w1.lanes, 0, to + (64 * b + 16) * ld);                             \
    vstore4(w2.lanes, 0, to + (64 * b + 32) * ld), vstore4(w3.lanes, 0, to + (64 * b + 48) * ld);
        COLUMN(0, s0123) COLUMN(1, s4567) COLUMN(2, s89ab) COLUMN(3, scdef)
#undef COLUMN
    }
}
#else /* 8x8 at a time: what fits registers */
NOINLINE void load_queries(__global const T *q, const int *at, int left, float scale, float16 *qt, int ld) {
    for (int part = 0; part < 2 && part * 8 < left; part++, at += 8)
        for (int k = 0; k < 16; k += 8) {
#define ROW(i) float8 r##i = LOAD8(q, at[i] + k);
            EACH8(ROW)
#undef ROW
            TRANSPOSE8(w, r)
#define COLUMN(i) ((float8 *)(qt + (k + i) * ld))[part] = w##i * scale;
            EACH8(COLUMN)
#undef COLUMN
        }
}
#endif
