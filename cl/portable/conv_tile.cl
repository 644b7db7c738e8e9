/* Dense convolution as an implicit matrix product on register tiles, for GPUs of any vendor: a group computes BM output
 * pixels by BN channels, a work-item TM by TN of them; BK input channels of one tap are a step. While a step's products
 * are summed from one of two buffers in local memory, what the next step needs is on its way from global memory. Where
 * tiles are few, SLICES times the work-items share a tile: each slice of them takes a part of the steps.
 *
 * Buffers are those of portable/conv_any with weights in panels of BN channels. With -DPARTS the sums go to `parts`
 * [split][pixel][channels of all tiles] as floats, and portable/conv_sum adds those of all splits, in their order, and
 * finishes. With -DMATRICES, of PARTS, there are so many maps and filters, of one tap, and a product of each pair instead
 * of splits (portable/winograd). With -DLEFT_OUT rows of a letterboxed map are left out, of the input, the output or both. Needs
 * portable/vector with VL = 4, portable/conv_store and portable/left_out. -D BM, BN, TM, TN (4, 8 or 16), BK (8 or 16), ACT: the
 * activation; WHOLE: input channels are a multiple of four, and pixels begin at multiples of four elements. Grid: x =
 * tiles, those of the same pixels side by side, times the group, y = splits. */
#define ACROSS      (BN / TN)              /* work-items along channels */
#define ITEMS       (BM / TM * ACROSS)     /* of a slice */
#define QUADS       (BK / 4)               /* of a pixel's channels in a step */
#define ROWS        (ITEMS / QUADS)        /* pixels that the group fetches at a time */
#define A_FETCHES   (BM / ROWS)
#define B_FETCHES   (BK * BN / 4 / ITEMS)
#define A_WIDTH     (BM + 4)               /* apart in the banks */
#define OUT_OF_MAP  (-1)
#define SLICE_ROOM  (2 * BK * (A_WIDTH + BN) / 4)
#ifndef SLICES
#define SLICES 1
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

/* A row of four products: pixel r of a, channels of b. */
#define MULTIPLY_ROW(r, part)                                                                                          \
    _Pragma("unroll") for (int h = 0; h < TN / 4; h++) sum[r][h] = fma((float4)(part), b[h], sum[r][h])

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
    const int tile = get_group_id(0) / arg.col_tiles, col = get_group_id(0) - tile * arg.col_tiles;
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
    if (p0 >= rows) return;
#ifdef LEFT_OUT
    if (pixels_left_out(p0, p0 + BM, arg.shape.y_h, arg.shape.y_w, content, arg.out)) return;
#endif
    const int cin = arg.shape.x_c, kw = arg.shape.kw, taps = arg.shape.kh * kw, tap_steps = (cin + BK - 1) / BK;
    const int rounds = (arg.split_steps + SLICES - 1) / SLICES;
    const int first = part + slice * rounds;
    const int end = min(first + rounds, min(part + arg.split_steps, taps * tap_steps));
    const int ty = id / ACROSS, tx = id - ty * ACROSS;

    /* What this work-item fetches: a quad of channels of some pixels, quads of weights. */
    const int quad = id % QUADS * 4;
    int base[A_FETCHES], iy[A_FETCHES], ix[A_FETCHES], at[A_FETCHES];
#ifdef LEFT_OUT
    left_out_rows there[A_FETCHES];
#endif
    _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {
        const int p = min(p0 + id / QUADS + f * ROWS, rows - 1), n = p / lines, oy = (p - n * lines) / arg.shape.y_w;
        iy[f] = oy * arg.shape.stride - arg.shape.top;
        ix[f] = (p - n * lines - oy * arg.shape.y_w) * arg.shape.stride - arg.shape.left;
        base[f] = n * arg.shape.x_h;
#ifdef LEFT_OUT
        there[f] = rows_left_out(content, arg.in, n);
#endif
    }
    int tap = first / tap_steps, k = (first - tap * tap_steps) * BK, wat = tap * cin * BN;
    float4 a[A_FETCHES], b[B_FETCHES];

#define PLACE()                                                                                                        \
    do {                                                                                                               \
        const int ky = tap / kw, kx = tap - ky * kw;                                                                   \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {                                                        \
            const int r = iy[f] + ky, c = ix[f] + kx;                                                                  \
            const bool in = r >= 0 && r < arg.shape.x_h && c >= 0 && c < arg.shape.x_w;                                \
            const int line = base[f] + ROW_OF(r, there[f]);                                                            \
            at[f] = in ? (line * arg.shape.x_w + c) * arg.shape.x_ld + arg.shape.x_c0 + quad : OUT_OF_MAP;             \
        }                                                                                                              \
    } while (0)
