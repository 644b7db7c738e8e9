/* Attention between a few tokens and an image whose projections have moved to the tokens (variants/absorbed.h), on matrix
 * instructions with half storage; goes with nvidia/ptx. At most eight tokens, 64 columns.
 *
 * Column t * 8 + h belongs to token t and head h. Columns are rows of K halves [8 tokens + 2][K]; in the two rows
 * behind them halves 2 c and 2 c + 1 add up to the constant of column c. A part of a reading is {most [64], sum [64]}
 * in floats and the columns' averages, rows of K halves.
 *
 * Matrices lie in local memory in rows whose 16-byte pieces are exchanged by the row's number (PIECE): eight rows of
 * one piece, as well as two rows of four pieces, lie in different banks. Which channels a fragment of a product over
 * channels holds is free as long as both sides agree: work-item t of four takes 16 in a row of 64.
 *
 * -D K: channels of the image, a multiple of 64. */
#define HEADS    8
#define COLUMNS  64
#define LOWEST   (-3.0e38f)
#define PIECES   (K / 8)
#define ROW      (K * 2)                          /* bytes */
#define PIECE(i, row) (((i) ^ ((row) & 7)) << 4) /* its place in the row */

#ifdef STEP
/* -D STEP: 1 reads, 2 updates before. Group (i, n): image rows [64 i, ..) of prompt n, 16 a warp. */
#define THREADS 128
#define X       0                 /* bytes in local memory: the image */
#define FIRST   (64 * ROW)        /* keys, then queries, then averages; without an update queries from the start */
#define OTHER   (2 * 64 * ROW)    /* values, then weights [64 rows][64 columns] and the warps' maxima */
#define WEIGHTS OTHER
#define TOPS    (OTHER + 64 * COLUMNS * 2)
#if STEP == 2
#define ALL (3 * 64 * ROW > TOPS + 4 * COLUMNS * 4 ? 3 * 64 * ROW : TOPS + 4 * COLUMNS * 4)
#else
#define ALL (TOPS + 4 * COLUMNS * 4)
#endif

/* Rows of K halves, `apart` in memory, to local memory; zeros from row `rows` on. */
#define COPY_ROWS(to, from, apart, rows)                                                                               \
    for (int i = id; i < 64 * PIECES; i += THREADS) {                                                                  \
        const int row = i / PIECES, piece = i % PIECES;                                                                \
        COPY16(shared + (to) + row * ROW + PIECE(piece, row),                                                          \
               (from) + (size_t)min(row, (rows)-1) * (apart) + piece * 8, row < (rows) ? 16 : 0);                      \
    }

/* The position at the warp's rows: fetched before the barrier in front of SCORES. */
#define FETCH_POSITION()                                                                                               \
    UNROLL for (int e = 0; e < K / 32; e++)                                                                 \
        UNROLL for (int r = 0; r < 2; r++)                                                                  \
            FETCH16(at[e][r], place[r] + e / 2 * 64 + e % 2 * 8)

/* s[c] += fragments of (x + position + shift) columns, of the warp's rows and columns 8 c. */
#define SCORES(shifted)                                                                                                \
    UNROLL for (int e = 0; e < K / 32; e++) {                                                                          \
        uint v[2][4];                                                                                                  \
        float d[8];                                                                                                    \
        UNROLL for (int i = 0; i < 8; i++) d[i] = (shifted) ? shift[e / 2 * 64 + t * 16 + e % 2 * 8 + i] : 0.0f;       \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            SHARED_LOAD(v[r], shared + X + (own + 8 * r) * ROW + e / 2 * 128 + PIECE(2 * t + e % 2, g));               \
            UNROLL for (int i = 0; i < 4; i++) {                                                                       \
                const float2 a = floats_of(v[r][i]), b = floats_of(at[e][r][i]);                                       \
                v[r][i] = halves_of(a.x + b.x + d[2 * i], a.y + b.y + d[2 * i + 1]);                                   \
            }                                                                                                          \
        }                                                                                                              \
        const uint low[4] = {v[0][0], v[1][0], v[0][1], v[1][1]}, high[4] = {v[0][2], v[1][2], v[0][3], v[1][3]};      \
        UNROLL for (int c = 0; c < 8; c++) {                                                                           \
            uint b[4];                                                                                                 \
            SHARED_LOAD(b, shared + FIRST + (c * 8 + g) * ROW + e / 2 * 128 + PIECE(2 * t + e % 2, g));                \
            MATRIX_MULTIPLY(s[c], low, b[0], b[1]);                                                                    \
            MATRIX_MULTIPLY(s[c], high, b[2], b[3]);                                                                   \
        }                                                                                                              \
    }

