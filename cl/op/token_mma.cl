/* Layers on a few tokens of several prompts (src/ops/token.h) on matrix instructions with half storage; goes with
 * isa/ptx: LN(add + W hidden + b), where hidden is relu(W1 x + b1), attention of a prompt's tokens to each other, or
 * what they read of an image.
 *
 * A group takes two prompts, eight rows each, and a share of what comes before W; the last of a tile's groups to arrive
 * does the rest. The time is that of reading the weights, so a work-item asks for all that it can at once, before
 * anything else. -D MODE:
 * 1 with a first layer: a slice of the hidden channels and what they add to the result, summed up in their order
 * 2 attention: a slice of the tokens' projections
 * 3 reading an image whose keys and values are there: 128 of its rows, a part, which the last group joins
 * 4 parts of image steps (op/two_way_mma), averages of the image: a head of one token from all parts
 *
 * -D HID: hidden channels of a slice; MODE 1 and 3: 128, else a multiple of 32. -D IN: channels of x (MODE 4: of the
 * image), a multiple of 32. -D OUT: a multiple of 64. -D SLICES; MODE 2: of -D EACH times 64 projections. -D ALONE, with
 * MODE 4: no layer. -D NARROW, with MODE 4: fewer registers, for many groups. -D IMAGE, with MODE 2 and isa/image_rows:
 * groups behind those of the tokens make keys and values of an image.
 *
 * -D FOLDS: with MODE 1 or 2, how many folds of the result the last group makes (src/ops/two_way.h), rows of -D FOLD_K
 * channels, a warp for each of eight heads of 16 channels: queries, keys or values of all tokens, then what they are to
 * the image. -D FOLD_K=0: one fold, plain: queries, as fragments [tiles][8 heads][lane][8] whose columns are channels
 * 4 t to 4 t + 3 of work-item t. -D ADDS: bits of those that are of the result + position. */
#define THREADS 256

#define LD_HID (HID / 8 + 1) /* uint4 from row to row */
#define LD_IN  (IN / 8 + 1)
#define LD_OUT (OUT + 4)     /* floats */
#define NT     (OUT / 64)    /* blocks of eight outputs of a warp */
#define HIDDEN 0             /* uint4 in local memory */
#define INPUT  (16 * LD_HID) /* x, then queries, keys and values */
#define SUMS   (INPUT + (MODE > 2 ? 0 : MODE == 2 && 3 * LD_HID > LD_IN ? 48 * LD_HID : 16 * LD_IN))
#define FLAG   (MODE == 4 && SUMS + 4 * LD_OUT < 640 ? 640 : SUMS + 4 * LD_OUT) /* MODE 4: room for averages */
#define W1     (IN / 32 * 32 * (MODE == 1 ? HID / 8 : MODE == 2 ? 8 * FIRSTS : 0)) /* uint4 of a slice */
#define W2     (HID / 32 * (OUT / 8) * 32)
#ifdef ALONE
#define READ    y /* where a group's head of a token goes */
#define READ_LD sizes.w
#else
#define READ    ((__global half *)partial)
#define READ_LD HID
#endif
#define D      16         /* MODE 3: channels of a head */
#define ROWS   128        /* image rows of a group */
#define TILES  (ROWS / 8)
/* The work-item's four channels of a head in its image rows, keys and values. */
#define FETCH_IMAGE(item)                                                                                              \
    UNROLL for (int j = 0; j < TILES; j++) {                                                                           \
        __global const half *from =                                                                                    \
            image + ((size_t)(item) * sizes.z + min(first + j * 8 + g, sizes.z - 1)) * lds.s0 + lds.s1;                \
        FETCH8(keys[j], from);                                                                                         \
        FETCH8(values[j], from + 8 * D);                                                                               \
    }
#define ADD_LD (MODE == 3 ? lds.s3 : lds.s6)
#define ADD_C0 (MODE == 3 ? lds.s4 : lds.s7)
#define PART_SLICES (THREADS / (IN / 8))
#define BATCH       8 /* parts that a work-item asks for at once */
#ifdef NARROW
#define STEP_OF(k) 0 /* weights of the layer come step by step */
#else
#define STEP_OF(k) (k)
#endif
#define PAIRS  ((NT + 1) / 2) /* MODE 1: pairs of blocks of a warp's outputs */
#define SECOND(c) (2 * (c) + 1 < NT ? 2 * (c) + 1 : 2 * (c))
#ifndef EACH
#define EACH 1
#endif
#define FIRSTS (MODE == 1 ? 2 : EACH) /* blocks of eight outputs of a warp in the first layer or projection */

