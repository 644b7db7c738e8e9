/* Norm, projection to queries, keys and values, and window attention of TinyViT in one launch on matrix instructions of
 * warpgroups and warps with half storage (graph/nodes.h; goes with nvidia/ptx, nvidia/norm, nvidia/sums, nvidia/wgmma):
 * neither the normalised map nor the projections are stored.
 *
 * A group takes WINDOWS windows and HEADS heads, one after the other; the next one's weights come meanwhile. Tokens of
 * a window's line stand LINE apart, 8 or 16, so that a warp has 16 rows of whole lines. It reads its tokens once, as
 * fragments (32 channels are eight in a row of each work-item of four: the weights are in that order too), normalises
 * them in registers, and its warpgroup multiplies them with the head's weights in local memory; its queries stay in
 * registers as the next product's fragments, keys and values go to local memory in rows of 32 halves, 40 apart, so
 * that the eight rows of a matrix are in different banks. A token beyond the map is zeros behind the norm, so that its
 * projection is the biases.
 *
 * Scores of 16 queries with up to CHUNK times 16 keys stay in registers, softmax in fp32, then the weights as halves
 * multiply the values; with more keys the sums so far are scaled to the new largest score. The fragments begin as the
 * biases of their distance: between lines this is the same for whole fragments, so that a table of a head's lines
 * serves all; keys that do not exist have a bias of -1e30. Values come in an order of channels in which a work-item
 * has eight in a row of the result.
 *
 * -D C: channels, a multiple of 32. -D WS: tokens along a window, 2 to 16. -D WINDOWS. -D HEADS. LEFT_OUT: rows
 * of tokens are left out, of x, of the result or of both (portable/left_out). Group (x, y, z): windows from WINDOWS x
 * on, heads from HEADS y on, item z. */
#define LINE    (WS <= 8 ? 8 : 16)
#define BLOCKS  (WS <= 8 ? (WS + 1) / 2 : WS) /* of 16 rows */
#define ROWS    (16 * BLOCKS)
#define TILES   (WS * LINE / 8) /* of eight keys, without those of a line that only fills a block */
#define CHUNKS  ((BLOCKS + 7) / 8)
#define CHUNK   ((BLOCKS + CHUNKS - 1) / CHUNKS)
#define WARPS   ((BLOCKS + 3) / 4 * 4) /* of a window: whole warpgroups */
#define THREADS (32 * WARPS * WINDOWS)
#define KC      (C / 32)
#define WEIGHTS (C * 12)       /* uint4 of a head's weights, which the last tile of 64 inputs may half fill */
#define WHOLE   (C / 64 * 768) /* those of whole tiles */
#define LD      5              /* uint4 from row to row */
#define VALUES  (ROWS * LD)
#if WS <= 8
#define LINES 2 /* of a block of rows */
#define TABLE (2 * BLOCKS * 16)
#else
#define LINES 1
#define TABLE (WS * 64)
#endif
#define BIASES 24                    /* uint4 */
#define BIAS   ((C + 63) / 64 * 768) /* behind a head's weights */
#define HEAD   ((BIAS + BIASES + TABLE + 63) / 64 * 64)
#define KEYS   ((HEADS > 1 ? 2 : 1) * HEAD)
#define ALL    (KEYS + WINDOWS * 2 * VALUES)
#ifdef IST_PTX
#define IF_TILE(c) if ((c) < TILES) /* known at compile time */
#define IF_BLOCK   if (block < BLOCKS)
#else
#define IF_TILE(c) /* emulated instructions have barriers, which no branch may hold */
#define IF_BLOCK
#endif

/* Copies what belongs to a head to place `to`. */
#define COPY_HEAD(head, to)                                                                                            \
    do {                                                                                                               \
        for (int i = id; i < WEIGHTS; i += THREADS) {                                                                  \
            const int k = i - WHOLE, row = k / 4;                                                                      \
            COPY16(shared + ((to) + (i < WHOLE ? i : WHOLE + row * 8 + (k % 4 ^ (row & 7)))) * 16,                     \
                   weights + (size_t)(head)*WEIGHTS + i, 16);                                                          \
        }                                                                                                              \
        for (int i = id; i < BIASES + TABLE; i += THREADS)                                                             \
            COPY16(shared + ((to) + BIAS + i) * 16, table + (head) * (BIASES + TABLE) + i, 16);                        \
        COPY_COMMIT();                                                                                                 \
    } while (0)