/* part [n][group]: the softmax over the group's rows of (x + position) queries, and x weighted by it. x
 * [items][rows][K] (item map[n], or n), plus `shift` [K] where `shifted`. With STEP 2 first x = LN(x + softmax over
 * tokens((x + position) keys) values + bias), stored to x_out. table {shift, bias} [K], then {gamma, gamma, beta, beta}
 * of each two channels. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
image_step(__global half *restrict x_out, __global float *restrict part, __global const half *restrict x,
           __global const half *restrict position, __global const int *restrict map,
           __global const float *restrict table, __global const half *restrict keys,
           __global const half *restrict values, __global const half *restrict queries,
           __global const int *restrict limit, nvidia_image_step_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL / 16];
    __local uint *words = (__local uint *)memory;
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, n = get_group_id(1);
    const int first = get_group_id(0) * 64, rows = min(64, arg.image.length - first), own = warp * 16 + g;
    const int columns = arg.read_columns;
    const uint shared = SHARED(memory);
    if (n >= *limit) return;
    const int item = arg.image.mapped ? map[n] : n;
    __global const float *shift = table;
    __global const half *place[2];
    for (int r = 0; r < 2; r++)
        place[r] = position + (size_t)(first + min(own + 8 * r, rows - 1)) * arg.image.position_ld +
                   arg.image.position_c0 + t * 16;
    x += ((size_t)item * arg.image.length + first) * arg.image.x_ld + arg.image.x_c0;
    queries += (size_t)n * (columns + 2) * K;
    uint at[K / 32][2][4];
    float s[8][4];
    COPY_ROWS(X, x, arg.image.x_ld, rows)
#if STEP == 2
    keys += (size_t)n * (columns + 2) * K;
    values += (size_t)n * (columns + 2) * K;
    COPY_ROWS(FIRST, keys, K, columns)
    COPY_COMMIT();
    COPY_ROWS(OTHER, values, K, columns)
    COPY_COMMIT();
    UNROLL for (int c = 0; c < 8; c++) {
        uint pair[2] = {0, 0};
        if (c * 8 < columns) FETCH8(pair, (__global const uint *)(keys + columns * K) + c * 8 + 2 * t);
        const float2 a = floats_of(pair[0]), b = floats_of(pair[1]);
        s[c][0] = s[c][2] = a.x + a.y;
        s[c][1] = s[c][3] = b.x + b.y;
    }
    FETCH_POSITION();
    COPY_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    SCORES(arg.shifted)
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY_ROWS(FIRST, queries, K, columns)
    COPY_COMMIT();

    /* Softmax over tokens: a work-item has all of them for its two rows and two heads. */
    uint a[4][4];
    SOFTMAX_OF_TOKENS(s, columns, a);
    COPY_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    float o[PIECES][4];
    UNROLL for (int c = 0; c < PIECES; c++)
        UNROLL for (int e = 0; e < 4; e++) o[c][e] = 0.0f;
    UNROLL for (int k = 0; k < 4; k++)
        UNROLL for (int c = 0; c < PIECES; c += 2) {
            uint b[4];
            MATRIX_LOAD_TURNED(b, shared + OTHER + (k * 16 + lane % 16) * ROW + PIECE(c + lane / 16, lane));
            MATRIX_MULTIPLY(o[c], a[k], b[0], b[1]);
            MATRIX_MULTIPLY(o[c + 1], a[k], b[2], b[3]);
        }

    /* Layer norm of rows g and g + 8. */
    UNROLL for (int c0 = 0; c0 < PIECES; c0 += 8) {
        uint bias[8][2];
        UNROLL for (int c = 0; c < 8; c++) FETCH8(bias[c], table + K + (c0 + c) * 8 + 2 * t);
        UNROLL for (int c = 0; c < 8; c++)
            UNROLL for (int r = 0; r < 2; r++) {
                const float2 v = floats_of(words[(X + (own + 8 * r) * ROW + PIECE(c0 + c, g)) / 4 + t]);
                o[c0 + c][2 * r] += v.x + as_float(bias[c][0]);
                o[c0 + c][2 * r + 1] += v.y + as_float(bias[c][1]);
            }
    }
    float scale_of[2];
    CENTRE_ROWS(o, PIECES, arg.eps, scale_of);
    UNROLL for (int c0 = 0; c0 < PIECES; c0 += 4) {
        uint f[4][4];
        UNROLL for (int c = 0; c < 4; c++) FETCH16(f[c], table + 2 * K + ((c0 + c) * 4 + t) * 4);
        UNROLL for (int c = 0; c < 4; c++)
            UNROLL for (int r = 0; r < 2; r++)
                words[(X + (own + 8 * r) * ROW + PIECE(c0 + c, g)) / 4 + t] =
                    halves_of(fma(o[c0 + c][2 * r] * scale_of[r], as_float(f[c][0]), as_float(f[c][2])),
                              fma(o[c0 + c][2 * r + 1] * scale_of[r], as_float(f[c][1]), as_float(f[c][3])));
    }
    FETCH_POSITION();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint4 *to = (__global uint4 *)(x_out + ((size_t)n * arg.image.length + first) * K);
    for (int i = id; i < rows * PIECES; i += THREADS)
        to[i] = memory[(X + i / PIECES * ROW + PIECE(i % PIECES, i / PIECES)) / 16];
    UNROLL for (int c = 0; c < 8; c++)
        UNROLL for (int e = 0; e < 4; e++) s[c][e] = 0.0f;
    SCORES(0)
