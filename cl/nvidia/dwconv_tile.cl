/* Depthwise convolution with stride 1 in half storage, for maps that give every compute unit several groups: a group
 * takes 64 channels of a strip of columns and walks down it, ROWS rows of results at a time. What these read is copied
 * to local memory past registers, zeros outside the map, a step ahead and once for all rows; a warp owns COLS columns,
 * a work-item two channels, so that a pixel is made floats once for all the rows of results under way, and the filter
 * stays in registers. Goes with nvidia/ptx.
 *
 * Buffers are those of portable/dwconv_strip, weights [tap][channel], no addends; input and output start on 16
 * bytes, channels are whole parts of 16 bytes. -D K (odd, at most ROWS + 1), ACROSS (warps), ACT. Grid: x = blocks of
 * channels (fastest), strips, groups of a strip; y = items. */
#ifndef K
#define K      5
#define ACROSS 5
#define ACT    0
#endif
#define THREADS  (32 * ACROSS)
#define COLS     4
#define ROWS     5
#define CHANNELS 64
#define WIDTH    (COLS * ACROSS + K - 1) /* of the pixels that a strip reads */
#define PARTS    (CHANNELS / 8)
#define PASS     (THREADS / PARTS)
#define BAND     (ROWS * WIDTH) /* pixels that a step adds */
#define BANDS    3              /* a step's own, those below, and the ones that come meanwhile */
#if defined(IST_HALF) && ACT == ACT_GELU
#define ACTIVATED(v) quick_gelu(v)
#else
#define ACTIVATED(v) activate_float(v, ACT)
#endif

/* Band `number` of the input, whose first line is `line`, to slot `slot`. */
#define COPY_BAND(line, slot)                                                                                          \
    do {                                                                                                               \
        int px = px0, py = py0;                                                                                        \
        _Pragma("unroll") for (int i = 0; i < (BAND + PASS - 1) / PASS; i++) {                                         \
            const int ix = x0 - shape.left + px, iy = (line) + py;                                                     \
            const bool inside = (uint)ix < (uint)shape.x_w && (uint)iy < (uint)shape.x_h;                              \
            if (BAND % PASS == 0 || id / PARTS + i * PASS < BAND)                                                      \
                COPY16(to + ((slot)*BAND + i * PASS) * (PARTS * 16),                                                   \
                       image + (inside ? (iy * shape.x_w + ix) * shape.x_ld : 0), inside ? bytes : 0);                 \
            px += PASS % WIDTH, py += PASS / WIDTH;                                                                    \
            if (px >= WIDTH) px -= WIDTH, py++;                                                                        \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
dwconv(__global const T *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global T *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, dwconv_tile_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    __local uint4 memory[BANDS * BAND * PARTS];
    const int id = get_local_id(0), lane = id & 31, n = get_group_id(1), items = *limit;
    const int strip = (int)((uint)get_group_id(0) / (uint)arg.blocks);
    const int block = (int)get_group_id(0) - strip * arg.blocks;
    const int segment = (int)((uint)strip / (uint)arg.strips), x0 = (strip - segment * arg.strips) * (COLS * ACROSS);
    const int y0 = segment * arg.steps * ROWS, steps = min(arg.steps, (shape.y_h - y0 + ROWS - 1) / ROWS);

    /* This work-item copies part `part` of the pixels id / PARTS, PASS further, .. of a band. */
    const int part = id % PARTS, channel = block * CHANNELS + part * 8, bytes = channel < shape.x_c ? 16 : 0;
    const int px0 = id / PARTS % WIDTH, py0 = id / PARTS / WIDTH, line0 = y0 - shape.top;
    const uint to = SHARED(memory) + id * 16;
    __global const T *image = x + ((size_t)n * shape.x_h * shape.x_w * shape.x_ld + shape.x_c0 + (bytes ? channel : 0));
    COPY_BAND(line0, 0);
    COPY_BAND(line0 + ROWS, 1);

    const int c = block * CHANNELS + lane * 2, real = min(c, shape.x_c - 2), column = id / 32 * COLS, ox = x0 + column;
    float2 f[K * K];
    const float2 first = vload2(0, bias + real);
#pragma unroll
    for (int i = 0; i < K * K; i++) f[i] = vload2(0, w + i * shape.x_c + real);
    __local const uint *words = (__local const uint *)memory + column * (CHANNELS / 2) + lane;
    __global T *to_y = y + ((size_t)((n * shape.y_h + y0) * shape.y_w + ox) * shape.y_ld + shape.y_c0 + c);
    const int most = c < shape.x_c && n < items ? min(COLS, shape.y_w - ox) : 0; /* columns that exist */

    int slot = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const int below = slot == BANDS - 1 ? 0 : slot + 1, next = below == BANDS - 1 ? 0 : below + 1;
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + 1 < steps) COPY_BAND(line0 + (step + 2) * ROWS, next);
        float2 acc[ROWS][COLS];
#pragma unroll
        for (int iy = 0; iy < ROWS + K - 1; iy++) {
            const int line = (iy < ROWS ? slot : below) * BAND + iy % ROWS * WIDTH;
            float2 v[COLS + K - 1];
#pragma unroll
            for (int i = 0; i < COLS + K - 1; i++) v[i] = floats_of(words[(line + i) * (CHANNELS / 2)]);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int ky = iy - r;
                if (ky < 0 || ky >= K) continue;
#pragma unroll
                for (int kx = 0; kx < K; kx++)
#pragma unroll
                    for (int o = 0; o < COLS; o++)
                        acc[r][o] = fma(v[o + kx], f[ky * K + kx], ky == 0 && kx == 0 ? first : acc[r][o]);
            }
            if (iy < K - 1) continue;
            const int r = iy - (K - 1);
            const bool real_row = y0 + step * ROWS + r < shape.y_h;
#pragma unroll
            for (int o = 0; o < COLS; o++) {
                float2 sum = (float2)(ACTIVATED(acc[r][o].x), ACTIVATED(acc[r][o].y));
                if (epi.flags & EPI_LAB) sum = fma(sum, (float2)(epi.lab_scale), (float2)(epi.lab_bias));
                if (real_row && o < most) *(__global uint *)(to_y + o * shape.y_ld) = halves_of(sum.x, sum.y);
            }
            to_y += shape.y_w * shape.y_ld;
        }
        slot = below;
    }
    COPY_WAIT(0); /* no copy outlives its group */
}
