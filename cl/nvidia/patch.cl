/* Two 3x3 convolutions of stride 2 with padding 1, GELU between them, of an image of three channels, on matrix
 * instructions with half storage (graph/nodes.h; goes with nvidia/ptx): what lies between is never stored.
 *
 * A group of eight warps makes 8 x 16 pixels. The image under them lies in local memory as it is, three channels a
 * pixel: nine values in a row are what a line of a window reads, as five words with one of the next pixel, whose weight
 * is zero, and three lines are 15 of the 16 words of a fragment's row. The 17 x 33 pixels between are made 16 at a time
 * and lie 40 halves apart, even columns in front of odd ones, so that the pixels of a tap of the second convolution
 * adjoin.
 *
 * -D MID: channels between, 32. -D COUT: of the result, 64. LEFT_OUT: rows of the result are left out (portable/left_out). Group (i, n): tile i of item n. */
#define THREADS 256
#define HIGH    8
#define WIDE    16
#define MID_H   (2 * HIGH + 1)
#define MID_W   (2 * WIDE + 1)
#define PIXELS  (MID_H * MID_W)
#define BLOCKS  ((PIXELS + 15) / 16)
#define IN_H    (2 * MID_H + 1)
#define IN_W    ((2 * MID_W + 1) * 3) /* halves that are read */
#define LD_IN   (IN_W + 5)            /* from line to line: an odd number of words */
#define LD_MID  5                     /* uint4 */
#define TILES   (COUT / 8)
#define WEIGHTS (TILES * 9 * 32) /* uint4 */
#define BETWEEN WEIGHTS
#define IMAGE   (BETWEEN + PIXELS * LD_MID)
#define BIAS    (IMAGE + (IN_H * LD_IN + 7) / 8) /* of the second */
#define ALL     (BIAS + COUT / 4)