#else
    COPY_ROWS(FIRST, queries, K, columns)
    COPY_COMMIT();
    UNROLL for (int c = 0; c < 8; c++)
        UNROLL for (int e = 0; e < 4; e++) s[c][e] = 0.0f;
    FETCH_POSITION();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    SCORES(arg.shifted)
#endif

    /* The largest score of each column, of the warp and of all. */
    __local float *tops = (__local float *)(memory + TOPS / 16);
    UNROLL for (int c = 0; c < 8; c++)
        UNROLL for (int e = 0; e < 2; e++) {
            float m = LOWEST, beside;
            if (own < rows) m = s[c][e];
            if (own + 8 < rows) m = fmax(m, s[c][2 + e]);
            LANE_XOR(beside, m, 4);
            m = fmax(m, beside);
            LANE_XOR(beside, m, 8);
            m = fmax(m, beside);
            LANE_XOR(beside, m, 16);
            m = fmax(m, beside);
            if (g == c) tops[warp * COLUMNS + c * 8 + 2 * t + e] = m;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    part += ((size_t)n * arg.groups + get_group_id(0)) * arg.part_floats;
    UNROLL for (int c = 0; c < 8; c++) {
        float2 m = *(__local const float2 *)(tops + c * 8 + 2 * t);
        UNROLL for (int w = 1; w < 4; w++) {
            m.x = fmax(m.x, tops[w * COLUMNS + c * 8 + 2 * t]);
            m.y = fmax(m.y, tops[w * COLUMNS + c * 8 + 2 * t + 1]);
        }
        if (warp == 0 && g == c) *(__global float2 *)(part + c * 8 + 2 * t) = m;
        UNROLL for (int r = 0; r < 2; r++) {
            const int in = own + 8 * r < rows;
            words[(WEIGHTS + (own + 8 * r) * COLUMNS * 2 + PIECE(c, g)) / 4 + t] =
                in ? halves_of(quick_exp2(s[c][2 * r] - m.x), quick_exp2(s[c][2 * r + 1] - m.y)) : 0u;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Averages of 64 columns by a quarter of the channels; the sums of weights as one more column of ones. */
    float sum[4][4], average[4][PIECES / 4][4];
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int e = 0; e < 4; e++) {
            sum[i][e] = 0.0f;
            UNROLL for (int c = 0; c < PIECES / 4; c++) average[i][c][e] = 0.0f;
        }
    UNROLL for (int k = 0; k < 4; k++) {
        uint w[4][4];
        UNROLL for (int i = 0; i < 4; i++) {
            MATRIX_LOAD_TURNED(w[i], shared + WEIGHTS + (k * 16 + lane / 16 * 8 + lane % 8) * COLUMNS * 2 +
                                         PIECE(2 * i + lane / 8 % 2, lane));
            MATRIX_MULTIPLY(sum[i], w[i], 0x3c003c00u, 0x3c003c00u);
        }
        UNROLL for (int c = 0; c < PIECES / 4; c += 2) {
            uint b[4];
            MATRIX_LOAD_TURNED(b, shared + X + (k * 16 + lane % 16) * ROW +
                                      PIECE(warp * (PIECES / 4) + c + lane / 16, lane));
            UNROLL for (int i = 0; i < 4; i++) {
                MATRIX_MULTIPLY(average[i][c], w[i], b[0], b[1]);
                MATRIX_MULTIPLY(average[i][c + 1], w[i], b[2], b[3]);
            }
        }
    }
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int r = 0; r < 2; r++) {
            const int column = i * 16 + g + 8 * r;
            const float scale = quick_reciprocal(sum[i][2 * r]);
            if (warp == 0 && t == 0) part[COLUMNS + column] = sum[i][2 * r];
            UNROLL for (int c = 0; c < PIECES / 4; c++) {
                const int piece = warp * (PIECES / 4) + c;
                float2 v = (float2)(average[i][c][2 * r] * scale, average[i][c][2 * r + 1] * scale);
#if STEP == 1
                if (arg.shifted) v += *(__global const float2 *)(shift + piece * 8 + 2 * t);
#endif
                words[(FIRST + column * ROW + PIECE(piece, g)) / 4 + t] = halves_of(v.x, v.y);
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global uint4 *averages = (__global uint4 *)(part + 2 * COLUMNS);
    for (int i = id; i < columns * PIECES; i += THREADS)
        averages[i] = memory[(FIRST + i / PIECES * ROW + PIECE(i % PIECES, i / PIECES)) / 16];
}
#endif