#define FETCH()                                                                                                        \
    do {                                                                                                               \
        const int left = cin - k - quad;                                                                               \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {                                                        \
            a[f] = (float4)(0.0f);                                                                                     \
            if (at[f] >= 0 && left >= 4) a[f] = LOAD_QUAD(x + at[f] + k);                                              \
            LOAD_REST(f)                                                                                               \
        }                                                                                                              \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) {                                                        \
            const int e = id + f * ITEMS;                                                                              \
            b[f] = k + e / (BN / 4) < cin ? *(__global const float4 *)(w + wat + k * BN + e * 4) : (float4)(0.0f);     \
        }                                                                                                              \
    } while (0)
#define NOTHING()                                                                                                      \
    do {                                                                                                               \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) a[f] = (float4)(0.0f);                                   \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) b[f] = (float4)(0.0f);                                   \
    } while (0)
#define KEEP(to)                                                                                                       \
    do {                                                                                                               \
        _Pragma("unroll") for (int f = 0; f < A_FETCHES; f++) {                                                        \
            const int p = id / QUADS + f * ROWS;                                                                       \
            pixels[((to) * BK + quad) * A_WIDTH + p] = a[f].s0;                                                        \
            pixels[((to) * BK + quad + 1) * A_WIDTH + p] = a[f].s1;                                                    \
            pixels[((to) * BK + quad + 2) * A_WIDTH + p] = a[f].s2;                                                    \
            pixels[((to) * BK + quad + 3) * A_WIDTH + p] = a[f].s3;                                                    \
        }                                                                                                              \
        _Pragma("unroll") for (int f = 0; f < B_FETCHES; f++) weights[(to) * (BK * BN / 4) + id + f * ITEMS] = b[f];   \
    } while (0)

    float4 sum[TM][TN / 4];
    _Pragma("unroll") for (int r = 0; r < TM; r++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) sum[r][h] = (float4)(0.0f);
    PLACE();
#if SLICES > 1
    if (first >= end) NOTHING();
    else
#endif
        FETCH();
    KEEP(0);
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
        _Pragma("unroll") for (int kk = 0; kk < BK; kk++) {
            float4 b[TN / 4];
            _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
                b[h] = weights[(now * BK + kk) * (BN / 4) + h * ACROSS + tx];
            _Pragma("unroll") for (int g = 0; g < TM / 4; g++) {
                __local const float *line = pixels + (now * BK + kk) * A_WIDTH;
                const float4 v = *(__local const float4 *)(line + g * (BM / (TM / 4)) + ty * 4);
                MULTIPLY_ROW(4 * g, v.s0);
                MULTIPLY_ROW(4 * g + 1, v.s1);
                MULTIPLY_ROW(4 * g + 2, v.s2);
                MULTIPLY_ROW(4 * g + 3, v.s3);
            }
        }
        now = 1 - now;
        KEEP(now);
    }

#if SLICES > 1
    /* Every slice finishes the rows r of its tile with r % SLICES = slice: the others' sums of them come through local
     * memory, [finishing slice][of the others][row][h][id]. */
#define SUMS(to, from, r, h)                                                                                           \
    room[((((to) * (SLICES - 1) + (from)) * (TM / SLICES) + (r) / SLICES) * (TN / 4) + (h)) * ITEMS + id]
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (int r = 0; r < TM; r++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++)
            if (r % SLICES != slice) SUMS(r % SLICES, slice - (slice > r % SLICES), r, h) = sum[r][h];
    barrier(CLK_LOCAL_MEM_FENCE);
    /* In the slices' order, whoever finishes, so that a pixel's bits do not depend on its place in the tile. */
    _Pragma("unroll") for (int r = 0; r < TM; r++)
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) {
            const float4 own = sum[r][h];
            if (r % SLICES != slice) continue;
            float4 v = slice == 0 ? own : SUMS(slice, 0, r, h);
            _Pragma("unroll") for (int s = 1; s < SLICES; s++)
                v += s == slice ? own : SUMS(slice, s - (s > slice), r, h);
            sum[r][h] = v;
        }
#endif
    _Pragma("unroll") for (int r = 0; r < TM; r++) {
        const int p = p0 + r / 4 * (BM / (TM / 4)) + ty * 4 + r % 4;
        _Pragma("unroll") for (int h = 0; h < TN / 4; h++) {
            const int c = col * BN + (h * ACROSS + tx) * 4;
            if (p < rows && c < arg.shape.y_c && r % SLICES == slice) {
#ifdef PARTS
                *(__global float4 *)(parts + (size_t)p * arg.col_tiles * BN + c) = sum[r][h];
#else
                const float4 v = sum[r][h] + *(__global const float4 *)(bias + c);
                store_quad(v, p, c, y, before, after, arg.shape, arg.epi, ACT);
#endif
            }
        }
    }
#if SLICES > 1
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers leave the last values unstored in slices other than the first */
#endif
}
