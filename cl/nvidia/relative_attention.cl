/* Attention with relative positions on matrix instructions with half storage (goes with nvidia/ptx and nvidia/sums):
 * portable/attention's `relative`, in groups of WARPS warps. A warp takes 16 queries of a window and a head; keys and
 * values come in blocks of whole lines of the window through local memory, one block under way while the other is used,
 * with an online softmax in fp32 (Milakov & Gimelshein, arXiv 1805.02867).
 *
 * What a query makes of positions is a product with all of rel_h or rel_w, of which each query takes the rows around
 * its own place: those of columns stay in registers, as the fragments that scores begin with, those of lines in local
 * memory. Keys that do not exist get -1e30. Rows of D halves lie D + 8 apart, so that the eight rows of a matrix are in
 * different banks.
 *
 * -D D: channels of a head, 32 or 64. -D WH, WW: the window. -D LINE, LINES: keys of a line, with those that make it a
 * multiple of 16, and lines of a block, at most 64 keys. -D WARPS. Arguments as in portable/attention, rel_h and rel_w
 * in half; group (x, y, z): window x / PARTS and a part of its queries, head y, item z. */
#ifndef D
#define D     64
#define WH    14
#define WW    14
#define LINE  16
#define LINES 4
#define WARPS 7
#endif
#define THREADS (32 * WARPS)
#define QUERIES (16 * WARPS)
#define PARTS   ((WH * WW + QUERIES - 1) / QUERIES)
#define STEPS   (D / 16)
#define PIECES  (D / 8) /* of 16 bytes, of a row */
#define LD      (PIECES + 1)
#define KEYS    (LINE * LINES)
#define TILES   (KEYS / 8)
#define STAGE   (2 * KEYS * LD) /* keys, then values, in uint4 */
#define BLOCKS  ((WH + LINES - 1) / LINES)
#define PITCH   ((WH > WW ? WH : WW) + 1)
#define NEVER   (-1.0e30f)

/* Block b of keys and values on its way to its half of local memory; qkv, pad: of the head's queries. */
#define COPY_BLOCK(b)                                                                                                  \
    for (int i = id; i < KEYS * 2 * PIECES; i += THREADS) {                                                            \
        const int j = i / (2 * PIECES), part = i % (2 * PIECES), v = (b) * LINES + j / LINE, u = j % LINE;             \
        const int y = y0 + v, x = x0 + u, in = y < arg.h && x < arg.w;                                                 \
        __global const half *from = in ? qkv + ((n * arg.h + y) * arg.w + x) * arg.qkv_ld : pad;                       \
        COPY16(shared + ((b) % 2 * STAGE + part / PIECES * (KEYS * LD) + j * LD + part % PIECES) * 16,                 \
               from + (1 + part / PIECES) * arg.c + part % PIECES * 8, v < WH && u < WW ? 16 : 0);                     \
    }                                                                                                                  \
    COPY_COMMIT();

