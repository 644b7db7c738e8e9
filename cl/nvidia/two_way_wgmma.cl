/* Image steps of two-way attention (variants/absorbed.h) on the matrix instructions of warpgroups: what nvidia/two_way_mma's
 * image_step makes, with its arguments. Goes with nvidia/ptx and nvidia/wgmma.
 *
 * A work-item keeps its channels of two image rows in registers from the first load to the last store: as they come
 * from memory they are fragments of the first product, and so of 64 channels work-item t of four has at places
 * 8 c + 2 t + {0, 1}, c < 8, of a fragment those from 32 (c / 4) + 8 t + 2 (c % 4) on, eight in a row; rows of folded
 * tokens have the order of places (ist_two_way_place). In local memory, tiles of 64 rows of 64 places: keys, values and
 * queries by columns, the image by image rows, alone for the averages and with its position for their scores.
 *
 * -D K: channels of the image, 64, 128 or 256. -D STEP: 1 reads, 2 updates before. -D SHIFT: the image is
 * x + shift. */
#define THREADS 128
#define COLUMNS 64
#define LOWEST  (-3.0e38f)
#define TILES   (K / 64)
#define TILE    8192           /* bytes */
#define MATRIX  (TILES * TILE)
#define X       0              /* bytes in local memory: keys, then the image */
#define PLACED  MATRIX         /* values, then the image with its position */
#define QUERIES (2 * MATRIX)
#define TABLE   (3 * MATRIX)   /* floats: bias, then {gamma, gamma, beta, beta} of each two channels */
#define ALL     (TABLE + (STEP == 2 ? 3 * K * 4 : 0))

/* Rows of folded tokens to local memory, zeros behind the last: a work-item copies part `piece` of every STRIDE-th row,
 * from row0 on. */
#define STRIDE (THREADS / (K / 8))
#define COPY_COLUMNS(at, from)                                                                                         \
    UNROLL for (int j = 0; j < 64 / STRIDE; j++)                                                                       \
        COPY16((to ^ (uint)(j * STRIDE % 8 * 16)) + (uint)((at) + j * STRIDE * 128),                                   \
               (from) + ((size_t)n * (columns + 2) * K + row0 * K + piece * 8) + j * STRIDE * K,                       \
               row0 + j * STRIDE < columns ? 16 : 0);                                                                  \
    COPY_COMMIT();

/* Words of the work-item's two rows: v[r][e][i] has places c = e % 2 * 4 + i of tile e / 2. */
#define FETCH_ROWS(v, from, apart)                                                                                     \
    UNROLL for (int r = 0; r < 2; r++)                                                                                 \
        UNROLL for (int e = 0; e < 2 * TILES; e++)                                                                     \
            FETCH16(v[r][e], (from) + (size_t)min(own + 8 * r, rows - 1) * (apart) + e * 32);

/* sums[tile] += fragments a[4] of 64 rows or columns times tiles whose rows these are. */
#define PRODUCTS(sums, a, tiles_at)                                                                                    \
    UNROLL for (int k = 0; k < 4; k++) GROUP_HOLD_WORDS(a[k]);                                                         \
    UNROLL for (int b = 0; b < TILES; b++) GROUP_HOLD(sums[b]);                                                        \
    GROUP_BEGIN();                                                                                                     \
    UNROLL for (int k = 0; k < 4; k++)                                                                                 \
        UNROLL for (int b = 0; b < TILES; b++)                                                                         \
            GROUP_MULTIPLY_TURNED(64, sums[b], a[k],                                                                   \
                                  MATRIX_AT(shared + (tiles_at)) + (uint)(b * (TILE / 16) + k * 128));                 \
    GROUP_COMMIT();

/* Where the lane's row of four 8 x 8 matrices to store lies, from place 32 h of a tile on, for rows 16 w .. of it. */
#define STORE_AT(tile_at, h) ((stored ^ (uint)((h) * 64)) + (uint)(tile_at))

