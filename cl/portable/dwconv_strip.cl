/* Depthwise convolution for GPUs, whole aligned vectors: a work-item computes VL channels of ROWS x COLS neighbouring
 * output pixels from one window of input pixels, each loaded once (needs portable/fetch). Buffers are those of
 * cpu/dwconv, weights [tap][channel], so that the loads of neighbouring work-items adjoin.
 *
 * -D VL (2 or 4), K (side of the filter), STRIDE, COLS, ROWS, ACT; LEFT_OUT: rows of a letterboxed map are left out, of the
 * input, the output or both (goes with portable/left_out). Grid: x = vectors of channels (fastest),
 * strips of COLS, bands of ROWS, rounded up to the group; y = items.
 *
 * With -DNORM_LANES the layer norm of the result goes to `normed`: a group has one block of pixels, NORM_LANES
 * work-items all its channels. */
#ifndef VL
#define VL     2
#define K      3
#define STRIDE 1
#define COLS   4
#define ROWS   1
#define ACT    0
#endif
#if defined(IST_HALF) && ACT == ACT_GELU
#define ACTIVATED(v) quick_gelu(v)
#else
#define ACTIVATED(v) activate_float(v, ACT)
#endif
#if VL == 2
#define V           float2
#define RAW         RAW2
#define FETCH       FETCH2
#define VALUES      VALUES2
#define STORE_RAW   STORE_RAW2
#define FETCH_F     fetch_float2
#define ACTIVATE(v) (float2)(ACTIVATED((v).x), ACTIVATED((v).y))
#else
#define V           float4
#define RAW         RAW4
#define FETCH       FETCH4
#define VALUES      VALUES4
#define STORE_RAW   STORE_RAW4
#define FETCH_F     fetch_float4
#define ACTIVATE(v) (float4)(ACTIVATED((v).x), ACTIVATED((v).y), ACTIVATED((v).z), ACTIVATED((v).w))
#endif
#define SPAN_X ((COLS - 1) * STRIDE + K)
#define SPAN_Y ((ROWS - 1) * STRIDE + K)
#define PIXELS (ROWS * COLS)

#ifndef NORM_LANES
#define GROUP 128
#define NORM_PARAMETERS
#else
#define GROUP NORM_LANES
#define NORM_PARAMETERS                                                                                                \
    , __global T *restrict normed, __global const float *restrict gamma, __global const float *restrict beta
#define SUMS ((GROUP + 7) / 8) /* of eight work-items' values */

#if VL == 2
#define SUM(v) ((v).x + (v).y)
#else
#define SUM(v) (((v).x + (v).y) + ((v).z + (v).w))
#endif

#define PAIRS (PIXELS / 2)

/* Each pixel's value t[] summed over the group, in every work-item, by way of `room`. A macro: some compilers end the
 * process while they inline such a function. */
#define SUM_PIXELS()                                                                                                   \
    do {                                                                                                               \
        _Pragma("unroll") for (int p = 0; p < PAIRS; p++) room[lane * PAIRS + p] = (float2)(t[2 * p], t[2 * p + 1]);   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int s = lane; s < SUMS * PAIRS; s += GROUP) {                                                             \
            float2 sum = (float2)(0.0f);                                                                               \
            _Pragma("unroll") for (int i = 0; i < 8; i++) {                                                            \
                const int at = s + i * SUMS * PAIRS;                                                                   \
                if (GROUP % 8 == 0 || at < GROUP * PAIRS) sum += room[at];                                             \
            }                                                                                                          \
            room[GROUP * PAIRS + s] = sum;                                                                             \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        _Pragma("unroll") for (int p = 0; p < PAIRS; p++) {                                                            \
            float2 sum = room[GROUP * PAIRS + p];                                                                      \
            _Pragma("unroll 4") for (int i = 1; i < SUMS; i++) sum += room[(GROUP + i) * PAIRS + p];                   \
            t[2 * p] = sum.x;                                                                                          \
            t[2 * p + 1] = sum.y;                                                                                      \
        }                                                                                                              \
    } while (0)
#endif

__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
dwconv(__global const T *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global T *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, dwconv_args arg, __global const int *restrict content NORM_PARAMETERS) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const uint id = (uint)get_group_id(0) * GROUP + (uint)get_local_id(0), unit = id / (uint)arg.blocks;
    const int n = get_group_id(1), c = (int)(id - unit * (uint)arg.blocks) * VL, band = (int)(unit / (uint)arg.strips);
    const int oy = band * ROWS, ox = ((int)unit - band * arg.strips) * COLS;
    const int iy0 = oy * STRIDE - shape.top, ix0 = ox * STRIDE - shape.left, items = fetch_int(limit);