/* table[query][u] = q . rel[place[r] - u + SIDE - 1] * inverse for the warp's queries, u < SIDE. */
#define POSITION_SCORES(rel, SIDE, place)                                                                              \
    for (int j = 0; j < (2 * (SIDE) + 6) / 8; j++) {                                                                   \
        float a[4] = {0.0f, 0.0f, 0.0f, 0.0f};                                                                         \
        __global const uint *row = (__global const uint *)((rel) + min(8 * j + g, 2 * (SIDE) - 2) * D) + t;            \
        UNROLL for (int k = 0; k < STEPS; k++) { MATRIX_MULTIPLY(a, q[k], row[8 * k], row[8 * k + 4]); }               \
        for (int e = 0; e < 4; e++) {                                                                                  \
            const int u = (place)[e / 2] + (SIDE) - 1 - (8 * j + 2 * t + e % 2);                                       \
            if (u >= 0 && u < (SIDE)) table[mine + e / 2 * 8][u] = a[e] * inverse;                                     \
        }                                                                                                              \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
relative(__global half *out, __global const half *qkv, __global const half *rel_h, __global const half *rel_w,
         __global const half *pad, __global const int *limit, relative_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[2 * STAGE];
    __local float table[QUERIES][PITCH];
    const int n = get_group_id(2), h = get_group_id(1), w = get_group_id(0) / PARTS, id = get_local_id(0);
    if (n >= *limit) return;
    const int x0 = w % arg.across * WW, y0 = w / arg.across * WH, lane = id % 32, g = lane / 4, t = lane % 4;
    const int mine = id / 32 * 16 + g; /* the first of this work-item's two queries, the other is 8 further */
    const uint shared = SHARED(memory);
    const float unit = arg.scale * 1.44269504f, inverse = 1.0f / arg.scale;
    qkv += arg.qkv_c0 + h * D;
    pad += h * D;
    COPY_BLOCK(0)
    int token[2], line[2], column[2]; /* token < 0: not in the map */
    uint q[STEPS][4];
    for (int r = 0; r < 2; r++) {
        const int i = get_group_id(0) % PARTS * QUERIES + mine + 8 * r, known = min(i, WH * WW - 1);
        line[r] = known / WW;
        column[r] = known % WW;
        const int in = i < WH * WW && y0 + line[r] < arg.h && x0 + column[r] < arg.w;
        token[r] = in ? (n * arg.h + y0 + line[r]) * arg.w + x0 + column[r] : -1;
        __global const uint *from = (__global const uint *)(qkv + max(token[r], 0) * arg.qkv_ld) + t;
        for (int k = 0; k < STEPS; k++) {
            q[k][r] = from[8 * k];
            q[k][2 + r] = from[8 * k + 4];
        }
    }
    float columns[LINE / 8][4];
    POSITION_SCORES(rel_w, WW, column)
    UNROLL for (int c = 0; c < LINE / 8; c++)
        UNROLL for (int e = 0; e < 4; e++) {
            const int u = 8 * c + 2 * t + e % 2;
            columns[c][e] = u < WW ? table[mine + e / 2 * 8][u] : NEVER;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    POSITION_SCORES(rel_h, WH, line)
    float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f}, o[D / 8][4];
    UNROLL for (int c = 0; c < D / 8; c++)
        UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;

#pragma unroll 1
    for (int b = 0; b < BLOCKS; b++) {
        const uint keys = shared + b % 2 * (STAGE * 16), values = keys + KEYS * LD * 16;
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* this block is there, and nobody reads the one before any more */
        if (b + 1 < BLOCKS) { COPY_BLOCK(b + 1) }
        float s[TILES][4], top[2] = {-3.0e38f, -3.0e38f}, factor[2];
        UNROLL for (int c = 0; c < TILES; c++) {
            const int v = b * LINES + c / (LINE / 8);
            UNROLL for (int e = 0; e < 4; e++)
                s[c][e] = columns[c % (LINE / 8)][e] + (v < WH ? table[mine + e / 2 * 8][min(v, WH - 1)] : NEVER);
            UNROLL for (int k = 0; k < STEPS; k += 2) {
                uint f[4];
                MATRIX_LOAD(f, keys + ((c * 8 + lane % 8) * LD + lane / 8 + k * 2) * 16);
                MATRIX_MULTIPLY(s[c], q[k], f[0], f[1]);
                MATRIX_MULTIPLY(s[c], q[k + 1], f[2], f[3]);
            }
            UNROLL for (int e = 0; e < 4; e++) top[e / 2] = fmax(top[e / 2], s[c][e]);
        }
        SOFTMAX_GOES_ON(top, most, sum, factor, unit)
        UNROLL for (int c = 0; c < D / 8; c++)
            UNROLL for (int e = 0; e < 4; e++) o[c][e] *= factor[e / 2];
        UNROLL for (int a = 0; a < TILES / 2; a++) {
            uint p[4], f[4];
            SOFTMAX_WEIGHTS(p, s, 2 * a, top, sum, unit)
            UNROLL for (int c = 0; c < D / 16; c++) {
                MATRIX_LOAD_TURNED(f, values + (a * 16 + lane % 16) * (LD * 16) + c * 32 + lane / 16 * 16);
                MATRIX_MULTIPLY(o[2 * c], p, f[0], f[1]);
                MATRIX_MULTIPLY(o[2 * c + 1], p, f[2], f[3]);
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        QUAD_SUM(sum[r]);
        const float f = quick_reciprocal(sum[r]);
        __global uint *to = (__global uint *)(out + max(token[r], 0) * arg.out_ld + arg.out_c0 + h * D);
        UNROLL for (int c = 0; c < D / 8; c++)
            if (token[r] >= 0) to[4 * c + t] = halves_of(o[c][2 * r] * f, o[c][2 * r + 1] * f);
    }
}
