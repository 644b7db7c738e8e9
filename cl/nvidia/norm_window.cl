/* Norm, projection to queries, keys and values, and window attention of TinyViT in one launch on matrix instructions of
 * warpgroups with half storage (graph/nodes.h; goes with nvidia/ptx, nvidia/norm, nvidia/sums, nvidia/wgmma): neither
 * the normalised map nor the projections are stored.
 *
 * Work is WINDOWS windows and a head at a time; a group has some of these in a row, all heads of a window one after the
 * other, and the next one's weights come meanwhile. Tokens of a window's line stand LINE apart, 8 or 16, so that a warp
 * has 16 rows of whole lines. It reads its tokens once for all heads, as fragments (32 channels are eight in a row of
 * each work-item of four: the weights are in that order too) and normalises them in registers; where these are short,
 * fragments wait in local memory. Its warpgroup multiplies them with the head's weights; its queries stay in registers
 * as the next product's fragments, values and keys go to local memory, 32 halves each in a token's row of a tile. A
 * token beyond the map is zeros behind the norm, so that its projection is the biases.
 *
 * Scores of 16 queries with CHUNK times 16 keys stay in registers, softmax in fp32, then the weights as halves multiply
 * the values; with more keys the sums so far are scaled to the new largest score. The fragments begin as the biases of
 * their distance: between lines this is the same for whole fragments, so that a table of a head's lines serves all; keys
 * that do not exist have a bias of -1e30. Values come in an order of channels in which a work-item has eight in a row of
 * the result.
 *
 * -D C: channels, a multiple of 32. -D WS: tokens along a window, 2 to 16. -D WINDOWS. -D HEADS. -D ROW: how many heads
 * a group may have in a row, 1 or more. LEFT_OUT: rows of tokens are left out, of x, of the result or of both
 * (portable/left_out). Groups share all work in its order: heads within windows, windows within maps. */
#define LINE    (WS <= 8 ? 8 : 16)
#define BLOCKS  (WS <= 8 ? (WS + 1) / 2 : WS) /* of 16 rows */
#define TILES   (WS * LINE / 8) /* of eight keys, without those of a line that only fills a block */
#define WARPS   ((BLOCKS + 3) / 4 * 4) /* of a window: whole warpgroups */
#define CHUNK   4  /* blocks of keys at a time; rows of all are written */
#define KEYS    64 /* of a chunk */
#define CHUNKS  ((BLOCKS + CHUNK - 1) / CHUNK)
#if WS <= 8
#define LINES 2 /* of a block of rows */
#define TABLE (2 * BLOCKS * 16)
#else
#define LINES 1
#define TABLE (WS * 64)
#endif
#define THREADS (32 * WARPS * WINDOWS)
#define KC      (C / 32)
#define WEIGHTS (C * 12)       /* uint4 of a head's weights, which the last tile of 64 inputs may half fill */
#define WHOLE   (C / 64 * 768) /* those of whole tiles */
#define BIASES  24             /* uint4 */
#define BIAS    ((C + 63) / 64 * 768) /* behind a head's weights */
#define HEAD    ((BIAS + BIASES + TABLE + 63) / 64 * 64)
#define TOKENS  ((ROW > 1 ? 2 : 1) * HEAD)  /* values and keys: of each token four pieces of 16 bytes and four */
#define WINDOW  (CHUNKS * KEYS * 8)         /* of a window */
#define KEPT    (TOKENS + WINDOWS * WINDOW) /* fragments of the tokens, where registers have no room for them */
#define KEEPS   (WS > 8)
#define ALL     (KEPT + (KEEPS ? THREADS * KC * 2 : 0))
#define SECOND  (THREADS / 256 * 128) /* first work-item of the second half of the warpgroups */
#ifdef IST_PTX
#define IF_TILE(c) if ((c) < TILES) /* known at compile time */
#define IF_BLOCK   if (block < BLOCKS)
#else
#define IF_TILE(c) /* emulated instructions have barriers, which no branch may hold */
#define IF_BLOCK
#endif

/* Copies what belongs to a head to place `to`, by work-items 0 <= first < count. */
#define COPY_HEAD(head, to, first, count)                                                                              \
    do {                                                                                                               \
        for (int i = (first); i < WEIGHTS; i += (count)) {                                                             \
            const int k = i - WHOLE, row = k / 4;                                                                      \
            COPY16(shared + ((to) + (i < WHOLE ? i : WHOLE + row * 8 + (k % 4 ^ (row & 7)))) * 16,                     \
                   weights + (size_t)(head)*WEIGHTS + i, 16);                                                          \
        }                                                                                                              \
        for (int i = (first); i < BIASES + TABLE; i += (count))                                                        \
            COPY16(shared + ((to) + BIAS + i) * 16, table + (head) * (BIASES + TABLE) + i, 16);                        \
        COPY_COMMIT();                                                                                                 \
    } while (0)

