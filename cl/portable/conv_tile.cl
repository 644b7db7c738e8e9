/* Dense convolution as an implicit matrix product on register tiles, for GPUs of any vendor: a group computes BM output
 * pixels by BN channels, a work-item TM by TN of them; BK input channels of one tap are a step. While a step's products
 * are summed from one of two buffers in local memory, what the next step needs is on its way from global memory. Where
 * tiles are few, SLICES times the work-items share a tile: each slice of them takes a part of the steps.
 *
 * Buffers are those of portable/conv_any with weights in panels of BN channels. With -DPARTS the sums go to `parts`
 * [split][pixel][channels of all tiles] as floats, and portable/conv_sum adds those of all splits, in their order, and
 * finishes. With -DMATRICES, of PARTS, there are so many maps and filters, of one tap, and a product of each pair
 * instead of splits (portable/winograd). With -DLEFT_OUT rows of a letterboxed map are left out, of the input, the
 * output or both. With -DNORM, without PARTS and slices, a layer norm is in front of a 1x1 convolution. With -DSTAGES,
 * of a 1x1 convolution in whole steps, without slices and NORM, the next step is fetched and kept in so many stages
 * between the products: a work-item then has few registers under way, and more groups find room. Needs
 * portable/vector with VL = 4, portable/conv_store and portable/left_out. -D BM, BN, TM, TN (4, 8 or 16), BK (8 or 16),
 * ACT: the activation; WHOLE: input channels are a multiple of four, and pixels begin at multiples of four elements;
 * FULL_STEPS: they are a multiple of BK; WHOLE_Y: output channels are a multiple of four. Grid: x = tiles, those of the
 * same pixels side by side, times the group, y = splits. */
#define ACROSS      (BN / TN)              /* work-items along channels */
#define ITEMS       (BM / TM * ACROSS)     /* of a slice */
#define QUADS       (BK / 4)               /* of a pixel's channels in a step */
#define ROWS        (ITEMS / QUADS)        /* pixels that the group fetches at a time */
#define A_FETCHES   (BM / ROWS)
#define B_FETCHES   (BK * BN / 4 / ITEMS)
#define A_WIDTH     (BM + 4)               /* apart in the banks */
#define OUT_OF_MAP  (-1)
#define OWN_ROWS    (TM / SLICES) /* that a work-item finishes */
#define AT_ONCE     (OWN_ROWS < AT_ONCE_MAX ? OWN_ROWS : AT_ONCE_MAX)
#define SLICE_ROOM  (2 * BK * (A_WIDTH + BN) / 4)
#ifndef SLICES
#define SLICES 1
#endif
#ifndef STAGES
#define AT_ONCE_MAX 8
#else
#define AT_ONCE_MAX   4 /* eight rows of addends would take more registers than the steps do */
#define FETCHES       (A_FETCHES + B_FETCHES)
#define STAGE_FETCHES ((FETCHES + STAGES - 1) / STAGES)
#define STAGE_INPUTS  (BK / STAGES)
#endif

#if !defined(WHOLE)
#define LOAD_QUAD(p) LOAD_XV(p, 0)
#define LOAD_REST(f) else if (at[f] >= 0 && left > 0) a[f] = input_part(x + at[f] + k, left);
#elif defined(X32)
#define LOAD_QUAD(p) (*(__global const float4 *)(p))
#else
#define LOAD_QUAD(p) LOAD4_ALIGNED(p, 0)
#endif

#ifndef LOAD_REST
#define LOAD_REST(f)
#endif

#ifdef FULL_STEPS
#define IN_STEP(yes) true
#else
#define IN_STEP(yes) (yes)
#endif

/* Line r of an item. A fetch keeps the line where its item begins; where lines are left out, the number of the item. */
#ifdef LEFT_OUT
#define BASE_OF(n)       (n)
#define LINE_OF(base, r) ((base) * arg.shape.x_h + ROW_OF(r, rows_left_out(content, arg.in, base)))
#else
#define BASE_OF(n)       ((n) * arg.shape.x_h)
#define LINE_OF(base, r) ((base) + (r))
#endif

/* A row of four products: pixel r of a, channels of b. */
#define MULTIPLY_ROW(r, part)                                                                                          \
    _Pragma("unroll") for (int h = 0; h < TN / 4; h++) sum[r][h] = fma((float4)(part), b[h], sum[r][h])