/* Scores of tile c of keys begin as the biases of its distance. */
#if WS <= 8
#define BIAS_OF(s, c)                                                                                                  \
    do {                                                                                                               \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            const int away = abs(2 * block + r - (c));                                                                 \
            const float2 b = *(__local const float2 *)(words + (from + BIAS + BIASES) * 4 + (away * 32 + lane) * 2);   \
            (s)[2 * r] = (c) < WS ? b.x : -1.0e30f;                                                                    \
            (s)[2 * r + 1] = (c) < WS ? b.y : -1.0e30f;                                                                \
        }                                                                                                              \
    } while (0)
#else
#define BIAS_OF(s, c)                                                                                                  \
    do {                                                                                                               \
        const int away = abs(block - (c) / 2);                                                                         \
        const float4 b =                                                                                               \
            *(__local const float4 *)(words +                                                                          \
                                      (from + BIAS + BIASES + min(away, WS - 1) * 64 + (c) % 2 * 32 + lane) * 4);      \
        (s)[0] = (c) < TILES ? b.x : -1.0e30f;                                                                         \
        (s)[1] = (c) < TILES ? b.y : -1.0e30f;                                                                         \
        (s)[2] = (c) < TILES ? b.z : -1.0e30f;                                                                         \
        (s)[3] = (c) < TILES ? b.w : -1.0e30f;                                                                         \
    } while (0)
#endif

