/* What attention's rows for CPUs share besides isa/tile: queries become lanes. */

/* qt[c * ld] = lane i: scale * q[at[i] + c], c < 16. Of lanes beyond `left` some or all may be left out. */
#ifdef SIMD16
NOINLINE void load_queries(__global const T *q, const int *at, int left, float scale, float16 *qt, int ld) {
#pragma clang loop unroll(disable)
    for (int k = 0; k < 16; k += 4, qt += 4 * ld) {
#define PIECE(i) LOAD4(q, at[i] + k)
        TRANSPOSE16X4(w, PIECE)
#undef PIECE
        qt[0] = w0 * scale, qt[ld] = w1 * scale, qt[2 * ld] = w2 * scale, qt[3 * ld] = w3 * scale;
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