/* Those of input kk of a step that begins at `column` and `row`: addressed by constants from there, since an index that
 * is a sum takes two instructions. */
#define PRODUCTS(kk)                                                                                                   \
    do {                                                                                                               \
        float4 b[TN / 4];                                                                                              \
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) b[h] = row[(kk) * (BN / 4) + h * ACROSS];                   \
        _Pragma("unroll") for (int g = 0; g < TM / 4; g++) {                                                           \
            const float4 v = *(__local const float4 *)(column + (kk) * A_WIDTH + g * (BM / (TM / 4)));                 \
            MULTIPLY_ROW(4 * g, v.s0);                                                                                 \
            MULTIPLY_ROW(4 * g + 1, v.s1);                                                                             \
            MULTIPLY_ROW(4 * g + 2, v.s2);                                                                             \
            MULTIPLY_ROW(4 * g + 3, v.s3);                                                                             \
        }                                                                                                              \
    } while (0)

#ifndef PARTS
#define PARTS_PARAMETER __global const float *restrict unused
#else
#define PARTS_PARAMETER __global float *restrict parts
#endif

__attribute__((reqd_work_group_size(ITEMS * SLICES, 1, 1))) __kernel void
conv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
     PARTS_PARAMETER, __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
     __global const int *restrict limit, __global const int *restrict content, const conv_tile_args arg) {
    __local float4 room[SLICES * SLICE_ROOM];
    const int slice = get_local_id(0) / ITEMS, id = get_local_id(0) - slice * ITEMS;
    __local float *pixels = (__local float *)(room + slice * SLICE_ROOM);
    __local float4 *weights = room + slice * SLICE_ROOM + 2 * BK * A_WIDTH / 4;
    const int tile = divided(get_group_id(0), arg.by_col_tiles), col = get_group_id(0) - tile * arg.col_tiles;
    const int lines = arg.shape.y_h * arg.shape.y_w, rows = min(arg.shape.items, *limit) * lines;
#ifdef MATRICES
    const int row_tiles = (arg.shape.items * lines + BM - 1) / BM, matrix = tile / row_tiles;
    const int p0 = (tile - matrix * row_tiles) * BM, part = 0;
    x += (size_t)matrix * arg.shape.items * lines * arg.shape.x_ld;
    w += (size_t)(col * MATRICES + matrix) * arg.shape.x_c * BN;
    parts += (size_t)matrix * arg.shape.items * lines * arg.col_tiles * BN;
#else
    const int p0 = tile * BM, part = get_group_id(1) * arg.split_steps;
    w += (size_t)col * arg.shape.kh * arg.shape.kw * arg.shape.x_c * BN;
#ifdef PARTS
    parts += (size_t)get_group_id(1) * arg.shape.items * lines * arg.col_tiles * BN;
#endif
#endif
#ifdef STAGES
    const int all = rows; /* one register more, and fewer groups would find room */
    if (p0 >= rows) return;
#else
    const int all = arg.shape.items * lines; /* the limit is not waited for before the first step is there */
#endif
#ifdef LEFT_OUT
    if (pixels_left_out(p0, p0 + BM, arg.shape.y_h, arg.shape.y_w, content, arg.out)) return;
#endif
#ifdef STAGES
    const int cin = arg.shape.x_c, kw = 1, taps = 1, tap_steps = cin / BK, tap = 0;
#else
    const int cin = arg.shape.x_c, kw = arg.shape.kw, taps = arg.shape.kh * kw, tap_steps = (cin + BK - 1) / BK;
#endif
    const int rounds = (arg.split_steps + SLICES - 1) / SLICES;
    const int first = part + slice * rounds;
    const int end = min(first + rounds, min(part + arg.split_steps, taps * tap_steps));
    const int ty = id / ACROSS, tx = id - ty * ACROSS;

    /* What this work-item fetches: a quad of channels of some pixels, quads of weights. */
    const int quad = id % QUADS * 4;
    int base[A_FETCHES], iy[A_FETCHES], ix[A_FETCHES], at[A_FETCHES];
    _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {
        const int p = min(p0 + id / QUADS + f * ROWS, all - 1);
        const int line = divided(p, arg.by_w), n = divided(line, arg.by_h);
        iy[f] = (line - n * arg.shape.y_h) * arg.shape.stride - arg.shape.top;
        ix[f] = (p - line * arg.shape.y_w) * arg.shape.stride - arg.shape.left;
        base[f] = BASE_OF(n);
    }
#ifndef STAGES
    int tap = divided(first, arg.by_tap_steps), k = (first - tap * tap_steps) * BK, wat = tap * cin * BN;
    float4 a[A_FETCHES], b[B_FETCHES];
#endif

#define PLACE()                                                                                                        \
    do {                                                                                                               \
        const int ky = divided(tap, arg.by_kw), kx = tap - ky * kw;                                                    \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {                                                        \
            const int r = iy[f] + ky, c = ix[f] + kx;                                                                  \
            const bool in = r >= 0 && r < arg.shape.x_h && c >= 0 && c < arg.shape.x_w;                                \
            const int line = LINE_OF(base[f], r);                                                                      \
            at[f] = in ? (line * arg.shape.x_w + c) * arg.shape.x_ld + arg.shape.x_c0 + quad : OUT_OF_MAP;             \
        }                                                                                                              \
    } while (0)
#define FETCH()                                                                                                        \
    do {                                                                                                               \
        const int left = cin - k - quad;                                                                               \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {                                                        \
            a[f] = (float4)(0.0f);                                                                                     \
            if (at[f] >= 0 && IN_STEP(left >= 4)) a[f] = LOAD_QUAD(x + at[f] + k);                                     \
            LOAD_REST(f)                                                                                               \
        }                                                                                                              \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) {                                                        \
            const int e = id + f * ITEMS;                                                                              \
            b[f] = (float4)(0.0f);                                                                                     \
            if (IN_STEP(k + e / (BN / 4) < cin)) b[f] = *(__global const float4 *)(w + wat + k * BN + e * 4);          \
        }                                                                                                              \
    } while (0)