/* Place block e of the rows to local memory, with and without position. */
#define KEEP_ROWS(e)                                                                                                   \
    UNROLL for (int r = 0; r < 2; r++) {                                                                               \
        uint placed_row[4];                                                                                            \
        UNROLL for (int i = 0; i < 4; i++) placed_row[i] = halves_sum(at[r][e][i], v[r][e][i]);                        \
        MATRIX_STORE(STORE_AT(X + (e) / 2 * TILE + r * 1024, (e) % 2), v[r][e]);                                       \
        MATRIX_STORE(STORE_AT(PLACED + (e) / 2 * TILE + r * 1024, (e) % 2), placed_row);                               \
    }

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
image_step(__global half *restrict x_out, __global float *restrict part, __global const half *restrict x,
           __global const half *restrict position, __global const int *restrict map,
           __global const float *restrict table, __global const half *restrict keys,
           __global const half *restrict values, __global const half *restrict queries,
           __global const int *restrict limit, nvidia_image_step_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL / 16 + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0) & (THREADS - 1); /* for compilers: never negative */
    const int lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, n = get_group_id(1);
    const int first = get_group_id(0) * 64, rows = min(64, arg.image.length - first), own = warp * 16 + g;
    const int columns = arg.read_columns;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint *words = (__local uint *)(memory + (shared - start) / 16);
    const uint stored = shared + (uint)((warp * 16 + lane % 8) * 128 + ((lane / 8) ^ (lane % 8)) * 16);
    const int left = *limit - n, mapped = arg.image.mapped ? map[n] : n;
    uint v[2][2 * TILES][4], at[2][2 * TILES][4], a[4][4];
    float s[8][4];
    __global const half *place = position + (size_t)first * arg.image.position_ld + arg.image.position_c0 + t * 8;
    FETCH_ROWS(at, place, arg.image.position_ld)
    if (left <= 0) return;
    __global const half *from =
        x + ((size_t)mapped * arg.image.length + first) * arg.image.x_ld + arg.image.x_c0 + t * 8;
    const int row0 = id / (K / 8), piece = id % (K / 8);
    const uint to = shared + (uint)(piece / 8 * TILE + row0 * 128 + ((piece ^ row0) & 7) * 16);
    FETCH_ROWS(v, from, arg.image.x_ld)
#if STEP == 2
    COPY_COLUMNS(X, keys)
    for (int i = id; i < 3 * K / 4; i += THREADS) COPY16(shared + TABLE + (uint)i * 16, table + K + i * 4, 16);
    COPY_COLUMNS(PLACED, values)
#endif
    COPY_COLUMNS(QUERIES, queries)
#ifdef SHIFT
    UNROLL for (int e = 0; e < 2 * TILES; e++) {
        uint f[2][4];
        UNROLL for (int h = 0; h < 2; h++) FETCH16(f[h], table + e * 32 + t * 8 + h * 4);
        UNROLL for (int r = 0; r < 2; r++)
            UNROLL for (int i = 0; i < 4; i++)
                v[r][e][i] = halves_sum(
                    v[r][e][i], halves_of(as_float(f[i / 2][i % 2 * 2]), as_float(f[i / 2][i % 2 * 2 + 1])));
    }
#endif

#if STEP == 2
    __global const uint *constants =
        (__global const uint *)(keys + ((size_t)n * (columns + 2) + columns) * K) + 2 * t;
    UNROLL for (int c = 0; c < 8; c++) {
        uint pair[2] = {0, 0};
        if (c * 8 < columns) FETCH8(pair, constants + c * 8);
        const float2 p = floats_of(pair[0]), q = floats_of(pair[1]);
        s[c][0] = s[c][2] = p.x + p.y;
        s[c][1] = s[c][3] = q.x + q.y;
    }
    COPY_WAIT(2);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    uint placed[4 * TILES][4];
    UNROLL for (int k = 0; k < 4 * TILES; k++) {
        UNROLL for (int i = 0; i < 4; i++)
            placed[k][i] = halves_sum(v[i % 2][k / 2][k % 2 * 2 + i / 2], at[i % 2][k / 2][k % 2 * 2 + i / 2]);
        GROUP_HOLD_WORDS(placed[k]);
    }
    GROUP_HOLD(s);
    GROUP_BEGIN();
    UNROLL for (int k = 0; k < 4 * TILES; k++)
        GROUP_MULTIPLY_A(64, s, placed[k], MATRIX_AT(shared + X) + (uint)(k / 4 * (TILE / 16) + k % 4 * 2));
    GROUP_COMMIT();
    GROUP_WAIT(0);
    GROUP_HOLD(s);

    /* Softmax over tokens: a work-item has all of them for its two rows and two heads. */
    SOFTMAX_OF_TOKENS(s, columns, a);
    COPY_WAIT(1);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float4 *bias = (__local const float4 *)(words + TABLE / 4) + 2 * t, *norm = bias + K / 4 + 2 * t;
    float o[TILES][8][4];
    UNROLL for (int e = 0; e < 2 * TILES; e++)
        UNROLL for (int i = 0; i < 4; i += 2) {
            const float4 f = bias[e * 8 + i / 2];
            UNROLL for (int r = 0; r < 2; r++) {
                const float2 p = floats_of(v[r][e][i]), q = floats_of(v[r][e][i + 1]);
                o[e / 2][e % 2 * 4 + i][2 * r] = p.x + f.x;
                o[e / 2][e % 2 * 4 + i][2 * r + 1] = p.y + f.y;
                o[e / 2][e % 2 * 4 + i + 1][2 * r] = q.x + f.z;
                o[e / 2][e % 2 * 4 + i + 1][2 * r + 1] = q.y + f.w;
            }
        }
    PRODUCTS(o, a, PLACED)
    GROUP_WAIT(0);
    UNROLL for (int b = 0; b < TILES; b++) GROUP_HOLD(o[b]);
    barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads values any more */

    /* Layer norm of rows g and g + 8, shared by four work-items. */
    float total[2] = {0.0f, 0.0f}, square[2] = {0.0f, 0.0f};
    UNROLL for (int r = 0; r < 2; r++) {
        UNROLL for (int b = 0; b < TILES; b++) { /* short chains of sums */
            float of_tile = 0.0f;
            UNROLL for (int c = 0; c < 8; c++) of_tile += o[b][c][2 * r] + o[b][c][2 * r + 1];
            total[r] += of_tile;
        }
        QUAD_SUM(total[r]);
        total[r] /= K;
        UNROLL for (int b = 0; b < TILES; b++) {
            float of_tile = 0.0f;
            UNROLL for (int c = 0; c < 8; c++) {
                o[b][c][2 * r] -= total[r];
                o[b][c][2 * r + 1] -= total[r];
                of_tile = fma(o[b][c][2 * r], o[b][c][2 * r], fma(o[b][c][2 * r + 1], o[b][c][2 * r + 1], of_tile));
            }
            square[r] += of_tile;
        }
        QUAD_SUM(square[r]);
        square[r] = 1.0f / sqrt(square[r] / K + arg.eps);
    }
    UNROLL for (int e = 0; e < 2 * TILES; e++) {
        UNROLL for (int i = 0; i < 4; i++) {
            const float4 f = norm[e * 16 + i];
            UNROLL for (int r = 0; r < 2; r++)
                v[r][e][i] = halves_of(fma(o[e / 2][e % 2 * 4 + i][2 * r] * square[r], f.x, f.z),
                                       fma(o[e / 2][e % 2 * 4 + i][2 * r + 1] * square[r], f.y, f.w));
        }
        UNROLL for (int r = 0; r < 2; r++)
            if (own + 8 * r < rows)
                *(__global uint4 *)(x_out + ((size_t)n * arg.image.length + first + own + 8 * r) * K + e * 32 + t * 8) =
                    (uint4)(v[r][e][0], v[r][e][1], v[r][e][2], v[r][e][3]);
        KEEP_ROWS(e)
    }