/* The tile's rows of `from` to local memory, `pieces` of 16 bytes each. */
#define COPY_TOKENS(to, ld_to, from, ld, c0, pieces)                                                                   \
    for (int i = id; i < 16 * (pieces); i += THREADS)                                                                  \
        COPY16(shared + ((to) + i / (pieces) * (ld_to) + i % (pieces)) * 16,                                           \
               (from) + (size_t)TOKEN(i / (pieces)) * (ld) + (c0) + i % (pieces) * 8, 16);
#ifndef FOLDS
#define FOLDS 0
#endif
#if FOLDS
#define LD_ROW   (OUT / 8 + 1) /* uint4 from row to row of the result, alone, then with position */
#define ROWS_AT  (SUMS >= 32 * LD_ROW ? 0 : FLAG + 1)
#define ROOM     (ROWS_AT ? FLAG + 1 + 32 * LD_ROW : FLAG + 1)
#define FOLD     (OUT / 32 * 64 + FOLD_K / 16 * 32) /* uint4 of a head */
#define BEHIND   (MODE == 2 ? SLICES * W1 + W2 : SLICES * (W1 + W2)) /* where folds' weights are */
#define TABLE_AT (3 * OUT + SLICES * (MODE == 2 ? 64 * EACH : HID))         /* and {b, mb} [8 heads][16] of each */
#else
#define ROOM (FLAG + 1)
#define FOLD 0
#endif
#ifdef IMAGE
#define ALL      (ROOM > 64 * LD_X ? ROOM : 64 * LD_X)
#define IMAGE_AT (SLICES * W1 + W2 + FOLDS * 8 * FOLD)
#else
#define ALL ROOM
#endif
/* The warp's fragments of the layer. */
#define FETCH_SECOND(from)                                                                                             \
    UNROLL for (int c = 0; c < NT; c++)                                                                                \
        UNROLL for (int k = 0; k < HID / 32; k++)                                                                      \
            FETCH16(second[c][k], (from) + ((warp * NT + c) * (HID / 32) + k) * 32);