#ifdef LEFT_OUT
    if (n < items && all_left_out(oy, min(oy + ROWS, shape.y_h), rows_left_out(content, arg.out, n))) return;
    const left_out_rows there = rows_left_out(content, arg.in, clamp(n, 0, max(items - 1, 0)));
#endif
    RAW raw[SPAN_Y][SPAN_X];
    uint in_x[SPAN_X];
    int at[SPAN_X];
#pragma unroll
    for (int i = 0; i < SPAN_X; i++) {
        in_x[i] = (uint)-(int)((uint)(ix0 + i) < (uint)shape.x_w);
        at[i] = clamp(ix0 + i, 0, shape.x_w - 1) * shape.x_ld;
    }
    x += shape.x_c0 + c;
    w += c;
#pragma unroll
    for (int iy = 0; iy < SPAN_Y; iy++) {
        const int row = ROW_OF(clamp(iy0 + iy, 0, shape.x_h - 1), there);
        __global const T *line = x + (size_t)((n * shape.x_h + row) * shape.x_w) * shape.x_ld;
#pragma unroll
        for (int i = 0; i < SPAN_X; i++) raw[iy][i] = FETCH(line + at[i]);
    }
    V f[K * K], acc[ROWS][COLS];
    const V first = FETCH_F(bias + c);
#pragma unroll
    for (int i = 0; i < K * K; i++) f[i] = FETCH_F(w + i * shape.x_c);
#ifdef NORM_LANES
    const V g = FETCH_F(gamma + c), b = FETCH_F(beta + c);
#endif
    ALL_FETCHED();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int o = 0; o < COLS; o++) acc[r][o] = first;
#pragma unroll
    for (int iy = 0; iy < SPAN_Y; iy++) {
        const uint in_y = (uint)-(int)((uint)(iy0 + iy) < (uint)shape.x_h);
        V v[SPAN_X];
#pragma unroll
        for (int i = 0; i < SPAN_X; i++) v[i] = VALUES(raw[iy][i] & (RAW)(in_y & in_x[i]));
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int ky = iy - r * STRIDE;
            if (ky < 0 || ky >= K) continue;
#pragma unroll
            for (int kx = 0; kx < K; kx++)
#pragma unroll
                for (int o = 0; o < COLS; o++) acc[r][o] = fma(v[o * STRIDE + kx], f[ky * K + kx], acc[r][o]);
        }
    }
    if (band >= arg.bands || n >= items) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int o = 0; o < COLS; o++) {
            const int py = oy + r, px = ox + o;
            if (py >= shape.y_h || px >= shape.y_w) continue;
            V v = acc[r][o];
            const size_t b = before_pixel(n, py, px, shape.y_h, shape.y_w, epi.flags);
            const size_t a = after_pixel(n, py, px, shape.y_h, shape.y_w, epi.flags);
            if (epi.flags & EPI_BEFORE)
                v += VALUES(*(__global const RAW *)(before + b * epi.before_ld + epi.before_c0 + c));
            v = ACTIVATE(v);
            if (epi.flags & EPI_LAB) v = fma(v, (V)(epi.lab_scale), (V)(epi.lab_bias));
            if (epi.flags & EPI_AFTER)
                v += VALUES(*(__global const RAW *)(after + a * epi.after_ld + epi.after_c0 + c));
            STORE_RAW(v, y + (size_t)((n * shape.y_h + py) * shape.y_w + px) * shape.y_ld + shape.y_c0 + c);
#ifdef NORM_LANES
            acc[r][o] = v;
#endif
        }
#ifdef NORM_LANES
    const float channels = GROUP * VL, inverse = 1.0f / (GROUP * VL);
    __local float2 room[(GROUP + SUMS) * PAIRS];
    const int lane = get_local_id(0);
    float t[PIXELS];
    V d[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; p++) t[p] = SUM(acc[p / COLS][p % COLS]);
    SUM_PIXELS();
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
        /* divided as exactly as IEEE does, as in portable/norm */
        float mean = t[p] * inverse;
        mean = fma(fma(-mean, channels, t[p]), inverse, mean);
        d[p] = acc[p / COLS][p % COLS] - (V)(mean);
        t[p] = SUM(d[p] * d[p]);
    }
    SUM_PIXELS();
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
        const int py = oy + p / COLS, px = ox + p % COLS;
        if (py >= shape.y_h || px >= shape.y_w) continue;
        const float scale = 1.0f / sqrt(fma(t[p], inverse, arg.norm_eps));
        __global T *to = normed + (size_t)((n * shape.y_h + py) * shape.y_w + px) * (GROUP * VL) + c;
        STORE_RAW(fma(d[p] * (V)(scale), g, b), to);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers mix up what the work-items store */
#endif
}