#define NOTHING()                                                                                                      \
    do {                                                                                                               \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) a[f] = (float4)(0.0f);                                   \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) b[f] = (float4)(0.0f);                                   \
    } while (0)
/* What was fetched goes to buffer `to` of local memory: where this work-item's values lie there, each of them, all. */
#define KEEP_AT(to)                                                                                                    \
    __local float *column_to = pixels + (to) * (BK * A_WIDTH) + quad * A_WIDTH + id / QUADS;                           \
    __local float4 *row_to = weights + (to) * (BK * BN / 4) + id
#define KEEP_PIXEL(f, v)                                                                                               \
    do {                                                                                                               \
        column_to[(f) * ROWS] = (v).s0;                                                                                \
        column_to[A_WIDTH + (f) * ROWS] = (v).s1;                                                                      \
        column_to[2 * A_WIDTH + (f) * ROWS] = (v).s2;                                                                  \
        column_to[3 * A_WIDTH + (f) * ROWS] = (v).s3;                                                                  \
    } while (0)
#define KEEP_WEIGHTS(f, v) row_to[(f) * ITEMS] = (v)
#define KEEP(to)                                                                                                       \
    do {                                                                                                               \
        KEEP_AT(to);                                                                                                   \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) KEEP_PIXEL(f, a[f]);                                     \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) KEEP_WEIGHTS(f, b[f]);                                   \
    } while (0)

    float4 sum[TM][TN / 4];
    _Pragma("unroll") for (int r = 0; r < TM; r++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) sum[r][h] = (float4)(0.0f);
    PLACE();
#ifdef STAGES
/* Places are sums of unsigned numbers, which are made before they become addresses: of signed ones compilers keep an
 * address each, twice as many registers. */
#define FETCH_ONE(v, f, k)                                                                                             \
    do {                                                                                                               \
        if (f < A_FETCHES)                                                                                             \
            v = LOAD_QUAD(x + ((uint)at[f] + (k)));                                                                    \
        else                                                                                                           \
            v = *(__global const float4 *)(w + ((k) * BN + (id + (f - A_FETCHES) * ITEMS) * 4u));                      \
    } while (0)