/* Scores of tile c of keys begin as the biases of its distance from the block `here`. */
#if WS <= 8
#define BIAS_OF(s, c)                                                                                                  \
    do {                                                                                                               \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            const int away = abs(2 * here + r - (c));                                                                  \
            const float2 b = *(__local const float2 *)(words + biases + away * 64);                                    \
            (s)[2 * r] = (c) < WS ? b.x : -1.0e30f;                                                                    \
            (s)[2 * r + 1] = (c) < WS ? b.y : -1.0e30f;                                                                \
        }                                                                                                              \
    } while (0)
#else
#define BIAS_OF(s, c)                                                                                                  \
    do {                                                                                                               \
        const int away = abs(here - (c) / 2);                                                                          \
        const float4 b = *(__local const float4 *)(words + biases + min(away, WS - 1) * 256 + (c) % 2 * 128);          \
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
    const int group = get_group_id(0), begin = group * arg.each + min(group, arg.more),
              end = begin + arg.each + (group < arg.more);
    const int id = get_local_id(0), lane = id % 32, g = lane / 4, t = lane % 4, block = id / 32 % WARPS,
              mine = WINDOWS > 1 ? WARP_UNIFORM(id / 32 / WARPS) : 0; /* of the windows */
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint *words = (__local uint *)(memory + (shared - start) / 16);
    const int tokens = TOKENS + mine * WINDOW;
    const float eps = arg.eps, unit = arg.scale * 1.44269504f;
    int work = begin, have = -1, from = 0;
    int place[2] = {-1, -1}; /* of the two rows of this work-item's fragments; < 0: not in the map */
    uint part[2 * KC][4]; /* fragments of them, 16 channels each */

    while (work < end) {
        const int head = work % HEADS, windows = work / HEADS, next = ROW > 1 ? work + 1 : end;
        if (ROW == 1 || windows != have) {
            const int n = windows / arg.groups_of_map, first = windows % arg.groups_of_map * WINDOWS, w = first + mine;
            const int x0 = w % arg.across * WS, y0 = w / arg.across * WS;
#ifdef LEFT_OUT
            const int last = min(first + WINDOWS, arg.per_map) - 1;
            if (all_left_out(first / arg.across * WS, min(last / arg.across * WS + WS, arg.h),
                             rows_left_out(content, arg.out, n))) {
                work += HEADS - head; /* to another first head: weights that have been asked for are the same */
                continue;
            }
            const left_out_rows there = rows_left_out(content, arg.in, n);
#endif
            uint a[2][KC][4];
            UNROLL for (int r = 0; r < 2; r++) {
                const int token = block * 16 + g + 8 * r, line = token / LINE, column = token % LINE;
                const bool in = w < arg.per_map && line < WS && column < WS && y0 + line < arg.h && x0 + column < arg.w;
                place[r] = in ? (n * arg.h + y0 + line) * arg.w + x0 + column : -1;
                const int row = in ? (n * arg.h + ROW_OF(y0 + line, there)) * arg.w + x0 + column : 0;
                UNROLL for (int k = 0; k < KC; k++)
                    FETCH16(a[r][k], x + (size_t)row * arg.x_ld + arg.x_c0 + k * 32 + t * 8);
            }
            if (have < 0) COPY_HEAD(head, 0, id, THREADS);
            if (n >= *limit) { /* which is there when what was asked for is */
                COPY_WAIT(0);  /* no copy outlives its group */
                return;
            }
            UNROLL for (int r = 0; r < 2; r++) NORMALISE(a[r], place[r] >= 0);
            have = windows;
            UNROLL for (int k = 0; k < 2 * KC; k++) {
                UNROLL for (int e = 0; e < 4; e++) part[k][e] = a[e % 2][k / 2][k % 2 * 2 + e / 2];
                if (KEEPS)
                    *(__local uint4 *)(words + (KEPT + k * THREADS + id) * 4) =
                        (uint4)(part[k][0], part[k][1], part[k][2], part[k][3]);
            }
        }
        if (KEEPS) UNROLL
            for (int k = 0; k < 2 * KC; k++) SHARED_LOAD(part[k], shared + (uint)(KEPT + k * THREADS + id) * 16);

        const matrix_at w_at = MATRIX_AT(shared + (uint)from * 16);
        float u[12][4];
        uint q[2][4];
        COPY_WAIT(0);
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int c = 0; c < 12; c++) {
            const float2 b = *(__local const float2 *)(words + (from + BIAS) * 4 + c * 8 + 2 * t);
            u[c][0] = u[c][2] = b.x;
            u[c][1] = u[c][3] = b.y;
            GROUP_TAKE(u, c);
        }
        GROUP_BEGIN();
        UNROLL for (int k = 0; k < 2 * KC; k++)
            GROUP_MULTIPLY_A(96, u, part[k], w_at + (uint)(k / 4 * 768 + k % 4 * 2));
        GROUP_COMMIT();
        GROUP_WAIT(0);
        int to = (tokens + (block * 16 + g) * 8) * 4 + t, turn = g;
        RECKON_FROM_HERE(to);
        RECKON_FROM_HERE(turn);
        UNROLL for (int c = 0; c < 12; c++) {
            GROUP_TAKE(u, c);
            UNROLL for (int r = 0; r < 2; r++) {
                const uint both = halves_of(u[c][2 * r], u[c][2 * r + 1]);
                if (c < 4)
                    q[c / 2][c % 2 * 2 + r] = both;
                else /* values in parts 0 to 3, keys in 4 to 7 */
                    words[to + r * 256 + ((c - 4) ^ 4 ^ turn) * 4] = both;
            }
        }
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);

        float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f}, o[4][4];
        UNROLL for (int c = 0; c < 4; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;
        /* By one half, so that the halves' weights and products then run beside each other. */
        if (next < end && id >= SECOND) COPY_HEAD(next % HEADS, HEAD - from, id - SECOND, THREADS - SECOND);
        UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const matrix_at chunk_at = MATRIX_AT(shared + (uint)(tokens + chunk * KEYS * 8) * 16);
            float s[2 * CHUNK][4], top[2] = {-3.0e38f, -3.0e38f}, factor[2];
            uint p[CHUNK][4];
            int here = block, biases = (from + BIAS + BIASES) * 4 + lane * (4 / LINES);
            RECKON_FROM_HERE(here);
            RECKON_FROM_HERE(biases);
            UNROLL for (int c = 0; c < 2 * CHUNK; c++) {
                BIAS_OF(s[c], chunk * 2 * CHUNK + c);
                GROUP_TAKE(s, c);
            }
            GROUP_BEGIN();
            UNROLL for (int k = 0; k < 2; k++) GROUP_MULTIPLY_A(KEYS, s, q[k], chunk_at + (uint)(4 + 2 * k));
            GROUP_COMMIT();
            GROUP_WAIT(0);
            UNROLL for (int c = 0; c < 2 * CHUNK; c++) GROUP_TAKE(s, c);
            UNROLL for (int b = 0; b < CHUNK; b++) UNROLL for (int e = 0; e < 4; e++) p[b][e] = 0u;
            IF_BLOCK {
                UNROLL for (int c = 0; c < 2 * CHUNK; c++) IF_TILE(chunk * 2 * CHUNK + c) {
                    UNROLL for (int e = 0; e < 4; e++) top[e / 2] = fmax(top[e / 2], s[c][e]);
                }
                SOFTMAX_GOES_ON(top, most, sum, factor, unit)
                UNROLL for (int b = 0; b < CHUNK; b++) IF_TILE(2 * (chunk * CHUNK + b)) {
                    SOFTMAX_WEIGHTS(p[b], s, 2 * b, top, sum, unit)
                }
                if (chunk) {
                    UNROLL for (int c = 0; c < 4; c++) UNROLL for (int e = 0; e < 4; e++) o[c][e] *= factor[e / 2];
                }
            }
            UNROLL for (int c = 0; c < 4; c++) GROUP_TAKE(o, c);
            UNROLL for (int b = 0; b < CHUNK; b++) GROUP_HOLD_WORDS(p[b]);
            GROUP_BEGIN();
            UNROLL for (int b = 0; b < CHUNK; b++) GROUP_MULTIPLY_TURNED(32, o, p[b], chunk_at + (uint)(b * 128));
            GROUP_COMMIT();
            GROUP_WAIT(0);
            UNROLL for (int c = 0; c < 4; c++) GROUP_TAKE(o, c);
        }
        IF_BLOCK UNROLL for (int r = 0; r < 2; r++) {
            QUAD_SUM(sum[r]);
            const float f = quick_reciprocal(sum[r]);
            if (place[r] >= 0)
                *(__global uint4 *)(out + (size_t)place[r] * arg.out_ld + arg.out_c0 + head * 32 + t * 8) =
                    (uint4)(halves_of(o[0][2 * r] * f, o[0][2 * r + 1] * f),
                            halves_of(o[1][2 * r] * f, o[1][2 * r + 1] * f),
                            halves_of(o[2][2 * r] * f, o[2][2 * r + 1] * f),
                            halves_of(o[3][2 * r] * f, o[3][2 * r + 1] * f));
        }
        work = next;
        from = HEAD - from;
    }
#ifdef LEFT_OUT
    COPY_WAIT(0);
#endif
}