/* Whether this group is the last of `count` that are at work for the tile; then it sees what the others have stored. */
#define ARRIVE(count)                                                                                                  \
    __local int *flag = (__local int *)(memory + FLAG);                                                                \
    DEVICE_FENCE();                                                                                                    \
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);                                                               \
    if (id == 0) {                                                                                                     \
        const int before_me = atomic_inc((volatile __global int *)arrived + tile);                                     \
        *flag = before_me == (count) - 1;                                                                              \
        if (before_me == (count) - 1) arrived[tile] = 0;                                                               \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    if (!*flag) return;                                                                                                \
    DEVICE_FENCE();
/* Where row r stands; rows that are not there repeat others. */
#define TOKEN(r) (min(tile * 2 + (r) / 8, sizes.y - 1) * sizes.x + min((r) % 8, sizes.x - 1))

/* weights of a slice: fragments of the first layer [HID / 8][IN / 32][lane][8 halves], of the second [OUT / 8][HID /
 * 32][lane][8]; MODE 2: of the projections of all slices [SLICES EACH 8][IN / 32], then of the layer. Behind them folds',
 * of each and of a head, [2][OUT / 32][lane][8] and [FOLD_K / 16][lane][8], the latter with columns as they are stored;
 * behind those the image's. table {b, gamma, beta} [OUT], then b1 or the bias of projections or of a reading's last step,
 * then folds'. sizes {tokens, prompts, MODE 3: image rows, floats of a part or ld of y}; lds {x ld, c0, beside ld or 0,
 * c0, position ld, c0, add ld or 0, c0}.
 * MODE 2: projections, with `beside` added, go to `partial`, queries, keys and values [HID] first.
 * MODE 3: queries are a plain fold; `beside` is the image's keys and values, item map[n] or n; parts of a reading, {most
 * [64], sum [64]} in floats, column token * 8 + head, then averages [tokens][8][16] in halves, go to `partial`. Group
 * (i, tile, 1) is for the second prompt where its image is another. lds {image ld, c0, 0, add ld, c0, 0, 0, 1 with a map}.
 * MODE 4: x are parts; `beside` has for each head [8 eighths of IN][HID / 8][IN / 8] weights; what tokens have read goes
 * to `partial`. lds {parts, floats of one, ..}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
tokens(__global half *restrict y, __global const half *restrict x, __global const half *restrict add,
       __global const uint4 *restrict weights, __global const float *restrict table, __global const int *restrict limit,
       int4 sizes, int8 lds, float eps
#if MODE == 2 || MODE == 3 || MODE == 4
       , __global const half *restrict beside
#endif
#if SLICES > 1 || MODE == 2 || (MODE >= 3 && !defined ALONE)
       , __global float4 *restrict partial, __global int *restrict arrived
#endif
#if FOLDS
       , __global const half *restrict position
#endif
#if MODE == 3
       , __global const half *restrict queries, __global const int *restrict map
#endif
#if FOLDS
       , __global half *fold0
#endif
#if FOLDS > 1
       , __global half *fold1
#endif
#if FOLDS > 2
       , __global half *fold2
#endif
#ifdef IMAGE
       , __global half *image_y, __global const half *restrict image_x, __global const half *restrict image_beside,
       int4 image_sizes
#endif
) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL];
    __local uint *words = (__local uint *)memory;
    __local float *sums = (__local float *)(memory + SUMS);
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4;
#if MODE == 4
    /* The parts that were made last come first: they are still in a cache. */
    const int column = get_group_id(0), n = get_num_groups(1) - 1 - get_group_id(1), tile = n / 2, slice = 0;
    const int left = *limit - n; /* asked for together with the parts */
#else
    const int tile = get_group_id(MODE == 3), slice = MODE == 3 ? 0 : get_group_id(1);
    const int left = *limit - tile * 2; /* asked for together with the weights */
#endif
    const uint shared = SHARED(memory), row = (lane % 16) * 16, part = lane / 16 * 16;
#ifdef IMAGE
    const int tiles = (sizes.y + 1) / 2, block = (tile - tiles) * SLICES + slice;
    if (tile >= tiles) {
        if (block * 64 < image_sizes.x)
            image_rows(image_y, image_x, weights + IMAGE_AT, image_beside, block, image_sizes, memory,
                       shared MATRIX_SCRATCH_ARGUMENT);
        return;
    }
#endif
    weights += (size_t)slice * (MODE == 2 ? W1 : W1 + W2) + lane;
    uint second[NT][STEP_OF(HID / 32 - 1) + 1][4];
#if MODE == 1 || MODE == 2
    uint first[FIRSTS][IN / 32][4];
    UNROLL for (int c = 0; c < FIRSTS; c++)
        UNROLL for (int k = 0; k < IN / 32; k++)
            FETCH16(first[c][k], weights + ((warp * FIRSTS + c) * (IN / 32) + k) * 32);
#endif
#if MODE == 1
    FETCH_SECOND(weights + W1)
#endif
#if MODE == 4
    __local float *factor = (__local float *)memory, *tops = factor + THREADS, *averages = tops + THREADS;
    const int groups = lds.s0, h = column % 8, part_slice = id / (IN / 8), piece = id % (IN / 8), eighth = id / 32;
    const int i = min(id % 32, HID / 8 - 1);
    __global const float *parts = (__global const float *)x + (size_t)n * groups * lds.s1;
    __global const half *rows = (__global const half *)(parts + 128) + column * IN + piece * 8;
    uint v[BATCH][4], w[IN / 64][4];
#define FETCH_HEAD()                                                                                                   \
    UNROLL for (int j = 0; j < IN / 64; j++)                                                                           \
        FETCH16(w[j], beside + ((h * 8 + eighth) * (HID / 8) + i) * (IN / 8) + j * 8)
#ifndef NARROW
    FETCH_HEAD();
#endif
    float o[8], most = -3.0e38f, total = 0.0f;
    for (int e = 0; e < 8; e++) o[e] = 0.0f;
    const float bias = table[3 * OUT + h * (HID / 8) + i];
    const float first_top = id < groups ? parts[(size_t)id * lds.s1 + column] : -3.0e38f;
    const float first_sum = id < groups ? parts[(size_t)id * lds.s1 + 64 + column] : 0.0f;
#define FETCH_PARTS(g0)                                                                                                \
    UNROLL for (int j = 0; j < BATCH; j++)                                                                  \
        FETCH16(v[j], rows + 2 * (size_t)min((g0) + part_slice + j * PART_SLICES, groups - 1) * lds.s1);
    FETCH_PARTS(0)
    if (left <= 0) return;
    most = first_top;
    for (int j = id + THREADS; j < groups; j += THREADS) most = fmax(most, parts[(size_t)j * lds.s1 + column]);
    tops[id] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < 32) {
        UNROLL for (int j = 1; j < 8; j++) most = fmax(most, tops[j * 32 + id]);
        tops[id] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int j = 0; j < 32; j++) most = fmax(most, tops[j]);
    for (int g0 = 0; g0 < groups; g0 += THREADS) { /* as often for every work-item */
        float top = first_top, f = first_sum;
        if (g0) {
            top = g0 + id < groups ? parts[(size_t)(g0 + id) * lds.s1 + column] : -3.0e38f;
            f = g0 + id < groups ? parts[(size_t)(g0 + id) * lds.s1 + 64 + column] : 0.0f;
        }
        f *= quick_exp2(fmax(top - most, -126.0f));
        barrier(CLK_LOCAL_MEM_FENCE);
        factor[id] = f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int g1 = 0; g1 < min(THREADS, groups - g0); g1 += BATCH * PART_SLICES) {
            if (g0 + g1) FETCH_PARTS(g0 + g1)
            UNROLL for (int j = 0; j < BATCH; j++) {
                const int at = g1 + part_slice + j * PART_SLICES;
                const float share = at < THREADS ? factor[at] : 0.0f;
                total += share;
                UNROLL for (int e = 0; e < 4; e++) {
                    const float2 f2 = floats_of(v[j][e]);
                    o[2 * e] = fma(share, f2.x, o[2 * e]);
                    o[2 * e + 1] = fma(share, f2.y, o[2 * e + 1]);
                }
            }
        }
    }
    UNROLL for (int e = 0; e < 8; e++) averages[part_slice * IN + piece * 8 + e] = o[e];
