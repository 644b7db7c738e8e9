/* What nvidia/norm_mlp_mma, nvidia/norm_mlp_wgmma and nvidia/norm_mlp_wide have in common: rows by eight channels. With
 * SPREAD also the depthwise 3x3 convolution of four pixels of a line, whose number of pixels is a multiple of four; behind
 * nvidia/ptx and portable/left_out, and Z_OF takes the kernels' x, taps, content and arg. */
typedef struct {
    float f[8];
} eight;
static inline eight eight_of(const uint *v) {
    eight e;
    UNROLL for (int i = 0; i < 4; i++) {
        const float2 two = floats_of(v[i]);
        e.f[2 * i] = two.x;
        e.f[2 * i + 1] = two.y;
    }
    return e;
}

static inline uint4 pieces_of(const float *f, float scale) {
    return (uint4)(halves_of(f[0] * scale, f[1] * scale), halves_of(f[2] * scale, f[3] * scale),
                   halves_of(f[4] * scale, f[5] * scale), halves_of(f[6] * scale, f[7] * scale));
}

#ifdef SPREAD
/* z of the four pixels from `row` on, channels [c, c + 8). taps {[9][C], biases [C]}. */
#define Z_OF(to, row, c)                                                                                               \
    do {                                                                                                               \
        const int line = (row) / arg.w, px = (row)-line * arg.w, py = line % arg.h;                                    \
        float bias[8];                                                                                                 \
        FETCH_EIGHT(bias, taps + 9 * C + (c));                                                                         \
        UNROLL for (int i = 0; i < 4; i++) UNROLL for (int e = 0; e < 8; e++)(to)[i].f[e] = bias[e];                   \
        UNROLL for (int ky = 0; ky < 3; ky++) {                                                                        \
            uint raw[6][4];                                                                                            \
            float w[3][8];                                                                                             \
            const int near = clamp(py + ky - 1, 0, arg.h - 1);                                                         \
            const size_t from = line - py + ROW_OF(near, rows_left_out(content, arg.in, line / arg.h));                \
            UNROLL for (int i = 0; i < 6; i++)                                                                         \
                FETCH16(raw[i], x + (from * arg.w + clamp(px + i - 1, 0, arg.w - 1)) * arg.x_ld + arg.x_c0 + (c));     \
            UNROLL for (int kx = 0; kx < 3; kx++) FETCH_EIGHT(w[kx], taps + (ky * 3 + kx) * C + (c));                  \
            UNROLL for (int i = 0; i < 6; i++) {                                                                       \
                const bool in = (uint)(py + ky - 1) < (uint)arg.h && (uint)(px + i - 1) < (uint)arg.w;                 \
                UNROLL for (int e = 0; e < 4; e++) raw[i][e] = in ? raw[i][e] : 0u;                                    \
                const eight v = eight_of(raw[i]);                                                                      \
                UNROLL for (int kx = 0; kx < 3; kx++) if (i - kx >= 0 && i - kx < 4) {                                 \
                    UNROLL for (int e = 0; e < 8; e++)(to)[i - kx].f[e] = fma(v.f[e], w[kx][e], (to)[i - kx].f[e]);    \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#define FETCH_EIGHT(v, p)                                                                                              \
    do {                                                                                                               \
        uint low[4], high[4];                                                                                          \
        FETCH16(low, p);                                                                                               \
        FETCH16(high, (p) + 4);                                                                                        \
        UNROLL for (int e = 0; e < 4; e++) {                                                                           \
            (v)[e] = as_float(low[e]);                                                                                 \
            (v)[4 + e] = as_float(high[e]);                                                                            \
        }                                                                                                              \
    } while (0)
#endif