#define KEEP_ONE(f, v)                                                                                                 \
    do {                                                                                                               \
        if (f < A_FETCHES)                                                                                             \
            KEEP_PIXEL(f, v);                                                                                          \
        else                                                                                                           \
            KEEP_WEIGHTS(f - A_FETCHES, v);                                                                            \
    } while (0)
    {
        KEEP_AT(0);
        _Pragma("unroll") for (int f = 0; f < FETCHES; f++) {
            float4 v;
            FETCH_ONE(v, f, (uint)(first * BK));
            KEEP_ONE(f, v);
        }
    }
    int now = 0;
    const int last_k = (end - 1) * BK;
    for (int k = first * BK; k <= last_k; k += BK) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool more = k < last_k;
        __local const float *column = pixels + now * (BK * A_WIDTH) + ty * 4;
        __local const float4 *row = weights + now * (BK * BN / 4) + tx;
        now = 1 - now;
        KEEP_AT(now);
        float4 v[STAGE_FETCHES];
        _Pragma("unroll") for (int kk = 0; kk < BK; kk++) {
            _Pragma("unroll") for (int f = 0; f < FETCHES; f++)
                if (kk == f / STAGE_FETCHES * STAGE_INPUTS && more)
                    FETCH_ONE(v[f % STAGE_FETCHES], f, (uint)(k + BK));
            PRODUCTS(kk);
            _Pragma("unroll") for (int f = 0; f < FETCHES; f++)
                if (kk == (f / STAGE_FETCHES + 1) * STAGE_INPUTS - 1 && more) KEEP_ONE(f, v[f % STAGE_FETCHES]);
        }
    }
#else
#if SLICES > 1
    if (first >= end) NOTHING();
    else
#endif
        FETCH();
    KEEP(0);
    if (p0 >= rows) return;
#ifdef NORM
    float2 seen = (float2)(0.0f); /* sums of the channels of pixel id % BM, and of their squares */
#endif
    int now = 0;
#if SLICES > 1
    const int turns = first + rounds; /* as many for all slices: some have nothing but zeros to add in the last ones */
#else
    const int turns = end;
#endif
    for (int step = first; step < turns; step++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        k += BK;
        if (k >= cin) {
            k = 0;
            tap++;
            wat += cin * BN;
            PLACE();
        }
        if (step + 1 < end) FETCH();
#if SLICES > 1
        else NOTHING();
#endif
        __local const float *column = pixels + now * (BK * A_WIDTH) + ty * 4;
        __local const float4 *row = weights + now * (BK * BN / 4) + tx;
#ifdef NORM
        __local const float *own = pixels + now * (BK * A_WIDTH) + id % BM;
#endif
        _Pragma("unroll") for (int kk = 0; kk < BK; kk++) {
            PRODUCTS(kk);
#ifdef NORM
            const float v = own[kk * A_WIDTH];
            seen = (float2)(seen.s0 + v, fma(v, v, seen.s1));
#endif
        }
        now = 1 - now;
        KEEP(now);
    }
#endif

    /* Sums that are stored by four as they are would have to lie in neighbouring registers all the time, which takes
     * some 20 registers more. So what the compiler cannot know to be nothing is added to them before. */
    const float nothing = arg.shape.kh > 0 ? 0.0f : 1.0f;
#define SUM(i, h) sum[i][h]
#define CHANNEL(h) (col * BN + ((h) * ACROSS + tx) * 4)
#ifndef PARTS
    const int last = (arg.shape.y_c - 1) / 4 * 4; /* of the channels */
    float4 biases[TN / 4];
    _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
        biases[h] = *(__global const float4 *)(bias + min(CHANNEL(h), last));
#endif
#if SLICES > 1
    /* A slice finishes the rows i * SLICES + slice of its tile; the others' sums of them come through local memory,
     * [finishing slice][of the others][row][h][id]. */
    float4 own[OWN_ROWS][TN / 4];