/* weights [head]{tiles of 64 channels [96: queries, keys, values][8 pieces of 16 bytes], exchanged as nvidia/wgmma says,
 * the last of 32 as [96][4], not exchanged}; table [head]{biases of the projection [96], of scores in units of `scale`:
 * LINE 8: [distance of lines][lane: query, two keys][2], LINE 16: [distance of lines][half of the keys][lane][4]}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
window(__global half *restrict out, __global const half *restrict x, __global const uint4 *restrict weights,
       __global const uint4 *restrict table, __global const int *restrict limit, __global const int *restrict content,
       norm_window_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int n = get_group_id(2), h0 = get_group_id(1) * HEADS, id = get_local_id(0), lane = id % 32, g = lane / 4,
              t = lane % 4;
#ifdef LEFT_OUT
    const int first = get_group_id(0) * WINDOWS, last = min(first + WINDOWS, arg.per_map) - 1;
    if (all_left_out(first / arg.across * WS, min(last / arg.across * WS + WS, arg.h), rows_left_out(content, arg.out, n)))
        return;
    const left_out_rows there = rows_left_out(content, arg.in, n);
#endif
    const int block = id / 32 % WARPS, keys = KEYS + id / 32 / WARPS * (2 * VALUES);
    const int w = get_group_id(0) * WINDOWS + id / 32 / WARPS, x0 = w % arg.across * WS, y0 = w / arg.across * WS;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint *words = (__local uint *)(memory + (shared - start) / 16);
    const float eps = arg.eps, unit = arg.scale * 1.44269504f;

    int place[2]; /* of the two rows of this work-item's fragments; < 0: not in the map */
    uint a[2][KC][4];
    UNROLL for (int r = 0; r < 2; r++) {
        const int i = block * 16 + g + 8 * r, line = i / LINE, column = i % LINE;
        const bool in = w < arg.per_map && line < WS && column < WS && y0 + line < arg.h && x0 + column < arg.w;
        place[r] = in ? (n * arg.h + y0 + line) * arg.w + x0 + column : -1;
        const int from = in ? (n * arg.h + ROW_OF(y0 + line, there)) * arg.w + x0 + column : 0;
        UNROLL for (int k = 0; k < KC; k++)
            FETCH16(a[r][k], x + (size_t)from * arg.x_ld + arg.x_c0 + k * 32 + t * 8);
    }
    COPY_HEAD(h0, 0);
    if (n >= *limit) { /* which is there when what was asked for is */
        COPY_WAIT(0);  /* no copy outlives its group */
        return;
    }

    UNROLL for (int r = 0; r < 2; r++) NORMALISE(a[r], place[r] >= 0);

    for (int head = 0; head < HEADS; head++) {
        const int from = head % 2 * HEAD;
        const matrix_at w_at = MATRIX_AT(shared + (uint)from * 16);
        float u[12][4];
        uint q[2][4];
        COPY_WAIT(0);
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (head + 1 < HEADS) COPY_HEAD(h0 + head + 1, HEAD - from);
        UNROLL for (int c = 0; c < 12; c++) {
            const float2 b = *(__local const float2 *)(words + (from + BIAS) * 4 + c * 8 + 2 * t);
            u[c][0] = u[c][2] = b.x;
            u[c][1] = u[c][3] = b.y;
            GROUP_TAKE(u, c);
        }
        GROUP_BEGIN();
        UNROLL for (int k = 0; k < 2 * KC; k++) {
            const int i = k / 2, e = k % 2 * 2;
            const uint part[4] = {a[0][i][e], a[1][i][e], a[0][i][e + 1], a[1][i][e + 1]};
            GROUP_MULTIPLY_A(96, u, part, w_at + (uint)(k / 4 * 768 + k % 4 * 2));
        }
        GROUP_COMMIT();
        GROUP_WAIT(0);
        UNROLL for (int c = 0; c < 12; c++) {
            GROUP_TAKE(u, c);
            UNROLL for (int r = 0; r < 2; r++) {
                const uint both = halves_of(u[c][2 * r], u[c][2 * r + 1]);
                if (c < 4)
                    q[c / 2][c % 2 * 2 + r] = both;
                else if (block < BLOCKS)
                    words[(keys + (c / 4 - 1) * VALUES + (block * 16 + g + 8 * r) * LD + c % 4) * 4 + t] = both;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        IF_BLOCK {
            float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f}, o[4][4];
            UNROLL for (int c = 0; c < 4; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;
            UNROLL for (int b0 = 0; b0 < CHUNK * CHUNKS; b0 += CHUNK) {
                float s[2 * CHUNK][4], top[2] = {-3.0e38f, -3.0e38f}, factor[2];
                UNROLL for (int c = 0; c < 2 * CHUNK; c++) BIAS_OF(s[c], 2 * b0 + c);
                UNROLL for (int c = 0; c < 2 * CHUNK; c++) IF_TILE(2 * b0 + c) {
                    uint k[4];
                    MATRIX_LOAD(k, shared +
                                       (keys + (min(2 * b0 + c, 2 * BLOCKS - 1) * 8 + lane % 8) * LD + lane / 8) * 16);
                    MATRIX_MULTIPLY(s[c], q[0], k[0], k[1]);
                    MATRIX_MULTIPLY(s[c], q[1], k[2], k[3]);
                    UNROLL for (int e = 0; e < 4; e++) top[e / 2] = fmax(top[e / 2], s[c][e]);
                }
                SOFTMAX_GOES_ON(top, most, sum, factor, unit)
                if (b0) {
                    UNROLL for (int c = 0; c < 4; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] *= factor[e / 2];
                }
                UNROLL for (int b = 0; b < CHUNK; b++) IF_TILE(2 * (b0 + b)) {
                    uint p[4], v[4];
                    SOFTMAX_WEIGHTS(p, s, 2 * b, top, sum, unit)
                    UNROLL for (int c = 0; c < 2; c++) {
                        MATRIX_LOAD_TURNED(
                            v, shared + (keys + VALUES + (min(b0 + b, BLOCKS - 1) * 16 + lane % 16) * LD) * 16 +
                                   c * 32 + lane / 16 * 16);
                        MATRIX_MULTIPLY(o[2 * c], p, v[0], v[1]);
                        MATRIX_MULTIPLY(o[2 * c + 1], p, v[2], v[3]);
                    }
                }
            }
            UNROLL for (int r = 0; r < 2; r++) {
                QUAD_SUM(sum[r]);
                const float f = quick_reciprocal(sum[r]);
                if (place[r] >= 0)
                    *(__global uint4 *)(out + (size_t)place[r] * arg.out_ld + arg.out_c0 + (h0 + head) * 32 + t * 8) =
                        (uint4)(halves_of(o[0][2 * r] * f, o[0][2 * r + 1] * f),
                                halves_of(o[1][2 * r] * f, o[1][2 * r + 1] * f),
                                halves_of(o[2][2 * r] * f, o[2][2 * r + 1] * f),
                                halves_of(o[3][2 * r] * f, o[3][2 * r + 1] * f));
            }
        }
    }
}