#else
    UNROLL for (int e = 0; e < 2 * TILES; e++) {
        KEEP_ROWS(e)
    }
#endif
    UNROLL for (int c = 0; c < 8; c++)
        UNROLL for (int e = 0; e < 4; e++) s[c][e] = 0.0f;
    COPY_WAIT(0);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Scores of columns g and g + 8 of the warp, which four work-items share, by all rows. */
    GROUP_HOLD(s);
    GROUP_BEGIN();
    UNROLL for (int k = 0; k < 4 * TILES; k++)
        GROUP_MULTIPLY(64, s, MATRIX_AT(shared + QUERIES) + (uint)(k / 4 * (TILE / 16) + k % 4 * 2),
                       MATRIX_AT(shared + PLACED) + (uint)(k / 4 * (TILE / 16) + k % 4 * 2));
    GROUP_COMMIT();
    GROUP_WAIT(0);
    GROUP_HOLD(s);
    part += ((size_t)n * arg.groups + get_group_id(0)) * arg.part_floats;
    float sum[2];
    UNROLL for (int r = 0; r < 2; r++) {
        float most = LOWEST;
        UNROLL for (int c = 0; c < 8; c++)
            UNROLL for (int e = 2 * r; e < 2 * r + 2; e++) {
                if (c * 8 + 2 * t + e - 2 * r >= rows) s[c][e] = LOWEST;
                most = fmax(most, s[c][e]);
            }
        QUAD_MOST(most);
        sum[r] = 0.0f;
        UNROLL for (int c = 0; c < 8; c++) {
            const float p = quick_exp2(s[c][2 * r] - most), q = quick_exp2(s[c][2 * r + 1] - most);
            sum[r] += p + q;
            a[c / 2][c % 2 * 2 + r] = halves_of(p, q);
        }
        QUAD_SUM(sum[r]);
        if (t == 0) {
            part[own + 8 * r] = most;
            part[COLUMNS + own + 8 * r] = sum[r];
        }
    }

    /* Averages. */
    float average[TILES][8][4];
    UNROLL for (int b = 0; b < TILES; b++)
        UNROLL for (int c = 0; c < 8; c++)
            UNROLL for (int e = 0; e < 4; e++) average[b][c][e] = 0.0f;
    PRODUCTS(average, a, X)
    GROUP_WAIT(0);
    UNROLL for (int b = 0; b < TILES; b++) GROUP_HOLD(average[b]);
    __global uint4 *averages = (__global uint4 *)(part + 2 * COLUMNS) + t;
    UNROLL for (int r = 0; r < 2; r++) {
        const int column = own + 8 * r;
        const float scale = quick_reciprocal(sum[r]);
        UNROLL for (int e = 0; e < 2 * TILES; e++) {
            uint u[4];
            UNROLL for (int i = 0; i < 4; i++)
                u[i] = halves_of(average[e / 2][e % 2 * 4 + i][2 * r] * scale,
                                 average[e / 2][e % 2 * 4 + i][2 * r + 1] * scale);
            if (column < columns)
                averages[column * (K / 8) + e * 4] = (uint4)(u[0], u[1], u[2], u[3]);
        }
    }
}
