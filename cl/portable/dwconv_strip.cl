/* Depthwise convolution for GPUs, whole aligned vectors: a work-item computes VL channels of ROWS x COLS neighbouring
 * output pixels from one window of input pixels, each loaded once (needs portable/fetch). Buffers are those of
 * cpu/dwconv, weights [tap][channel], so that the loads of neighbouring work-items adjoin.
 *
 * -D VL (2 or 4), K (side of the filter), STRIDE, COLS, ROWS, ACT; LEFT_OUT: rows of a letterboxed map are left out, of the
 * input, the output or both (goes with portable/left_out). Grid: x = vectors of channels (fastest),
 * strips of COLS, bands of ROWS, rounded up to the group; y = items. */
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

__attribute__((reqd_work_group_size(128, 1, 1))) __kernel void
dwconv(__global const T *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global T *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, dwconv_args arg, __global const int *restrict content) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    const uint id = (uint)get_group_id(0) * 128u + (uint)get_local_id(0), unit = id / (uint)arg.blocks;
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
        }
}