#ifdef NARROW
    FETCH_HEAD();
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    factor[id] = total; /* of the part_slice, in each of its work-items */
    float average = 0.0f;
    if (id < IN)
        for (int j = 0; j < PART_SLICES; j++) average += averages[j * IN + id];
    barrier(CLK_LOCAL_MEM_FENCE);
    total = 0.0f;
    for (int j = 0; j < PART_SLICES; j++) total += factor[j * (IN / 8)];
    if (id < IN) averages[id] = average / total;
    barrier(CLK_LOCAL_MEM_FENCE);
    float s = 0.0f;
    UNROLL for (int j = 0; j < IN / 64; j++)
        UNROLL for (int e = 0; e < 4; e++) {
            const float2 f2 = floats_of(w[j][e]);
            s = fma(averages[eighth * (IN / 8) + j * 8 + 2 * e], f2.x, s);
            s = fma(averages[eighth * (IN / 8) + j * 8 + 2 * e + 1], f2.y, s);
        }
    tops[id] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < HID / 8) { /* id is i */
        float all = bias;
        UNROLL for (int j = 0; j < 8; j++) all += tops[j * 32 + id];
        STORE(all, READ, ((size_t)n * sizes.x + column / 8) * READ_LD + h * (HID / 8) + id);
    }
#ifndef ALONE
    const int at_work = min(2, min(sizes.y, *limit) - tile * 2) * (int)get_num_groups(0);
    ARRIVE(at_work)
#ifndef NARROW
    FETCH_SECOND(weights)
#endif
    COPY_TOKENS(HIDDEN, LD_HID, READ, HID, 0, HID / 8)
#endif
#else
    if (left <= 0) return;
#endif
#ifndef ALONE
#if MODE == 1 || MODE == 2
    COPY_TOKENS(INPUT, LD_IN, x, lds.s0, lds.s1, IN / 8)