#define PART(to, from, i, h) room[((((to) * (SLICES - 1) + (from)) * OWN_ROWS + (i)) * (TN / 4) + (h)) * ITEMS + id]
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (int r = 0; r < TM; r++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
            if (r % SLICES != slice)
                PART(r % SLICES, slice - (slice > r % SLICES), r / SLICES, h) = sum[r][h] + nothing;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* In the slices' order, whoever finishes, so that a pixel's bits do not depend on its place in the tile. */
    _Pragma("unroll") for (int i = 0; i < OWN_ROWS; i++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) {
            float4 mine = sum[i * SLICES][h];
            _Pragma("unroll") for (int s = 1; s < SLICES; s++) mine = s == slice ? sum[i * SLICES + s][h] : mine;
            float4 v = slice == 0 ? mine : PART(slice, 0, i, h);
            _Pragma("unroll") for (int s = 1; s < SLICES; s++)
                v += s == slice ? mine : PART(slice, s - (s > slice), i, h);
            own[i][h] = v;
        }
#undef SUM
#define SUM(i, h) own[i][h]
#endif
#define ROW(i)     ((i) * SLICES + slice)
#define PIXEL(i)   (p0 + ROW(i) / 4 * (BM / (TM / 4)) + ty * 4 + ROW(i) % 4)
#ifdef NORM
    /* The filter has the norm's scale and shift, so what is left of it is that of channels x with mean m and deviation d
     * sum(w (x - m) / d) = (sum(w x) - m sum(w)) / d; sum(w) follows the biases. */
#define NORMS ((__local float2 *)room) /* m and 1 / d */
    barrier(CLK_LOCAL_MEM_FENCE);
    seen /= (float)cin;
    if (id < BM) NORMS[id] = (float2)(seen.s0, 1.0f / sqrt(fmax(seen.s1 - seen.s0 * seen.s0, 0.0f) + arg.norm_eps));
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 weight_sums[TN / 4];
    _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
        weight_sums[h] = *(__global const float4 *)(bias + arg.col_tiles * BN + CHANNEL(h));
    _Pragma("unroll") for (int i = 0; i < TM; i++) {
        const float2 m = NORMS[PIXEL(i) - p0];
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
            sum[i][h] = fma((float4)(-m.s0), weight_sums[h], sum[i][h]) * m.s1;
    }
#endif
#ifdef PARTS
    const int width = arg.col_tiles * BN;
    parts += (size_t)p0 * width;
    _Pragma("unroll") for (int i = 0; i < OWN_ROWS; i++) {
        if (PIXEL(i) >= rows) continue;
        __global float *to = parts + (PIXEL(i) - p0) * width;
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
            if (CHANNEL(h) < arg.shape.y_c) *(__global float4 *)(to + CHANNEL(h)) = SUM(i, h) + nothing;
    }
#else
    /* Addends are asked for together, for AT_ONCE rows: each quad after the one before would take as long as many
     * steps. Beyond the map's last pixel and channel the last ones are read, and nothing is stored. */
#ifdef WHOLE_Y
#define QUAD_OF(p, c) LOAD_TV(p, c)
#else
#define QUAD_OF(p, c) addend_part((p) + (c), arg.shape.y_c - (c))
#endif
#define EACH_QUAD _Pragma("unroll") for (int j = 0; j < AT_ONCE; j++) _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
#define ADD(addend, place)                                                                                             \
    do {                                                                                                               \
        float4 t[AT_ONCE][TN / 4];                                                                                     \
        _Pragma("unroll") for (int j = 0; j < AT_ONCE; j++) {                                                          \
            __global const T *from = addend + place(min(PIXEL(i + j), rows - 1), arg.shape, arg.epi);                  \
            _Pragma("unroll") for (int h = 0; h < TN / 4; h++) t[j][h] = QUAD_OF(from, min(CHANNEL(h), last));         \
        }                                                                                                              \
        EACH_QUAD SUM(i + j, h) += t[j][h];                                                                            \
    } while (0)
    _Pragma("unroll") for (int i = 0; i < OWN_ROWS; i += AT_ONCE) {
        EACH_QUAD SUM(i + j, h) += biases[h];
        if (arg.epi.flags & EPI_BEFORE) ADD(before, before_place);
        EACH_QUAD SUM(i + j, h) = activate_float4(SUM(i + j, h), ACT);
        if (arg.epi.flags & EPI_LAB)
            EACH_QUAD SUM(i + j, h) = fma(SUM(i + j, h), (float4)(arg.epi.lab_scale), (float4)(arg.epi.lab_bias));
        if (arg.epi.flags & EPI_AFTER) ADD(after, after_place);
    }
    _Pragma("unroll") for (int i = 0; i < OWN_ROWS; i++) {
        if (PIXEL(i) >= rows) continue;
        __global TY *to = y + (size_t)PIXEL(i) * arg.shape.y_ld + arg.shape.y_c0;
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
            if (CHANNEL(h) < arg.shape.y_c) store_quad(SUM(i, h), to, CHANNEL(h), arg.shape.y_c);
    }
#endif
#if SLICES > 1 || defined(NORM)
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers mix up what the work-items store */
#endif
}