/* x [n,h,w,3]; first: fragments [MID / 8][lane][8] of 16 words: {five of line 0, of line 1, of line 2, none}; second:
 * fragments [COUT / 8][9][lane][8]; bias {[MID], [COUT]}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
patch(__global half *restrict y, __global const ushort *restrict x, __global const uint4 *restrict first,
      __global const uint4 *restrict second, __global const float *restrict bias, __global const int *restrict limit,
      __global const int *restrict content, patch_mma_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL];
    __local uint *words = (__local uint *)memory;
    __local ushort *image = (__local ushort *)(memory + IMAGE);
    const int n = get_group_id(1), id = get_local_id(0), lane = id % 32, warp = id / 32, g = lane / 4, t = lane % 4;
    const int y0 = (int)get_group_id(0) / arg.across * HIGH, x0 = (int)get_group_id(0) % arg.across * WIDE;
    const uint shared = SHARED(memory);
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + HIGH, arg.y_h), rows_left_out(content, arg.out, n))) return;
#endif
    for (int i = id; i < WEIGHTS; i += THREADS) COPY16(shared + i * 16, second + i, 16);
    if (id < COUT / 4) COPY16(shared + (BIAS + id) * 16, bias + MID + id * 4, 16);
    COPY_COMMIT();
    ushort v[IN_H]; /* a column of values, all asked for before the first is there */
    const int at = min(id, LD_IN - 1), ix = 4 * x0 - 3 + at / 3;
    UNROLL for (int i = 0; i < IN_H; i++) {
        const size_t pixel = (size_t)(n * arg.x_h + clamp(4 * y0 - 3 + i, 0, arg.x_h - 1)) * arg.x_w;
        v[i] = x[(pixel + clamp(ix, 0, arg.x_w - 1)) * arg.x_ld + arg.x_c0 + at % 3];
    }
    uint b[MID / 8][4], shift[MID / 8][2];
    UNROLL for (int c = 0; c < MID / 8; c++) {
        FETCH16(b[c], first + c * 32 + lane);
        FETCH8(shift[c], bias + c * 8 + 2 * t);
    }
    if (n >= *limit) { /* which is there when what was asked for is */
        COPY_WAIT(0);  /* no copy outlives its group */
        return;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int i = 0; i < IN_H; i++) {
        const bool in = at < IN_W && (uint)(4 * y0 - 3 + i) < (uint)arg.x_h && (uint)ix < (uint)arg.x_w;
        if (id < LD_IN) image[i * LD_IN + at] = in ? v[i] : (ushort)0;
    }
    int place[4]; /* of the words of this work-item's fragments, from the first of a window on */
    UNROLL for (int i = 0; i < 4; i++) {
        const int k = min(4 * i + t, 14);
        place[i] = IMAGE * 4 + k / 5 * (LD_IN / 2) + k % 5;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll 1
    for (int block0 = 0; block0 < BLOCKS; block0 += THREADS / 32) {
        const int block = block0 + warp;
        float u[MID / 8][4];
        uint a[2][4];
        bool in[2];
        int to[2];
        UNROLL for (int r = 0; r < 2; r++) {
            const int m = min(block * 16 + g + 8 * r, PIXELS - 1), my = m / MID_W, mx = m % MID_W;
            const int from = my * LD_IN + mx * 3;
            in[r] = (uint)(2 * y0 - 1 + my) < (uint)arg.mid_h && (uint)(2 * x0 - 1 + mx) < (uint)arg.mid_w;
            to[r] = (BETWEEN + (my * MID_W + mx % 2 * (WIDE + 1) + mx / 2) * LD_MID) * 4 + t;
            UNROLL for (int i = 0; i < 4; i++) a[i / 2][i % 2 * 2 + r] = words[from + place[i]];
        }
        UNROLL for (int c = 0; c < MID / 8; c++) {
            u[c][0] = u[c][2] = as_float(shift[c][0]);
            u[c][1] = u[c][3] = as_float(shift[c][1]);
            MATRIX_MULTIPLY(u[c], a[0], b[c][0], b[c][1]);
            MATRIX_MULTIPLY(u[c], a[1], b[c][2], b[c][3]);
        }
        UNROLL for (int c = 0; c < MID / 8; c++) UNROLL for (int r = 0; r < 2; r++) if (block * 16 + g + 8 * r < PIXELS)
            words[to[r] + c * 4] = in[r] ? halves_of(quick_gelu(u[c][2 * r]), quick_gelu(u[c][2 * r + 1])) : 0u;
    }
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* A warp: two lines and half of the channels. */
    const int line = warp % 4 * 2, part = warp / 4 * (TILES / 2);
    float o[2][TILES / 2][4];
    UNROLL for (int c = 0; c < TILES / 2; c += 2) {
        uint v[4];
        SHARED_LOAD(v, shared + (BIAS * 4 + (part + c) / 4 * 32 + t * 8 + c % 4 * 2) * 4);
        UNROLL for (int e = 0; e < 8; e++) o[0][c + e / 4][e % 4] = o[1][c + e / 4][e % 4] =
            as_float(v[e / 4 * 2 + e % 2]);
    }
    UNROLL for (int tap = 0; tap < 9; tap++) {
        uint w[TILES / 2][4];
        UNROLL for (int c = 0; c < TILES / 2; c++)
            SHARED_LOAD(w[c], shared + (((part + c) * 9 + tap) * 32 + lane) * 16);
        UNROLL for (int i = 0; i < 2; i++) {
            const int at = (2 * (line + i) + tap / 3) * MID_W + tap % 3 % 2 * (WIDE + 1) + tap % 3 / 2 + lane % 16;
            UNROLL for (int s = 0; s < 2; s++) {
                uint a[4];
                MATRIX_LOAD(a, shared + (BETWEEN + at * LD_MID + s * 2 + lane / 16) * 16);
                UNROLL for (int c = 0; c < TILES / 2; c++) MATRIX_MULTIPLY(o[i][c], a, w[c][2 * s], w[c][2 * s + 1]);
            }
        }
    }
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int r = 0; r < 2; r++) {
        const int py = y0 + line + i, px = x0 + g + 8 * r, e = 2 * r;
        __global half *to = y + ((size_t)(n * arg.y_h + py) * arg.y_w + px) * arg.y_ld + arg.y_c0 + part * 8 + t * 8;
        if (py < arg.y_h && px < arg.y_w)
            UNROLL for (int c = 0; c < TILES / 2; c += 4) * (__global uint4 *)(to + c * 8) =
                (uint4)(halves_of(o[i][c][e], o[i][c][e + 1]), halves_of(o[i][c + 1][e], o[i][c + 1][e + 1]),
                        halves_of(o[i][c + 2][e], o[i][c + 2][e + 1]), halves_of(o[i][c + 3][e], o[i][c + 3][e + 1]));
    }
}