#elif MODE == 3
    /* A warp has a head. Work-item t of four has channels 4 t to 4 t + 3 of it in keys and values as they come from
     * memory, so that queries are made in that order and averages leave in it. */
    __global float *parts = (__global float *)partial;
    const int h = warp, tokens = sizes.x, first = get_group_id(0) * ROWS, n0 = tile * 2;
    const int count = min(sizes.y, *limit), beyond = min(n0 + 1, sizes.y - 1);
    const int item0 = lds.s7 ? map[n0] : n0, item1 = lds.s7 ? map[beyond] : beyond, second_one = get_group_id(2);
    __global const half *image = beside + h * D + 4 * t;
    uint query[4], keys[TILES][2], values[TILES][2];
    /* The prompts of a tile have groups of their own where their images differ. */
    const int apart = n0 + 1 < count && item1 != item0;
    if (second_one > apart) return;
    FETCH16(query, queries + (size_t)((tile * 8 + h) * 32 + lane) * 8);
    FETCH_IMAGE(second_one ? item1 : item0)
    {
        float most[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f}, o[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int e = 0; e < 4; e++) o[i][e] = 0.0f;
        UNROLL for (int j0 = 0; j0 < TILES; j0 += TILES / 2) {
            float s[TILES / 2][4];
            UNROLL for (int j = 0; j < TILES / 2; j++) {
                UNROLL for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
                MATRIX_MULTIPLY(s[j], query, keys[j0 + j][0], keys[j0 + j][1]);
                UNROLL for (int e = 0; e < 4; e++)
                    if (first + (j0 + j) * 8 + 2 * t + e % 2 >= sizes.z) s[j][e] = -3.0e38f;
            }
            UNROLL for (int r = 0; r < 2; r++) {
                float top = most[r];
                UNROLL for (int j = 0; j < TILES / 2; j++) top = fmax(top, fmax(s[j][2 * r], s[j][2 * r + 1]));
                QUAD_MOST(top);
                const float factor = quick_exp2(fmax(most[r] - top, -126.0f));
                most[r] = top;
                sum[r] *= factor;
                UNROLL for (int i = 0; i < 2; i++)
                    UNROLL for (int e = 2 * r; e < 2 * r + 2; e++) o[i][e] *= factor;
            }
            UNROLL for (int b = 0; b < TILES / 4; b++) {
                uint p[4];
                UNROLL for (int c = 0; c < 2; c++) {
                    float f[4];
                    UNROLL for (int e = 0; e < 4; e++) {
                        f[e] = quick_exp2(s[2 * b + c][e] - most[e / 2]);
                        sum[e / 2] += f[e];
                    }
                    p[2 * c] = halves_of(f[0], f[1]);
                    p[2 * c + 1] = halves_of(f[2], f[3]);
                }
                UNROLL for (int i = 0; i < 2; i++) {
                    uint b0, b1;
                    MATRIX_TURN(b0, values[j0 + 2 * b][i]);
                    MATRIX_TURN(b1, values[j0 + 2 * b + 1][i]);
                    MATRIX_MULTIPLY(o[i], p, b0, b1);
                }
            }
        }
        UNROLL for (int r = 0; r < 2; r++) {
            QUAD_SUM(sum[r]);
            const float scale = quick_reciprocal(sum[r]);
            __global float *to = parts + ((size_t)(n0 + r) * get_num_groups(0) + get_group_id(0)) * sizes.w;
            if (n0 + r < count && g < tokens && (!apart || r == second_one)) {
                if (t == 0) {
                    to[g * 8 + h] = most[r];
                    to[64 + g * 8 + h] = sum[r];
                }
                ((__global uint2 *)(to + 128))[(g * 8 + h) * (D / 4) + t] =
                    (uint2)(halves_of(o[0][2 * r] * scale, o[0][2 * r + 1] * scale),
                            halves_of(o[1][2 * r] * scale, o[1][2 * r + 1] * scale));
            }
        }
    }
    ARRIVE((int)get_num_groups(0) * (1 + apart))
    { /* A work-item has eight channels of a token, half a head's. */
        const int r = id / 16, token_of = min(r % 8, tokens - 1), at = token_of * 8 + id % 16 / 2;
        const int splits = get_num_groups(0);
        __global const float *p = parts + (size_t)(TOKEN(r) / tokens) * splits * sizes.w;
        float most = -3.0e38f, total = 0.0f, o[8];
        UNROLL for (int e = 0; e < 8; e++) o[e] = 0.0f;
        for (int j0 = 0; j0 < splits; j0 += 32) {
            float top[32];
            UNROLL for (int j = 0; j < 32; j++) top[j] = p[min(j0 + j, splits - 1) * sizes.w + at];
            UNROLL for (int j = 0; j < 32; j++) most = fmax(most, top[j]);
        }
        for (int j0 = 0; j0 < splits; j0 += 16) {
            uint v[16][4];
            float share[16];
            UNROLL for (int j = 0; j < 16; j++) {
                __global const float *one = p + min(j0 + j, splits - 1) * sizes.w;
                FETCH16(v[j], one + 128 + token_of * (HID / 2) + id % 16 * 4);
                share[j] = j0 + j < splits ? one[64 + at] * quick_exp2(fmax(one[at] - most, -126.0f)) : 0.0f;
            }
            UNROLL for (int j = 0; j < 16; j++) {
                total += share[j];
                UNROLL for (int e = 0; e < 4; e++) {
                    const float2 f = floats_of(v[j][e]);
                    o[2 * e] = fma(share[j], f.x, o[2 * e]);
                    o[2 * e + 1] = fma(share[j], f.y, o[2 * e + 1]);
                }
            }
        }
        total = 1.0f / total;
        memory[HIDDEN + r * LD_HID + id % 16] =
            (uint4)(halves_of(o[0] * total, o[1] * total), halves_of(o[2] * total, o[3] * total),
                    halves_of(o[4] * total, o[5] * total), halves_of(o[6] * total, o[7] * total));
    }
    FETCH_SECOND(weights)
#endif
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

#if MODE == 1 || MODE == 2
    float u[FIRSTS][4];
    UNROLL for (int c = 0; c < FIRSTS; c++) {
        const int at = 3 * OUT + (slice * 8 + warp) * (FIRSTS * 8) + c * 8 + 2 * t;
        u[c][0] = u[c][2] = table[at];
        u[c][1] = u[c][3] = table[at + 1];
    }
    UNROLL for (int k = 0; k < IN / 32; k++) {
        uint a[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            MATRIX_LOAD(a[i], shared + INPUT * 16 + row * LD_IN + (2 * k + i) * 32 + part);
        UNROLL for (int c = 0; c < FIRSTS; c++) {
            MATRIX_MULTIPLY(u[c], a[0], first[c][k][0], first[c][k][1]);
            MATRIX_MULTIPLY(u[c], a[1], first[c][k][2], first[c][k][3]);
        }
    }
#endif
#if MODE == 1
    UNROLL for (int c = 0; c < 2; c++)
        UNROLL for (int r = 0; r < 2; r++)
            words[(HIDDEN + (g + 8 * r) * LD_HID + warp * 2 + c) * 4 + t] =
                halves_of(fmax(u[c][2 * r], 0.0f), fmax(u[c][2 * r + 1], 0.0f));
    barrier(CLK_LOCAL_MEM_FENCE);
#elif MODE == 2
    __global half *all = (__global half *)partial;
    for (int r = 0; r < 2; r++) {
        const size_t token = TOKEN(g + 8 * r);
        UNROLL for (int c = 0; c < FIRSTS; c++) {
            const int at = (slice * 8 + warp) * (FIRSTS * 8) + c * 8 + 2 * t;
            float2 v = (float2)(u[c][2 * r], u[c][2 * r + 1]);
            if (lds.s2) v += floats_of(*(__global const uint *)(beside + token * lds.s2 + lds.s3 + at));
            if (g < sizes.x && tile * 2 + r < sizes.y)
                *(__global uint *)(all + token * (SLICES * 64 * EACH) + at) = halves_of(v.x, v.y);
        }
    }
    ARRIVE(SLICES)
    FETCH_SECOND(weights + (SLICES - slice) * W1)
    COPY_TOKENS(INPUT, LD_HID, all, SLICES * 64 * EACH, 0, HID / 8)
    COPY_TOKENS(INPUT + 16 * LD_HID, LD_HID, all, SLICES * 64 * EACH, HID, HID / 8)
    COPY_TOKENS(INPUT + 32 * LD_HID, LD_HID, all, SLICES * 64 * EACH, 2 * HID, HID / 8)
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Heads of 32 channels: a work-item takes a query of a head and half of its result. */
    for (int e = id; e < HID; e += THREADS) {
        const int part_of = e % 2, r = e / 2 % 8 + e / (HID / 2) * 8, h = e / 16 % (HID / 32);
        __local const uint4 *q = memory + INPUT + r * LD_HID + h * 4;
        __local const uint4 *k = memory + INPUT + (16 + r / 8 * 8) * LD_HID + h * 4;
        __local const uint4 *v = k + 16 * LD_HID + part_of * 2;
        float s[8], most = -3.0e38f, sum = 0.0f, o[16];
        for (int j = 0; j < 8; j++) s[j] = 0.0f;
        for (int c = 0; c < 4; c++) {
            const uint4 a = q[c];
            const float2 a0 = floats_of(a.x), a1 = floats_of(a.y), a2 = floats_of(a.z), a3 = floats_of(a.w);
            for (int j = 0; j < 8; j++) {
                const uint4 b = k[j * LD_HID + c];
                const float2 b0 = floats_of(b.x), b1 = floats_of(b.y), b2 = floats_of(b.z), b3 = floats_of(b.w);
                s[j] = fma(a0.x, b0.x, fma(a0.y, b0.y, fma(a1.x, b1.x, fma(a1.y, b1.y, s[j]))));
                s[j] = fma(a2.x, b2.x, fma(a2.y, b2.y, fma(a3.x, b3.x, fma(a3.y, b3.y, s[j]))));
            }
        }
        for (int j = 0; j < 8; j++)
            if (j < sizes.x) most = fmax(most, s[j]);
        for (int j = 0; j < 8; j++) {
            s[j] = j < sizes.x ? quick_exp2((s[j] - most) * (0.17677669529663688f * 1.44269504f)) : 0.0f;
            sum += s[j];
        }
        for (int c = 0; c < 16; c++) o[c] = 0.0f;
        for (int j = 0; j < 8; j++)
            for (int c = 0; c < 2; c++) {
                const uint4 b = v[j * LD_HID + c];
                const float2 b0 = floats_of(b.x), b1 = floats_of(b.y), b2 = floats_of(b.z), b3 = floats_of(b.w);
                o[8 * c] = fma(s[j], b0.x, o[8 * c]);
                o[8 * c + 1] = fma(s[j], b0.y, o[8 * c + 1]);
                o[8 * c + 2] = fma(s[j], b1.x, o[8 * c + 2]);
                o[8 * c + 3] = fma(s[j], b1.y, o[8 * c + 3]);
                o[8 * c + 4] = fma(s[j], b2.x, o[8 * c + 4]);
                o[8 * c + 5] = fma(s[j], b2.y, o[8 * c + 5]);
                o[8 * c + 6] = fma(s[j], b3.x, o[8 * c + 6]);
                o[8 * c + 7] = fma(s[j], b3.y, o[8 * c + 7]);
            }
        sum = quick_reciprocal(sum);
        for (int c = 0; c < 8; c++)
            words[(HIDDEN + r * LD_HID + h * 4 + part_of * 2) * 4 + c] = halves_of(o[2 * c] * sum, o[2 * c + 1] * sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    float c2[NT][4];
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int e = 0; e < 4; e++) c2[c][e] = 0.0f;
    UNROLL for (int k = 0; k < HID / 32; k++) {
        uint a[2][4];
#ifdef NARROW
        UNROLL for (int c = 0; c < NT; c++) FETCH16(second[c][0], weights + ((warp * NT + c) * (HID / 32) + k) * 32);
#endif
        UNROLL for (int i = 0; i < 2; i++)
            MATRIX_LOAD(a[i], shared + HIDDEN * 16 + row * LD_HID + (2 * k + i) * 32 + part);
        UNROLL for (int c = 0; c < NT; c++) {
            MATRIX_MULTIPLY(c2[c], a[0], second[c][STEP_OF(k)][0], second[c][STEP_OF(k)][1]);
            MATRIX_MULTIPLY(c2[c], a[1], second[c][STEP_OF(k)][2], second[c][STEP_OF(k)][3]);
        }
    }
#if MODE == 1 && SLICES > 1
    /* Rows of the first prompt, then of the second, if there is one: [2][SLICES][pairs of blocks][THREADS]. */
    __global float4 *all = partial + (size_t)tile * (2 * SLICES * PAIRS * THREADS) + id;
    const int halves = left > 1 && tile * 2 + 1 < sizes.y ? 2 : 1;
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int c = 0; c < PAIRS; c++)
            if (r < halves)
                all[((r * SLICES + slice) * PAIRS + c) * THREADS] =
                    (float4)(c2[2 * c][2 * r], c2[2 * c][2 * r + 1], c2[SECOND(c)][2 * r], c2[SECOND(c)][2 * r + 1]);
    ARRIVE(SLICES)
    UNROLL for (int c = 0; c < PAIRS; c++)
        UNROLL for (int r = 0; r < 2; r++) {
            float4 sum[SLICES];
            UNROLL for (int s = 0; s < SLICES; s++)
                sum[s] =
                    r < halves ? load_shared_result(all + ((r * SLICES + s) * PAIRS + c) * THREADS) : (float4)(0.0f);
            barrier(CLK_LOCAL_MEM_FENCE); /* all are under way */
            UNROLL for (int s = 1; s < SLICES; s++) sum[0] += sum[s];
            c2[2 * c][2 * r] = sum[0].x;
            c2[2 * c][2 * r + 1] = sum[0].y;
            if (SECOND(c) != 2 * c) {
                c2[SECOND(c)][2 * r] = sum[0].z;
                c2[SECOND(c)][2 * r + 1] = sum[0].w;
            }
        }
#endif
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int r = 0; r < 2; r++)
            *(__local float2 *)(sums + (g + 8 * r) * LD_OUT + (warp * NT + c) * 8 + 2 * t) =
                (float2)(c2[c][2 * r], c2[c][2 * r + 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
#if FOLDS
#if FOLDS == 1
#define FOLD_OF(j) fold0
#elif FOLDS == 2
#define FOLD_OF(j) ((j) ? fold1 : fold0)
#else
#define FOLD_OF(j) ((j) == 0 ? fold0 : (j) == 1 ? fold1 : fold2)
#endif
#define FETCH_OWN(j)                                                                                                   \
    UNROLL for (int i = 0; i < 2; i++)                                                                                 \
        UNROLL for (int k = 0; k < OUT / 32; k++)                                                                      \
            FETCH16(own[i][k], behind + ((j) * 8 * FOLD + (i * (OUT / 32) + k) * 32));
#define FETCH_OTHERS(j)                                                                                                \
    UNROLL for (int k = 0; k < FOLD_K / 16; k++)                                                                       \
        FETCH16(others[k], behind + ((j) * 8 * FOLD + OUT / 32 * 64 + k * 32));
    uint own[2][OUT / 32][4];
    __global const uint4 *behind = weights - (size_t)slice * (MODE == 2 ? W1 : W1 + W2) + BEHIND + warp * FOLD;
    FETCH_OWN(0)
#if FOLD_K
    uint others[FOLD_K / 16][4];
    FETCH_OTHERS(0)
#endif
#endif
    for (int r = warp * 2; r < warp * 2 + 2; r++) { /* a warp normalises two rows */
        const int n = tile * 2 + r / 8, token = TOKEN(r);
        float v[OUT / 32], total = 0.0f, square = 0.0f, other;
        for (int c = 0; c < OUT / 32; c++) {
            v[c] = sums[r * LD_OUT + c * 32 + lane] + table[c * 32 + lane];
            if (ADD_LD) v[c] += LOAD(add, (size_t)token * ADD_LD + ADD_C0 + c * 32 + lane);
            total += v[c];
        }
        for (int mask = 1; mask < 32; mask *= 2) {
            LANE_XOR(other, total, mask);
            total += other;
        }
        for (int c = 0; c < OUT / 32; c++) {
            v[c] -= total / OUT;
            square = fma(v[c], v[c], square);
        }
        for (int mask = 1; mask < 32; mask *= 2) {
            LANE_XOR(other, square, mask);
            square += other;
        }
        square = 1.0f / sqrt(square / OUT + eps);
#if FOLDS
        for (int c = 0; c < OUT / 32; c++) {
            __local half *at = (__local half *)(memory + ROWS_AT + r * LD_ROW) + c * 32 + lane;
            const float f = fma(v[c] * square, table[OUT + c * 32 + lane], table[2 * OUT + c * 32 + lane]);
            vstore_half(f, 0, at);
            if (ADDS)
                vstore_half(f + LOAD(position, (size_t)token * lds.s4 + lds.s5 + c * 32 + lane), 16 * LD_ROW * 8, at);
        }
#endif
        if (n < min(sizes.y, *limit) && r % 8 < sizes.x)
            for (int c = 0; c < OUT / 32; c++)
                STORE(fma(v[c] * square, table[OUT + c * 32 + lane], table[2 * OUT + c * 32 + lane]), y,
                      (size_t)token * OUT + c * 32 + lane);
    }
#if FOLDS
    barrier(CLK_LOCAL_MEM_FENCE);
    const int prompts = min(sizes.y, *limit);
    UNROLL for (int j = 0; j < FOLDS; j++) {
        __global half *to = FOLD_OF(j);
        __global const float *const b = table + TABLE_AT + (j * 16 + warp) * 16 + 2 * t;
        float q[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            UNROLL for (int e = 0; e < 4; e++) q[i][e] = b[i * 8 + e % 2];
        UNROLL for (int k = 0; k < OUT / 32; k++) {
            uint a[2][4];
            UNROLL for (int i = 0; i < 2; i++)
                MATRIX_LOAD(a[i], shared + (ROWS_AT + (ADDS >> j & 1) * (16 * LD_ROW)) * 16 + row * LD_ROW +
                                      (2 * k + i) * 32 + part);
            UNROLL for (int i = 0; i < 2; i++) {
                MATRIX_MULTIPLY(q[i], a[0], own[i][k][0], own[i][k][1]);
                MATRIX_MULTIPLY(q[i], a[1], own[i][k][2], own[i][k][3]);
            }
        }
        if (j + 1 < FOLDS) {
            FETCH_OWN(j + 1)
        }
        const uint query[4] = {halves_of(q[0][0], q[0][1]), halves_of(q[0][2], q[0][3]), halves_of(q[1][0], q[1][1]),
                               halves_of(q[1][2], q[1][3])};
#if !FOLD_K
        *(__global uint4 *)(to + (size_t)((tile * 8 + warp) * 32 + lane) * 8) =
            (uint4)(query[0], query[1], query[2], query[3]);
#else
        UNROLL for (int r = 0; r < 2; r++) { /* the constant of the column, as two halves */
            float s = 0.0f;
            UNROLL for (int i = 0; i < 2; i++)
                UNROLL for (int e = 0; e < 2; e++) s = fma(q[i][2 * r + e], b[128 + i * 8 + e], s);
            QUAD_SUM(s);
            s = clamp(s, -65504.0f, 65504.0f);
            const float high = floats_of(halves_of(s, 0.0f)).x;
            const int n = tile * 2 + r;
            if (t == 0 && n < prompts && g < sizes.x)
                ((__global uint *)(to + ((size_t)n * (sizes.x * 8 + 2) + sizes.x * 8) * FOLD_K))[g * 8 + warp] =
                    halves_of(high, s - high);
        }
        UNROLL for (int k = 0; k < FOLD_K / 32; k++) {
            float f[4][4];
            UNROLL for (int i = 0; i < 4; i++) {
                UNROLL for (int e = 0; e < 4; e++) f[i][e] = 0.0f;
                MATRIX_MULTIPLY(f[i], query, others[2 * k + i / 2][i % 2 * 2], others[2 * k + i / 2][i % 2 * 2 + 1]);
            }
            UNROLL for (int r = 0; r < 2; r++) {
                const int n = tile * 2 + r;
                if (n < prompts && g < sizes.x)
                    *(__global uint4 *)(to + ((size_t)n * (sizes.x * 8 + 2) + g * 8 + warp) * FOLD_K + k * 32 + t * 8) =
                        (uint4)(halves_of(f[0][2 * r], f[0][2 * r + 1]), halves_of(f[1][2 * r], f[1][2 * r + 1]),
                                halves_of(f[2][2 * r], f[2][2 * r + 1]), halves_of(f[3][2 * r], f[3][2 * r + 1]));
            }
        }
        if (j + 1 < FOLDS) {
            FETCH_OTHERS(j + 1)
        }
#endif
    }
#endif
#endif
}
